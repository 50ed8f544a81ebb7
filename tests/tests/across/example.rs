//! Common behaviour of the example programs, run as their users run them.

use std::process::{Command, Output, Stdio};

/// An example program.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
}

impl Example {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.file);
        command.args(arguments);
        command
    }

    /// Runs the program, which must succeed; returns its standard output.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// Checks that these options are refused with words on standard error alone that say what is allowed.
    pub(crate) fn refuses(&self, cases: &[([&str; 2], &str)]) {
        for (arguments, allowed) in cases {
            let output = self.command(arguments).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
            assert!(error.contains(allowed), "{arguments:?}: {error}");
            assert!(output.stdout.is_empty());
        }
    }

    /// Checks that the program ends by an error without a panic when its standard output is closed.
    pub(crate) fn needs_standard_output(&self, arguments: &[&str]) {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.starts_with(&format!("{}: standard output: ", self.name)), "{told}");
    }
}
