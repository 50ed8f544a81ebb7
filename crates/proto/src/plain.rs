//! Text of a peer in a line for people, and text that is cut to a limit.
//!
//! A peer chooses its name, the names of its channels, the texts of its refusals and errors.
//! Printed as they are, these could begin lines of their own in a log or steer a terminal.

use std::fmt::{self, Display, Write};

/// A text that is shown in one line: characters that end a line, control a terminal or turn the
/// direction of writing are escaped, as `\n` or `\u{1b}`.
///
/// All other characters stay as they are, so that a text may be escaped twice.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a>(pub &'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match is_plain(c) {
            true => f.write_char(c),
            false => c.escape_default().fmt(f),
        })
    }
}

fn is_plain(c: char) -> bool {
    let separates = matches!(c, '\u{2028}' | '\u{2029}');
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}');
    !c.is_control() && !separates && !turns
}

/// Returns `text` cut at a character so that it has at most `bytes_max` bytes.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_forge_a_line_is_escaped_and_nothing_else() {
        let shown = |text| Plain(text).to_string();
        assert_eq!(shown("a\r\nb\t\u{1b}[31m"), r"a\r\nb\t\u{1b}[31m");
        assert_eq!(shown("\u{202e}\u{2028}\u{85}\0"), r"\u{202e}\u{2028}\u{85}\u{0}");
        for same in ["rank-3", "\"it's\" C:\\x", "Bärbel हिन्दी e\u{301} 節点 🦀"]
        {
            assert_eq!(shown(same), same);
        }
    }

    #[test]
    fn a_text_is_cut_before_the_character_that_does_not_fit() {
        assert_eq!(cut("節点", 5), "節");
        assert_eq!(cut("節点", 6), "節点");
        assert_eq!((cut("節点", 2), cut("", 0), cut("a", 9)), ("", "", "a"));
    }

    proptest! {
        #[test]
        fn an_escaped_text_is_one_line_and_stays(text in any::<String>()) {
            let once = Plain(&text).to_string();
            prop_assert!(once.chars().all(is_plain));
            prop_assert_eq!(Plain(&once).to_string(), once);
        }
    }
}
