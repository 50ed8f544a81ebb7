//! The cost of an event in a group where many calls wait.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use super::super::error::GroupError;
use super::super::io::Io;
use super::super::shared::Run;
use crate::Group;
use crate::group::clusters::{end_all, join_all};
use crate::proto::talk::{Operation, Statement};

/// Says a word to the next rank, and waits for that of the rank before.
struct Ring {
    to: usize,
    from: usize,
    has_said: bool,
    polls: Arc<AtomicU64>,
}

impl Run for Ring {
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if !self.has_said {
            self.has_said = true;
            io.send(self.to, &[1], &[]);
        }
        let Some(heard) = io.take_data(self.from) else { return Poll::Pending };
        io.give_back(heard);
        Poll::Ready(Ok(()))
    }

    fn waits_for(&self) -> Option<usize> {
        Some(self.from)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

fn call_ring(group: &Group, polls: &Arc<AtomicU64>) {
    let (rank, size) = (group.rank(), group.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let run = Ring { to, from, has_said: false, polls: Arc::clone(polls) };
    let mut statement = Vec::new();
    Statement::new(Operation::Barrier).encode(&mut statement);
    let number = group.shared.tell(|state| state.submit(Box::new(run), statement));
    group.shared.forget(number);
}

#[tokio::test]
async fn a_call_is_polled_when_it_begins_and_when_its_word_comes_however_many_wait() {
    const CALLS: u64 = 2000;
    let clusters = join_all(3).await;
    let mut groups = Vec::new();
    for cluster in &clusters {
        groups.push(Group::world(cluster).await.unwrap());
    }
    let polls = Arc::new(AtomicU64::new(0));
    for group in &groups {
        (0..CALLS).for_each(|_| call_ring(group, &polls));
    }
    for barrier in groups.iter_mut().map(Group::barrier).collect::<Vec<_>>() {
        barrier.await.unwrap();
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 2 * CALLS * clusters.len() as u64, "{polls} polls");
    drop(groups);
    end_all(&clusters).await;
}
