//! Errors of a system without file descriptors: which limit it was.

use std::io;

/// Adds the limit to an error that says there are too many open files; others stay as they are.
#[cfg(target_os = "linux")]
#[must_use]
pub fn with_limit(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    use rustix::process::{Resource, getrlimit};
    let limit = match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => match getrlimit(Resource::Nofile).current {
            Some(files) => format!("this process may have {files} at a time (ulimit -n)"),
            None => return error,
        },
        Some(Errno::NFILE) => "all processes together have as many as the system allows".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {limit}"))
}

#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn with_limit(error: io::Error) -> io::Error {
    error
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_named_where_it_is_the_cause() {
        let error = |errno: rustix::io::Errno| with_limit(io::Error::from(errno)).to_string();
        let many = error(rustix::io::Errno::MFILE);
        assert!(many.starts_with("Too many open files (os error 24): this process may"), "{many}");
        assert!(many.ends_with(" at a time (ulimit -n)"), "{many}");
        assert!(error(rustix::io::Errno::NFILE).contains("all processes together"));
        let other = io::Error::from(rustix::io::Errno::PIPE).to_string();
        assert_eq!(error(rustix::io::Errno::PIPE), other);
    }
}
