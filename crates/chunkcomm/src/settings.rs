//! Settings of a node, and of whatever a service adds, from a file and from the environment.
//!
//! They have the names and the defaults of [`NodeBuilder`]; unknown keys are refused. Durations and sizes are
//! written with their units.
//!
//! ```toml
//! answer_within = "2s"               # the service's own
//!
//! [node]
//! name = "orders"
//! listen = ["0.0.0.0:7000", "unix:/run/orders"]
//! credential_file = "/etc/orders/credential"
//! connect_deadline = "30s"
//! silence = { dead = "1min" }
//! limits = { message_bytes_max = "128MiB" }
//! ```
//!
//! ```no_run
//! use chunkcomm::Node;
//! use chunkcomm::settings::{self, NodeSettings};
//! use serde::Deserialize;
//! use std::time::Duration;
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Orders {
//!     node: NodeSettings,
//!     #[serde(deserialize_with = "settings::duration")]
//!     answer_within: Duration,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // ORDERS__NODE__NAME=spare is the name, if it is set.
//! let orders: Orders = settings::from_file_and_variables("orders.toml", "ORDERS")?;
//! let node = Node::builder().settings(&orders.node).build().await?;
//! # let _ = (node, orders.answer_within);
//! # Ok(())
//! # }
//! ```

mod reading;
mod units;

pub use reading::{SettingsError, from_file, from_file_and_variables, from_variables};
pub use units::{bytes, bytes_option, duration, duration_option};

use crate::node::NodeBuilder;
use crate::{Address, Limits, Policy, Silence};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a node; those that are left out have the defaults of [`NodeBuilder`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct NodeSettings {
    /// [`NodeBuilder::name`].
    pub name: Option<String>,
    /// [`NodeBuilder::sole_name`].
    pub sole_name: bool,
    /// [`NodeBuilder::cluster`].
    pub cluster: Option<String>,
    /// [`NodeBuilder::listen`]: one address, or a list.
    #[serde(deserialize_with = "addresses")]
    pub listen: Vec<Address>,
    /// [`NodeBuilder::same_host`].
    pub same_host: Option<bool>,
    /// [`NodeBuilder::one_copy`].
    pub one_copy: Option<bool>,
    /// [`NodeBuilder::credential_file`].
    pub credential_file: Option<PathBuf>,
    /// Runtime that drives the links: that of the program (`ambient`), a thread of the node's own
    /// ([`io-thread`](NodeBuilder::io_thread)), or one that never sleeps ([`busy-poll`](NodeBuilder::busy_poll)).
    pub runtime: Driven,
    /// [`NodeBuilder::policy`]: wait of a message for others, `linger = "1ms"`; by default none.
    #[serde(deserialize_with = "duration_option")]
    pub linger: Option<Duration>,
    /// [`NodeBuilder::age_bound`].
    #[serde(deserialize_with = "duration_option")]
    pub age_bound: Option<Duration>,
    /// [`NodeBuilder::connect_deadline`].
    #[serde(deserialize_with = "duration_option")]
    pub connect_deadline: Option<Duration>,
    /// [`NodeBuilder::silence`].
    pub silence: SilenceSettings,
    /// [`NodeBuilder::limits`].
    pub limits: LimitSettings,
    /// [`NodeBuilder::insecure_bind_beyond_loopback`].
    pub insecure_bind_beyond_loopback: bool,
    /// [`NodeBuilder::quiet`].
    pub quiet: bool,
}

/// Runtime that drives the links of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Driven {
    /// The program's own.
    #[default]
    Ambient,
    /// A thread of the node's own.
    IoThread,
    /// A thread of the node's own that never sleeps.
    BusyPoll,
}

/// Times of [`Silence`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SilenceSettings {
    /// [`Silence::probe`].
    #[serde(deserialize_with = "duration_option")]
    pub probe: Option<Duration>,
    /// [`Silence::suspect`].
    #[serde(deserialize_with = "duration_option")]
    pub suspect: Option<Duration>,
    /// [`Silence::dead`].
    #[serde(deserialize_with = "duration_option")]
    pub dead: Option<Duration>,
}

/// Limits of [`Limits`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitSettings {
    /// [`Limits::message_bytes_max`].
    #[serde(deserialize_with = "bytes_option")]
    pub message_bytes_max: Option<u64>,
    /// [`Limits::window_bytes_max`].
    #[serde(deserialize_with = "bytes_option")]
    pub window_bytes_max: Option<u64>,
    /// [`Limits::resend_bytes_max`].
    #[serde(deserialize_with = "bytes_option")]
    pub resend_bytes_max: Option<u64>,
    /// [`Limits::sessions_max`].
    pub sessions_max: Option<u64>,
    /// [`Limits::cut_off_bytes_max`].
    #[serde(deserialize_with = "bytes_option")]
    pub cut_off_bytes_max: Option<u64>,
}

impl NodeBuilder {
    /// Takes the settings that are there; those that are left out stay as they are, and so does a switch that is
    /// `false`. Addresses to listen at are added. Of `silence` and `limits`, if
    /// one is there, the others are the defaults.
    pub fn settings(mut self, settings: &NodeSettings) -> NodeBuilder {
        let NodeSettings { silence, limits, .. } = settings;
        if let Some(name) = &settings.name {
            self = self.name(name);
        }
        if settings.sole_name {
            self = self.sole_name();
        }
        if let Some(cluster) = &settings.cluster {
            self = self.cluster(cluster);
        }
        for address in &settings.listen {
            self = self.listen(address.clone());
        }
        if let Some(allowed) = settings.same_host {
            self = self.same_host(allowed);
        }
        if let Some(allowed) = settings.one_copy {
            self = self.one_copy(allowed);
        }
        if let Some(file) = &settings.credential_file {
            self = self.credential_file(file);
        }
        self = match settings.runtime {
            Driven::Ambient => self,
            Driven::IoThread => self.io_thread(),
            Driven::BusyPoll => self.io_thread().busy_poll(),
        };
        if let Some(wait) = settings.linger {
            self = self.policy(Policy::Linger(wait));
        }
        if let Some(bound) = settings.age_bound {
            self = self.age_bound(bound);
        }
        if let Some(deadline) = settings.connect_deadline {
            self = self.connect_deadline(deadline);
        }
        if *silence != SilenceSettings::default() {
            self = self.silence(silence.over(Silence::default()));
        }
        if *limits != LimitSettings::default() {
            self = self.limits(limits.over(Limits::default()));
        }
        if settings.insecure_bind_beyond_loopback {
            self = self.insecure_bind_beyond_loopback();
        }
        if settings.quiet { self.quiet() } else { self }
    }
}

impl SilenceSettings {
    fn over(self, usual: Silence) -> Silence {
        Silence {
            probe: self.probe.unwrap_or(usual.probe),
            suspect: self.suspect.unwrap_or(usual.suspect),
            dead: self.dead.unwrap_or(usual.dead),
        }
    }
}

impl LimitSettings {
    fn over(self, usual: Limits) -> Limits {
        let or = |given: Option<u64>, usual: usize| {
            given.map_or(usual, |it| usize::try_from(it).unwrap_or(usize::MAX))
        };
        Limits {
            message_bytes_max: or(self.message_bytes_max, usual.message_bytes_max),
            window_bytes_max: or(self.window_bytes_max, usual.window_bytes_max),
            resend_bytes_max: or(self.resend_bytes_max, usual.resend_bytes_max),
            sessions_max: or(self.sessions_max, usual.sessions_max),
            cut_off_bytes_max: or(self.cut_off_bytes_max, usual.cut_off_bytes_max),
        }
    }
}

/// Reads one address, or a list.
fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an address, or a list of addresses")]
    enum Written {
        One(String),
        Several(Vec<String>),
    }

    let all = match Written::deserialize(from)? {
        Written::One(address) => vec![address],
        Written::Several(all) => all,
    };
    all.iter().map(|address| address.parse().map_err(D::Error::custom)).collect()
}
