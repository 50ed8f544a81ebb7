//! Calls go on whoever polls their futures, and whether somebody does.

use std::any::Any;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use chunkcomm_cluster::Cluster;
use chunkcomm_testkit::{limited, until};
use tokio::runtime::Builder;

use super::super::error::GroupError;
use super::super::io::Io;
use super::super::shared::Run;
use crate::collective::call::Call;
use crate::group::clusters::{end_all, join_all};
use crate::proto::schedule::algorithm::Algorithm;
use crate::proto::talk::{Operation, Statement};
use crate::{Group, Op};

/// Rounds of a test. Where each waited for the next look at late calls, they would take longer than a test may.
const ROUNDS: u64 = 1000;

/// Runs `test` on runtimes of one thread and of several.
fn on_each_runtime<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    let runtimes = [Builder::new_current_thread(), Builder::new_multi_thread()];
    for mut builder in runtimes {
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { tokio::spawn(test()).await.unwrap() });
    }
}

/// Returns groups that have talked.
async fn groups_of(size: u32) -> (Vec<Cluster>, Vec<Group>) {
    let clusters = join_all(size).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(limited(Group::world(cluster)).await.unwrap());
    }
    meet(&mut groups).await;
    (clusters, groups)
}

async fn meet(groups: &mut [Group]) {
    for barrier in groups.iter_mut().map(Group::barrier).collect::<Vec<_>>() {
        limited(barrier).await.unwrap();
    }
}

/// Ends the clusters once the calls of all groups have ended.
async fn end(clusters: Vec<Cluster>, mut groups: Vec<Group>) {
    meet(&mut groups).await;
    drop(groups);
    end_all(&clusters).await;
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn calls_whose_futures_are_not_polled_go_on() {
    on_each_runtime(|| async {
        let (clusters, mut groups) = groups_of(4).await;
        for _ in 0..ROUNDS / 4 {
            let unpolled = groups[0].barrier();
            for other in groups[1..].iter_mut().map(Group::barrier).collect::<Vec<_>>() {
                limited(other).await.unwrap();
            }
            limited(unpolled).await.unwrap();
        }
        end(clusters, groups).await;
    });
}

#[test]
fn calls_go_on_when_a_future_was_polled_once_and_is_left_or_dropped() {
    on_each_runtime(|| async {
        let (clusters, mut groups) = groups_of(4).await;
        for round in 0..ROUNDS / 4 {
            let mut left = Some(groups[0].barrier());
            assert!(left.as_mut().is_some_and(|left| poll_once(left).is_pending()));
            if round % 2 == 0 {
                left = None;
            }
            for other in groups[1..].iter_mut().map(Group::barrier).collect::<Vec<_>>() {
                limited(other).await.unwrap();
            }
            if let Some(left) = left {
                limited(left).await.unwrap();
            }
        }
        end(clusters, groups).await;
    });
}

#[test]
fn calls_of_several_tasks_end_and_so_does_one_that_moves_to_another_task() {
    on_each_runtime(|| async {
        let (clusters, mut groups) = groups_of(3).await;
        for round in 0..ROUNDS / 4 {
            let mut tasks = Vec::new();
            for group in &mut groups {
                for call in 0..3 {
                    let mut sum = group.all_reduce(vec![round + call], Op::sum());
                    let expected = 3 * (round + call);
                    // One has been polled by this task before.
                    let poll = poll_fn(|context| Poll::Ready(Pin::new(&mut sum).poll(context)));
                    if call == 1
                        && let Poll::Ready(sum) = poll.await
                    {
                        assert_eq!(sum.unwrap(), [expected]);
                        continue;
                    }
                    tasks.push(tokio::spawn(async move {
                        assert_eq!(sum.await.unwrap(), [expected]);
                    }));
                }
            }
            for task in tasks {
                limited(task).await.unwrap();
            }
        }
        end(clusters, groups).await;
    });
}

#[test]
fn calls_are_driven_by_threads_without_a_runtime_and_by_other_runtimes() {
    on_each_runtime(|| async {
        let (clusters, mut groups) = groups_of(2).await;
        let mut far = groups.pop().unwrap();
        let thread = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                assert_eq!(far.all_reduce(vec![round], Op::sum()).wait().unwrap(), [2 * round]);
            }
            let runtime = Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for round in 0..ROUNDS {
                    let sum = far.all_reduce(vec![round], Op::sum());
                    assert_eq!(sum.await.unwrap(), [2 * round]);
                }
            });
            far
        });
        for round in (0..ROUNDS).chain(0..ROUNDS) {
            let sum = groups[0].all_reduce(vec![round], Op::sum());
            assert_eq!(limited(sum).await.unwrap(), [2 * round]);
        }
        limited(until(|| thread.is_finished())).await;
        groups.push(thread.join().unwrap());
        end(clusters, groups).await;
    });
}

#[test]
fn a_group_that_is_dropped_while_a_future_drives_ends_its_call() {
    on_each_runtime(|| async {
        let (clusters, mut groups) = groups_of(2).await;
        let (mut far, mut near) = (groups.pop().unwrap(), groups.pop().unwrap());
        let mut first = near.barrier();
        assert!(poll_once(&mut first).is_pending());
        drop(near);
        limited(far.barrier()).await.unwrap();
        limited(first).await.unwrap();
        drop(far);
        end_all(&clusters).await;
    });
}

#[test]
fn a_future_that_drives_hears_of_a_death() {
    on_each_runtime(|| async {
        let (mut clusters, mut groups) = groups_of(3).await;
        let mut waiting = groups[0].barrier();
        assert!(poll_once(&mut waiting).is_pending());
        let node = clusters[2].node().clone();
        drop((groups.pop(), clusters.pop()));
        let _ = limited(node.close(Duration::ZERO)).await;
        let error = limited(waiting).await.unwrap_err();
        assert!(matches!(error.cause, GroupError::Lost { .. } | GroupError::Ended(_)), "{error}");
    });
}

/// Waits for a word of every other rank, where it does not panic.
struct Hears {
    left: Vec<usize>,
    says_to: Vec<usize>,
    panics: bool,
    polls: Arc<AtomicU64>,
}

impl Run for Hears {
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        assert!(!self.panics, "a run that panics");
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.says_to.drain(..).for_each(|to| io.send(to, &[1], &[]));
        self.left.retain(|from| match io.take_data(*from) {
            Some(heard) => {
                io.give_back(heard);
                false
            }
            None => true,
        });
        if self.left.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn waits_for(&self) -> Option<usize> {
        self.left.first().copied()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn call(group: &Group, panics: bool) -> (Call<bool>, Arc<AtomicU64>) {
    let polls = Arc::<AtomicU64>::default();
    let others: Vec<_> = (0..group.size()).filter(|rank| *rank != group.rank()).collect();
    let run = Hears { left: others.clone(), says_to: others, panics, polls: Arc::clone(&polls) };
    let mut statement = Vec::new();
    Statement::new(Operation::Barrier).encode(&mut statement);
    let number = group.shared.tell(|state| state.submit(Box::new(run), statement));
    let take = Box::new(|_: &mut dyn Run, cause: Option<GroupError>| Ok(cause.is_none()));
    (Call::new(Arc::clone(&group.shared), number, Algorithm::Auto, take), polls)
}

/// Notes that it was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_future_drives_its_call_itself_and_is_woken_by_a_word() {
    let (clusters, groups) = groups_of(3).await;
    let (mut near, polls) = call(&groups[0], false);
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    // No task has its turn in between.
    assert!(Pin::new(&mut near).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(polls.load(Ordering::Relaxed), 1);
    // It waits for one more rank when it is woken.
    let (far, _) = call(&groups[1], false);
    limited(until(|| woken.0.load(Ordering::Relaxed))).await;
    let (last, _) = call(&groups[2], false);
    for call in [near, far, last] {
        assert!(limited(call).await.unwrap());
    }
    end(clusters, groups).await;
}

#[tokio::test]
async fn words_leave_before_a_caller_goes_on() {
    let (clusters, mut groups) = groups_of(2).await;
    let far = groups[1].barrier();
    // The word of the other rank is there before the call is made.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut near = groups[0].barrier();
    assert!(poll_once(&mut near).is_pending());
    assert!(poll_once(&mut near).is_ready());
    limited(far).await.unwrap();
    end(clusters, groups).await;
}

#[tokio::test]
async fn a_panic_of_a_run_ends_the_calls_and_not_their_callers() {
    let (clusters, groups) = groups_of(1).await;
    let (mut first, _) = call(&groups[0], true);
    assert!(matches!(poll_once(&mut first), Poll::Ready(Ok(false))));
    let (second, _) = call(&groups[0], false);
    assert!(!limited(second).await.unwrap());
    drop(groups);
    end_all(&clusters).await;
}
