//! Our side: the library, used as its documentation says.

pub mod arrays;
pub mod bandwidth;
pub mod calls;
pub mod chain;
pub mod channels;
pub mod cluster;
pub mod collective;
pub mod farm;
pub mod feed;
pub mod flows;
pub mod idle;
pub mod latency;
pub mod starve;
pub mod stream;
pub mod tracked;

use std::sync::atomic::{AtomicU32, Ordering};

use chunkcomm::explain::Way;
use chunkcomm::proto::limits::WINDOW_BYTES_INITIAL;
use chunkcomm::{Address, Experiment, Limits, Node, NodeBuilder, Peer, Policy};
use chunkcomm_testkit::free_path;

use crate::failure::{Doing, Failure};
use crate::harness::far::Opening;
use crate::harness::machine::now_ns;
use crate::harness::protocol::{NodeKind, Order, Place, PolicyKind, RuntimeKind, Transport};
use crate::options::copy;

/// Builds a node of the near end, which dials and does not listen.
async fn near_node(kind: NodeKind, place: &Place, bytes: usize) -> Result<Node, Failure> {
    build(kind, place, None, bytes).await
}

/// Builds a node of the near end with its link to the far end that has announced this address.
pub(crate) async fn linked_node(
    kind: NodeKind,
    place: &Place,
    bytes: usize,
    text: &str,
) -> Result<(Node, Peer), Failure> {
    let node = near_node(kind, place, bytes).await?;
    let peer = node.connect(&address(text)?).await.doing("connecting")?;
    match peer.way() {
        Way::Tcp { why } if copy::same_host_is_on() => Err(Failure::broken("leaving TCP", why)),
        _ => Ok((node, peer)),
    }
}

/// Builds the node of a far end and sends the near end its address.
pub(crate) fn far_node(
    kind: NodeKind,
    opening: &mut Opening<'_>,
    bytes: usize,
) -> Result<Node, Failure> {
    let (node, address) = opening.runtime.block_on(listening_node(kind, opening.place, bytes))?;
    opening.announce(address)?;
    Ok(node)
}

/// Builds a node that others dial, as the far ends' are; returns it with its address.
pub(crate) async fn listening_node(
    kind: NodeKind,
    place: &Place,
    bytes: usize,
) -> Result<(Node, String), Failure> {
    let node = build(kind, place, Some(listen_address(place)?), bytes).await?;
    let address = node.addresses().first().map(ToString::to_string);
    let address = address.ok_or_else(|| Failure::broken("listening", "the node has no address"))?;
    Ok((node, address))
}

async fn build(
    kind: NodeKind,
    place: &Place,
    listen: Option<Address>,
    bytes: usize,
) -> Result<Node, Failure> {
    let mut builder = Node::builder().quiet().policy(match kind.policy {
        PolicyKind::Chunked => Policy::Chunked,
        PolicyKind::Unbuffered => Policy::Unbuffered,
        PolicyKind::Linger(time) => Policy::Linger(time),
    });
    let mut limits = Limits::default();
    if let Some(channels) = kind.channels {
        limits.window_bytes_max = channels * WINDOW_BYTES_A_CHANNEL;
    }
    if bytes > MESSAGE_BYTES_USUAL {
        limits.message_bytes_max = bytes;
    }
    builder = builder.limits(limits).experiment(Experiment {
        packet_bytes_max: kind.packet_bytes,
        session_off: !kind.session,
        ..Experiment::default()
    });
    if let Some(address) = listen {
        builder = builder.listen(address);
    }
    if !is_loopback(&place.host) {
        // `serve` has asked for a loudly named option before it lets a stranger choose this.
        builder = builder.insecure_bind_beyond_loopback();
    }
    start(builder, place.runtime).await
}

/// Builds a node that this runtime drives, and that explains itself at SIGUSR1.
///
/// # Errors
/// If the node cannot be built.
pub async fn start(builder: NodeBuilder, runtime: RuntimeKind) -> Result<Node, Failure> {
    let builder = match runtime {
        RuntimeKind::Ambient => builder,
        RuntimeKind::IoThread => builder.io_thread(),
        RuntimeKind::BusyPoll => builder.busy_poll(),
    };
    let node = builder.build().await.doing("building a node")?;
    #[cfg(unix)]
    node.explain_on_sigusr1().doing("handling SIGUSR1")?;
    Ok(node)
}

/// Memory of a link for each of its channels, in bytes. A quarter is the channel's first window, for
/// all of which half of the memory is set aside. So half as many may still be opened.
const WINDOW_BYTES_A_CHANNEL: usize = 4 * WINDOW_BYTES_INITIAL as usize;

/// Largest messages that the library's own limits let pass: 1 MiB.
const MESSAGE_BYTES_USUAL: usize = 1 << 20;

fn listen_address(place: &Place) -> Result<Address, Failure> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    match place.transport {
        // The credential of TLS comes from the environment.
        Transport::Tcp | Transport::Tls => {
            format!("{}:0", bracketed(&place.host)).parse().doing("listening")
        }
        Transport::Unix => Ok(Address::Unix(free_path("socket"))),
        Transport::Memory => {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            Ok(Address::Memory(format!("chunkperf-{}-{count}", std::process::id())))
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn is_loopback(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Parses the address that a far end has announced.
pub(crate) fn address(text: &str) -> Result<Address, Failure> {
    text.parse().doing("understanding the far end's address")
}

/// Takes a slice's connection out of its place, to which it returns only if the slice succeeds.
pub(crate) fn taken<T>(place: &mut Option<T>, doing: &str) -> Result<T, Failure> {
    place.take().ok_or_else(|| Failure::broken(doing, "it is closed"))
}

/// Returns the failure of a stream with fewer messages than were ordered.
pub(crate) fn ended() -> Failure {
    Failure::broken("receiving", "the stream ended too early")
}

/// Times of every `every`-th number, noted as the numbers pass.
pub(crate) struct Marks {
    every: u64,
    next: u64,
    pub(crate) times_ns: Vec<u64>,
}

impl Marks {
    pub(crate) fn new(order: &Order) -> Self {
        let next = if order.mark_every == 0 { u64::MAX } else { order.first };
        Self { every: order.mark_every, next, times_ns: Vec::new() }
    }

    #[inline]
    pub(crate) fn note(&mut self, sequence: u64) {
        if sequence == self.next {
            self.times_ns.push(now_ns());
            self.next += self.every;
        }
    }
}
