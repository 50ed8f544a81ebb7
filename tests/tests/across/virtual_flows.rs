//! Collectives that flow in virtual time: by seed against a sequential fold, beside slow ranks, and with futures
//! that are dropped.

use crate::virtual_cluster::{join, on_each, switched};
use crate::virtual_groups::{after, same};
use chunkcomm::host::{self, Instant};
use chunkcomm_group::Algorithm::{self, Binary, Binomial, Chain};
use chunkcomm_group::{Group, GroupError, Op};
use chunkcomm_pipeline::{
    DeltaEnd, DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Flow, GroupDeltas,
    Increment, ReduceEnds,
};
use chunkcomm_simulation::{LinkSpec, Random, Simulation, check, each_seed};
use chunkcomm_testkit::cancelled;
use std::ops::Range;
use std::time::Duration;

/// Time in which everything is over.
pub(crate) const IN_TIME: Duration = Duration::from_secs(60);

/// A collective, with its algorithm where there are several that flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Broadcast(Algorithm),
    Reduce(Algorithm),
    AllReduce,
    Gather,
}

pub(crate) const ALL: [What; 8] = [
    What::Broadcast(Chain),
    What::Broadcast(Binary),
    What::Broadcast(Binomial),
    What::Reduce(Chain),
    What::Reduce(Binary),
    What::Reduce(Binomial),
    What::AllReduce,
    What::Gather,
];

/// One collective, as all ranks know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) what: What,
    pub(crate) size: usize,
    pub(crate) root: usize,
    pub(crate) length: usize,
    pub(crate) rounds: u32,
    pub(crate) depth: usize,
    pub(crate) increment: Increment,
    /// Whether the operator is a program's own, which is not commutative.
    pub(crate) is_named: bool,
}

/// Reason why a rank's part in a collective is over before its last round.
#[derive(Debug)]
pub(crate) enum Stop {
    Call(GroupError),
    Send(DeltaSendError),
    Receive(DeltaRecvError),
}

impl Stop {
    /// Returns the reason that the collective gives.
    pub(crate) fn cause(self) -> GroupError {
        match self {
            Stop::Call(cause) => cause,
            Stop::Send(DeltaSendError::Collective(loss))
            | Stop::Receive(DeltaRecvError::Collective(loss)) => {
                loss.cause::<GroupError>().expect("it is a group's").clone()
            }
            other => panic!("not of the collective: {other:?}"),
        }
    }
}

/// The ends of a rank.
pub(crate) struct Ends {
    pub(crate) sender: Option<DeltaSender<u64>>,
    pub(crate) receiver: Option<DeltaReceiver<u64>>,
}

impl Plan {
    /// Makes a plan by seed.
    pub(crate) fn of(seed: u64, what: What, depth: usize, size: usize) -> Self {
        let mut random = Random::new(seed);
        let length = random.pick(&[0, 1, 2, 517, 1025, 5003, 20_481]);
        let bytes = if length > 1025 { 800 + random.below(30_000) } else { 1 + random.below(600) };
        let increments = [Increment::default(), Increment::Fixed(bytes as usize)];
        Self {
            seed,
            what,
            size,
            root: random.below(size as u64) as usize,
            length,
            rounds: 1 + random.below(4) as u32,
            depth,
            increment: random.pick(&increments),
            is_named: random.one_in(2),
        }
    }

    fn length_of(&self, rank: usize) -> usize {
        match self.what {
            What::Gather => self.length + rank * 7 % 5,
            _ => self.length,
        }
    }

    fn flow(&self) -> Flow {
        Flow::default().depth(self.depth).increment(self.increment)
    }

    fn op(&self) -> Op<u64> {
        if self.is_named { Op::named("after", after) } else { Op::sum() }
    }

    /// Returns an element that a rank computes.
    fn element(&self, rank: usize, round: u32, index: usize) -> u64 {
        let salt = (self.seed << 44) ^ ((rank as u64) << 36) ^ (u64::from(round) << 28);
        let mixed = (salt ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ (mixed >> 31);
        // Odd factors lose nothing in a product, and small ones do not overflow in a sum.
        (((mixed >> 20) & 0xff_ffff | 1) << 32) | (mixed & 0xffff_ffff)
    }

    /// Returns the elements of a result, as one rank after the other computes them.
    fn expected(&self, round: u32) -> Vec<u64> {
        let of = |rank: usize| -> Vec<u64> {
            (0..self.length_of(rank)).map(|index| self.element(rank, round, index)).collect()
        };
        let combine = |a: &u64, b: &u64| if self.is_named { after(a, b) } else { a + b };
        let both = |a: Vec<u64>, b: Vec<u64>| {
            a.iter().zip(&b).map(|(a, b)| combine(a, b)).collect::<Vec<u64>>()
        };
        match self.what {
            What::Broadcast(_) => of(self.root),
            What::Gather => (0..self.size).flat_map(of).collect(),
            _ => (0..self.size).map(of).reduce(both).unwrap(),
        }
    }

    /// Makes the call.
    pub(crate) async fn set_up(&self, group: &mut Group) -> Result<Ends, GroupError> {
        let (root, data) = (self.root, vec![0; self.length_of(group.rank())]);
        let (sender, receiver) = match self.what {
            What::Broadcast(by) => {
                group.set_algorithm(by);
                match group.broadcast_delta(root, data, self.flow()).await? {
                    DeltaEnd::Sender(sender) => (Some(sender), None),
                    DeltaEnd::Receiver(receiver) => (None, Some(receiver)),
                }
            }
            What::Reduce(by) => {
                group.set_algorithm(by);
                let call = group.reduce_delta(root, data, self.op(), self.flow());
                assert_eq!(call.algorithm(), by);
                let ReduceEnds { operand, result } = call.await?;
                (Some(operand), result)
            }
            What::AllReduce => {
                let ends = group.all_reduce_delta(data, self.op(), self.flow()).await?;
                (Some(ends.operand), Some(ends.result))
            }
            What::Gather => {
                let ends = group.gather_delta(root, data, self.flow()).await?;
                let ranks = if ends.result.is_some() { self.size } else { 0 };
                let counts: Vec<usize> = (0..ranks).map(|it| self.length_of(it)).collect();
                assert_eq!(ends.counts, counts);
                (Some(ends.operand), ends.result)
            }
        };
        let is_root = group.rank() == root;
        let (sends, receives) = match self.what {
            What::Broadcast(_) => (is_root, !is_root),
            What::AllReduce => (true, true),
            _ => (true, is_root),
        };
        assert_eq!((sender.is_some(), receiver.is_some()), (sends, receives));
        Ok(Ends { sender, receiver })
    }

    /// Takes part in all rounds of the collective.
    pub(crate) async fn run(&self, group: &mut Group) -> Result<(), Stop> {
        let rank = group.rank();
        let Ends { sender, receiver } = self.set_up(group).await.map_err(Stop::Call)?;
        let sends = async {
            let Some(sender) = sender else { return Ok(()) };
            self.sends(sender, rank).await
        };
        let receives = async {
            let Some(receiver) = receiver else { return Ok(()) };
            self.receives(receiver, rank).await
        };
        let (sent, received) = tokio::join!(sends, receives);
        sent.map_err(Stop::Send)?;
        received.map_err(Stop::Receive)
    }

    async fn sends(&self, mut sender: DeltaSender<u64>, rank: usize) -> Result<(), DeltaSendError> {
        let mut random = Random::fork(self.seed, rank as u64);
        for round in 1..=self.rounds {
            if round > 1 {
                sender.start().await?;
            }
            assert_eq!(sender.round(), round);
            if random.one_in(3) {
                self.computes_in_order(&mut sender, rank, &mut random).await?;
            } else {
                self.computes_parts(&sender, rank, &mut random).await;
            }
        }
        sender.finish().await?;
        if random.one_in(2) {
            assert_eq!(sender.into_buffer().await.len(), self.length_of(rank));
        }
        Ok(())
    }

    async fn computes_in_order(
        &self,
        sender: &mut DeltaSender<u64>,
        rank: usize,
        random: &mut Random,
    ) -> Result<(), DeltaSendError> {
        let round = sender.round();
        while let Some(mut chunk) = sender.next(1 + random.below(5000) as usize)? {
            for (index, element) in chunk.range().zip(chunk.iter_mut()) {
                *element = self.element(rank, round, index);
            }
            if random.one_in(3) {
                host::sleep(Duration::from_micros(random.below(500))).await;
            }
            chunk.commit().await?;
        }
        Ok(())
    }

    /// Several tasks compute and commit parts, in an order of the seed and at times of the seed.
    async fn computes_parts(&self, sender: &DeltaSender<u64>, rank: usize, random: &mut Random) {
        let (round, plan) = (sender.round(), *self);
        let mut parts = sender.parts(1 + random.below(9) as usize).unwrap();
        let mut tasks = Vec::new();
        while !parts.is_empty() {
            let mut of_task = Vec::new();
            for _ in 0..1 + random.below(3) {
                if !parts.is_empty() {
                    let at = random.below(parts.len() as u64) as usize;
                    of_task.push(parts.swap_remove(at));
                }
            }
            let mut random = Random::new(random.next_u64());
            tasks.push(host::spawn(async move {
                for mut part in of_task {
                    let indices = part.range();
                    for (index, element) in indices.zip(&mut *part) {
                        *element = plan.element(rank, round, index);
                    }
                    let some = random.below(part.len() as u64 + 1) as usize;
                    part.commit_first(some);
                    host::sleep(Duration::from_micros(random.below(700))).await;
                    part.commit();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }

    async fn receives(
        &self,
        mut receiver: DeltaReceiver<u64>,
        rank: usize,
    ) -> Result<(), DeltaRecvError> {
        let mut random = Random::fork(self.seed + 1, rank as u64);
        for round in 1..=self.rounds {
            if round > 1 {
                assert!(receiver.start().await?);
            }
            assert_eq!(receiver.round(), round);
            let what = format!("{self:?}, round {round}, rank {rank}");
            let expected = self.expected(round);
            self.takes(&mut receiver, &expected, &mut random, &what).await?;
            same(receiver.finish().await?, &expected, &what);
            if random.one_in(4) {
                host::sleep(Duration::from_micros(random.below(2000))).await;
            }
        }
        if random.one_in(2) {
            let buffer = receiver.into_buffer().await?;
            same(&buffer, &self.expected(self.rounds), "the buffer");
        }
        Ok(())
    }

    /// Takes the elements of a round in a way of the seed.
    async fn takes(
        &self,
        receiver: &mut DeltaReceiver<u64>,
        expected: &[u64],
        random: &mut Random,
        what: &str,
    ) -> Result<(), DeltaRecvError> {
        match random.below(4) {
            0 => {
                let mut shown = 0;
                while let Some(landed) = receiver.next().await? {
                    same(landed, &expected[shown..shown + landed.len()], what);
                    shown += landed.len();
                }
                assert_eq!(shown, expected.len(), "{what}");
            }
            1 => {
                let middle = random.below(expected.len() as u64 + 1) as usize;
                same(receiver.wait(middle..).await?, &expected[middle..], what);
                same(receiver.wait(..middle).await?, &expected[..middle], what);
            }
            2 => {
                let mut shown = 0;
                while let Some((range, landed)) = receiver.next_any().await? {
                    shown += range.len();
                    same(landed, &expected[range], what);
                }
                assert_eq!(shown, expected.len(), "{what}");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Each collective at both depths, one after the other in one group.
async fn all_plans(mut group: Group, seed: u64) {
    let size = group.size();
    for depth in [1, 2] {
        for (number, what) in (0..).zip(ALL) {
            let plan = Plan::of(seed * 100 + number * 2 + depth as u64, what, depth, size);
            let ran = host::timeout(IN_TIME, plan.run(&mut group)).await;
            let ran = ran.unwrap_or_else(|_| panic!("{plan:?} hangs at rank {}", group.rank()));
            ran.unwrap_or_else(|stop| panic!("{plan:?}, rank {}: {stop:?}", group.rank()));
        }
    }
    group.barrier().await.unwrap();
}

#[test]
fn rounds_of_any_order_are_the_sequential_fold() {
    each_seed(0..18, |seed| {
        on_each(seed, 1 + seed as usize % 9, &[], move |_, cluster| async move {
            all_plans(Group::world(&cluster).await.unwrap(), seed).await;
        });
    });
}

#[test]
fn the_same_seed_is_the_same_run() {
    for (seed, what) in (100..).zip(ALL) {
        let plan = Plan::of(seed, what, 1, 5);
        let plan = Plan { length: 9000, increment: Increment::Fixed(7000), ..plan };
        let jitter = Duration::from_micros(50);
        let network = || switched(seed, 5, LinkSpec { jitter, ..LinkSpec::default() });
        let hosts = network().1;
        let program = async |simulation: Simulation| {
            let members = simulation.launch(&hosts, |_| async move {
                let cluster = join().await;
                plan.run(&mut Group::world(&cluster).await.unwrap()).await.unwrap();
                cluster.end(IN_TIME).await.unwrap();
            });
            for member in members {
                member.await.unwrap();
            }
        };
        let checked = check(|| network().0, program);
        checked.unwrap_or_else(|differs| panic!("{plan:?}: {differs}"));
    }
}

/// Time in which a slow rank computes a round.
const SLOW: Duration = Duration::from_secs(1);

/// Sends rounds, each computed in some time; returns how many were committed before the slow rank had computed
/// one.
async fn rounds_ahead(
    mut sender: DeltaSender<u64>,
    computing: Duration,
    since: Instant,
) -> (usize, Vec<Duration>) {
    let (mut ahead, mut began) = (0, Vec::new());
    for round in 1..=8 {
        if round > 1 {
            sender.start().await.unwrap();
        }
        began.push(since.elapsed());
        host::sleep(computing).await;
        let mut part = sender.part(..).unwrap();
        part.fill(round);
        part.commit();
        ahead += usize::from(since.elapsed() < SLOW);
    }
    sender.finish().await.unwrap();
    (ahead, began)
}

/// Rounds that each rank of four commits ahead of a slow one in the chain from 1 to 3 and 0.
fn ahead_of_a_slow(
    slow: usize,
    depth: usize,
    of: impl Fn(usize) -> Range<usize> + Copy + Send + 'static,
) {
    on_each(depth as u64, 4, &[], move |rank, cluster| async move {
        let mut group = Group::world(&cluster).await.unwrap();
        group.set_algorithm(Chain);
        let flow = Flow::default().depth(depth);
        let call = group.reduce_delta(0, vec![0_u64; 1000], Op::sum(), flow);
        let ReduceEnds { operand: mine, result } = call.await.unwrap();
        group.barrier().await.unwrap();
        let since = Instant::now();
        let receives = async {
            let Some(mut result) = result else { return };
            for round in 1..=8 {
                if round > 1 {
                    assert!(result.start().await.unwrap());
                }
                assert_eq!(result.finish().await.unwrap(), [4 * round; 1000]);
            }
        };
        let computing = if rank == slow { SLOW } else { Duration::ZERO };
        let ((ahead, began), ()) = tokio::join!(rounds_ahead(mine, computing, since), receives);
        let what = format!("rank {rank}, depth {depth}, {slow} is slow: {ahead}, {began:?}");
        println!("{what}");
        if rank != slow {
            assert!(of(rank).contains(&ahead), "{what}");
            // Each round of the slow one lets one more begin.
            let next = began[ahead];
            assert!(next >= SLOW - SLOW / 10 && next < SLOW + SLOW / 2, "{what}");
            assert!(began[7] > (8 - ahead as u32) * SLOW - SLOW / 10, "{what}");
        }
    });
}

#[test]
fn a_slow_child_holds_those_above_it_back_after_depth_rounds() {
    for depth in [1, 2] {
        ahead_of_a_slow(1, depth, move |_| depth..depth + 1);
    }
}

/// The elements of those below it are with the next rank before that has computed its own.
#[test]
fn a_slow_rank_holds_those_below_it_back_after_depth_rounds_and_more() {
    for depth in [1, 2] {
        ahead_of_a_slow(3, depth, move |rank| match rank {
            0 => depth..depth + 1,
            _ => depth + 1..depth * (5 - rank) + 1,
        });
    }
}

#[test]
fn a_slow_receiver_holds_the_root_of_a_broadcast_back_after_depth_rounds() {
    for depth in [1, 2] {
        on_each(depth as u64, 4, &[], move |_, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            group.set_algorithm(Binomial);
            let call = group.broadcast_delta(0, vec![0_u64; 1000], Flow::default().depth(depth));
            let end = call.await.unwrap();
            group.barrier().await.unwrap();
            let since = Instant::now();
            match end {
                DeltaEnd::Sender(sender) => {
                    let (ahead, began) = rounds_ahead(sender, Duration::ZERO, since).await;
                    println!("depth {depth}: {ahead}, {began:?}");
                    // Two transfers lie between them.
                    assert!((depth..=3 * depth).contains(&ahead), "{ahead}: {began:?}");
                }
                DeltaEnd::Receiver(mut receiver) => {
                    for round in 1..=8 {
                        if round > 1 {
                            assert!(receiver.start().await.unwrap());
                        }
                        if group.rank() == 3 {
                            host::sleep(SLOW).await;
                        }
                        assert_eq!(receiver.finish().await.unwrap(), [round; 1000]);
                    }
                }
            }
        });
    }
}

/// Makes the future again and drops it one wait later each time, until it is ready.
macro_rules! again {
    ($future:expr) => {{
        let mut waits = 0;
        loop {
            if let Some(output) = cancelled(waits, $future).await {
                break output;
            }
            waits += 1;
            host::yield_now().await;
        }
    }};
}

impl Plan {
    /// As [`run`](Self::run), with each future of the ends dropped at each await.
    async fn run_again(&self, group: &mut Group) {
        let rank = group.rank();
        let Ends { sender, receiver } = self.set_up(group).await.unwrap();
        let sends = async {
            let Some(mut sender) = sender else { return };
            for round in 1..=self.rounds {
                if round > 1 {
                    again!(sender.start()).unwrap();
                }
                assert_eq!(sender.round(), round);
                let mut waits = (0..4).cycle();
                while let Some(mut chunk) = sender.next(self.length.div_ceil(3)).unwrap() {
                    for (index, element) in chunk.range().zip(chunk.iter_mut()) {
                        *element = self.element(rank, round, index);
                    }
                    // The elements of a commit that was never polled are handed out again.
                    let committed = cancelled(waits.next().unwrap(), chunk.commit()).await;
                    committed.transpose().unwrap();
                    host::yield_now().await;
                }
                if round % 2 == 0 {
                    again!(sender.finish()).unwrap();
                }
            }
            again!(sender.finish()).unwrap();
        };
        let receives = async {
            let Some(mut receiver) = receiver else { return };
            for round in 1..=self.rounds {
                if round > 1 {
                    assert!(again!(receiver.start()).unwrap());
                }
                let (expected, what) = (self.expected(round), format!("{self:?}, round {round}"));
                let middle = expected.len() / 2;
                same(again!(receiver.wait(middle..)).unwrap(), &expected[middle..], &what);
                let mut shown = 0;
                while let Some(landed) = again!(receiver.next()).unwrap() {
                    same(landed, &expected[shown..shown + landed.len()], &what);
                    shown += landed.len();
                }
                assert_eq!(shown, expected.len(), "{what}");
                let mut shown = 0;
                while let Some((range, landed)) = again!(receiver.next_any()).unwrap() {
                    shown += range.len();
                    same(landed, &expected[range], &what);
                }
                assert_eq!(shown, expected.len(), "{what}");
                same(again!(receiver.finish()).unwrap(), &expected, &what);
            }
        };
        tokio::join!(sends, receives);
    }
}

#[test]
fn futures_of_the_ends_are_dropped_at_each_await_and_nothing_is_lost() {
    each_seed(0..8, |seed| {
        on_each(seed, 2 + seed as usize % 4, &[], move |_, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            for (depth, (number, what)) in (0..).zip(ALL).flat_map(|it| [(1, it), (2, it)]) {
                let plan = Plan::of(seed * 50 + number, what, depth, group.size());
                let plan = Plan { length: plan.length.max(3), rounds: 3, ..plan };
                let ran = host::timeout(IN_TIME, plan.run_again(&mut group)).await;
                ran.unwrap_or_else(|_| panic!("{plan:?} hangs at rank {}", group.rank()));
            }
            group.barrier().await.unwrap();
        });
    });
}

#[test]
fn the_end_of_a_stream_is_dropped_at_each_await_and_called_again() {
    for (seed, (depth, last)) in
        (0..).zip([(1, 0), (1, 700), (1, 5000), (2, 0), (2, 700), (2, 5000)])
    {
        on_each(seed, 4, &[], move |_, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            let flow = Flow::default().depth(depth);
            match group.broadcast_delta(1, vec![0_u64; 5000], flow).await.unwrap() {
                DeltaEnd::Sender(mut sender) => {
                    for round in 1..=3 {
                        let mut part = sender.part(..).unwrap();
                        part.fill(round);
                        part.commit();
                        again!(sender.start()).unwrap();
                    }
                    let mut part = sender.part(..last).unwrap();
                    part.fill(9);
                    part.commit();
                    again!(sender.end()).unwrap();
                }
                DeltaEnd::Receiver(mut receiver) => {
                    for round in 1..=3 {
                        assert_eq!(again!(receiver.finish()).unwrap(), [round; 5000]);
                        assert!(again!(receiver.start()).unwrap());
                    }
                    let mut found = again!(receiver.finish()).unwrap().len();
                    assert_eq!(found, last);
                    if last == 5000 {
                        // A full window is followed by a round without elements.
                        assert!(again!(receiver.start()).unwrap());
                        found = again!(receiver.finish()).unwrap().len();
                        assert_eq!(found, 0);
                    }
                    assert!(!again!(receiver.start()).unwrap());
                }
            }
            host::timeout(IN_TIME, group.barrier()).await.unwrap().unwrap();
        });
    }
}

#[test]
fn buffers_that_are_taken_and_dropped_harm_nobody() {
    for waits in 0..4 {
        on_each(waits, 4, &[], move |rank, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            for (number, what) in (0..).zip(ALL) {
                let plan = Plan::of(number, what, 1 + number as usize % 2, 4);
                let plan = Plan { length: 9001, rounds: 1, ..plan };
                let Ends { sender, receiver } = plan.set_up(&mut group).await.unwrap();
                if let Some(sender) = sender {
                    let mut part = sender.part(..).unwrap();
                    for (index, element) in part.iter_mut().enumerate() {
                        *element = plan.element(rank, 1, index);
                    }
                    part.commit();
                    if let Some(buffer) = cancelled(waits as u32, sender.into_buffer()).await {
                        assert_eq!(buffer.len(), plan.length_of(rank));
                    }
                }
                let Some(receiver) = receiver else { continue };
                if rank % 2 == number as usize % 2 && rank != plan.root {
                    drop(cancelled(waits as u32, receiver.into_buffer()).await);
                    continue;
                }
                let buffer = host::timeout(IN_TIME, receiver.into_buffer()).await.unwrap();
                let buffer = buffer.unwrap_or_else(|error| panic!("{plan:?}, {rank}: {error}"));
                same(&buffer, &plan.expected(1), format!("{plan:?}"));
            }
            host::timeout(IN_TIME, group.barrier()).await.unwrap().unwrap();
        });
    }
}

/// The call goes on without its caller, whose ends are dropped as soon as they are there.
#[test]
fn a_call_that_is_dropped_leaves_the_collective() {
    for (waits, what) in (1..5).flat_map(|waits| ALL.map(|what| (waits, what))) {
        on_each(waits, 4, &[], move |rank, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            let plan = Plan { root: 0, length: 9001, rounds: 100, ..Plan::of(waits, what, 1, 4) };
            let depth = 1 + waits as usize % 2;
            let plan = Plan { depth, ..plan };
            if rank == 1 {
                drop(cancelled(waits as u32, plan.set_up(&mut group)).await);
            } else {
                let ran = host::timeout(20 * IN_TIME, plan.run_plain(&mut group)).await;
                let ran = ran.unwrap_or_else(|_| panic!("{plan:?} hangs at rank {rank}"));
                let Err(stop) = ran else { panic!("{plan:?}: nobody is missing at rank {rank}") };
                let text = stop.cause().to_string();
                assert!(text.contains("ended the collective"), "{plan:?}, {rank}: {text}");
            }
            // The group is whole.
            let summed = host::timeout(IN_TIME, group.all_reduce(vec![1_u64], Op::sum())).await;
            assert_eq!(summed.unwrap().unwrap(), [4]);
        });
    }
}

impl Plan {
    /// Takes part in all rounds, ten in a second, and looks at no element.
    async fn run_plain(&self, group: &mut Group) -> Result<(), Stop> {
        self.set_up(group).await.map_err(Stop::Call)?.rounds(self.rounds).await
    }
}

impl Ends {
    /// Takes part in as many rounds, the present one first.
    async fn rounds(&mut self, rounds: u32) -> Result<(), Stop> {
        let sends = async {
            let Some(sender) = &mut self.sender else { return Ok(()) };
            for round in 1..=rounds {
                if round > 1 {
                    sender.start().await?;
                }
                if let Ok(all) = sender.part(..) {
                    all.commit();
                }
                host::sleep(Duration::from_millis(100)).await;
            }
            sender.finish().await
        };
        let receives = async {
            let Some(receiver) = &mut self.receiver else { return Ok(()) };
            for round in 1..=rounds {
                if round > 1 {
                    assert!(receiver.start().await?);
                }
                receiver.finish().await?;
            }
            Ok(())
        };
        let (sent, received) = tokio::join!(sends, receives);
        sent.map_err(Stop::Send)?;
        received.map_err(Stop::Receive)
    }
}

/// A way to leave a collective between two rounds.
#[derive(Clone, Copy, Debug)]
struct Leaves {
    moves: &'static [Move],
    /// Whether an end that is kept goes on.
    goes_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    BeginSender,
    Commit,
    DropSender,
    BeginReceiver,
    DropReceiver,
}

const fn idle(moves: &'static [Move]) -> Leaves {
    Leaves { moves, goes_on: false }
}

const fn goes_on(moves: &'static [Move]) -> Leaves {
    Leaves { moves, goes_on: true }
}

/// Without those in which an idle end still may go on.
const LEAVES: [Leaves; 12] = {
    use Move::{BeginReceiver, BeginSender, Commit, DropReceiver, DropSender};
    [
        idle(&[DropReceiver]),
        idle(&[DropSender]),
        idle(&[BeginSender, DropReceiver]),
        idle(&[BeginReceiver, DropSender]),
        idle(&[BeginSender, Commit, DropReceiver]),
        idle(&[BeginSender, Commit, DropSender, DropReceiver]),
        idle(&[BeginSender, Commit, DropReceiver, DropSender]),
        idle(&[DropReceiver, BeginSender, Commit, DropSender]),
        goes_on(&[DropReceiver]),
        goes_on(&[BeginReceiver, DropReceiver]),
        goes_on(&[BeginSender, Commit, DropSender]),
        goes_on(&[BeginSender, Commit, BeginReceiver, DropReceiver]),
    ]
};

impl Leaves {
    /// Makes the moves of the ends that the rank has, at once or in turn with the library.
    async fn leave(&self, Ends { mut sender, mut receiver }: Ends, in_turn: bool) -> Ends {
        for step in self.moves {
            match (step, &mut sender, &mut receiver) {
                // It fails where the receiver is gone.
                (Move::BeginSender, Some(sender), _) => drop(sender.start().await),
                (Move::Commit, Some(sender), _) => {
                    // A round that has not begun is committed.
                    if let Ok(all) = sender.part(..) {
                        all.commit();
                    }
                }
                (Move::BeginReceiver, _, Some(receiver)) => {
                    assert!(receiver.start().await.unwrap());
                }
                (Move::DropSender, ..) => sender = None,
                (Move::DropReceiver, ..) => receiver = None,
                _ => {}
            }
            if in_turn {
                host::sleep(Duration::from_millis(20)).await;
            }
        }
        Ends { sender, receiver }
    }

    /// Whether this rank drops an end that it has, where rank 0 is the root.
    fn is_of(&self, what: What, rank: usize) -> bool {
        let (sends, receives) = match what {
            What::Broadcast(_) => (rank == 0, rank != 0),
            What::AllReduce => (true, true),
            What::Reduce(_) | What::Gather => (true, rank == 0),
        };
        sends && self.moves.contains(&Move::DropSender)
            || receives && self.moves.contains(&Move::DropReceiver)
    }
}

/// A rank drops an end between two rounds, and keeps the other or not: each other rank hears of it, and the group is
/// whole.
#[test]
fn ends_that_are_dropped_between_rounds_in_any_order_let_nobody_hang() {
    let all = ALL
        .iter()
        .flat_map(|what| LEAVES.iter().flat_map(move |it| [(what, it, 1), (what, it, 2)]));
    for (seed, (what, leaves, depth)) in (0..).zip(all) {
        let (what, leaves) = (*what, *leaves);
        let leaver = (seed / 24 + seed / 2) as usize % 3;
        if !leaves.is_of(what, leaver) {
            continue;
        }
        on_each(seed, 4, &[], move |rank, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            let plan = Plan { root: 0, length: 9001, ..Plan::of(seed, what, depth, 4) };
            let note = format!("{plan:?}, {leaves:?} at {leaver}, rank {rank}");
            let mut ends = plan.set_up(&mut group).await.unwrap();
            if rank == leaver {
                ends.rounds(3).await.unwrap();
                ends = leaves.leave(ends, seed % 4 > 1).await;
                if leaves.goes_on {
                    let ran = host::timeout(IN_TIME, ends.rounds(100)).await;
                    let _ = ran.unwrap_or_else(|_| panic!("{note}: its own end hangs"));
                    ends = Ends { sender: None, receiver: None };
                }
            } else {
                let ran = host::timeout(IN_TIME, ends.rounds(100)).await;
                let ran = ran.unwrap_or_else(|_| panic!("{note} hangs"));
                let Err(stop) = ran else { panic!("{note}: nobody is missing") };
                let text = stop.cause().to_string();
                assert!(text.contains("ended the collective"), "{note}: {text}");
            }
            let summed = host::timeout(IN_TIME, group.all_reduce(vec![1_u64], Op::sum())).await;
            let Ok(Ok(summed)) = summed else { panic!("{note}: a call") };
            assert_eq!(summed, [4]);
            drop(ends);
        });
    }
}
