//! Why a command ends without its row.

use chunkcomm::with_causes;
use std::{error, fmt};

/// Everything that ends a command early; all of it exits with status 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The options ask for something that there is not; the text says what is allowed.
    Refused(String),
    /// Something broke while it was measured.
    Broken {
        /// What was being done.
        doing: String,
        /// What came back.
        cause: String,
    },
}

impl Failure {
    /// A failure that keeps what was being done beside the cause.
    pub fn broken(doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Broken { doing: doing.into(), cause: cause.to_string() }
    }

    /// As [`broken`](Self::broken), for an error with its sources.
    pub fn caused(doing: impl Into<String>, cause: &dyn error::Error) -> Self {
        Self::broken(doing, with_causes(cause))
    }

    /// A message that arrived out of order or with a wrong check byte.
    pub fn wrong_message(expected: u64) -> Self {
        Self::broken(
            format!("verifying message {expected}"),
            "its sequence number, length or check byte is wrong",
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(what) => f.write_str(what),
            Self::Broken { doing, cause } => write!(f, "{doing}: {cause}"),
        }
    }
}

impl error::Error for Failure {}

/// `result.doing("connecting")?`: names what was tried when it fails.
pub trait Doing<T> {
    /// Turns an error into a [`Failure`] that says what was being done.
    ///
    /// # Errors
    /// The error, if there is one.
    fn doing(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: error::Error> Doing<T> for Result<T, E> {
    // Stands around every message: a branch, with what is good left where it is. `map_err` would
    // move the whole result through memory first.
    #[inline(always)]
    fn doing(self, what: &str) -> Result<T, Failure> {
        match self {
            Ok(value) => Ok(value),
            Err(cause) => Err(failed(what, cause)),
        }
    }
}

#[cold]
#[inline(never)]
fn failed<E: error::Error>(what: &str, cause: E) -> Failure {
    Failure::caused(what, &cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_its_sources() {
        #[derive(Debug)]
        struct Outer(std::num::ParseIntError);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no farm")
            }
        }
        impl error::Error for Outer {
            fn source(&self) -> Option<&(dyn error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let failed = "x".parse::<u8>().map_err(Outer).doing("starting");
        let told = failed.expect_err("x is no number").to_string();
        assert_eq!(told, "starting: no farm: invalid digit found in string");
    }
}
