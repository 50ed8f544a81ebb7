//! An error and its causes in one line.

use std::error::Error;

/// Returns an error in one line: its message, then the messages of its causes, each after a colon.
///
/// The message of an error (`{}`) leaves out its cause, which [`Error::source`] returns. The
/// `{:?}` of each public error of this library is this line. `main` prints the `{:?}` of an error
/// that it returns.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Implements `Debug` of errors by [`with_causes`].
#[doc(hidden)]
#[macro_export]
macro_rules! debug_with_causes {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&$crate::causes::with_causes(self))
            }
        }
    )+};
}
