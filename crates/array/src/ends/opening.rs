//! The opening of an end: agreement, plan, and the ways to the peers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::layer::{Reports, add_reports};
use chunkcomm::report::Report;
use chunkcomm::{BytesReceiver, BytesSender, Loss, Node, Peer, channel};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_group::{Element, Group, Pair};

use super::error::{ArrayError, refused};
use super::line::{ArrayLayer, Line, of_channel};
use super::report::ArrayReport;
use super::settings::Transfer;
use super::shared::{Shared, State, Times, add, reported};
use super::statement::{Agreed, Among, Parts, Statement, agree};
use super::way::Way;
use crate::layout::Layout;
use crate::plan::{PeerPlan, Plan, Side};

/// An end that all ranks have agreed on.
pub(crate) struct End<R> {
    pub(crate) shared: Arc<Shared<R>>,
    /// Rows of this rank's storage.
    pub(crate) rows: Rows,
    pub(crate) slab_rows: usize,
    pub(crate) settings: Transfer,
    pub(crate) node: Node,
    shown: Arc<Shown<R>>,
}

/// An end as the node's report shows it.
struct Shown<R> {
    report: ArrayReport,
    shared: Arc<Shared<R>>,
}

impl<R: Send + Sync> Reports for Shown<R> {
    fn report(&self, report: &mut Report) {
        let state = self.shared.state();
        let landed = state.tasks.iter().map(|task| task.landed).min().unwrap_or_default();
        let round = state.rounds.back().map_or(landed, |(number, _)| *number);
        report.add(self.report.at(round, &state.tasks).section());
    }
}

/// Rows of a rank's storage: the indices of the dimension that is slowest in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    /// Number of elements of a row.
    pub(crate) length: usize,
}

impl Rows {
    fn of(layout: &Layout, rank: usize) -> Rows {
        let slowest = layout.memory()[0];
        let elements = layout.local_len(rank);
        // Rows without elements are none.
        let count = if elements == 0 { 0 } else { layout.local_shape(rank)[slowest] };
        Rows { count, length: elements.checked_div(count).unwrap_or_default() }
    }

    /// Returns the elements of rows that the program asks for.
    pub(crate) fn checked(&self, rows: &Range<usize>) -> Result<Range<usize>, ArrayError> {
        if rows.start > rows.end || rows.end > self.count {
            return Err(ArrayError::Rows { asked: rows.clone(), length: self.count });
        }
        Ok(self.elements(rows))
    }

    /// Returns the elements of these rows.
    pub(crate) fn elements(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start * self.length..rows.end * self.length
    }
}

/// Time in which a peer that has agreed comes, after the death of any rank and after the program's end was
/// dropped: 10 s. The death may have kept it from agreeing.
pub(crate) const COMING: Duration = Duration::from_secs(10);

/// All ranks of a transfer.
#[derive(Clone)]
pub(crate) struct Ranks {
    cluster: Cluster,
    members: Arc<[NodeId]>,
}

impl Ranks {
    pub(crate) fn new(cluster: &Cluster, members: &[NodeId]) -> Ranks {
        Ranks { cluster: cluster.clone(), members: members.into() }
    }

    pub(crate) fn of(group: &Group) -> Ranks {
        let members = (0..group.size()).map(|rank| group.member(rank)).collect();
        Ranks { cluster: group.cluster().clone(), members }
    }

    /// Waits for the death of a rank, and as long as peers may still come after it. Returns what happened.
    pub(crate) async fn lost(&self) -> Loss {
        let mut changes = self.cluster.changes();
        loop {
            let deaths = self.cluster.deaths();
            if let Some(death) = deaths.iter().find(|it| self.members.contains(&it.id)) {
                host::sleep(COMING).await;
                let why = format!("it did not come, and another rank died: {death}");
                return refused(why);
            }
            if changes.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The way in which a peer is reached.
#[derive(Clone)]
pub(crate) struct Link {
    ranks: Ranks,
    member: NodeId,
    nonce: u64,
    name: Arc<str>,
}

impl Link {
    pub(crate) fn new(ranks: &Ranks, member: NodeId, nonce: u64) -> Link {
        let name = format!("chunkcomm-array.{nonce:016x}").into();
        Link { ranks: ranks.clone(), member, nonce, name }
    }

    /// Waits for something that the peer does when it comes.
    pub(crate) async fn comes<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        tokio::select! {
            biased;
            outcome = future => Ok(outcome),
            loss = self.ranks.lost() => Err(loss),
        }
    }

    fn node(&self) -> &Node {
        self.ranks.cluster.node()
    }

    async fn peer(&self) -> Result<Peer, Loss> {
        self.ranks.cluster.peer_of(self.member).await
    }

    /// Opens a channel to a receiver that says nothing.
    pub(crate) async fn open_one_way(&self) -> Result<BytesSender, Loss> {
        let peer = self.peer().await?;
        Ok(self.node().open_bytes(&peer, &*self.name).await?)
    }

    /// Accepts the channel of a sender that hears nothing.
    pub(crate) async fn accept_one_way(&self) -> Result<BytesReceiver, Loss> {
        let channel = channel(&*self.name).from_peer(&self.peer().await?);
        let (_, receiver) = self.comes(self.node().accept_bytes(channel)).await??;
        Ok(receiver)
    }

    /// Returns the line of this node to itself, if the peer is this node.
    fn here(&self) -> Option<Line> {
        let is_here = self.member == self.ranks.cluster.id();
        is_here.then(|| ArrayLayer::line(self.node(), self.nonce))
    }

    /// Opens the line to a receiver.
    pub(super) async fn open(&self) -> Result<Line, Loss> {
        if let Some(line) = self.here() {
            return Ok(line);
        }
        let peer = self.peer().await?;
        Ok(of_channel(self.node().open_duplex_bytes(&peer, &*self.name).await?))
    }

    /// Accepts the line of a sender.
    pub(super) async fn accept(&self) -> Result<Line, Loss> {
        if let Some(line) = self.here() {
            return Ok(line);
        }
        let channel = channel(&*self.name).from_peer(&self.peer().await?);
        let (_, duplex) = self.comes(self.node().accept_duplex_bytes(channel)).await??;
        Ok(of_channel(duplex))
    }
}

impl<R> End<R> {
    /// Opens an end: agrees with all ranks of both groups, and plans. Returns the ways to the peers, too.
    pub(crate) async fn open<T: Element>(
        pair: &mut Pair,
        (layout, fault): (&Layout, Option<String>),
        side: Side,
        settings: Transfer,
    ) -> Result<(End<R>, Vec<(Way, Link)>), ArrayError>
    where
        R: Send + Sync + 'static,
    {
        let (times, began) = (Times::default(), Instant::now());
        let (rank, size) = (pair.rank(), pair.size());
        let statement = Statement::of::<T>(layout);
        let parts = match side {
            Side::Sender => [Some(&statement), None],
            Side::Receiver => [None, Some(&statement)],
        };
        let asked = Instant::now();
        add(&times.inquiry, asked - began);
        let agreed = agree(Among::Pair(pair), Parts { parts, fault }).await?;
        let began = Instant::now();
        add(&times.exchange, began - asked);
        let ranks = Ranks::of(pair.both());
        let ways = ways::<T>(&agreed, (side, rank), &ranks, |rank| pair.their_member(rank));
        let rows = Rows::of(layout, rank);
        // A receiver unpacks a transposition.
        let is_across =
            side == Side::Receiver && agreed.from.memory().last() != agreed.to.memory().last();
        add(&times.schedule, began.elapsed());
        let element_bytes = size_of::<T>();
        let shared = Arc::new(Shared::new(ways.len(), times));
        let report = ArrayReport::new((side, rank, size), element_bytes, &ways);
        let shown = Arc::new(Shown { report, shared: Arc::clone(&shared) });
        add_reports(ranks.cluster.node(), &shown);
        let end = End {
            shown,
            shared,
            rows,
            slab_rows: settings.rows_of_slab(rows.length * element_bytes, is_across),
            settings,
            node: ranks.cluster.node().clone(),
        };
        Ok((end, ways))
    }

    /// Waits until a round has landed at all peers.
    pub(crate) async fn landed(&self, number: u32) -> Result<(), ArrayError> {
        let look = |state: &mut State<R>| {
            if state.tasks.iter().all(|task| task.landed >= number) {
                return Some(Ok(()));
            }
            state.fault(number).cloned().map(Err)
        };
        self.wait(number, self.shared.until(look)).await
    }

    /// Waits until no task needs the storage of this round.
    pub(crate) async fn released(&self, number: u32) {
        let look = |state: &mut State<R>| state.is_released(number).then_some(());
        self.wait(number, self.shared.until(look)).await;
    }

    /// Notes that no peer needs a word of the end.
    pub(crate) fn ends_well(&self) {
        self.shared.state().begun = 0;
    }

    /// Returns who exchanges what in a round, and who is waited for.
    pub(crate) fn explain(&self, round: u32) -> ArrayReport {
        self.shown.report.at(round, &self.shared.state().tasks)
    }

    /// Waits as the program does in a round: counts the time, and reports a long wait to the people who run the node.
    pub(crate) async fn wait<F: Future>(&self, round: u32, future: F) -> F::Output {
        let began = Instant::now();
        let what = || format!("array: {}", self.explain(round));
        let outcome = reported(self.node.name(), self.settings.report_after, what, future).await;
        add(&self.shared.times.waiting, began.elapsed());
        outcome
    }
}

impl<R> Drop for End<R> {
    fn drop(&mut self) {
        self.shared.tell(|state| {
            state.dropped = true;
            state.rounds.clear();
        });
    }
}

/// Plans what this rank exchanges with the others, of which `member` names each, and how they are reached.
pub(crate) fn ways<T>(
    agreed: &Agreed,
    us: (Side, usize),
    ranks: &Ranks,
    member: impl Fn(usize) -> NodeId,
) -> Vec<(Way, Link)> {
    let Agreed { from, to, nonce } = agreed;
    let way = |plan: PeerPlan| {
        let link = Link::new(ranks, member(plan.peer), *nonce);
        (Way::new::<T>(from, to, us, plan), link)
    };
    Plan::of(from, to, us.0, us.1).peers.into_iter().map(way).collect()
}

/// Agrees within one group, whose ranks all send and receive.
pub(crate) async fn agree_within<T: Element>(
    group: &mut Group,
    from: &Layout,
    to: &Layout,
    fault: Option<String>,
) -> Result<Agreed, ArrayError> {
    let [from, to] = [from, to].map(Statement::of::<T>);
    let parts = Parts { parts: [Some(&from), Some(&to)], fault };
    agree(Among::Group(group), parts).await
}
