//! What the programs' command lines have in common: wrong numbers say what is allowed, and a
//! standard output that takes no more is an error like others.

use std::io::{self, Write as _};
use std::ops::RangeInclusive;

use clap::{CommandFactory, Parser};

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
/// A number below zero counts as the value of the option before it, not as an option: so it is
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
    words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<P, clap::Error> {
    let command = <P as CommandFactory>::command().mut_args(|option| {
        if option.get_action().takes_values() {
            option.allow_negative_numbers(true)
        } else {
            option
        }
    });
    P::from_arg_matches_mut(&mut command.try_get_matches_from(words)?)
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
}
