//! Failure of a command that ends without its row.

use chunkcomm::with_causes;
use std::error;
use std::fmt;

/// Exit status 2, of a command that could not be done.
pub(crate) const STATUS_FAILED: u8 = 2;

/// Failure that ends a command early; each exits with status 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The options are not supported; the text says what is allowed.
    Refused(String),
    /// The measurement broke.
    Broken {
        /// The step that failed.
        doing: String,
        /// The error of that step.
        cause: String,
    },
}

impl Failure {
    /// Makes a failure of a step and its cause.
    pub fn broken(doing: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self::Broken { doing: doing.into(), cause: cause.to_string() }
    }

    /// As [`broken`](Self::broken), for an error with its sources.
    pub fn caused(doing: impl Into<String>, cause: &dyn error::Error) -> Self {
        Self::broken(doing, with_causes(cause))
    }

    /// Makes the failure of a message that arrived out of order or with a wrong check byte.
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

/// Names the failed step in an error: `result.doing("connecting")?`.
pub trait Doing<T> {
    /// Turns an error into a [`Failure`] that names the step `what`.
    ///
    /// # Errors
    /// The error, if there is one.
    fn doing(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: error::Error> Doing<T> for Result<T, E> {
    // This runs around every message: a branch only, and a good value stays in its place. `map_err`
    // would first move the whole result through memory.
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

/// Returns the failure of a build without the other systems.
#[cfg(not(feature = "peers"))]
pub(crate) fn no_peers() -> Failure {
    Failure::broken(
        "using another system",
        "this build is without the feature peers: cargo build --release -p chunkcomm-bench \
         --features peers",
    )
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
