//! Arguments of a program.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::message::{MESSAGE_BYTES_MIN, Stamp};
use crate::{Doing, Failure};

/// Number of words of a setting.
pub(crate) const WORDS: usize = 5;

/// Measured movement of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bench {
    /// Messages one way.
    OneWay,
    /// A message and its answer, one at a time.
    RoundTrip,
    /// Calls, many under way.
    Calls,
    /// Large payloads one way.
    Bandwidth,
    /// Connections that carry nothing.
    Idle,
}

/// Benches with their words.
const BENCHES: [(&str, Bench); 5] = [
    ("one-way", Bench::OneWay),
    ("round-trip", Bench::RoundTrip),
    ("calls", Bench::Calls),
    ("bandwidth", Bench::Bandwidth),
    ("idle", Bench::Idle),
];

/// Way to use a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// As its own documentation writes it.
    Docs,
    /// With its best settings.
    Best,
}

/// Arguments of a program.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Measured movement.
    pub bench: Bench,
    /// Bytes of a message.
    pub bytes: usize,
    /// Core of the near end; `None` for any.
    pub near_core: Option<usize>,
    /// Core of the far end; `None` for any.
    pub far_core: Option<usize>,
    /// Way to use the system.
    pub flavour: Flavour,
    /// The words of this setting, for the far end.
    pub(crate) words: Vec<String>,
}

impl Setting {
    /// Reads a setting; further words are ignored. Returns `None` if a word is wrong.
    pub(crate) fn of(words: &[String]) -> Option<Self> {
        let [bench, bytes, near, far, flavour, ..] = words else { return None };
        let (_, bench) = *BENCHES.iter().find(|(word, _)| word == bench)?;
        let bytes = bytes.parse().ok()?;
        // The size of `idle` has no meaning.
        if bench != Bench::Idle && bytes < MESSAGE_BYTES_MIN {
            return None;
        }
        let flavour = match flavour.as_str() {
            "docs" => Flavour::Docs,
            "best" => Flavour::Best,
            _ => return None,
        };
        let (near_core, far_core) = (core_of(near)?, core_of(far)?);
        let words = words[..WORDS].to_vec();
        Some(Self { bench, bytes, near_core, far_core, flavour, words })
    }

    /// Whether the system is used with its best settings.
    pub fn is_best(&self) -> bool {
        self.flavour == Flavour::Best
    }

    /// Returns the maker of numbers and check bytes.
    pub fn stamp(&self) -> Stamp {
        Stamp::of_environment()
    }

    /// Pins this thread, and the threads that it starts from now on.
    pub(crate) fn pin(&self, is_far: bool) -> Result<(), Failure> {
        match if is_far { self.far_core } else { self.near_core } {
            Some(core) => pin_to(&[core]),
            None => Ok(()),
        }
    }

    /// Allows as many open files as the hard limit does: `idle` opens many.
    pub(crate) fn allow_open_files(&self) {
        let limit = getrlimit(Resource::Nofile);
        // The usual limit is enough for a hundred connections.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// Pins this thread, and the threads that it starts from now on, to these cores.
///
/// # Errors
/// If the system refuses.
pub fn pin_to(cores: &[usize]) -> Result<(), Failure> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    sched_setaffinity(None, &set).doing("pinning")
}

/// Reads a core: `Some(None)` for any.
fn core_of(word: &str) -> Option<Option<usize>> {
    if word == "-" {
        return Some(None);
    }
    word.parse().ok().filter(|core| *core < CpuSet::MAX_CPU).map(Some)
}

/// Returns the usage of a program.
pub(crate) fn usage(name: &str) -> String {
    format!(
        "usage: peer-{name} one-way|round-trip|calls|bandwidth|idle BYTES NEAR FAR docs|best\n       \
         peer-{name} --version\n\
         BYTES: at least {MESSAGE_BYTES_MIN}; NEAR, FAR: core of each end, or - for any"
    )
}
