//! Variables of a process.

use chunkcomm_proto::sorted::SortedMap;
use std::time::Duration;

use super::own::{MANAGER, PROCESS, RANK, SIZE, TOLD};
use crate::launch::{FOR_ONE_CHILD, is_child};
use chunkcomm::host;

/// Variables of a process, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(SortedMap<String, String>);

impl Environment {
    /// Returns the variables of this process. Bytes that are not UTF-8 are replaced.
    ///
    /// A program that a node starts inherits variables that were meant for the node alone, as a
    /// copy, a worker or over ssh. There they are left out; variables of other launchers stay.
    #[must_use]
    pub fn of_this_process() -> Environment {
        let mut variables: SortedMap<_, _> = host::variables().into_iter().collect();
        if !host::is_virtual() {
            if !is_child() {
                variables.retain(|name, _| !FOR_ONE_CHILD.contains(&&name[..]));
            }
            remove_those_of_another(&mut variables, std::process::id());
        }
        Environment(variables)
    }

    /// Returns the time until the batch system ends the job of this process; `None` without a known
    /// end.
    ///
    /// The time is zero when the end should have been already. Slurm gives it as
    /// `SLURM_JOB_END_TIME`, in seconds since 1970.
    #[must_use]
    pub fn job_time_left(&self) -> Option<Duration> {
        let end = self.get("SLURM_JOB_END_TIME")?.trim().parse().ok()?;
        Some(Duration::from_secs(end).saturating_sub(host::unix_time()))
    }

    /// Returns the value of this variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Environment {
        let variables = variables.into_iter();
        Environment(variables.map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Removes variables that an ssh made for another process.
fn remove_those_of_another(variables: &mut SortedMap<String, String>, pid: u32) {
    let is_of_ssh = variables.get(MANAGER).is_some_and(|manager| manager == TOLD);
    let is_of_another = variables.get(PROCESS).is_some_and(|process| *process != pid.to_string());
    if is_of_ssh && is_of_another {
        variables.retain(|name, _| ![RANK, SIZE, MANAGER].contains(&&name[..]));
    }
}
