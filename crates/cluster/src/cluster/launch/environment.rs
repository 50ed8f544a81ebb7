//! The variables of a process, and the error of one that makes no sense.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chunkcomm::host;

/// The variables of a process, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns the variables of this process. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn of_this_process() -> Environment {
        Environment(host::variables().into_iter().collect())
    }

    /// Returns the time until the batch system ends the job of this process, zero when that should have
    /// been; `None` without a known end. Slurm says it: `SLURM_JOB_END_TIME`, in seconds since 1970.
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

/// A variable that makes no sense.
#[derive(Clone, PartialEq, Eq)]
pub struct PlaceError {
    /// The variable.
    pub variable: String,
    /// Its value; `None` when it is not set.
    pub value: Option<String>,
    /// The fault, or the right form.
    pub why: String,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlaceError { variable, value, why } = self;
        match value {
            Some(value) => write!(f, "{variable} is {value:?}: {why}"),
            None => write!(f, "{variable} is not set: {why}"),
        }
    }
}

chunkcomm_proto::debug_with_causes!(PlaceError);

impl std::error::Error for PlaceError {}
