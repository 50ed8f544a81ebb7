//! A node process of the lab: it builds nodes, sends and receives as the lab orders.

mod rounds;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chunkcomm::{Address, Node, NodeBuilder, Peer, Silence};
use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::control::Control;
use chunkcomm_bench::harness::protocol::Place;
use chunkcomm_bench::harness::{far, machine, runtime};
use chunkcomm_bench::{ours, with_message_of};
use tokio::task::{JoinHandle, JoinSet};

use self::rounds::Rounds;
use self::work::{Lot, Pace};
use super::protocol::{Collected, Outcome, Reply, Request, Work};

/// Hidden subcommand that makes a process a node of the lab.
pub const NODE_COMMAND: &str = "node";

/// Name of the channel by which a dialled node learns of its peer.
const MEETING: &str = "meeting";

/// Most dials under way at the same time.
const DIALS_MAX: usize = 32;

/// Number of panics of this process, in all threads.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Serves the lab over standard input and output until the input ends.
///
/// # Errors
/// If the lab breaks off.
pub fn serve() -> Result<(), Failure> {
    machine::die_with_parent();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(panic);
    }));
    let mut control = Control::new(std::io::stdin(), std::io::stdout());
    let setup = runtime::start(1)?.block_on(control.receive())?;
    let Some(Request::Setup { place, dead_ms, seed }) = setup else {
        return Err(Failure::broken("starting a node of the lab", "it was not told where"));
    };
    control.send(&Reply::Ready { files: allow_files() })?;
    machine::pin(place.core);
    let runtime = runtime::start(place.threads)?;
    let mut process = Process::new(place, Duration::from_millis(dead_ms), seed);
    runtime.block_on(async {
        while let Some(request) = control.receive().await? {
            let reply = process.handle(request).await;
            control.send(&reply.unwrap_or_else(|failure| Reply::Failed(failure.to_string())))?;
        }
        Ok(())
    })
}

struct Process {
    place: Place,
    dead: Duration,
    seed: u64,
    listening: Option<Node>,
    links: Vec<(Node, Peer)>,
    rounds: Rounds,
    work: Vec<Started>,
    stop: Arc<AtomicBool>,
}

/// Dials under way.
type Dials = JoinSet<Result<(Node, Peer), Failure>>;

struct Started {
    task: JoinHandle<Outcome>,
    taken: Arc<AtomicU64>,
}

/// Raises the limit of open files as far as the system allows; returns the limit.
pub fn allow_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If the system refuses, the limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

impl Process {
    fn new(place: Place, dead: Duration, seed: u64) -> Self {
        Self {
            place,
            dead,
            seed,
            listening: None,
            links: Vec::new(),
            rounds: Rounds::default(),
            work: Vec::new(),
            stop: Arc::default(),
        }
    }

    async fn handle(&mut self, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Setup { .. } => Err(Failure::broken("setting up", "it was done before")),
            Request::Listen => self.listen().await,
            Request::Dial { count, address } => self.dial(count, &address).await,
            Request::Meet { count } => self.meet(count).await,
            Request::Start(work) => self.start(work).await,
            Request::Stop => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(Reply::Done)
            }
            Request::Collect => self.collect().await,
            Request::Round { number } => Ok(self.rounds.run(number, &self.links).await),
            Request::Usage => {
                let taken = self.work.iter().map(|work| work.taken.load(Ordering::Relaxed));
                Ok(Reply::Usage { usage: far::usage(), taken: taken.collect() })
            }
        }
    }

    /// Returns a builder with the settings that both sides share.
    fn builder(&self) -> NodeBuilder {
        // In the proportions of the library's own 1 s, 3 s and 10 s.
        let dead = self.dead;
        let silence = Silence { probe: dead / 10, suspect: dead * 3 / 10, dead };
        let mut builder = Node::builder().quiet().silence(silence);
        if !self.place.host.starts_with("127.") {
            // The node is in a namespace of its own, without strangers.
            builder = builder.insecure_bind_beyond_loopback();
        }
        builder
    }

    async fn listen(&mut self) -> Result<Reply, Failure> {
        let anywhere: Address = format!("{}:0", self.place.host).parse().doing("listening")?;
        let node = ours::start(self.builder().listen(anywhere), self.place.runtime).await?;
        let address = node.addresses().first().map(ToString::to_string);
        self.listening = Some(node);
        let address = address.ok_or_else(|| Failure::broken("listening", "there is no address"))?;
        Ok(Reply::Listening { address })
    }

    async fn dial(&mut self, count: usize, text: &str) -> Result<Reply, Failure> {
        let target: Address = text.parse().doing("understanding an address")?;
        let mut dials = Dials::new();
        for _ in 0..count {
            if dials.len() >= DIALS_MAX {
                self.dialled(&mut dials).await?;
            }
            let node = ours::start(self.builder(), self.place.runtime).await?;
            let target = target.clone();
            dials.spawn(async move {
                let peer = node.connect(&target).await.doing("connecting")?;
                let mut meeting =
                    node.open::<u64>(&peer, MEETING).await.doing("opening the meeting")?;
                meeting.send(&0).await.doing("meeting")?;
                // Returns when the peer has taken the message: the link is then complete on both
                // sides.
                meeting.close(work::CLOSE_DEADLINE).await.doing("meeting")?;
                Ok((node, peer))
            });
        }
        while !dials.is_empty() {
            self.dialled(&mut dials).await?;
        }
        Ok(Reply::Done)
    }

    /// Waits for the next dial under way and keeps its link.
    async fn dialled(&mut self, dials: &mut Dials) -> Result<(), Failure> {
        if let Some(link) = dials.join_next().await {
            self.links.push(link.doing("dialling")??);
        }
        Ok(())
    }

    async fn meet(&mut self, count: usize) -> Result<Reply, Failure> {
        let node = self.node()?;
        for _ in 0..count {
            let (peer, mut meeting) = node.accept::<u64>(MEETING).await.doing("meeting a peer")?;
            while meeting.recv().await.doing("meeting a peer")?.is_some() {}
            self.links.push((node.clone(), peer));
        }
        Ok(Reply::Done)
    }

    /// Returns the node that listens, or the first that dialled.
    fn node(&self) -> Result<Node, Failure> {
        let dialled = || self.links.first().map(|(node, _)| node);
        let node = self.listening.as_ref().or_else(dialled).cloned();
        node.ok_or_else(|| Failure::broken("using a node", "there is none"))
    }

    async fn start(&mut self, work: Work) -> Result<Reply, Failure> {
        let taken = Arc::new(AtomicU64::new(0));
        let (stop, seed) = (Arc::clone(&self.stop), self.seed);
        let lot = Lot { taken: Arc::clone(&taken), stop, seed };
        let task = match work {
            Work::Produce { channel, bytes } => {
                let link = self.links.first().cloned();
                let (node, peer) =
                    link.ok_or_else(|| Failure::broken("sending", "there is no link"))?;
                with_message_of!(bytes, M => {
                    let sender = node.open::<M>(&peer, &channel).await.doing("opening a channel")?;
                    tokio::spawn(work::produce(sender, bytes, lot))
                })
            }
            Work::Consume { channel, bytes, rate, silences } => {
                let node = self.node()?;
                let pace = Pace { rate, silences };
                with_message_of!(bytes, M => {
                    tokio::spawn(work::consume::<M>(node, channel, bytes, pace, lot))
                })
            }
            Work::ConsumeRounds { links } => {
                tokio::spawn(rounds::consume(self.node()?, links, lot))
            }
        };
        self.work.push(Started { task, taken });
        Ok(Reply::Done)
    }

    async fn collect(&mut self) -> Result<Reply, Failure> {
        // The rounds' senders wait for nothing: their channels end here.
        self.rounds = Rounds::default();
        let mut outcomes = Vec::new();
        for started in self.work.drain(..) {
            outcomes.push(started.task.await.doing("working")?);
        }
        self.stop = Arc::default();
        let panics = PANICS.load(Ordering::Relaxed);
        Ok(Reply::Collected(Collected { outcomes, panics }))
    }
}
