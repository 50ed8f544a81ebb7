//! Command line of ssh, with everything that is no secret.

use super::super::hosts::Host;
use super::super::own::{MANAGER, PROCESS, RANK, SIZE, TOLD};
use crate::cluster::{ClusterConfig, JoinError};
use crate::launch::LaunchError;
use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::{Child, Command};

/// Environment variable with the ssh command, and options for it.
const SSH: &str = "CHUNKCOMM_SSH";

/// Variables that are passed on to nodes unchanged.
const PASSED_ON: [&str; 5] = [
    "CHUNKCOMM_PORTS",
    "CHUNKCOMM_READY_MS",
    chunkcomm::AGE_BOUND_VARIABLE,
    chunkcomm::host::SAME_HOST_VARIABLE,
    chunkcomm::host::PORTABLE_VARIABLE,
];

/// Way in which nodes are started.
pub(super) struct Remote {
    ssh: Vec<String>,
    size: usize,
    folder: String,
    program: String,
    arguments: Vec<String>,
    passed_on: Vec<(String, String)>,
}

/// Paths that are the same on all hosts.
pub(super) struct Places<'a> {
    pub(super) program: &'a str,
    pub(super) folder: &'a str,
}

impl Remote {
    pub(super) fn new(config: &ClusterConfig, size: usize) -> Result<Remote, JoinError> {
        let system = |what| move |error| JoinError::System { what, error: Arc::new(error) };
        let text = |text: &OsStr| text.to_string_lossy().into_owned();
        let program = std::env::current_exe().map_err(system("name the running program"))?;
        let folder = std::env::current_dir().map_err(system("name the current folder"))?;
        let told = config.environment.get(SSH).unwrap_or_default();
        let mut ssh: Vec<String> = told.split_whitespace().map(str::to_owned).collect();
        if ssh.is_empty() {
            ssh.push("ssh".to_owned());
        }
        let passed_on = PASSED_ON.iter().filter_map(|name| {
            Some(((*name).to_owned(), config.environment.get(name)?.to_owned()))
        });
        Ok(Remote {
            ssh,
            size,
            folder: text(folder.as_os_str()),
            program: text(program.as_os_str()),
            arguments: config.arguments.iter().map(|argument| text(argument)).collect(),
            passed_on: passed_on.collect(),
        })
    }

    /// Returns the program and the folder to start it in, the same here and there.
    pub(super) fn places(&self) -> Places<'_> {
        Places { program: &self.program, folder: &self.folder }
    }

    /// Returns the command by which hosts are reached, with the user's own options.
    pub(super) fn ssh(&self) -> String {
        self.ssh.join(" ")
    }

    /// Starts the node of this rank.
    pub(super) fn start(&self, rank: usize, host: &Host) -> Result<Child, LaunchError> {
        let (name, options) = self.ssh.split_first().expect("never empty");
        let mut command = Command::new(name);
        command.args(options);
        // ssh must not ask, since no one would answer. The user's own options come before these,
        // and the first counts.
        command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        // A host that is cut off is noticed after half a minute, not when TCP gives up.
        command.args(["-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"]);
        command.arg(&host.name).arg(self.line(rank, host));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| LaunchError::Ssh { program: name.clone(), error: Arc::new(error) })
    }

    /// Returns the line for a shell of the other machine, without the secret.
    fn line(&self, rank: usize, host: &Host) -> String {
        let mut script = format!("cd {} 2>/dev/null; exec env", quoted(&self.folder));
        let own = [
            (RANK, rank.to_string()),
            (SIZE, self.size.to_string()),
            (MANAGER, TOLD.to_owned()),
            ("CHUNKCOMM_HOST", host.reached_by().to_owned()),
        ];
        for (name, value) in &own {
            script += &format!(" {name}={}", quoted(value));
        }
        for (name, value) in &self.passed_on {
            script += &format!(" {name}={}", quoted(value));
        }
        // The shell's process becomes that of the program.
        script += &format!(" {PROCESS}=$$");
        for word in std::iter::once(&self.program).chain(&self.arguments) {
            script += &format!(" {}", quoted(word));
        }
        // This works with any shell of the user.
        format!("exec sh -c {}", quoted(&script))
    }
}

/// Returns the command that copies the program to a host, to be typed here. It uses ssh alone:
/// ssh's options are not those of scp.
pub(super) fn copying(ssh: &str, program: &str, host: &str) -> String {
    let folder = program.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (folder, program) = (quoted(folder), quoted(program));
    // One quoting is for the shell here, and one for the shell there.
    let script = format!("mkdir -p {folder} && cat > {program} && chmod +x {program}");
    format!("{ssh} {host} {} < {program}", quoted(&script))
}

/// Quotes a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm::Credential;

    #[test]
    fn a_shell_takes_words_as_they_are() {
        let words = ["plain", "with space", "it's", "$HOME `id` \"x\" \\", "", "a\nb", "-n"];
        let line = words.map(quoted).join(" ");
        let script = format!("printf '%s\\0' {line}");
        // As over ssh: a shell within a shell.
        let nested = format!("exec sh -c {}", quoted(&script));
        let output = std::process::Command::new("sh").args(["-c", &nested]).output().unwrap();
        let read = String::from_utf8(output.stdout).unwrap();
        assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), words);
    }

    #[test]
    fn a_node_is_told_its_place_and_no_secret() {
        let secret = Credential::generate().unwrap();
        let file = ("CHUNKCOMM_CREDENTIAL_FILE", "/a/secret");
        let environment = [("CHUNKCOMM_PORTS", "20000-20009"), ("OTHER", "x"), file];
        let config = ClusterConfig::new()
            .credential(secret.clone())
            .environment(environment.into_iter().collect())
            .arguments(["--hosts", "a file"]);
        let remote = Remote::new(&config, 3).unwrap();
        let host = Host { name: "me@far".to_owned(), slots: 1, address: None };
        let line = remote.line(2, &host);
        let rank = r"CHUNKCOMM_RANK='\''2'\''";
        for part in [rank, "CHUNKCOMM_HOST", "far", "20000-20009", "a file"] {
            assert!(line.contains(part), "{line} lacks {part}");
        }
        assert!(!line.contains("OTHER") && !line.contains("me@far"), "{line}");
        let told = secret.reveal().split_whitespace().any(|word| line.contains(word));
        assert!(!told && !line.contains("/a/secret"), "{line}");
    }
}
