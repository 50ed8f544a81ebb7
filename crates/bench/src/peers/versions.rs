//! Versions of the systems that are compiled into this program.

use super::System;
use crate::harness::slices::name_of;

/// The versions that the build was made with.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// Returns name and version of a system that runs in the two processes of ours.
pub(super) fn within(system: System) -> String {
    let (name, package) = match system {
        System::Framed => (name_of(system), "tokio-util"),
        _ => (name_of(system), "tarpc"),
    };
    let version = locked(LOCK, package).unwrap_or("of an unknown version");
    if name == package {
        format!("{name} {version}")
    } else {
        format!("{name} {package} {version}")
    }
}

/// Returns the version of a package in a lock file.
fn locked<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"\n");
    let (_, rest) = lock.split_once(&name)?;
    rest.strip_prefix("version = \"")?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"a-b\"\nversion = \"1.0\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2.3.4\"\n";
        assert_eq!((locked(lock, "b"), locked(lock, "c")), (Some("2.3.4"), None));
        for system in [System::Framed, System::Tarpc] {
            let told = within(system);
            let version = told.rsplit(' ').next().unwrap_or_default();
            assert_eq!(version.split('.').count(), 3, "{told}");
        }
    }
}
