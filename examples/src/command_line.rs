//! What the programs' command lines have in common: wrong numbers say what is allowed, and a
//! standard output that takes no more is an error like others.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;

use clap::Parser;

/// Parses a number within a range; anything else is refused with the range.
pub fn numbers<N>(
    allowed: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: TryFrom<u64>,
{
    move |text| {
        let number = text.parse().ok().filter(|number| allowed.contains(number));
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| {
            format!("allowed are whole numbers from {} to {}", allowed.start(), allowed.end())
        })
    }
}

/// The command line of this process; ends it with status 2 where that is wrong.
///
/// A word such as `-1x4` counts as the value of the option before it, not as an option: so it is
/// told what is allowed there.
#[must_use]
pub fn parse<P: Parser>() -> P {
    try_parse(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

/// As [`parse`], of these words, the program's name first.
///
/// # Errors
/// What is wrong with them.
pub fn try_parse<P: Parser>(
    words: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<P, clap::Error> {
    P::try_parse_from(negative_as_values(words.into_iter().map(Into::into)))
}

/// `--option -1` as `--option=-1`, which nobody takes for two options.
fn negative_as_values(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
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

/// Writes a report to standard output, at once.
///
/// # Errors
/// Nobody reads it any more, or it cannot be written; `println!` would panic.
pub fn write_out(report: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(report.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_say_what_is_allowed() {
        let small = numbers::<u8>(2..=9);
        assert_eq!((small("2"), small("9")), (Ok(2), Ok(9)));
        for wrong in ["1", "10", "-3", "2.5", "", "two", "99999999999999999999"] {
            let told = small(wrong).unwrap_err();
            assert_eq!(told, "allowed are whole numbers from 2 to 9", "{wrong:?}");
        }
    }

    #[test]
    fn what_begins_with_a_minus_and_a_digit_is_a_value_of_the_option_before_it() {
        let joined = |words: &str| negative_as_values(words.split(' ').map(OsString::from));
        assert_eq!(joined("p --size -1x4 --rows 2"), ["p", "--size=-1x4", "--rows", "2"]);
        assert_eq!(joined("p --size -.5 -1"), ["p", "--size=-.5", "-1"]);
        assert_eq!(
            joined("p -1 -- -1 --flag --other"),
            ["p", "-1", "--", "-1", "--flag", "--other"]
        );
    }
}
