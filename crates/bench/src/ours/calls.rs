//! Calls of a service with one typed message each way.

#[cfg(feature = "peers")]
mod of_trait;

use chunkcomm::stats::PeerStats;
use chunkcomm::{Node, OpenError, Peer};
use chunkcomm_cluster::{CallClient, NodeExt, Service};
use clap::ValueEnum;
use std::marker::PhantomData;
use tokio::runtime::Runtime;

use super::{far_node, linked_node, taken};
use crate::failure::{Doing, Failure};
use crate::flight::{Answering, Caller, fly};
use crate::harness::far::{FarEnd, Opening};
use crate::harness::near::{Bench, EndId};
use crate::harness::protocol::{End, NodeKind, Order};
use crate::harness::slices::{Contender, Slice};
use crate::message::Message;
use crate::with_message_of;

const SERVICE: &str = "echo";

/// Size of the messages that the trait has, in bytes.
pub const TRAIT_BYTES: usize = 16;

/// Form of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A closure.
    Closure,
    /// A method of a trait, whose messages have 16 bytes.
    Trait,
}

/// Size and number of the calls, and settings of the nodes.
#[derive(Debug, Clone, Copy)]
pub struct CallsKind {
    /// Encoded bytes of a request, and of an answer.
    pub bytes: usize,
    /// Calls at a time.
    pub in_flight: u64,
    /// The form of the service.
    pub form: Form,
    /// The node.
    pub node: NodeKind,
}

/// Connects near and far end.
///
/// # Errors
/// If either side fails.
pub fn near(bench: &mut Bench, kind: CallsKind) -> Result<Box<dyn Contender>, Failure> {
    if kind.form == Form::Trait {
        #[cfg(feature = "peers")]
        return of_trait::near(bench, kind);
        #[cfg(not(feature = "peers"))]
        return Err(crate::failure::no_peers());
    }
    with_message_of!(kind.bytes, M => {
        let client = |node: &Node, peer: &Peer| node.call_client(peer, SERVICE);
        Ok(Box::new(Near::<M, CallClient<M, M>>::open(bench, kind, client)?))
    })
}

impl<M: Message> Caller<M> for CallClient<M, M> {
    async fn call(&self, message: &M) -> Result<M, Failure> {
        CallClient::call(self, message).await.doing("calling")
    }
}

struct Near<M, C> {
    _node: Node,
    peer: Peer,
    client: C,
    kind: CallsKind,
    end: EndId,
    next: u64,
    messages: PhantomData<fn(&M)>,
}

impl<M: Message, C: Caller<M>> Near<M, C> {
    fn open(
        bench: &mut Bench,
        kind: CallsKind,
        client: impl FnOnce(&Node, &Peer) -> Result<C, OpenError>,
    ) -> Result<Self, Failure> {
        let CallsKind { bytes, node, .. } = kind;
        let (end, (node, peer, client)) =
            bench.open(End::Calls { bytes, node }, |runtime, place, text| {
                runtime.block_on(async {
                    let (node, peer) = linked_node(kind.node, place, bytes, text).await?;
                    let client = client(&node, &peer).doing("making a client")?;
                    Ok((node, peer, client))
                })
            })?;
        Ok(Self { _node: node, peer, client, kind, end, next: 0, messages: PhantomData })
    }
}

impl<M: Message, C: Caller<M>> Contender for Near<M, C> {
    fn stats(&self) -> Option<PeerStats> {
        Some(self.peer.stats())
    }

    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let order = Order { first: self.next, messages: count, mark_every: 0 };
        let CallsKind { bytes, in_flight, .. } = self.kind;
        let (samples_ns, timing) = bench.timed(self.end, &order, |runtime| {
            fly(runtime, &self.client, (bytes, in_flight), &order)
        })?;
        self.next += count;
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

struct Far {
    _node: Node,
    _of_trait: Option<Service>,
    service: Option<Service>,
    answering: Answering,
}

/// Opens the far end: a service that verifies each message and answers with the next number.
///
/// # Errors
/// If the node cannot be built.
pub fn far(bytes: usize, node: NodeKind, opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    with_message_of!(bytes, M => open_far::<M>(bytes, node, opening))
}

fn open_far<M: Message>(
    bytes: usize,
    node: NodeKind,
    mut opening: Opening<'_>,
) -> Result<Box<dyn FarEnd>, Failure> {
    // The near end calls only after this end has reported that it is ready.
    let node = far_node(node, &mut opening, bytes)?;
    let answering = Answering::new(bytes);
    let answers = answering.clone();
    #[cfg(feature = "peers")]
    let of_trait = of_trait::serve(&node, bytes, &answering)?;
    #[cfg(not(feature = "peers"))]
    let of_trait = None;
    let service = node
        .serve(SERVICE, move |message: M| {
            let answer = answers.answer(message);
            async move { answer }
        })
        .doing("serving")?;
    Ok(Box::new(Far { _node: node, _of_trait: of_trait, service: Some(service), answering }))
}

impl FarEnd for Far {
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure> {
        let service = taken(&mut self.service, "answering")?;
        self.answering.answer_all(runtime, order)?;
        self.service = Some(service);
        Ok(Vec::new())
    }
}
