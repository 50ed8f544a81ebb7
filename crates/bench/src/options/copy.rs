//! `--transport tls`, `--same-host`, `--one-copy` and `--without`: the environment of a run.
//!
//! A node finds its credential by the environment, the controllers that it has to do without, and
//! whether it may leave TCP for a Unix socket and read memory there. A process cannot change its own environment.
//! So the program starts a copy of itself in another one, and the copy does the work.

use std::ffi::OsStr;

use chunkcomm::host::{ONE_COPY_VARIABLE, SAME_HOST_VARIABLE};
use chunkcomm::proto::tuning::without::WITHOUT_VARIABLE;
use chunkcomm::{CREDENTIAL_FILE_VARIABLE, Credential};
use chunkcomm_testkit::Scratch;

use crate::failure::{Doing, Failure, STATUS_FAILED};
use crate::harness::machine::{self, DIES_WITH_PARENT};
use crate::harness::protocol::{OnOff, Transport};
use crate::harness::slices::name_of;
use crate::options::Shorter;

/// Makes sure that nodes have a credential if the transport is TLS or TCP with `same_host`, and none
/// otherwise, and that they take the shorter ways that are asked for. If a copy has done the work, this process
/// ends with the copy's exit status.
///
/// # Errors
/// If the environment has a credential, which would encrypt a transport that is to be in the clear.
/// If the copy cannot be started.
pub(super) fn prepare_transport(transport: Transport, shorter: Shorter) -> Result<(), Failure> {
    let given = std::env::var_os(CREDENTIAL_FILE_VARIABLE).is_some();
    let same_host = shorter.same_host == OnOff::On;
    match (transport, given) {
        (Transport::Memory, _) => Ok(()),
        _ if same_host || transport == Transport::Tls => {
            let ways =
                [(SAME_HOST_VARIABLE, shorter.same_host), (ONE_COPY_VARIABLE, shorter.one_copy)];
            for (variable, way) in ways {
                let way = name_of(way);
                if std::env::var_os(variable).is_none_or(|it| *it != *way) {
                    std::process::exit(run_copy(variable, way.as_ref())?);
                }
            }
            if given { Ok(()) } else { std::process::exit(run_sealed()?) }
        }
        (_, false) => Ok(()),
        (_, true) => Err(Failure::Refused(format!(
            "{CREDENTIAL_FILE_VARIABLE} is set, so that nodes ask for a credential: allowed are \
             --transport tls and --same-host on, and others without it"
        ))),
    }
}

/// Whether this process and its children run with `--same-host on`.
pub(crate) fn same_host_is_on() -> bool {
    std::env::var_os(CREDENTIAL_FILE_VARIABLE).is_some()
        && std::env::var_os(SAME_HOST_VARIABLE).is_some_and(|it| it == "on")
}

/// Makes sure that nodes do without these controllers. If a copy has done the work, this process
/// ends with the copy's exit status.
///
/// # Errors
/// If the copy cannot be started.
pub(super) fn prepare_without(controllers: &[String]) -> Result<(), Failure> {
    let wanted = controllers.join(",");
    if wanted.is_empty() || std::env::var_os(WITHOUT_VARIABLE).is_some_and(|it| it == *wanted) {
        return Ok(());
    }
    std::process::exit(run_copy(WITHOUT_VARIABLE, wanted.as_ref())?)
}

fn run_sealed() -> Result<i32, Failure> {
    // Once it is removed no process has that credential any more.
    let file = Scratch::new("credential");
    let credential = Credential::generate().doing("making a credential")?;
    credential.save(&file).doing("saving a credential")?;
    run_copy(CREDENTIAL_FILE_VARIABLE, file.as_os_str())
}

/// Runs a copy of this program with a variable, and returns its exit status.
fn run_copy(variable: &str, value: &OsStr) -> Result<i32, Failure> {
    let status = machine::this_program()?
        .args(std::env::args_os().skip(1))
        .env(variable, value)
        .env(DIES_WITH_PARENT, "1")
        .status()
        .doing("starting the program in another environment")?;
    Ok(status.code().unwrap_or(i32::from(STATUS_FAILED)))
}
