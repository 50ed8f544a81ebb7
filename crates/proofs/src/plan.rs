//! The plan of a seed: nodes, the network between them, their messages, and the faults.

mod joining;

pub(super) use joining::Wiring;

use chunkcomm_proto::Time;
use chunkcomm_proto::limits::{
    DEAD_MS_DEFAULT, OPEN_CREDIT_DIVISOR, PACKET_BYTES_SMALL, PROBE_MS_DEFAULT, SUSPECT_MS_DEFAULT,
};
use chunkcomm_proto::link::LinkConfig;
use chunkcomm_proto::liveness::Silence;
use chunkcomm_proto::random::Random;
use chunkcomm_proto::tuning::flush::Policy;
use chunkcomm_proto::tuning::without::Without;
use chunkcomm_simulation::LinkSpec;
use joining::link;
use std::time::Duration;

/// Bytes of the largest message.
pub(super) const MESSAGE_BYTES_MAX: u64 = 200_000;

/// Faults that find an end, and messages that arrive, at least in a seed. While a seed is short of
/// them, further sessions follow the first, and further faults the planned ones.
pub(super) const FAULTS_MIN: u64 = 5;
pub(super) const MESSAGES_MIN: u64 = 1000;

/// Direction between the two nodes of a pair: to the side with this number, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    To(usize),
    Both,
}

impl Way {
    pub(super) fn sides(self) -> &'static [usize] {
        match self {
            Way::To(0) => &[0],
            Way::To(_) => &[1],
            Way::Both => &[0, 1],
        }
    }
}

/// Departure of a faulty peer from the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It leaves a numbered packet out.
    Gap,
    /// It acknowledges packets that were never written.
    Ack,
    /// When a connection begins, it has forgotten packets that it acknowledged.
    ReceivedLow,
    /// When a connection begins, it claims packets that were never written.
    ReceivedHigh,
    /// It sends a packet again with other content.
    OtherPacket,
}

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection breaks; each end learns of it in its own time.
    Cut { pair: usize },
    /// Nothing gets through for a time.
    Hold { pair: usize, way: Way, time: Duration },
    /// Nothing gets through on this connection for ever, without notice to anybody.
    Sever { pair: usize, way: Way },
    /// A process is stopped for a time.
    Pause { node: usize, time: Duration },
    /// A node's clock runs ahead by this time.
    Jump { node: usize, by: Duration },
    /// A node is gone, with or without notice; it comes back as another incarnation, or not.
    Crash { node: usize, silent: bool, back: Option<Duration> },
    /// Connections dialled within this time are accepted late.
    Late { pair: usize, time: Duration },
    /// A connection of long ago arrives.
    Stale { pair: usize },
    /// A copy of the dialler begins the same session.
    Copy { pair: usize },
    /// A receiver takes nothing for a time.
    Slow { pair: usize, side: usize, time: Duration },
    /// One side of a link departs from the protocol.
    Wrong { pair: usize, side: usize, how: Wrong },
}

pub(super) const FAULT_NAMES: [&str; 11] =
    ["cut", "hold", "sever", "pause", "jump", "crash", "late", "stale", "copy", "slow", "wrong"];

impl Fault {
    pub(super) fn index(self) -> usize {
        match self {
            Fault::Cut { .. } => 0,
            Fault::Hold { .. } => 1,
            Fault::Sever { .. } => 2,
            Fault::Pause { .. } => 3,
            Fault::Jump { .. } => 4,
            Fault::Crash { .. } => 5,
            Fault::Late { .. } => 6,
            Fault::Stale { .. } => 7,
            Fault::Copy { .. } => 8,
            Fault::Slow { .. } => 9,
            Fault::Wrong { .. } => 10,
        }
    }

    /// Returns the pair that the fault is about, if it is about one.
    pub(super) fn pair(self) -> Option<usize> {
        match self {
            Fault::Cut { pair }
            | Fault::Hold { pair, .. }
            | Fault::Sever { pair, .. }
            | Fault::Late { pair, .. }
            | Fault::Stale { pair }
            | Fault::Copy { pair }
            | Fault::Slow { pair, .. }
            | Fault::Wrong { pair, .. } => Some(pair),
            Fault::Pause { .. } | Fault::Jump { .. } | Fault::Crash { .. } => None,
        }
    }

    /// Returns how long the fault lasts.
    pub(super) fn time(self) -> Duration {
        match self {
            Fault::Hold { time, .. }
            | Fault::Pause { time, .. }
            | Fault::Late { time, .. }
            | Fault::Slow { time, .. } => time,
            Fault::Crash { back, .. } => back.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }
}

/// States in which a fault finds an end; the first that holds counts.
pub(super) const STATE_NAMES: [&str; 10] = [
    "bye",
    "offline",
    "ring full",
    "mid-fragment",
    "mid-packet in",
    "mid-packet out",
    "draining",
    "staged",
    "in flight",
    "idle",
];

/// Condition under which a fault comes, after the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Always.
    Any,
    /// Its pair has a connection.
    Linked,
    /// An end is in this state.
    State { pair: usize, side: usize, state: usize },
}

/// A fault and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    /// Time after the fault before it.
    pub(super) gap: Duration,
    pub(super) when: When,
    /// Longest wait for `when`.
    pub(super) patience: Duration,
    pub(super) fault: Fault,
}

impl Planned {
    /// Whether it is one more of a burst.
    pub(super) fn is_repeated(&self) -> bool {
        self.patience == Duration::ZERO
    }
}

/// A link between two nodes.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    /// The nodes; the first one dials.
    pub(super) nodes: [usize; 2],
    /// Network between the two.
    pub(super) spec: LinkSpec,
    /// Time in which bytes written at one end have arrived at the other, while only earlier bytes
    /// are in the way.
    pub(super) crossing: Duration,
    /// Sides that close.
    pub(super) closes: [bool; 2],
    /// Whether they close without waiting for what the other still sends.
    pub(super) early: bool,
    /// Whether words at the start of a connection claim less than is true.
    pub(super) modest: bool,
    /// Whether the dialler's system asks for the peer's on an idle connection. Not all do.
    pub(super) asks: bool,
}

/// Plan of a seed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) wiring: Wiring,
    pub(super) pairs: Vec<Pair>,
    /// Faults, in the order in which they come.
    pub(super) faults: Vec<Planned>,
    /// Time during which messages are sent, about.
    pub(super) work: Duration,
    /// Messages of a channel in a first session.
    pub(super) messages: u64,
    /// One read in this many takes few bytes only.
    pub(super) crumbs: u64,
}

const MS: u64 = 1_000_000;

/// Number of states of an end: those of `STATE_NAMES`, and one more for a talk.
const STATES: u64 = STATE_NAMES.len() as u64 + 1;
/// Index of the state `draining` in `STATE_NAMES`.
const DRAINING: usize = 6;

fn nanos(random: &mut Random, from: u64, to: u64) -> Duration {
    Duration::from_nanos(random.range(from, to))
}

impl Plan {
    pub(super) fn of(seed: u64) -> Plan {
        let mut random = Random::fork(seed, 1);
        let nodes = match random.below(10) {
            0 => 3,
            1 if random.one_in(2) => 4,
            _ => 2,
        };
        let wiring = random.pick(&[Wiring::Links, Wiring::Links, Wiring::Medium, Wiring::Switch]);
        let count = nodes * (nodes - 1) / 2;
        // A medium or switch is one network for all pairs.
        let one_for_all = link(&mut random, count as u64);
        let mut pairs = Vec::new();
        for one in 0..nodes {
            for other in one + 1..nodes {
                let link = match wiring {
                    Wiring::Links => link(&mut random, 1),
                    Wiring::Medium | Wiring::Switch => one_for_all,
                };
                pairs.push(pair(&mut random, [one, other], link));
            }
        }
        let work = Duration::from_millis(random.pick(&[20, 200, 1000, 5000]));
        let channels = 6 * pairs.len() as u64;
        let mut plan = Plan {
            nodes,
            wiring,
            faults: Vec::new(),
            work,
            messages: MESSAGES_MIN.div_ceil(channels) + random.below(30),
            crumbs: random.pick(&[4, 30, 1000]),
            pairs,
        };
        plan.go_wrong(&mut random);
        plan
    }

    fn go_wrong(&mut self, random: &mut Random) {
        // One seed in three has faults that may end sessions.
        let grave = random.one_in(3);
        let count = random.range(FAULTS_MIN, 14);
        let gap = self.work.as_nanos() as u64 * 5 / 2 / count;
        for _ in 0..count {
            let fault = self.fault(random, grave);
            let gap = nanos(random, 0, gap);
            self.faults.push(planned(random, gap, fault));
            if matches!(fault, Fault::Cut { .. }) && random.one_in(4) {
                // Cuts seldom come alone.
                for _ in 0..random.range(1, 6) {
                    let (gap, when) = (nanos(random, 0, 40 * MS), When::Any);
                    self.faults.push(Planned { gap, when, patience: Duration::ZERO, fault });
                }
            }
        }
        if random.one_in(12) {
            let (pair, side) = (self.any_pair(random), random.below(2) as usize);
            let how = random.pick(&[
                Wrong::Gap,
                Wrong::Ack,
                Wrong::ReceivedLow,
                Wrong::ReceivedHigh,
                Wrong::OtherPacket,
            ]);
            let (gap, patience) = (Duration::ZERO, Duration::from_secs(1));
            let fault = Fault::Wrong { pair, side, how };
            let at = random.below(self.faults.len() as u64) as usize;
            self.faults.insert(at, Planned { gap, when: When::Linked, patience, fault });
        }
        if random.one_in(3) {
            // The last fault meets an end that closes.
            let pair = self.any_pair(random);
            let closes = self.pairs[pair].closes;
            let (side, state) = (usize::from(!closes[0]), DRAINING);
            let (gap, patience) = (Duration::ZERO, Duration::from_secs(20));
            let fault = Fault::Cut { pair };
            let when = When::State { pair, side, state };
            self.faults.push(Planned { gap, when, patience, fault });
        }
    }

    /// Plans one fault more, for sessions that go on.
    pub(super) fn plan_another(&mut self, random: &mut Random) {
        let fault = self.fault(random, false);
        let gap = nanos(random, 0, self.work.as_nanos() as u64 / 4);
        let when = if fault.pair().is_some() { When::Linked } else { When::Any };
        self.faults.push(Planned { gap, when, patience: Duration::from_secs(20), fault });
    }

    fn any_pair(&self, random: &mut Random) -> usize {
        random.below(self.pairs.len() as u64) as usize
    }

    fn fault(&self, random: &mut Random, grave: bool) -> Fault {
        let pair = self.any_pair(random);
        let node = random.below(self.nodes as u64) as usize;
        let side = random.below(2) as usize;
        let way = if random.one_in(2) { Way::To(side) } else { Way::Both };
        let short = nanos(random, MS, 4000 * MS);
        let long = nanos(random, 4000 * MS, 14_000 * MS);
        let any = if grave && random.one_in(2) { long } else { short };
        match random.below(24) {
            0..=10 => Fault::Cut { pair },
            11 | 12 => Fault::Hold { pair, way, time: any },
            13 | 14 => Fault::Sever { pair, way },
            15 | 16 => Fault::Pause { node, time: any },
            17 => Fault::Jump { node, by: nanos(random, MS, 40_000 * MS) },
            18 if grave => {
                let back = (!random.one_in(3)).then_some(any);
                Fault::Crash { node, silent: random.one_in(2), back }
            }
            18 | 19 => Fault::Late { pair, time: short },
            20 => Fault::Copy { pair },
            21 | 22 => Fault::Stale { pair },
            _ => {
                let many = random.one_in(3);
                let time = if many { nanos(random, 11_000 * MS, 16_000 * MS) } else { short };
                Fault::Slow { pair, side, time }
            }
        }
    }
}

fn planned(random: &mut Random, gap: Duration, fault: Fault) -> Planned {
    let when = match fault {
        Fault::Cut { pair } | Fault::Sever { pair, .. } if random.one_in(2) => When::State {
            pair,
            side: random.below(2) as usize,
            state: random.below(STATES) as usize,
        },
        Fault::Crash { .. } | Fault::Pause { .. } | Fault::Jump { .. } => When::Any,
        _ if random.one_in(6) => When::Any,
        _ => When::Linked,
    };
    Planned { gap, when, patience: nanos(random, MS, 3000 * MS), fault }
}

fn pair(random: &mut Random, nodes: [usize; 2], (spec, crossing): (LinkSpec, Duration)) -> Pair {
    Pair {
        nodes,
        spec,
        crossing,
        closes: random.pick(&[[true, false], [false, true], [true, true]]),
        early: random.one_in(8),
        modest: random.one_in(4),
        asks: !random.one_in(4),
    }
}

/// Returns random configurations of the two machines of a session.
pub(super) fn configs(random: &mut Random, now: [Time; 2]) -> [LinkConfig; 2] {
    let windows = [0, 1].map(|_| random.pick(&[32, 128, 1024, 4096]) * 1024);
    let mut configs = [0, 1].map(|side: usize| LinkConfig {
        policy: match random.below(10) {
            0 => Policy::Unbuffered,
            1 => Policy::Linger(Duration::from_millis(random.range(1, 5))),
            _ => Policy::Chunked,
        },
        age_bound: Duration::from_millis(1),
        packet_bytes_max: random.pick(&[1024, 4096, 16 * 1024, 64 * 1024]),
        // Set below: side 0 does not tune its packets, side 1 does.
        packet_bytes_small: 0,
        packet_bytes_tuned: 0,
        windows_bytes_max: windows[side],
        message_bytes_max: MESSAGE_BYTES_MAX,
        peer_open_credit: windows[1 - side] / OPEN_CREDIT_DIVISOR,
        session: true,
        resend_bytes_max: random.pick(&[16, 128, 4096]) * 1024,
        silence: silence(),
        now: now[side],
        without: Without::default(),
    });
    let [fixed, tuned] = &mut configs;
    fixed.packet_bytes_small = fixed.packet_bytes_max;
    fixed.packet_bytes_tuned = fixed.packet_bytes_max;
    tuned.packet_bytes_small = tuned.packet_bytes_max.min(PACKET_BYTES_SMALL);
    tuned.packet_bytes_tuned = 4 * tuned.packet_bytes_max;
    configs
}

/// Returns the default times of silence.
pub(super) fn silence() -> Silence {
    Silence {
        probe: Duration::from_millis(PROBE_MS_DEFAULT),
        suspect: Duration::from_millis(SUSPECT_MS_DEFAULT),
        dead: Duration::from_millis(DEAD_MS_DEFAULT),
    }
}

/// Returns a random size of a message; most are small.
pub(super) fn size(random: &mut Random) -> usize {
    let (from, to) = match random.below(100) {
        0..=74 => (0, 60),
        75..=92 => (200, 2000),
        93..=97 => (5000, 12_000),
        98 => (12_000, 60_000),
        _ if random.one_in(4) => (60_000, MESSAGE_BYTES_MAX),
        _ => (8000, 30_000),
    };
    random.range(from, to) as usize
}
