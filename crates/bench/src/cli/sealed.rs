//! `--transport tls`: the credential of a run.
//!
//! A node finds its credential by the environment, and a process cannot change its own environment.
//! So the program starts a copy of itself with a new credential, and the copy does the work.

use std::path::PathBuf;
use std::process::Command;

use chunkcomm::{CREDENTIAL_FILE_VARIABLE, Credential};

use super::{DIES_WITH_PARENT, STATUS_FAILED};
use crate::failure::{Doing, Failure};
use crate::harness::protocol::Transport;

/// Makes sure that nodes have a credential if the transport is TLS, and none if it is not. If a
/// copy has done the work, this process ends with the copy's exit status.
///
/// # Errors
/// If the environment has a credential, which would encrypt a transport that is to be in the clear.
/// If the copy cannot be started.
pub(super) fn prepare(transport: Transport) -> Result<(), Failure> {
    let given = std::env::var_os(CREDENTIAL_FILE_VARIABLE).is_some();
    match (transport, given) {
        (Transport::Tls, false) => std::process::exit(run_copy()?),
        (Transport::Tls | Transport::Memory, _) | (_, false) => Ok(()),
        (Transport::Tcp | Transport::Unix, true) => Err(Failure::Refused(format!(
            "{CREDENTIAL_FILE_VARIABLE} is set, so that nodes ask for a credential: allowed are \
             --transport tls, and others without it"
        ))),
    }
}

/// File of a credential, removed when this is dropped.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        // No process has that credential any more: a leftover file admits to nothing.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run_copy() -> Result<i32, Failure> {
    let path = std::env::temp_dir().join(format!("chunkperf-credential-{}", std::process::id()));
    let credential = Credential::generate().doing("making a credential")?;
    credential.save(&path).doing("saving a credential")?;
    let file = File(path);
    let program = std::env::current_exe().doing("finding this program's file")?;
    let status = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(CREDENTIAL_FILE_VARIABLE, &file.0)
        .env(DIES_WITH_PARENT, "1")
        .status()
        .doing("starting the program with a credential")?;
    Ok(status.code().unwrap_or(i32::from(STATUS_FAILED)))
}
