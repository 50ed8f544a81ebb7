//! Descriptions of whole worlds: hosts, the segments that they are on, and bridges.

mod file;
#[cfg(test)]
mod tests;
mod units;

use super::{BridgeSpec, HostId, HostSpec, LinkSpec, Network, SegmentId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The presets by their names, each a file of its own. `docs/worlds.md` has the source of each
/// number.
const PRESETS: &[(&str, &str)] = &[
    ("default", include_str!("world/default.toml")),
    ("ethernet-10m-sparc", include_str!("world/ethernet-10m-sparc.toml")),
    ("beowulf-100m", include_str!("world/beowulf-100m.toml")),
    ("regatta", include_str!("world/regatta.toml")),
    ("pc-cluster-100m", include_str!("world/pc-cluster-100m.toml")),
    ("sp2", include_str!("world/sp2.toml")),
    ("lan-1g", include_str!("world/lan-1g.toml")),
    ("lan-10g", include_str!("world/lan-10g.toml")),
];

/// The description of a world: hosts, segments, bridges, and times of functions.
///
/// It is a preset, a TOML file ([`WorldSpec::from_toml`]), or made by hand.
///
/// ```
/// use chunkcomm_simulation::WorldSpec;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut world = WorldSpec::preset("beowulf-100m")?;
/// world.hosts[0].spec.cores = 2;
/// let (network, hosts) = world.build(7, 5);
/// assert_eq!(network.host_name(hosts[4]), "node4");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldSpec {
    /// Groups of hosts. The last group goes on for as many hosts as are asked for.
    pub hosts: Vec<HostGroup>,
    /// Shared media and switches.
    pub segments: Vec<SegmentSpec>,
    /// Bridges between them.
    pub bridges: Vec<BridgeBetween>,
    /// Work of functions by their names, in time of the reference machine ([`Network::set_work`]).
    pub work: BTreeMap<String, Duration>,
}

/// Hosts with the same properties on the same segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGroup {
    /// Name of the group; its hosts are called by it and a number from 0. It ends in no digit.
    pub name: String,
    /// Hosts of the group.
    pub count: usize,
    /// Names of the segments that they are on.
    pub segments: Vec<String>,
    /// Properties of each.
    pub spec: HostSpec,
}

/// A segment of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentSpec {
    /// Name by which hosts and bridges refer to it.
    pub name: String,
    /// Whether it is a medium or a switch.
    pub kind: SegmentKind,
    /// Its properties.
    pub spec: LinkSpec,
}

/// The kinds of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// One wire for all ([`Network::shared_medium`]).
    Medium,
    /// A wire to and from each host ([`Network::switch`]).
    Switch,
}

/// A bridge of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeBetween {
    /// Names of the two segments.
    pub segments: [String; 2],
    /// Properties of the bridge.
    pub spec: BridgeSpec,
}

impl WorldSpec {
    /// Returns the preset of this name.
    ///
    /// # Errors
    ///
    /// [`WorldError::NoPreset`].
    pub fn preset(name: &str) -> Result<WorldSpec, WorldError> {
        let file = PRESETS.iter().find(|(preset, _)| *preset == name);
        let (_, text) = file.ok_or_else(|| WorldError::NoPreset { name: name.to_owned() })?;
        Ok(WorldSpec::from_toml(text).expect("a test reads every preset"))
    }

    /// Returns the names of the presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// Reads a description from the text of a TOML file. `docs/world.toml` of this crate is an
    /// example with all keys.
    ///
    /// # Errors
    ///
    /// [`WorldError::File`] names the line: no TOML, an unknown or missing key, a value that is
    /// none, an unknown segment.
    pub fn from_toml(text: &str) -> Result<WorldSpec, WorldError> {
        file::read(text)
    }

    /// Returns the text of a TOML file with this description: every key, also those that have their
    /// defaults.
    #[must_use]
    pub fn to_toml(&self) -> String {
        file::write(self)
    }

    /// Returns the number of hosts that the groups have by themselves.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.hosts.iter().map(|group| group.count).sum()
    }

    /// Builds the network of the first `hosts` hosts; returns it with them, in the order of the
    /// groups. With more hosts than [`WorldSpec::host_count`] the last group goes on. All segments
    /// and bridges are there, however few the hosts are. Everything left to chance follows from
    /// `seed`.
    ///
    /// # Panics
    ///
    /// A description made by hand is wrong: it has no group for the hosts, two groups or segments
    /// have one name, a named segment is missing, or a property is one of which [`Network`] says
    /// that it panics.
    #[must_use]
    pub fn build(&self, seed: u64, hosts: usize) -> (Network, Vec<HostId>) {
        let mut network = Network::new(seed);
        for (function, work) in &self.work {
            network.set_work(function, *work);
        }
        let mut ids = Vec::new();
        let mut on: BTreeMap<&str, Vec<HostId>> = BTreeMap::new();
        for (group, number) in self.places().take(hosts) {
            let id = network.add_host_of(&format!("{}{number}", group.name), group.spec);
            ids.push(id);
            for segment in &group.segments {
                on.entry(segment).or_default().push(id);
            }
        }
        assert_eq!(ids.len(), hosts, "a world has a group of hosts");
        let mut segments: BTreeMap<&str, SegmentId> = BTreeMap::new();
        for segment in &self.segments {
            let hosts = on.remove(segment.name.as_str()).unwrap_or_default();
            let id = match segment.kind {
                SegmentKind::Medium => network.shared_medium(&hosts, segment.spec),
                SegmentKind::Switch => network.switch(&hosts, segment.spec),
            };
            let before = segments.insert(&segment.name, id);
            assert!(before.is_none(), "there is a segment {} already", segment.name);
        }
        assert!(on.is_empty(), "there is no segment {:?}", on.keys());
        for bridge in &self.bridges {
            let [a, b] = bridge.segments.each_ref().map(|name| segments[name.as_str()]);
            network.bridge(a, b, bridge.spec);
        }
        (network, ids)
    }

    /// The groups of the hosts, each with the host's number in its group, without end.
    fn places(&self) -> impl Iterator<Item = (&HostGroup, usize)> {
        let last = self.hosts.len().saturating_sub(1);
        self.hosts.iter().enumerate().flat_map(move |(at, group)| {
            let count = if at == last { usize::MAX } else { group.count };
            (0..count).map(move |number| (group, number))
        })
    }
}

impl Default for WorldSpec {
    /// The preset `default`: a switch of 1 Gbit/s and hosts of 8 cores, for which a packet costs
    /// 5.17 us and a byte 0.91 ns, sending as well as receiving.
    fn default() -> WorldSpec {
        WorldSpec::preset("default").expect("it is a preset")
    }
}

/// Why there is no description of a world.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// No preset has this name.
    #[error("there is no preset {name:?}, but {}", preset_names())]
    NoPreset {
        /// The name.
        name: String,
    },
    /// A line of a file is wrong.
    #[error("line {line}, {text:?}: {reason}")]
    File {
        /// Number of the line, from 1.
        line: usize,
        /// The line, which shows the key.
        text: String,
        /// The fault.
        reason: String,
    },
}

chunkcomm_proto::debug_with_causes!(WorldError);

/// Returns the names of all presets, for people.
pub(crate) fn preset_names() -> String {
    WorldSpec::presets().collect::<Vec<_>>().join(", ")
}
