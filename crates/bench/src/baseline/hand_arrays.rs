//! Transfers of a matrix by hand: a buffer a peer for what leaves and one for what comes, nonblocking
//! sockets, epoll.
//!
//! A rank packs for the next peer while the system sends what it packed before, and unpacks each row as
//! it comes. Elements that stay at the rank are copied when there is nothing else to do.

mod packing;

pub(super) use self::packing::common;
use self::packing::{Element, Shared};
use super::exchange::{Exchange, Parts};
use super::mesh::Mesh;
use crate::failure::{Doing, Failure};
use crate::harness::ranks::Player;
use crate::harness::transfers::{ELEMENT_BYTES, Part, Transfer};

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a connection fails.
pub async fn serve(port: u16, rank: usize, transfer: Transfer) -> Result<(), Failure> {
    let (mut control, mesh) = Mesh::join(port, rank, transfer.ranks()).await?;
    let (given, wanted) = (transfer.given(rank), transfer.wanted(rank));
    let (source, target) =
        (vec![Element::default(); given.len()], vec![Element::default(); wanted.len()]);
    let mut hand = Hand {
        transfer,
        given,
        wanted,
        data: Data { source, target, peers: Vec::new(), own: None, aside: Vec::new(), own_done: 0 },
        link: Link::Planless(mesh),
    };
    control.serve(&mut hand).await
}

/// Returns what packs and unpacks the elements that the first sender has for the first receiver, buffer by buffer.
pub(crate) fn packing(transfer: &Transfer) -> impl FnMut(&[Element], &mut [Element]) + use<> {
    let wanted = transfer.wanted(transfer.first_receiver());
    let mut buffer = Buffer::new(shared(transfer, &transfer.given(0), &wanted));
    move |source, target| {
        buffer.units = 0..0;
        loop {
            buffer.next();
            let Buffer { shared, elements, units } = &mut buffer;
            if units.start == units.end {
                return;
            }
            shared.pack(units.clone(), source, elements);
            let first = shared.before(units.start);
            for unit in units.clone() {
                let range = shared.before(unit) - first..shared.before(unit + 1) - first;
                shared.unpack(unit, &elements[range], target);
            }
        }
    }
}

struct Hand {
    transfer: Transfer,
    given: Part,
    wanted: Part,
    data: Data,
    link: Link,
}

enum Link {
    /// Before the first call.
    Planless(Mesh),
    Planned(Exchange),
    /// The plan was not made.
    Broken,
}

/// The arrays and the buffers of a rank.
struct Data {
    source: Vec<Element>,
    target: Vec<Element>,
    /// By rank.
    peers: Vec<Peer>,
    /// Elements that stay here.
    own: Option<Shared>,
    /// Elements between two places of it.
    aside: Vec<Element>,
    /// Its units that are copied.
    own_done: usize,
}

struct Peer {
    out: Buffer,
    into: Buffer,
}

/// Units on their way.
struct Buffer {
    shared: Shared,
    elements: Vec<Element>,
    /// The units that it holds, or is to hold.
    units: std::ops::Range<usize>,
}

impl Player for Hand {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        self.given.fill(call, &mut self.data.source);
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        match &self.link {
            Link::Planless(mesh) => mesh.meet(),
            Link::Planned(exchange) => exchange.mesh.meet(),
            Link::Broken => Ok(()),
        }
        .doing("meeting by hand")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        let exchange = match std::mem::replace(&mut self.link, Link::Broken) {
            Link::Planless(mesh) => self.plan(mesh)?,
            Link::Planned(mut exchange) => {
                self.data.begin();
                exchange.run(&mut self.data).doing("transferring by hand")?;
                exchange
            }
            Link::Broken => return Err(Failure::broken("transferring by hand", "no plan")),
        };
        self.link = Link::Planned(exchange);
        Ok(())
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        Ok(call == 0 || self.wanted.is_right(call, &self.data.target))
    }
}

impl Hand {
    fn plan(&mut self, mesh: Mesh) -> Result<Exchange, Failure> {
        let rank = mesh.rank;
        for peer in 0..mesh.ranks() {
            let out = shared(&self.transfer, &self.given, &self.transfer.wanted(peer));
            let into = shared(&self.transfer, &self.transfer.given(peer), &self.wanted);
            if peer == rank && out.len() > 0 {
                self.data.own = Some(out.clone());
            }
            self.data.peers.push(Peer { out: Buffer::new(out), into: Buffer::new(into) });
        }
        let bytes = |peer: usize| {
            let Peer { out, into } = &self.data.peers[peer];
            [out.shared.len() * ELEMENT_BYTES, into.shared.len() * ELEMENT_BYTES]
        };
        Exchange::new(mesh, bytes).doing("setting up epoll")
    }
}

/// Returns what a sender and a receiver have in common.
fn shared(transfer: &Transfer, given: &Part, wanted: &Part) -> Shared {
    let transposed = transfer.kind.transposed;
    let [rows, columns] = wanted.logical(transposed);
    let (rows, columns) = (common(&given.rows, rows), common(&given.columns, columns));
    Shared::new(rows, columns, (given.columns.len(), wanted.columns.len()), transposed)
}

impl Data {
    fn begin(&mut self) {
        self.own_done = 0;
        for peer in &mut self.peers {
            for buffer in [&mut peer.out, &mut peer.into] {
                buffer.units = 0..0;
            }
        }
    }
}

impl Buffer {
    fn new(shared: Shared) -> Self {
        Self { shared, elements: Vec::new(), units: 0..0 }
    }

    /// Returns the place in the pair's bytes where the buffer begins.
    fn start(&self) -> usize {
        self.shared.before(self.units.start) * ELEMENT_BYTES
    }

    /// Returns the place in the pair's bytes where the buffer ends.
    fn end(&self) -> usize {
        self.shared.before(self.units.end) * ELEMENT_BYTES
    }

    /// Goes on to the next units, as many as fit.
    fn next(&mut self) {
        self.units = self.shared.next(self.units.end);
        let [start, end] = [self.units.start, self.units.end].map(|it| self.shared.before(it));
        self.elements.resize(end - start, Element::default());
    }
}

impl Parts for Data {
    fn outgoing(&mut self, peer: usize, at: usize) -> &[u8] {
        let buffer = &mut self.peers[peer].out;
        if at == buffer.end() {
            buffer.next();
            buffer.shared.pack(buffer.units.clone(), &self.source, &mut buffer.elements);
        }
        let sent = at - buffer.start();
        &buffer.elements.as_flattened()[sent..]
    }

    fn incoming(&mut self, peer: usize, at: usize) -> &mut [u8] {
        let buffer = &mut self.peers[peer].into;
        if at == buffer.end() {
            buffer.next();
        }
        let filled = at - buffer.start();
        &mut buffer.elements.as_flattened_mut()[filled..]
    }

    fn landed(&mut self, peer: usize, at: usize, count: usize) {
        let Buffer { shared, elements, units } = &mut self.peers[peer].into;
        let (landed, first) = ((at + count) / ELEMENT_BYTES, shared.before(units.start));
        let mut unit = shared.unit_of(at / ELEMENT_BYTES);
        while unit < units.end && shared.before(unit + 1) <= landed {
            let range = shared.before(unit) - first..shared.before(unit + 1) - first;
            shared.unpack(unit, &elements[range], &mut self.target);
            unit += 1;
        }
    }

    fn work(&mut self) -> bool {
        let Self { source, target, own, aside, own_done, .. } = self;
        let Some(own) = own else { return false };
        let units = own.next(*own_done);
        for unit in units.clone() {
            aside.resize(own.before(unit + 1) - own.before(unit), Element::default());
            own.pack(unit..unit + 1, source, aside);
            own.unpack(unit, aside, target);
        }
        *own_done = units.end;
        !units.is_empty()
    }
}
