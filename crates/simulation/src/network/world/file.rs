//! The TOML file of a world: tables that hold what is written, and their meaning.

use super::units::{PicosText, Rate, TimeText, Within};
use super::{BridgeBetween, HostGroup, SegmentKind, SegmentSpec, WorldError, WorldSpec};
use crate::network::cores::{CORES_MAX, SPEED_PERMILLE_MAX};
use crate::network::{BridgeSpec, ForeignLoad, HostSpec, LinkSpec};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;

/// Most hosts of a group.
const HOSTS_MAX: u32 = 1 << 20;

type Count = Within<1, HOSTS_MAX>;
type Bytes = Within<1, { u32::MAX }>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    work: BTreeMap<String, TimeText>,
    hosts: Vec<Hosts>,
    segments: Vec<Segment>,
    #[serde(default)]
    bridges: Vec<Bridge>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hosts {
    name: Spanned<String>,
    count: Option<Count>,
    segments: Vec<Spanned<String>>,
    cores: Option<Within<1, CORES_MAX>>,
    speed_permille: Option<Within<1, SPEED_PERMILLE_MAX>>,
    send_cost_per_packet: Option<TimeText>,
    send_cost_per_byte: Option<PicosText>,
    receive_cost_per_packet: Option<TimeText>,
    receive_cost_per_byte: Option<PicosText>,
    foreign: Option<Foreign>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    jobs: Within<0, { u32::MAX }>,
    mean_on: Spanned<TimeText>,
    mean_off: Spanned<TimeText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Medium,
    Switch,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Segment {
    name: Spanned<String>,
    kind: Kind,
    latency: Option<TimeText>,
    jitter: Option<TimeText>,
    bytes_per_second: Option<Rate>,
    cost_per_packet: Option<TimeText>,
    frame_bytes: Option<Bytes>,
    queue_bytes: Option<Bytes>,
    window_bytes: Option<Bytes>,
    slot_time: Option<Spanned<TimeText>>,
    total_bytes_per_second: Option<Spanned<Rate>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bridge {
    between: [Spanned<String>; 2],
    delay: Option<TimeText>,
    bytes_per_second: Option<Rate>,
    queue_bytes: Option<Bytes>,
}

/// A fault of a file, and where it is.
type Fault = (Range<usize>, String);

/// Reads a description from the text of a file.
pub(super) fn read(text: &str) -> Result<WorldSpec, WorldError> {
    let file = toml::from_str::<File>(text).map_err(|error| {
        let reason = error.message().replace('\n', ", ");
        (error.span().unwrap_or_default(), reason)
    });
    file.and_then(|file| meaning(&file)).map_err(|fault| fault_in(text, fault))
}

fn fault_in(text: &str, (span, reason): Fault) -> WorldError {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count();
    let shown = text.lines().nth(line).unwrap_or_default().trim();
    WorldError::File { line: line + 1, text: shown.to_owned(), reason }
}

fn meaning(file: &File) -> Result<WorldSpec, Fault> {
    let segments = file.segments.iter().map(segment).collect::<Result<Vec<_>, _>>()?;
    unique(file.segments.iter().map(|it| &it.name), "a segment before has this name")?;
    unique(file.hosts.iter().map(|it| &it.name), "hosts before have this name")?;
    let named: BTreeSet<&String> = file.segments.iter().map(|it| it.name.get_ref()).collect();
    let known = |name: &Spanned<String>| match named.contains(name.get_ref()) {
        true => Ok(name.get_ref().clone()),
        false => Err((name.span(), format!("there is no segment {:?}", name.get_ref()))),
    };
    if file.hosts.is_empty() {
        return Err((0..0, "a world has hosts".to_owned()));
    }
    let mut world =
        WorldSpec { hosts: Vec::new(), segments, bridges: Vec::new(), work: work(file) };
    for hosts in &file.hosts {
        let name = host_name(&hosts.name)?;
        unique(hosts.segments.iter(), "the hosts are on this segment already")?;
        let segments = hosts.segments.iter().map(known).collect::<Result<_, _>>()?;
        let count = hosts.count.map_or(1, |count| count.0 as usize);
        world.hosts.push(HostGroup { name, count, segments, spec: host_spec(hosts)? });
    }
    for bridge in &file.bridges {
        let [a, b] = &bridge.between;
        unique([a, b].into_iter(), "a bridge joins two segments")?;
        world
            .bridges
            .push(BridgeBetween { segments: [known(a)?, known(b)?], spec: bridge_spec(bridge) });
    }
    Ok(world)
}

fn work(file: &File) -> BTreeMap<String, Duration> {
    file.work.iter().map(|(name, work)| (name.clone(), work.0)).collect()
}

fn unique<'a>(names: impl Iterator<Item = &'a Spanned<String>>, reason: &str) -> Result<(), Fault> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.get_ref()) {
            return Err((name.span(), reason.to_owned()));
        }
    }
    Ok(())
}

/// Returns the name of a group of hosts, to which numbers can be added.
fn host_name(name: &Spanned<String>) -> Result<String, Fault> {
    let text = name.get_ref();
    let letters = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if text.is_empty() || !letters {
        return Err((name.span(), "a name of hosts has letters, digits, - and _".to_owned()));
    }
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err((
            name.span(),
            "a name of hosts ends in no digit: they are numbered".to_owned(),
        ));
    }
    Ok(text.clone())
}

fn host_spec(hosts: &Hosts) -> Result<HostSpec, Fault> {
    let default = HostSpec::default();
    let time = |time: Option<TimeText>, default| time.map_or(default, |time| time.0);
    let picos = |picos: Option<PicosText>, default| picos.map_or(default, |picos| picos.0);
    Ok(HostSpec {
        cores: hosts.cores.map_or(default.cores, |cores| cores.0),
        speed_permille: hosts.speed_permille.map_or(default.speed_permille, |speed| speed.0),
        send_cost_per_packet: time(hosts.send_cost_per_packet, default.send_cost_per_packet),
        send_picos_per_byte: picos(hosts.send_cost_per_byte, default.send_picos_per_byte),
        receive_cost_per_packet: time(
            hosts.receive_cost_per_packet,
            default.receive_cost_per_packet,
        ),
        receive_picos_per_byte: picos(hosts.receive_cost_per_byte, default.receive_picos_per_byte),
        foreign: hosts.foreign.as_ref().map(foreign).transpose()?,
    })
}

fn foreign(foreign: &Foreign) -> Result<ForeignLoad, Fault> {
    let mean = |time: &Spanned<TimeText>| match time.get_ref().0 {
        mean if mean >= ForeignLoad::MEAN_MIN => Ok(mean),
        _ => Err((time.span(), format!("a mean is at least {:?}", ForeignLoad::MEAN_MIN))),
    };
    Ok(ForeignLoad {
        jobs: foreign.jobs.0,
        mean_on: mean(&foreign.mean_on)?,
        mean_off: mean(&foreign.mean_off)?,
    })
}

fn segment(segment: &Segment) -> Result<SegmentSpec, Fault> {
    let kind = match segment.kind {
        Kind::Medium => SegmentKind::Medium,
        Kind::Switch => SegmentKind::Switch,
    };
    if let (Kind::Switch, Some(slot)) = (segment.kind, &segment.slot_time) {
        return Err((slot.span(), "only a medium has slots".to_owned()));
    }
    if let (Kind::Medium, Some(total)) = (segment.kind, &segment.total_bytes_per_second) {
        return Err((total.span(), "only a switch has a limit of its own".to_owned()));
    }
    let default = LinkSpec::default();
    let time = |time: Option<TimeText>, default| time.map_or(default, |time| time.0);
    let bytes = |bytes: Option<Bytes>, default| bytes.map_or(default, |bytes| bytes.0 as usize);
    let rate = |rate: Option<Rate>, default| rate.map_or(default, |rate| rate.0);
    let spec = LinkSpec {
        latency: time(segment.latency, default.latency),
        jitter: time(segment.jitter, default.jitter),
        bytes_per_second: rate(segment.bytes_per_second, default.bytes_per_second),
        cost_per_packet: time(segment.cost_per_packet, default.cost_per_packet),
        frame_bytes: bytes(segment.frame_bytes, default.frame_bytes),
        queue_bytes: bytes(segment.queue_bytes, default.queue_bytes),
        window_bytes: bytes(segment.window_bytes, default.window_bytes),
        slot_time: time(segment.slot_time.as_ref().map(|it| *it.get_ref()), default.slot_time),
        total_bytes_per_second: rate(
            segment.total_bytes_per_second.as_ref().map(|it| *it.get_ref()),
            default.total_bytes_per_second,
        ),
    };
    Ok(SegmentSpec { name: segment.name.get_ref().clone(), kind, spec })
}

fn bridge_spec(bridge: &Bridge) -> BridgeSpec {
    let default = BridgeSpec::default();
    BridgeSpec {
        delay: bridge.delay.map_or(default.delay, |delay| delay.0),
        bytes_per_second: bridge.bytes_per_second.map_or(default.bytes_per_second, |rate| rate.0),
        queue_bytes: bridge.queue_bytes.map_or(default.queue_bytes, |bytes| bytes.0 as usize),
    }
}

/// Writes the text of a file.
pub(super) fn write(world: &WorldSpec) -> String {
    let file = File {
        work: world.work.iter().map(|(name, work)| (name.clone(), TimeText(*work))).collect(),
        hosts: world.hosts.iter().map(hosts_table).collect(),
        segments: world.segments.iter().map(segment_table).collect(),
        bridges: world.bridges.iter().map(bridge_table).collect(),
    };
    toml::to_string(&file).expect("all keys are strings, all numbers fit")
}

fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn hosts_table(group: &HostGroup) -> Hosts {
    let spec = &group.spec;
    Hosts {
        name: nowhere(group.name.clone()),
        count: Some(Within(u32::try_from(group.count).unwrap_or(HOSTS_MAX))),
        segments: group.segments.iter().cloned().map(nowhere).collect(),
        cores: Some(Within(spec.cores)),
        speed_permille: Some(Within(spec.speed_permille)),
        send_cost_per_packet: Some(TimeText(spec.send_cost_per_packet)),
        send_cost_per_byte: Some(PicosText(spec.send_picos_per_byte)),
        receive_cost_per_packet: Some(TimeText(spec.receive_cost_per_packet)),
        receive_cost_per_byte: Some(PicosText(spec.receive_picos_per_byte)),
        foreign: spec.foreign.map(|load| Foreign {
            jobs: Within(load.jobs),
            mean_on: nowhere(TimeText(load.mean_on)),
            mean_off: nowhere(TimeText(load.mean_off)),
        }),
    }
}

fn segment_table(segment: &SegmentSpec) -> Segment {
    let (spec, is_medium) = (&segment.spec, segment.kind == SegmentKind::Medium);
    let bytes = |bytes: usize| Some(Within(u32::try_from(bytes).unwrap_or(u32::MAX)));
    Segment {
        name: nowhere(segment.name.clone()),
        kind: if is_medium { Kind::Medium } else { Kind::Switch },
        latency: Some(TimeText(spec.latency)),
        jitter: Some(TimeText(spec.jitter)),
        bytes_per_second: Some(Rate(spec.bytes_per_second)),
        cost_per_packet: Some(TimeText(spec.cost_per_packet)),
        frame_bytes: bytes(spec.frame_bytes),
        queue_bytes: bytes(spec.queue_bytes),
        window_bytes: bytes(spec.window_bytes),
        slot_time: is_medium.then(|| nowhere(TimeText(spec.slot_time))),
        total_bytes_per_second: (!is_medium).then(|| nowhere(Rate(spec.total_bytes_per_second))),
    }
}

fn bridge_table(bridge: &BridgeBetween) -> Bridge {
    Bridge {
        between: bridge.segments.clone().map(nowhere),
        delay: Some(TimeText(bridge.spec.delay)),
        bytes_per_second: Some(Rate(bridge.spec.bytes_per_second)),
        queue_bytes: Some(Within(u32::try_from(bridge.spec.queue_bytes).unwrap_or(u32::MAX))),
    }
}
