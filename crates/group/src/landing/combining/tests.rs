#![expect(clippy::single_range_in_vec_init, reason = "memories often have one section")]

use crate::landing::Ending;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use chunkcomm::channel::Landing;
use chunkcomm::{LossKind, RecvError};
use chunkcomm_testkit::limited;
use chunkcomm_testkit::random::{Random, seeded};
use tokio::sync::watch;

use super::super::{Lander, LandingFate, WayBack};
use super::*;
use crate::memory::{Owner, share};
use crate::proto::frame::Header;

/// Elements whose size divides no power of two.
type Cell = [u8; 3];

const SIZE: usize = size_of::<Cell>();

/// A landing that combines, and everything around it.
struct World {
    out: Owner<Cell>,
    own: Owner<Cell>,
    lander: Box<Lander<Cell>>,
    interest: Option<Arc<Interest>>,
    fate: Option<watch::Receiver<LandingFate>>,
    out_sections: Sections,
    own_sections: Sections,
}

/// Ranges of elements and the number of those around them.
type Places = (Vec<Range<usize>>, usize);

impl World {
    /// Combines what lands at `out` with `own`: rounds of a delta, or the one round of a region.
    fn new(out: &Places, own: &Places, has_rounds: bool, combine: Combine<Cell>) -> Self {
        let memory = |(sections, len): &Places| {
            let sections = Sections::of(sections, SIZE, len * SIZE);
            (share(vec![[0; 3]; *len]), sections)
        };
        let ((out, out_sections), (own, own_sections)) = (memory(out), memory(own));
        let (fate, outcome) = watch::channel(None);
        let ending = if has_rounds { Ending::Memory } else { Ending::Region(fate) };
        let outcome = (!has_rounds).then_some(outcome);
        if has_rounds {
            out.share().land();
        }
        let back = Arc::new(WayBack::gone());
        let interest = Arc::new(Interest::new(back.clone()));
        let origin = Origin { peer: "far".to_owned(), channel: "data".to_owned() };
        let (share, sections) = (out.share().clone(), out_sections.clone());
        let base = Arc::new(Base { share, sections, back, origin, ending });
        let operand = Operand { share: own.share().clone(), sections: own_sections.clone() };
        let runtime = Handle::current();
        let it = (operand, combine);
        let combiner = Combiner::start(base.clone(), it, has_rounds, &interest, &runtime);
        let lander = Box::new(Lander::new(base, combiner, &interest));
        let interest = Some(interest);
        Self { out, own, lander, interest, fate: outcome, out_sections, own_sections }
    }

    fn whole(len: usize, has_rounds: bool, combine: Combine<Cell>) -> Self {
        Self::new(&(vec![0..len], len), &(vec![0..len], len), has_rounds, combine)
    }

    /// Lets elements land as one increment, read in pieces of `step` bytes.
    fn land(&mut self, round: u32, cells: Range<usize>, step: usize) {
        let (offset, bytes) = ((cells.start * SIZE) as u64, (cells.len() * SIZE) as u64);
        let mut frame = Header::Increment { round, offset, bytes }.encode().to_vec();
        frame.extend(cells.flat_map(|at| theirs(round, at)));
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let room = self.lander.room();
            let count = room.len().min(step).min(rest.len());
            assert!(count > 0, "{:?}", self.out.share().state().end);
            room[..count].copy_from_slice(&rest[..count]);
            self.lander.advance(count);
            rest = &rest[count..];
        }
    }

    /// Makes elements of the operand done, by their positions.
    fn commit(&self, round: u32, cells: Range<usize>) {
        let mut rest = cells.start * SIZE..cells.end * SIZE;
        while !rest.is_empty() {
            let place = self.own_sections.place(&rest);
            let mut lease = self.own.share().lease(place).expect("it is free");
            for (at, cell) in (rest.start / SIZE..).zip(lease.elements_mut()) {
                *cell = ours(round, at);
            }
            rest.start += lease.range().len();
            lease.commit();
        }
    }

    /// Checks the elements that are done; returns their number.
    fn check(&self, round: u32) -> usize {
        let mut done = 0;
        for at in 0..self.out_sections.bytes() / SIZE {
            let place = self.out_sections.place(&(at * SIZE..(at + 1) * SIZE)).start / SIZE;
            if let Some(cell) = self.out.elements(place..place + 1) {
                assert_eq!(cell, [combined(ours(round, at), theirs(round, at))], "{at}");
                done += 1;
            }
        }
        done
    }

    fn end(&self) -> Option<DeltaRecvError> {
        self.out.share().state().end.clone()
    }

    /// Whether the operand's memory is free of the landing: its next round may begin.
    fn has_rested(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(pin!(self.own.reset(false)).poll(&mut context), Poll::Ready(()))
    }
}

fn theirs(round: u32, at: usize) -> Cell {
    [at as u8, (at >> 8) as u8, round as u8]
}

fn ours(round: u32, at: usize) -> Cell {
    [(at >> 3) as u8, (round as u8).wrapping_mul(5), at as u8]
}

fn combined(own: Cell, came: Cell) -> Cell {
    std::array::from_fn(|at| own[at].wrapping_mul(31) ^ came[at])
}

fn apply(out: &mut [Cell], own: &[Cell]) {
    assert!(out.len() == own.len() && size_of_val(own) <= PIECE_BYTES);
    for (out, own) in out.iter_mut().zip(own) {
        *out = combined(*own, *out);
    }
}

fn combine(in_driver: bool) -> Combine<Cell> {
    Combine { apply: Box::new(apply), in_driver }
}

fn failed() -> DeltaRecvError {
    DeltaRecvError::Channel(RecvError::BufferTooSmall { bytes: 2, buffer_bytes: 1 })
}

/// Lets the task run until it waits.
async fn rest() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn below(random: &mut Random, end: usize) -> usize {
    random.below(end as u64) as usize
}

/// Cuts `0..len` into parts, in any order.
fn parts(random: &mut Random, len: usize, count: usize) -> Vec<Range<usize>> {
    let mut cuts: Vec<usize> = (0..count).map(|_| below(random, len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.dedup();
    let mut parts: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
    for index in (1..parts.len()).rev() {
        parts.swap(index, below(random, index + 1));
    }
    parts
}

/// Sections with as many elements, moved to another place in a larger memory.
fn scattered(random: &mut Random, len: usize) -> Places {
    let (around, count) = (below(random, 9), below(random, 5));
    let sections = parts(random, len, count);
    (sections.into_iter().map(|it| it.start + around..it.end + around).collect(), len + 9)
}

/// Landing, commits of the operand and the task come in any order, for several rounds of one memory.
#[tokio::test]
async fn all_orders_of_landing_and_of_the_operand_give_the_same() {
    for seed in 0..120 {
        println!("seed {seed}");
        let mut random = seeded(seed);
        let random = &mut random;
        let most = if seed % 10 == 0 { 100_000 } else { 300 };
        let len = 1 + below(random, most);
        let has_rounds = seed % 3 != 0;
        let own = scattered(random, len);
        let out = if has_rounds { (vec![0..len], len) } else { scattered(random, len) };
        let world = &mut World::new(&out, &own, has_rounds, combine(seed % 2 == 0));
        for round in 1..=if has_rounds { 4 } else { 1 } {
            // Sometimes the operand comes before everything, or behind it.
            let bias = [1, 50, 99][below(random, 3)];
            let (count, pieces) = (below(random, 12), below(random, 12));
            let mut frames = parts(random, len, count);
            let mut commits = parts(random, len, pieces);
            let mut is_behind = round > 1;
            while is_behind || !(frames.is_empty() && commits.is_empty()) {
                if is_behind && (frames.is_empty() || below(random, 3) == 0) {
                    // The operand's round began later than that of the memory.
                    own_round(world, len, round, &mut is_behind).await;
                } else if !frames.is_empty() && (commits.is_empty() || below(random, 100) < bias) {
                    let step = [1, 7, 4096, 1 << 20][below(random, if len > 300 { 4 } else { 3 })];
                    let step = if len > 300 { step.max(4096) } else { step };
                    world.land(round, frames.pop().expect("one is left"), step);
                } else if !is_behind && !commits.is_empty() {
                    world.commit(round, commits.pop().expect("one is left"));
                }
                if below(random, 2) == 0 {
                    tokio::task::yield_now().await;
                }
                if len <= 300 {
                    world.check(round);
                }
            }
            rest().await;
            assert_eq!(world.check(round), len);
            if has_rounds {
                assert!(world.out.share().state().extents().is_whole());
                world.out.reset(false).await;
            }
        }
        if let Some(fate) = &world.fate {
            assert!(matches!(*fate.borrow(), Some(Ok(()))));
        }
    }
}

async fn own_round(world: &mut World, len: usize, round: u32, is_behind: &mut bool) {
    // The bytes around the sections must be done, too.
    let around = world.own.len() * SIZE;
    while let Some(lease) = world.own.share().lease_free(0, around) {
        lease.commit();
    }
    world.own.reset(false).await;
    assert_eq!(world.own.share().state().round, round);
    assert!(len < world.own.len());
    *is_behind = false;
}

#[tokio::test]
async fn the_operand_keeps_its_round_until_all_is_combined() {
    for in_driver in [true, false] {
        let mut world = World::whole(10, true, combine(in_driver));
        world.commit(1, 0..10);
        world.land(1, 3..10, 100);
        rest().await;
        assert!(world.check(1) == 7 && !world.has_rested());
        world.land(1, 0..3, 100);
        rest().await;
        assert!(world.check(1) == 10 && world.has_rested());
        // The next round lands before the operand has anything of it, and nothing old is combined with it.
        world.out.reset(false).await;
        world.land(2, 0..10, 100);
        rest().await;
        assert_eq!(world.check(2), 0);
        world.commit(2, 4..6);
        rest().await;
        assert_eq!(world.check(2), 2);
    }
}

/// Nothing is spawned or kept for a piece: what touches is one.
#[tokio::test]
async fn pieces_that_touch_are_one() {
    let mut world = World::whole(100_000, true, combine(false));
    for start in (0..100_000).step_by(10_000) {
        world.land(1, start..start + 10_000, 1000);
    }
    let pieces = |world: &World| {
        let combiner = world.lander.combiner.as_ref().expect("it combines");
        combiner.rounds().pieces.len()
    };
    assert_eq!(pieces(&world), 1);
    world.commit(1, 10..20);
    rest().await;
    assert_eq!((pieces(&world), world.check(1)), (2, 10));
    world.commit(1, 0..10);
    world.commit(1, 20..100_000);
    rest().await;
    assert_eq!((pieces(&world), world.check(1)), (0, 100_000));
}

#[tokio::test]
async fn a_peer_may_end_when_all_has_landed() {
    for has_rounds in [true, false] {
        let mut world = World::whole(10, has_rounds, combine(true));
        world.land(1, 0..10, 100);
        world.lander.over(failed());
        rest().await;
        assert!(world.end().is_none());
        world.commit(1, 2..10);
        rest().await;
        assert!(world.check(1) == 8 && world.end().is_none());
        world.commit(1, 0..2);
        rest().await;
        assert_eq!(world.check(1), 10);
        let end = world.end();
        assert_eq!(matches!(end, Some(DeltaRecvError::Channel(_))), has_rounds, "{end:?}");
        if let Some(fate) = world.fate {
            assert!(matches!(*fate.borrow(), Some(Ok(()))));
        }
        assert_eq!(world.own.into_vec().await.len(), 10, "the task has ended");
    }
}

/// A way in which a landing ends before all is combined.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Ended,
    Dropped,
    Uninterested,
    OperandGone,
    OperandFailed,
    Panic,
}

#[tokio::test]
async fn what_waits_is_released_when_the_landing_ends() {
    use Cut::{Dropped, Ended, OperandFailed, OperandGone, Panic, Uninterested};
    let cuts = [Ended, Dropped, Uninterested, OperandGone, OperandFailed, Panic];
    for (cut, in_driver) in cuts.into_iter().flat_map(|cut| [(cut, true), (cut, false)]) {
        let fails = Box::new(move |out: &mut [Cell], own: &[Cell]| {
            assert!(!matches!(cut, Panic) || own.len() < 3, "no sum");
            apply(out, own);
        });
        let mut world = World::whole(10, true, Combine { apply: fails, in_driver });
        // Only what has landed whole outlives the peer.
        let has_all = matches!(cut, Uninterested | OperandGone | OperandFailed | Panic);
        world.land(1, 0..if has_all { 10 } else { 9 }, 100);
        world.commit(1, 0..2);
        rest().await;
        assert!(world.check(1) == 2 && !world.out.share().state().extents().none_out());
        let World { out, own, mut lander, mut interest, .. } = world;
        let mut own = Some(own);
        match cut {
            Ended => lander.over(failed()),
            Dropped => drop(lander),
            Uninterested => drop(interest.take()),
            OperandGone => drop(own.take()),
            OperandFailed => {
                let share = own.as_ref().expect("it is there").share();
                share.change(|state| state.end = Some(failed()));
            }
            Panic => {
                let share = own.as_ref().expect("it is there").share();
                share.lease(4 * SIZE..8 * SIZE).expect("it is free").commit();
            }
        }
        rest().await;
        let (none_out, done_bytes, end) = {
            let state = out.share().state();
            (state.extents().none_out(), state.extents().done_bytes(), state.end.clone())
        };
        assert!(none_out && done_bytes == 2 * SIZE, "{cut:?}");
        match (cut, &end) {
            (Panic, Some(DeltaRecvError::Combine { loss, .. })) => {
                assert_eq!(loss.kind(), LossKind::Panicked);
                assert!(loss.to_string().contains("no sum"), "{loss}");
            }
            (OperandGone | OperandFailed, Some(DeltaRecvError::Combine { .. }))
            | (Ended, Some(DeltaRecvError::Channel(_)))
            | (Dropped | Uninterested, Some(DeltaRecvError::Ended { .. })) => {}
            (_, end) => panic!("{cut:?} {end:?}"),
        }
        if let Some(own) = own {
            assert_eq!(own.into_vec().await.len(), 10, "nothing uses it");
        }
    }
}

/// Ends a landing, when it is woken and there is no room, as the driver does for which more comes.
struct EndsWithoutRoom(Mutex<Option<Box<Lander<Cell>>>>);

impl Wake for EndsWithoutRoom {
    fn wake(self: Arc<Self>) {
        let mut lander = self.0.lock().expect("no holder panics");
        if let Some(mut lander) = lander.take_if(|it| it.room().is_empty()) {
            lander.over(failed());
        }
    }
}

/// Once the operand has failed there is no room for what comes, and the memory is let go of.
#[tokio::test]
async fn the_first_error_of_a_landing_counts() {
    let mut world = World::whole(10, true, combine(false));
    world.land(1, 0..9, 100);
    rest().await;
    let World { out, own, lander, interest: _interest, .. } = world;
    let share = out.share().clone();
    let driver = Arc::new(EndsWithoutRoom(Mutex::new(Some(lander))));
    let waker = Waker::from(driver.clone());
    let mut taken_back = pin!(out.into_vec());
    assert!(taken_back.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    own.share().change(|state| state.end = Some(failed()));
    rest().await;
    assert!(driver.0.lock().expect("no holder panics").is_none(), "there was room");
    let end = share.state().end.clone();
    assert!(matches!(end, Some(DeltaRecvError::Combine { .. })), "{end:?}");
}

/// An operand whose owner is gone serves the last round, and one of a region as long as it is there.
#[tokio::test]
async fn an_operand_that_is_done_may_lose_its_owner() {
    for has_rounds in [true, false] {
        let mut world = World::whole(10, has_rounds, combine(false));
        world.commit(1, 0..10);
        drop(mem::replace(&mut world.own, share(vec![[0; 3]; 1])));
        rest().await;
        world.land(1, 0..10, 100);
        rest().await;
        assert!(world.check(1) == 10 && world.end().is_none());
    }
}

/// The landing, which is still there, does not keep the memory of an operand that it needs no more, nor that of a
/// region that is taken back.
#[tokio::test]
async fn the_operands_memory_comes_back() {
    let mut world = World::whole(10, true, combine(false));
    world.commit(1, 0..10);
    world.land(1, 0..10, 100);
    rest().await;
    let own = mem::replace(&mut world.own, share(vec![[0; 3]; 1]));
    assert_eq!(limited(own.into_vec()).await[9], ours(1, 9));
    assert!(world.check(1) == 10 && world.end().is_none());

    let mut world = World::whole(10, false, combine(false));
    world.commit(1, 0..10);
    let own = mem::replace(&mut world.own, share(vec![[0; 3]; 1]));
    assert_eq!(limited(own.into_vec()).await[9], ours(1, 9));
    world.land(1, 0..10, 100);
    rest().await;
    let fate = world.fate.expect("it is of a region");
    let is_told = matches!(*fate.borrow(), Some(Err(DeltaRecvError::Combine { .. })));
    assert!(is_told, "{:?}", *fate.borrow());
}

/// The driver, the task and the operand's writer run at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_combine_round_after_round() {
    for in_driver in [true, false] {
        let (len, part) = (500, 20);
        let mut world = World::whole(len, true, combine(in_driver));
        for round in 1..300 {
            let own = world.own.share().clone();
            let writer = tokio::task::spawn_blocking(move || {
                for start in (0..len).step_by(part).rev() {
                    let bytes = start * SIZE..(start + part) * SIZE;
                    let mut lease = own.lease(bytes).expect("it is free");
                    for (at, cell) in (start..).zip(lease.elements_mut()) {
                        *cell = ours(round, at);
                    }
                    lease.commit();
                }
            });
            for start in (0..len).step_by(100) {
                world.land(round, start..start + 100, 70);
            }
            let whole = world.out.share().until(|it| it.extents().is_whole().then_some(()));
            limited(whole).await;
            writer.await.expect("it does not panic");
            assert_eq!(world.check(round), len);
            limited(world.out.reset(false)).await;
            limited(world.own.reset(false)).await;
        }
    }
}
