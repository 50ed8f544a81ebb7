//! Processing elements: nodes on hosts of the preset `beowulf-100m`, whose costs are the list's.
//!
//! A host spends lambda and beta on each packet that it sends. *Assumed*: receiving costs as much. The
//! program of a gathering element spends `T_var` a message and `T_copy` a word. *Assumed*: both at the
//! receiver, too; nobody else uses the hosts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::stats::PeerStats;
use chunkcomm::{
    Address, BytesReceiver, BytesSender, Experiment, Node, Peer, Policy, TryRecvError, host,
};
use chunkcomm_simulation::{WorldSpec, run_within};

use crate::commands::papers::Scene;
use crate::failure::{Doing, Failure};

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = 4;

/// Bytes of a send buffer. *Fitted* to the crossover, since the paper has no number: three messages of 300
/// words fit, with which gain and overhead are equal by equation (5).
pub(super) const BUFFER_BYTES: usize = 1024 * WORD_BYTES;

/// Age at which a packet leaves. *Assumed*; the paper has no number.
pub(super) const TIME_OUT: Duration = Duration::from_millis(10);

/// Work that is done at a time at least: a shorter computation would be rounded up to a microsecond.
const AT_ONCE_NANOS: f64 = 10_000.0;

/// Virtual time after which a run counts as hung.
const LIMIT: Duration = Duration::from_secs(10 * 24 * 3600);

const SEED: u64 = 1;
const PORT: u16 = 2004;

/// Way in which elements send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sending {
    /// Each message is a packet.
    Plain,
    /// The paper's gathering, with its two settings.
    Gathered { buffer_bytes: usize, time_out: Duration },
    /// The paper's gathering, sent when our library says: nothing is set.
    Own,
}

impl Sending {
    /// The paper's gathering, as it is usually set here.
    pub(super) const USUAL: Self =
        Self::Gathered { buffer_bytes: BUFFER_BYTES, time_out: TIME_OUT };

    /// Both sides of the paper's comparisons.
    pub(super) const BOTH: [Self; 2] = [Self::Plain, Self::USUAL];
}

/// Costs of the paper's model in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    /// Of a packet.
    pub(super) lambda: f64,
    /// Of a word that is sent.
    pub(super) beta: f64,
    /// `T_var`, of a message that is gathered.
    pub(super) variable: f64,
    /// `T_copy`, of a word that is gathered.
    pub(super) copy: f64,
}

/// Hosts of one kind.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    world: WorldSpec,
    pub(super) costs: Costs,
}

impl Pool {
    /// Makes the hosts of the paper.
    pub(super) fn of(scene: &Scene<'_>) -> Result<Self, Failure> {
        let (sending, buffering) = (scene.numbers("sending-cost"), scene.numbers("buffering-cost"));
        let costs = Costs {
            lambda: sending[0],
            beta: sending[1],
            variable: buffering[0],
            copy: buffering[1],
        };
        let world = WorldSpec::preset("beowulf-100m").doing("taking the world of the paper")?;
        Ok(Self { world, costs }.with_costs(costs))
    }

    /// Replaces the costs.
    pub(super) fn with_costs(mut self, costs: Costs) -> Self {
        let (packet, byte) = (micros(costs.lambda), (costs.beta * 1e6) as u64 / WORD_BYTES as u64);
        for group in &mut self.world.hosts {
            (group.spec.send_cost_per_packet, group.spec.send_picos_per_byte) = (packet, byte);
            (group.spec.receive_cost_per_packet, group.spec.receive_picos_per_byte) =
                (packet, byte);
        }
        Self { costs, ..self }
    }

    /// Lets receiving cost nothing.
    pub(super) fn with_free_receiving(mut self) -> Self {
        for group in &mut self.world.hosts {
            group.spec.receive_cost_per_packet = Duration::ZERO;
            group.spec.receive_picos_per_byte = 0;
        }
        self
    }

    /// Multiplies the rate of the network.
    pub(super) fn with_network(mut self, factor: f64) -> Self {
        for segment in &mut self.world.segments {
            let rate = &mut segment.spec.bytes_per_second;
            *rate = (*rate as f64 * factor) as u64;
        }
        self
    }

    /// Runs the program on this many hosts; returns the results by rank.
    ///
    /// # Errors
    /// The first failure by rank.
    pub(super) fn run<R, F>(
        &self,
        hosts: usize,
        sending: Sending,
        program: impl Fn(Arc<Pe>) -> F,
    ) -> Result<Vec<R>, Failure>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let (network, hosts) = self.world.build(SEED, hosts);
        let names: Arc<[String]> =
            hosts.iter().map(|&host| network.host_name(host).to_owned()).collect();
        let ended = run_within(network, LIMIT, async |simulation| {
            // All are there before one of them begins, and until the last has ended.
            let mut elements = Vec::new();
            for (rank, &host) in hosts.iter().enumerate() {
                let pe = Pe::begin(rank, Arc::clone(&names), sending, self.costs);
                elements.push(Arc::new(simulation.on(host, pe).await?));
            }
            let running: Vec<_> = hosts
                .iter()
                .zip(&elements)
                .map(|(&host, pe)| simulation.spawn_on(host, program(Arc::clone(pe))))
                .collect();
            let mut results = Vec::new();
            for task in running {
                results.push(task.await.doing("running an element").and_then(|it| it)?);
            }
            Ok(results)
        });
        ended.unwrap_or_else(|| Err(Failure::broken("running elements", "ten days passed")))
    }
}

fn micros(micros: f64) -> Duration {
    Duration::from_nanos((micros * 1e3).round() as u64)
}

/// A processing element.
#[derive(Debug)]
pub(super) struct Pe {
    pub(super) rank: usize,
    pub(super) node: Node,
    names: Arc<[String]>,
    sending: Sending,
    costs: Costs,
    /// Work that is not done yet, in nanoseconds.
    owed: Mutex<f64>,
}

impl Pe {
    async fn begin(
        rank: usize,
        names: Arc<[String]>,
        sending: Sending,
        costs: Costs,
    ) -> Result<Self, Failure> {
        let address = Address::Simulated { host: names[rank].clone(), port: PORT };
        let node = node_of(sending).listen(address).build().await.doing("building a node")?;
        Ok(Self { rank, node, names, sending, costs, owed: Mutex::default() })
    }

    /// Makes one more node on the host of this element.
    pub(super) async fn another_node(&self) -> Result<Node, Failure> {
        node_of(self.sending).build().await.doing("building a node")
    }

    /// Reaches another element.
    pub(super) async fn peer(&self, node: &Node, rank: usize) -> Result<Peer, Failure> {
        let address = Address::Simulated { host: self.names[rank].clone(), port: PORT };
        node.connect(&address).await.doing("reaching an element")
    }

    /// Opens a stream to another element.
    pub(super) async fn open(&self, rank: usize, name: &str) -> Result<BytesSender, Failure> {
        self.open_to(&self.peer(&self.node, rank).await?, name).await
    }

    pub(super) async fn open_to(&self, peer: &Peer, name: &str) -> Result<BytesSender, Failure> {
        let mut stream = peer.node().open_bytes(peer, name).await.doing("opening a stream")?;
        stream.flush().await.doing("opening a stream")?;
        Ok(stream)
    }

    /// Takes a stream that another element opens.
    pub(super) async fn accept(&self, name: &str) -> Result<(Peer, BytesReceiver), Failure> {
        self.node.accept_bytes(name).await.doing("taking a stream")
    }

    /// Works for this many microseconds, now or with later parts.
    pub(super) async fn work(&self, micros: f64) {
        let now = {
            let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
            *owed += micros * 1e3;
            if *owed < AT_ONCE_NANOS {
                return;
            }
            let whole = (*owed / 1e3).floor() * 1e3;
            *owed -= whole;
            whole
        };
        host::compute(Duration::from_nanos(now as u64), || ()).await;
    }

    /// Spends what gathering a message costs.
    async fn gather(&self, bytes: usize) {
        if self.sending != Sending::Plain {
            let words = bytes.div_ceil(WORD_BYTES) as f64;
            self.work(self.costs.variable + self.costs.copy * words).await;
        }
    }

    /// Sends an element of a list.
    pub(super) async fn send(&self, stream: &mut BytesSender, item: &[u8]) -> Result<(), Failure> {
        self.gather(item.len()).await;
        stream.send_slice(item).await.doing("sending an item")
    }

    /// Sends a single value: urgent.
    pub(super) async fn send_now(
        &self,
        stream: &mut BytesSender,
        item: &[u8],
    ) -> Result<(), Failure> {
        self.gather(item.len()).await;
        stream.send_slice_now(item).await.doing("sending a value")
    }

    /// Takes an item. While there is none the element is idle, so what it has gathered leaves.
    pub(super) async fn take(
        &self,
        stream: &mut BytesReceiver,
        gathered: &mut [BytesSender],
    ) -> Result<Option<Bytes>, Failure> {
        let item = match stream.try_recv() {
            Ok(item) => Some(item),
            Err(TryRecvError::Empty) => {
                for stream in gathered {
                    stream.flush().await.doing("sending what was gathered")?;
                }
                stream.recv().await.doing("taking an item")?
            }
            Err(TryRecvError::Ended) => None,
            Err(error) => return Err(error).doing("taking an item"),
        };
        if let Some(item) = &item {
            self.gather(item.len()).await;
        }
        Ok(item)
    }
}

fn node_of(sending: Sending) -> chunkcomm::NodeBuilder {
    let (policy, packet_bytes_max) = match sending {
        Sending::Plain => (Policy::Unbuffered, None),
        Sending::Gathered { buffer_bytes, time_out } => {
            (Policy::Linger(time_out), Some(buffer_bytes))
        }
        Sending::Own => (Policy::Chunked, None),
    };
    let experiment = Experiment { packet_bytes_max, ..Experiment::default() };
    Node::builder().quiet().policy(policy).experiment(experiment)
}

/// Returns an item of this many words, all of one value.
pub(super) fn item(value: usize, words: usize) -> Vec<u8> {
    (value as u32).to_be_bytes().repeat(words)
}

/// Returns the first word of an item.
pub(super) fn word(item: &[u8]) -> u32 {
    item.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Counts of what a node has sent to its peers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) messages: f64,
    /// Packets with messages.
    pub(super) packets: f64,
    /// All packets: those of credit and acknowledgements, too.
    pub(super) all_packets: f64,
}

impl Sent {
    pub(super) fn to(peer: &Peer) -> Self {
        let PeerStats { messages_sent, message_packets_sent, packets_sent, .. } = peer.stats();
        Self {
            messages: messages_sent as f64,
            packets: message_packets_sent as f64,
            all_packets: packets_sent as f64,
        }
    }

    fn with(self, other: Self, sign: f64) -> Self {
        Self {
            messages: self.messages + sign * other.messages,
            packets: self.packets + sign * other.packets,
            all_packets: self.all_packets + sign * other.all_packets,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        self.with(other, 1.0)
    }

    pub(super) fn since(self, before: Self) -> Self {
        self.with(before, -1.0)
    }
}
