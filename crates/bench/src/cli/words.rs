//! Words of the command line before they are parsed.

use std::ffi::OsString;

/// Turns `--option -1` into `--option=-1`. A word of a minus and a digit becomes the value of the
/// option before it, whose parser refuses it with the allowed values. Otherwise clap would report
/// an unknown option.
pub(super) fn negative_as_values(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    for word in words {
        let is_negative = matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9' | b'.', ..]);
        match joined.last_mut() {
            Some(option) if is_negative && is_long_option(option.as_encoded_bytes()) => {
                option.push("=");
                option.push(word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn is_long_option(word: &[u8]) -> bool {
    word.len() > 2 && word.starts_with(b"--") && !word.contains(&b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_follows_an_option_is_its_value() {
        let joined = |words: &str| negative_as_values(words.split(' ').map(OsString::from));
        assert_eq!(joined("p cuts --every -1s --x 2"), ["p", "cuts", "--every=-1s", "--x", "2"]);
        assert_eq!(joined("p --cuts -.5 -1"), ["p", "--cuts=-.5", "-1"]);
        assert_eq!(
            joined("p -1 -- -1 --json --other"),
            ["p", "-1", "--", "-1", "--json", "--other"]
        );
    }
}
