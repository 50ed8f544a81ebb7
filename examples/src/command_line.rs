//! Common parts of the programs' command lines: an error for a wrong number says what is allowed, and
//! a closed standard output is an error like others.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;

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

/// Parses the command line of this process into options that live as long as it; ends the process
/// with status 2 where the line is wrong.
///
/// A word such as `-1x4` counts as the value of the option before it, not as an option, so that the
/// error says what is allowed there.
#[must_use]
pub fn parse<P: Parser>() -> &'static P {
    parse_with(|_| Ok(()))
}

/// Parses as [`parse`] does and runs `check`, whose error says which options go together.
#[must_use]
pub fn parse_with<P: Parser>(check: impl FnOnce(&P) -> Result<(), String>) -> &'static P {
    let options = try_parse_with(std::env::args_os(), check);
    Box::leak(Box::new(options.unwrap_or_else(|error| error.exit())))
}

/// Parses these words as [`parse_with`] does; the program's name comes first.
///
/// # Errors
/// An error that says what is wrong with the words.
pub fn try_parse_with<P: Parser>(
    words: impl IntoIterator<Item = impl Into<OsString>>,
    check: impl FnOnce(&P) -> Result<(), String>,
) -> Result<P, clap::Error> {
    let options = try_parse(words)?;
    match check(&options) {
        Ok(()) => Ok(options),
        Err(allowed) => Err(P::command().error(ErrorKind::ValueValidation, allowed)),
    }
}

/// Parses these words as [`parse`] does; the program's name comes first.
///
/// # Errors
/// An error that says what is wrong with the words.
pub fn try_parse<P: Parser>(
    words: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<P, clap::Error> {
    P::try_parse_from(negative_as_values(words.into_iter().map(Into::into)))
}

/// Joins `--option -1` into `--option=-1`, which is not taken for two options.
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

/// Returns a ratio with `digits` digits after the point, or with more, so that at least two are
/// significant.
#[must_use]
pub fn ratio(ratio: f64, digits: usize) -> String {
    // A ratio of 0, infinity or NaN has no significant digit.
    let counting = if ratio > 0.0 { 1.0 - ratio.log10().floor() } else { 0.0 };
    let digits = digits.max(counting.clamp(0.0, 9.0) as usize);
    format!("{ratio:.digits$}")
}

/// Whether there can be a file at this path: its folder exists, and it is no folder itself.
#[must_use]
pub fn can_be_a_file(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    !path.is_dir() && path.file_name().is_some() && folder.is_dir()
}

/// Writes a report to standard output and flushes it.
///
/// # Errors
/// Standard output is closed or cannot be written; `println!` would panic.
pub fn write_out(report: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(report.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| io::Error::new(error.kind(), format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_shows_two_digits_that_count() {
        let shown =
            [123.456, 1.0, 0.96, 0.5, 0.0314, 0.00042, 0.0, f64::INFINITY].map(|it| ratio(it, 1));
        assert_eq!(shown, ["123.5", "1.0", "0.96", "0.50", "0.031", "0.00042", "0.0", "inf"]);
        assert_eq!(ratio(1.149, 2), "1.15");
    }

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
