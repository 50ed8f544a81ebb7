//! Settings that the workers get too.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::layer::quiet_but_for_accept;
use chunkcomm::{Limits, Node, NodeBuilder, Policy, Silence};

use super::Runtime;
use super::times::LINK_DEAD;

const RUNTIMES: [(Runtime, &str); 3] = [
    (Runtime::Ambient, "ambient"),
    (Runtime::IoThread, "io-thread"),
    (Runtime::BusyPoll, "busy-poll"),
];

/// Settings that farmer and workers share. A worker process gets them through its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct NodeSettings {
    pub(crate) runtime: Runtime,
    pub(crate) policy: Policy,
    pub(crate) message_bytes_max: Option<usize>,
}

impl NodeSettings {
    /// Name of the environment variable that makes a started copy a worker of a farm.
    pub(crate) const VARIABLE: &'static str = "CHUNKCOMM_FARM_WORKER";

    pub(crate) fn node(&self) -> NodeBuilder {
        // The error of a run names the loss.
        let builder = quiet_but_for_accept(Node::builder());
        let silence = Silence { dead: LINK_DEAD, ..Silence::default() };
        let mut limits = Limits::default();
        if let Some(bytes) = self.message_bytes_max {
            limits.message_bytes_max = bytes;
        }
        let builder = builder.policy(self.policy).silence(silence).limits(limits);
        match self.runtime {
            Runtime::Ambient => builder,
            Runtime::IoThread => builder.io_thread(),
            Runtime::BusyPoll => builder.busy_poll(),
        }
    }
}

impl fmt::Display for NodeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, runtime) = RUNTIMES[self.runtime as usize];
        write!(f, "{runtime}")?;
        match self.policy {
            Policy::Unbuffered => f.write_str(" unbuffered")?,
            Policy::Linger(duration) => write!(f, " {}", duration.as_micros())?,
            _ => f.write_str(" chunked")?,
        }
        match self.message_bytes_max {
            Some(bytes) => write!(f, " {bytes}"),
            None => Ok(()),
        }
    }
}

/// Text that is no setting: the farmer runs another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadSettings(String);

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} is not understood", NodeSettings::VARIABLE, self.0)
    }
}

impl FromStr for NodeSettings {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<NodeSettings, BadSettings> {
        let bad = || BadSettings(text.to_owned());
        let mut words = text.split(' ');
        let word = words.next().unwrap_or_default();
        let (runtime, _) = *RUNTIMES.iter().find(|(_, name)| *name == word).ok_or_else(bad)?;
        let policy = match words.next() {
            Some("chunked") => Policy::Chunked,
            Some("unbuffered") => Policy::Unbuffered,
            Some(us) => Policy::Linger(Duration::from_micros(us.parse().map_err(|_| bad())?)),
            None => return Err(bad()),
        };
        let message_bytes_max = match words.next() {
            Some(bytes) => Some(bytes.parse().map_err(|_| bad())?),
            None => None,
        };
        Ok(NodeSettings { runtime, policy, message_bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_text() {
        for (runtime, name) in RUNTIMES {
            for policy in
                [Policy::Chunked, Policy::Unbuffered, Policy::Linger(Duration::from_micros(250))]
            {
                for message_bytes_max in [None, Some(1 << 20)] {
                    let settings = NodeSettings { runtime, policy, message_bytes_max };
                    assert!(settings.to_string().starts_with(name));
                    assert_eq!(settings.to_string().parse(), Ok(settings));
                }
            }
        }
        for text in ["", "ambient", "ambient sometimes", "soon chunked", "ambient chunked much"] {
            assert!(text.parse::<NodeSettings>().is_err(), "{text:?}");
        }
    }
}
