//! [`Failure`]: the reason of a process that ends before it is done.

use chunkcomm_proto::causes::with_causes;
use std::error::Error;
use std::fmt;

/// A process's own reason for ending before it was done: made of any error by `?`.
///
/// It crosses to the creator as text, with its causes behind it after colons.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    message: String,
}

impl Failure {
    /// Returns a failure with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into() }
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints the message of `Display`, since `main` prints an error by its `Debug`.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `Failure` is no `Error` itself, so that `?` converts every error into it.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { message: with_causes(&error) }
    }
}

/// A function that returns a boxed error passes a failure on by `?`.
impl From<Failure> for Box<dyn Error> {
    fn from(failure: Failure) -> Box<dyn Error> {
        failure.message.into()
    }
}

impl From<Failure> for Box<dyn Error + Send + Sync> {
    fn from(failure: Failure) -> Box<dyn Error + Send + Sync> {
        failure.message.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_passes_into_any_error() {
        let fails = || Err(Failure::new("late"));
        let local = || -> Result<(), Box<dyn Error>> { Ok(fails()?) };
        let sent = || -> Result<(), Box<dyn Error + Send + Sync>> { Ok(fails()?) };
        assert_eq!(local().unwrap_err().to_string(), "late");
        assert_eq!(sent().unwrap_err().to_string(), "late");
    }
}
