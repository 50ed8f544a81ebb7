//! Common behaviour of the example programs, run as their users run them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::SystemTime;

/// An example program.
pub(crate) struct Example {
    pub(crate) name: &'static str,
}

impl Example {
    /// Returns the file that cargo built for `cargo test --workspace`.
    ///
    /// # Panics
    /// It is not there, or older than its sources, as cargo noted them; the text says what builds it.
    pub(crate) fn file(&self) -> PathBuf {
        let test = env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let file = profile.join("examples").join(self.name);
        if let Some(fault) = fault(&file) {
            let release = if profile.ends_with("release") { " --release" } else { "" };
            panic!("{}: {fault}: cargo build --workspace --examples{release}", file.display());
        }
        file
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.file());
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

/// Returns why this program is not the one to test. Sources that are edited while tests run do not count.
fn fault(file: &Path) -> Option<String> {
    static START: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);
    let start = *START;
    let modified = |file: &Path| fs::metadata(file).and_then(|metadata| metadata.modified());
    let Ok(built) = modified(file) else { return Some("not built".to_owned()) };
    let Ok(noted) = fs::read_to_string(file.with_extension("d")) else {
        return Some("without a note of its sources".to_owned());
    };
    // `file: source source ..`, with a backslash before each space of a name.
    let noted = noted.replace("\\ ", "\0");
    let sources = noted.split_whitespace().skip(1).map(|source| source.replace('\0', " "));
    let newer = |source: &String| {
        modified(Path::new(source)).is_ok_and(|modified| modified > built && modified < start)
    };
    let mut newer = sources.filter(newer);
    newer.next().map(|source| format!("older than {source}"))
}
