//! Random graphs of channels with the smallest windows: while a receiver keeps
//! receiving, its channel goes on, whatever the others do.
//!
//! A seed stands for some nodes, the links between them, and many channels in all directions, whose
//! windows hold a packet and never grow. Some receivers take everything, some slowly, some nothing,
//! some stop. Some begin only when another channel of their node has brought a number of messages.
//! So most windows are full for ever, and most senders wait for ever. The oracle knows which may
//! wait: a channel whose receiver is not yet at its end, and keeps receiving, must bring every
//! message. Faults belong to the other simulation. The links are the network model's.

mod end;

use chunkcomm_proto::Time;
use chunkcomm_proto::limits::{OPEN_CREDIT_DIVISOR, WINDOW_BYTES_INITIAL};
use chunkcomm_proto::random::Random;
use chunkcomm_simulation::{HostId, LinkSpec, Network};
use end::{End, Receiver, Taker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Time when all links are there.
const BEGIN: Time = Time(1_000_000_000);

/// Time between two looks at all nodes.
const STEP: Duration = Duration::from_millis(1);

/// Steps without movement of a byte or message, after which none will move: longer than every timer
/// of a link that is not silent.
const STEPS_STILL: u32 = 2_500;

/// Steps of a seed at most.
const STEPS_MAX: u32 = 200_000;

/// Result of a run of one seed.
#[derive(Debug, Clone, Default)]
pub struct GraphOutcome {
    /// The seed.
    pub seed: u64,
    /// Hash over everything that was taken and when; the same for the same seed.
    pub trace: u64,
    /// Channels, and of them those whose receivers keep receiving.
    pub channels: [u64; 2],
    /// Channels with a sender that waits for ever.
    pub waiting: u64,
    /// Messages that were taken.
    pub messages: u64,
    /// The first violation of a check.
    pub violation: Option<String>,
}

impl GraphOutcome {
    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &GraphOutcome) {
        self.channels[0] += other.channels[0];
        self.channels[1] += other.channels[1];
        self.waiting += other.waiting;
        self.messages += other.messages;
    }
}

/// A channel: its sending end, its number there, and its receiving end.
#[derive(Debug, Clone, Copy)]
struct Edge {
    from: usize,
    id: u32,
    to: usize,
}

struct Graph {
    random: Random,
    network: Network,
    now: Time,
    /// The ends of all links; the two of a link follow each other.
    ends: Vec<End>,
    edges: Vec<Edge>,
    trace: u64,
}

/// Runs the graph of `seed`.
pub fn run_graph(seed: u64) -> GraphOutcome {
    let mut graph = Graph::new(seed);
    // Faults of this crate are panics.
    let ran = catch_unwind(AssertUnwindSafe(|| graph.run()));
    let violation = match ran {
        Ok(violation) => violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    };
    let live = graph.live();
    GraphOutcome {
        seed,
        trace: graph.trace,
        channels: [graph.edges.len() as u64, live.iter().filter(|it| it.is_some()).count() as u64],
        waiting: graph.edges.iter().filter(|edge| graph.ends[edge.from].waits(edge.id)).count()
            as u64,
        messages: graph.edges.iter().map(|edge| graph.receiver(edge).taken).sum(),
        violation,
    }
}

impl Graph {
    fn new(seed: u64) -> Graph {
        let mut random = Random::fork(seed, 31);
        let nodes = random.range(2, 6) as usize;
        let mut network = Network::new(random.next_u64());
        let hosts: Vec<HostId> =
            (0..nodes).map(|node| network.add_host(&format!("node {node}"))).collect();
        let mut graph =
            Graph { network, now: BEGIN, ends: Vec::new(), edges: Vec::new(), trace: seed, random };
        for one in 0..nodes {
            for other in one + 1..nodes {
                // A path at least, so that every node has a link.
                if other == one + 1 || graph.random.one_in(2) {
                    graph.link([one, other], [hosts[one], hosts[other]]);
                }
            }
        }
        graph.give_receivers();
        graph
    }

    /// Joins two nodes by a link with channels in both directions.
    fn link(&mut self, nodes: [usize; 2], hosts: [HostId; 2]) {
        let spec = self.spec();
        self.network.link(hosts[0], hosts[1], spec);
        let port = self.network.listen(hosts[1], 0).expect("there are more ports than nodes");
        let dialled = self.network.dial(Time(0), hosts[0], hosts[1], port).expect("just joined");
        let ways = [dialled, dialled.peer()];
        let counts = [0, 1].map(|_| self.random.range(1, 8));
        let first = self.ends.len();
        for side in 0..2 {
            // Room for exactly the channels below: an open never waits.
            let windows = counts.map(|count| OPEN_CREDIT_DIVISOR * WINDOW_BYTES_INITIAL * count);
            let credit = [windows[side], windows[1 - side]];
            let key = self.random.next_u64();
            // The key tells the receiver which messages must come.
            let place = (nodes[side], ways[side]);
            self.ends.push(End::new(place, credit, key, &mut self.random, self.now));
        }
        for side in 0..2 {
            for _ in 0..counts[1 - side] {
                let (from, to) = (first + side, first + 1 - side);
                let id = self.ends[from].open(&mut self.random, self.now);
                self.edges.push(Edge { from, id, to });
            }
        }
    }

    /// Returns a random link, with buffers from less than a packet to more than all windows.
    fn spec(&mut self) -> LinkSpec {
        let random = &mut self.random;
        LinkSpec {
            latency: Duration::from_micros(random.range(1, 2000)),
            jitter: Duration::from_micros(random.below(100)),
            bytes_per_second: random.pick(&[4_000_000, 100_000_000, u64::MAX]),
            cost_per_packet: Duration::from_micros(random.below(10)),
            frame_bytes: random.pick(&[1460, 64 * 1024]),
            queue_bytes: random.pick(&[512, 8 * 1024, 256 * 1024]),
            window_bytes: random.pick(&[512, 8 * 1024, 256 * 1024]),
            ..LinkSpec::default()
        }
    }

    fn give_receivers(&mut self) {
        for at in 0..self.edges.len() {
            let Edge { from, id, to } = self.edges[at];
            let messages = self.ends[from].messages(id);
            // Only earlier channels, so that receivers do not wait in a circle.
            let before: Vec<usize> = (0..at)
                .filter(|it| self.ends[self.edges[*it].to].node == self.ends[to].node)
                .collect();
            let taker = match self.random.below(10) {
                0..=2 => Taker::Always,
                3 => Taker::Slow(self.random.range(1, 4)),
                4 | 5 => Taker::Never,
                6 => Taker::Stops(self.random.below(messages + 1)),
                _ if before.is_empty() => Taker::Always,
                _ => {
                    let other = self.random.pick(&before);
                    let edge = self.edges[other];
                    let all = self.ends[edge.from].messages(edge.id);
                    Taker::After(other, self.random.range(1, all + 1))
                }
            };
            let key = self.ends[from].key;
            self.ends[to].receivers.push(Receiver::new(taker, key, id));
        }
    }

    fn receiver(&self, edge: &Edge) -> &Receiver {
        &self.ends[edge.to].receivers[edge.id as usize - 1]
    }

    /// Returns how many messages each channel must bring; `None` where a receiver takes nothing.
    /// Receivers wait only for earlier channels, so one pass is enough.
    fn live(&self) -> Vec<Option<u64>> {
        let mut live: Vec<Option<u64>> = Vec::new();
        for edge in &self.edges {
            let all = self.ends[edge.from].messages(edge.id);
            live.push(match self.receiver(edge).taker {
                Taker::Always | Taker::Slow(_) => Some(all),
                Taker::Never => None,
                Taker::Stops(count) => Some(count),
                Taker::After(other, count) => {
                    live[other].is_some_and(|brings| brings >= count).then_some(all)
                }
            });
        }
        live
    }

    fn run(&mut self) -> Option<String> {
        let live = self.live();
        let mut still = 0;
        for _ in 0..STEPS_MAX {
            let moved = self.step();
            if let Some(wrong) = self.ends.iter().find_map(|end| end.wrong.clone()) {
                return Some(format!("at {}: {wrong}", self.now.0));
            }
            still = if moved { 0 } else { still + 1 };
            let done = |(edge, live): (&Edge, &Option<u64>)| {
                live.is_none_or(|count| self.receiver(edge).taken >= count)
            };
            if self.edges.iter().zip(&live).all(done) {
                return None;
            }
            if still > STEPS_STILL {
                return Some(self.stuck(&live));
            }
        }
        Some("it does not come to rest".to_owned())
    }

    /// Lets every end have a look, from a random one on; returns whether anything moved.
    fn step(&mut self) -> bool {
        self.now = self.now.after(STEP);
        // Every end looks at every step, so the network's events are not needed.
        while self.network.poll_event(self.now).is_some() {}
        self.open_gates();
        let mut moved = false;
        let first = self.random.below(self.ends.len() as u64) as usize;
        for at in 0..self.ends.len() {
            let at = (first + at) % self.ends.len();
            let progress = self.ends[at].look(&mut self.network, &mut self.random, self.now);
            for part in [self.now.0, progress] {
                self.trace = (self.trace ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                self.trace = self.trace.rotate_left(23);
            }
            moved |= progress > 0;
        }
        moved
    }

    /// Lets receivers begin for which another channel has brought enough.
    fn open_gates(&mut self) {
        for at in 0..self.edges.len() {
            let edge = self.edges[at];
            if let Taker::After(other, count) = self.receiver(&edge).taker {
                let open = self.receiver(&self.edges[other]).taken >= count;
                self.ends[edge.to].receivers[edge.id as usize - 1].open = open;
            }
        }
    }

    fn stuck(&self, live: &[Option<u64>]) -> String {
        let mut text = format!("at {}: stuck are", self.now.0);
        for (edge, live) in self.edges.iter().zip(live) {
            let receiver = self.receiver(edge);
            if let Some(count) = live.filter(|count| receiver.taken < *count) {
                let nodes = [edge.from, edge.to].map(|end| self.ends[end].node);
                let (taken, taker) = (receiver.taken, receiver.taker);
                text += &format!(
                    " channel {} of node {} to node {}: {taken} of {count} taken ({taker:?});",
                    edge.id, nodes[0], nodes[1]
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_receiving_gets_everything_whatever_the_others_do() {
        let mut sum = GraphOutcome::default();
        for seed in 0..30 {
            let outcome = run_graph(seed);
            assert_eq!(outcome.violation, None, "seed {seed}");
            if seed % 10 == 0 {
                assert_eq!(run_graph(seed).trace, outcome.trace, "seed {seed}");
            }
            sum.add(&outcome);
        }
        // Enough channels stand still for this to say something.
        assert!(sum.waiting > 150 && sum.channels[1] > 150, "{sum:?}");
    }
}
