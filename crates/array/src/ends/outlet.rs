//! The task of a sender that packs and sends one peer's elements.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use chunkcomm::Loss;
use chunkcomm::host::Instant;
use chunkcomm::host::memory::Slices;

use super::error::refused;
use super::line::{LineReceiver, LineSender};
use super::opening::{Link, Rows};
use super::pool::Pool;
use super::settings::Transfer;
use super::shared::{Fault, Round, Shared, Source, add};
use super::way::{Messages, Way};
use super::wire::{self, Message, WORD_BYTES_MAX};
use crate::pack::contiguous;

/// Bytes of a tile from which on it leaves from the sender's memory, where it lies together: 8 KiB. Smaller
/// messages are copied in any case.
const APART_BYTES_MIN: usize = 8 * 1024;

/// The task of one peer.
pub(crate) struct Outlet<S> {
    shared: Arc<Shared<Round<S>>>,
    /// Its number among the tasks.
    index: usize,
    way: Way,
    rows: Rows,
    settings: Transfer,
    pool: Arc<Pool>,
    /// Rows of the storage that each block of tiles spans.
    spans: Vec<Range<usize>>,
}

/// Returns the rows of the sender's storage that each block of tiles spans, ascending.
fn spans(way: &Way, slowest: usize) -> Vec<Range<usize>> {
    let meeting = &way.plan.meetings[slowest];
    let span = |block: usize| {
        let positions = way.tiles.block_rows(block);
        let at = |position: usize| {
            meeting.runs(position..position + 1).next().expect("it is a position").at_sender
        };
        at(positions.start)..at(positions.end - 1) + 1
    };
    (0..way.tiles.blocks()).map(span).collect()
}

impl<S: Source> Outlet<S> {
    pub(crate) fn new(
        shared: &Arc<Shared<Round<S>>>,
        index: usize,
        way: Way,
        (slowest, rows): (usize, Rows),
        settings: &Transfer,
    ) -> Outlet<S> {
        let spans = spans(&way, slowest);
        Outlet {
            shared: Arc::clone(shared),
            index,
            way,
            rows,
            settings: settings.clone(),
            pool: Arc::default(),
            spans,
        }
    }

    /// Sends round by round, until the program drops its end or the transfer fails.
    pub(crate) async fn run(self, link: Link) {
        // A stop is not seen before: the peer waits for this line.
        let (mut channel, mut words) = match link.open().await {
            Ok(line) => line,
            Err(loss) => return self.shared.fail(self.index, &self.way, loss.into(), 0),
        };
        let failed = tokio::select! {
            biased;
            failed = self.hear(&link, &mut words) => Some(failed),
            () = self.shared.stopped(self.index) => None,
            failed = self.send(&mut channel) => Some((failed.into(), 0)),
        };
        if let Some((fault, landed)) = failed {
            self.shared.fail(self.index, &self.way, fault, landed);
        }
        // The peer may have all of a round and be gone before `send` has noted that the round has left.
        self.shared.tell(|state| state.tasks[self.index].released = u32::MAX);
        self.shared.say_last(self.index, &mut channel, 0).await;
    }

    /// Hears what the peer says, until it cannot go on: returns the reason, and the number of its elements that
    /// have landed.
    async fn hear(&self, link: &Link, words: &mut LineReceiver) -> (Fault, usize) {
        let hear = |word: &[u8]| match Message::decode(word) {
            Some(Message::Landed { round }) => self.shared.tell(|state| {
                let landed = &mut state.tasks[self.index].landed;
                // A word may come twice, where its first sending was cancelled.
                if !(*landed..=landed.saturating_add(1)).contains(&round) {
                    let why = format!("it says that round {round} has landed");
                    return Some((refused(why).into(), 0));
                }
                *landed = round;
                None
            }),
            Some(Message::Failed { landed, fault }) => {
                Some((fault, usize::try_from(landed).unwrap_or(usize::MAX)))
            }
            _ => Some((refused("it says what no receiver says").into(), 0)),
        };
        let mut buffer = vec![0; WORD_BYTES_MAX];
        let mut heard = link.comes(words.next(&mut buffer, hear)).await.flatten();
        loop {
            match heard {
                Ok(None) => {}
                Ok(Some(failed)) => return failed,
                Err(loss) => return (loss.into(), 0),
            }
            heard = words.next(&mut vec![0; WORD_BYTES_MAX], hear).await;
        }
    }

    /// Sends all rounds; returns the reason why it cannot go on.
    async fn send(&self, channel: &mut LineSender) -> Loss {
        for number in 1.. {
            let Some(round) = self.shared.round(number).await else { break };
            let sent = self.send_round(channel, &round).await;
            drop(round);
            if let Err(loss) = sent {
                return loss;
            }
            self.shared.tell(|state| state.tasks[self.index].released = number);
        }
        // The stop is seen beside this.
        std::future::pending().await
    }

    async fn send_round(&self, channel: &mut LineSender, round: &Round<S>) -> Result<(), Loss> {
        let mut missing: Vec<usize> = self.spans.iter().map(ExactSizeIterator::len).collect();
        let (mut seen, mut unsent) = (0, self.spans.len());
        let (mut kept, mut slices) = (Messages::default(), Slices::default());
        while unsent > 0 {
            let entries = round.log.since(seen);
            if entries.is_empty() {
                round.log.more_than(seen).await;
            }
            seen += entries.len();
            for rows in &entries {
                for block in self.touched(rows) {
                    let span = &self.spans[block];
                    missing[block] -= span.end.min(rows.end) - span.start.max(rows.start);
                    if missing[block] == 0 {
                        unsent -= 1;
                        self.send_block(channel, round, block, (&mut kept, &mut slices)).await?;
                    }
                }
            }
        }
        if !self.settings.overlap {
            self.shared.all_packed(self.index, round.number).await;
            while let Some(message) = kept.0.pop_front() {
                self.hand_over(channel, message).await?;
            }
        }
        Ok(())
    }

    /// Returns the blocks that span some of these rows.
    fn touched(&self, rows: &Range<usize>) -> Range<usize> {
        let first = self.spans.partition_point(|span| span.end <= rows.start);
        let last = self.spans.partition_point(|span| span.start < rows.end);
        first..last.max(first)
    }

    async fn send_block(
        &self,
        channel: &mut LineSender,
        round: &Round<S>,
        block: usize,
        (kept, slices): (&mut Messages, &mut Slices),
    ) -> Result<(), Loss> {
        let (span, each) = (&self.spans[block], self.way.tiles.block_tiles());
        let elements = self.rows.elements(span);
        for index in block * each..(block + 1) * each {
            let bytes = self.way.tiles.elements(index) * size_of::<S::Element>();
            let may_be_apart = bytes >= APART_BYTES_MIN && self.settings.overlap;
            let together = || contiguous(&self.way.tile(&self.way.tiles.ranges(index)));
            if let Some(run) = may_be_apart.then(together).flatten() {
                let head = wire::head(round.number, index as u64, true);
                let data = round.storage.bytes(run);
                channel.stage(Bytes::copy_from_slice(&head)).await?;
                self.hand_over(channel, data).await?;
            } else {
                let began = Instant::now();
                let mut message = self.pool.take();
                let source = round.storage.elements(elements.clone());
                self.way.pack((round.number, index), (source, elements.start), &mut message);
                let message = self.pool.lend(message);
                self.settings.spend(bytes).await;
                add(&self.shared.times.packing, began.elapsed());
                if self.settings.overlap {
                    self.hand_over(channel, message).await?;
                } else {
                    kept.0.push_back(message);
                }
                slices.worked(bytes).await;
            }
        }
        Ok(())
    }

    /// Sends a message with elements.
    async fn hand_over(&self, channel: &mut LineSender, message: Bytes) -> Result<(), Loss> {
        let began = Instant::now();
        channel.send(message).await?;
        add(&self.shared.times.transfer, began.elapsed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chunkcomm_cluster::{Cluster, ClusterConfig};
    use chunkcomm_group::Region;

    use super::*;
    use crate::ends::line::ArrayLayer;
    use crate::ends::opening::Ranks;
    use crate::ends::shared::{Log, Times};
    use crate::layout::Layout;
    use crate::plan::{Plan, Side};

    /// The peer's last word and its end come while the last message is on its way.
    #[tokio::test]
    async fn a_round_that_has_landed_is_released_when_the_peer_is_gone() {
        // Messages of 128 KiB, of which a line within a node takes 2.
        const BYTES: usize = 1 << 20;
        let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await.expect("a cluster");
        let (node, id) = (cluster.node(), cluster.id());
        let layout = Layout::parse("(*)@1", &[BYTES]).expect("a layout");
        let plan = Plan::of(&layout, &layout, Side::Sender, 0).peers.remove(0);
        let way = Way::new::<u8>(&layout, &layout, (Side::Sender, 0), plan);
        let shared = Arc::new(Shared::new(1, Times::default()));
        let rows = Rows { count: BYTES, length: 1 };
        let outlet = Outlet::new(&shared, 0, way, (0, rows), &Transfer::default());
        let region = Region::filled(vec![7; BYTES]);
        let log = Arc::<Log>::default();
        log.push(0..BYTES);
        shared.begin(1, Arc::new(Round { number: 1, storage: region, log }));

        let (peer, messages) = ArrayLayer::line(node, 5);
        let LineSender::Here(words) = &peer else { panic!("the peer is this node") };
        words.send(Bytes::copy_from_slice(&wire::landed(1))).await.expect("there is room");
        drop(peer);
        outlet.run(Link::new(&Ranks::new(&cluster, &[id]), id, 5)).await;
        drop(messages);

        let state = shared.state();
        assert!(state.fault(1).is_none() && state.fault(2).is_some());
        assert!(state.is_released(1));
    }
}
