//! The standing task of a group: it runs the calls, whether somebody waits for them or not.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::layer::Wait;
use chunkcomm_cluster::cluster::{Change, Changes};

use super::io::{Heard, Io};
use super::links::{Links, Lost};
use super::shared::{Finished, Run, Shared, Submitted};
use crate::error::group::{CallDifference, GroupError};
use crate::proto::talk::{self, Fault, Kind, Word};

/// Number of finished calls whose statements are kept: a rank may find only later that it differs.
const PAST_COUNT: usize = 64;

/// A call under way.
pub(super) struct Active {
    pub(super) number: u64,
    pub(super) statement: Vec<u8>,
    pub(super) run: Box<dyn Run>,
    pub(super) since: Instant,
    /// A rank whose link failed a transfer; the run is not polled any more.
    pub(super) lost: Option<(usize, Lost)>,
    /// Whether its run may have said something.
    started: bool,
    /// The rank that was asked last.
    pub(super) asked: Option<usize>,
    pub(super) reported: bool,
    /// Keeps the wait in the node's report.
    pub(super) wait: Option<Wait>,
}

impl Active {
    /// Returns the rank that the call waits for: at first one that takes no more words.
    pub(super) fn waits_for(&self, links: &Links) -> Option<usize> {
        if self.started { self.run.waits_for() } else { links.full_to() }
    }
}

type NextChange = Pin<Box<dyn Future<Output = (Changes, Option<Change>)> + Send>>;
type Tick = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Engine {
    pub(super) shared: Arc<Shared>,
    pub(super) links: Links,
    pub(super) active: Vec<Active>,
    pub(super) inbox: VecDeque<Heard>,
    past: VecDeque<(u64, Vec<u8>)>,
    /// Number of the last call that began here.
    begun: u64,
    change: Option<NextChange>,
    pub(super) tick: Option<Tick>,
    pub(super) report_after: Duration,
    pub(super) broken: Option<GroupError>,
}

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>, links: Links, changes: Changes) -> Engine {
        Engine {
            shared,
            links,
            active: Vec::new(),
            inbox: VecDeque::new(),
            past: VecDeque::new(),
            begun: 0,
            change: Some(next_change(changes)),
            tick: None,
            report_after: Duration::ZERO,
            broken: None,
        }
    }

    /// Runs calls until the group is dropped and all of them are over.
    pub(crate) async fn run(mut self) {
        self.look_for_deaths();
        poll_fn(|context| self.poll(context)).await;
        let farewell = self.links.farewell();
        drop(self);
        farewell.say().await;
    }

    fn look_for_deaths(&mut self) {
        let (deaths, members) = (self.links.cluster.deaths(), Arc::clone(&self.links.members));
        for (rank, member) in members.iter().enumerate() {
            if let Some(death) = deaths.iter().find(|death| death.id == *member) {
                self.fail(GroupError::Died { rank, death: death.clone() }, None);
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_closed = self.take_submitted(context);
            while let Poll::Ready(heard) =
                self.links.poll_hear(context, |rank| is_wanted(&self.active, &self.inbox, rank))
            {
                self.handle(heard);
            }
            self.poll_changes(context);
            let has_moved = self.progress(context);
            let was_full = self.links.full_to().is_some();
            self.links.poll_send(context);
            let has_room = was_full && self.links.full_to().is_none();
            if self.look_for_lost() || has_moved || has_room {
                continue;
            }
            // Runs have taken words, and the waker of a channel that was held up is not set.
            if self.links.hears_more(|rank| is_wanted(&self.active, &self.inbox, rank)) {
                continue;
            }
            if is_closed && self.active.is_empty() && self.links.is_idle() {
                return Poll::Ready(());
            }
            if !self.poll_tick(context) {
                return Poll::Pending;
            }
        }
    }

    /// Begins the calls that were made; returns whether none follows.
    fn take_submitted(&mut self, context: &Context<'_>) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        state.watch(context.waker());
        self.report_after = state.report_after();
        if state.shrinking && self.broken.is_none() {
            self.broken = Some(GroupError::Closed);
        }
        let first = self.active.len();
        while let Some(Submitted { number, statement, run }) = state.take_submitted() {
            self.begun = number;
            let since = Instant::now();
            self.active.push(Active {
                number,
                statement,
                run,
                since,
                lost: None,
                started: false,
                asked: None,
                reported: false,
                wait: None,
            });
        }
        let is_closed = state.closed || state.shrinking;
        drop(state);
        for index in first..self.active.len() {
            self.compare(index);
        }
        is_closed
    }

    /// Compares a call that begins with what others have said of it.
    fn compare(&mut self, index: usize) {
        let Active { number, statement, .. } = &self.active[index];
        let of_it = |heard: &&Heard| heard.call == *number;
        let differs = |heard: &&Heard| heard.statement() != &statement[..];
        let fault = self.inbox.iter().filter(of_it).find(differs);
        let fault = fault.map(|heard| self.difference(*number, statement, heard));
        let links = &mut self.links;
        self.inbox.retain(|heard| {
            let is_over = heard.call == *number && heard.kind == Kind::Asks;
            if is_over {
                links.taken(heard);
            }
            !is_over
        });
        if let Some(fault) = fault {
            self.fail_by(fault);
        }
    }

    /// Takes in a word.
    fn handle(&mut self, heard: Heard) {
        if heard.kind == Kind::Broken {
            let size = self.links.members.len();
            let fault = Fault::decode(heard.payload()).filter(|fault| fault.is_among(size));
            self.links.taken(&heard);
            if let Some(fault) = fault {
                self.fail(error_of(fault), None);
            }
            return;
        }
        let active = self.active.iter().find(|it| it.number == heard.call);
        let past = || self.past.iter().find(|(number, _)| *number == heard.call);
        let mine = active.map(|it| &it.statement).or_else(|| past().map(|(_, mine)| mine));
        if let Some(mine) = mine.filter(|mine| mine[..] != *heard.statement()) {
            let fault = self.difference(heard.call, mine, &heard);
            self.fail_by(fault);
            return;
        }
        // A rank that asks of a later call is compared when that call begins here.
        let is_wanted = active.is_some() && heard.kind != Kind::Asks;
        if is_wanted || heard.call > self.begun {
            self.inbox.push_back(heard);
        } else {
            self.links.taken(&heard);
            self.links.give_back(heard);
        }
    }

    fn difference(&self, call: u64, mine: &[u8], heard: &Heard) -> Fault {
        let (me, from) = (self.links.rank as u32, heard.from as u32);
        let (mine, theirs) = (mine.to_vec(), heard.statement().to_vec());
        let (ranks, statements) =
            if me < from { ([me, from], [mine, theirs]) } else { ([from, me], [theirs, mine]) };
        Fault::Differs { call, ranks, statements }
    }

    /// Breaks the group and says so to all.
    fn fail_by(&mut self, fault: Fault) {
        self.fail(error_of(fault.clone()), Some(fault));
    }

    /// Breaks the group, for a reason that the others hear from this rank where `fault` is given.
    pub(super) fn fail(&mut self, cause: GroupError, fault: Option<Fault>) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(cause.clone());
        self.shared.break_by(cause);
        let Some(fault) = fault else { return };
        let payload = fault.encode();
        let word = Word { kind: Kind::Broken, call: self.begun, left: 0, statement: &[] };
        let me = self.links.rank;
        for rank in (0..self.links.members.len()).filter(|rank| *rank != me) {
            self.links.send(rank, &word, &[&payload]);
        }
    }

    fn poll_changes(&mut self, context: &mut Context<'_>) {
        while let Some(change) = &mut self.change {
            let Poll::Ready((changes, change)) = change.as_mut().poll(context) else { return };
            self.change = change.is_some().then(|| next_change(changes));
            match change {
                Some(Change::Died(death)) => {
                    let member = death.id;
                    let rank = self.links.members.iter().position(|it| *it == member);
                    if let Some(rank) = rank {
                        self.fail(GroupError::Died { rank, death }, None);
                    }
                }
                Some(Change::Left(member)) => {
                    let members = Arc::clone(&self.links.members);
                    for rank in (0..members.len()).filter(|rank| members[*rank] == member) {
                        self.links.leave(rank);
                    }
                }
                Some(Change::Missed(_)) => self.look_for_deaths(),
                Some(_) => {}
                None => {
                    if let Some(end) = self.links.cluster.ended() {
                        self.fail(GroupError::Ended(end), None);
                    }
                }
            }
        }
    }

    /// Lets each call go on; returns whether one has ended.
    fn progress(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_ended = false;
        let mut index = 0;
        while index < self.active.len() {
            let Active { number, statement, run, started, lost, .. } = &mut self.active[index];
            if !*started && self.broken.is_none() && self.links.full_to().is_some() {
                index += 1;
                continue;
            }
            *started = true;
            let (links, inbox) = (&mut self.links, &mut self.inbox);
            let call = *number;
            let mut io = Io { call, statement, links, inbox, context };
            let ended = match self.broken.clone() {
                Some(cause) => run.stop(&cause, &mut io).map(|()| Some(cause)),
                None if lost.is_some() => Poll::Pending,
                None => match run.poll(&mut io) {
                    Poll::Ready(Ok(())) => Poll::Ready(None),
                    Poll::Ready(Err(GroupError::Gone { rank, why })) => {
                        *lost = Some((rank, Lost::new(why)));
                        Poll::Pending
                    }
                    Poll::Ready(Err(error)) => {
                        let (rank, why) = match &error {
                            GroupError::Rank { rank, why } => (*rank, why.clone()),
                            error => (self.links.rank, error.to_string()),
                        };
                        self.fail(error, Some(Fault::Said { rank: rank as u32, why }));
                        continue;
                    }
                    Poll::Pending => Poll::Pending,
                },
            };
            match ended {
                Poll::Ready(cause) => {
                    self.end(index, cause);
                    has_ended = true;
                }
                Poll::Pending => index += 1,
            }
        }
        has_ended
    }

    fn end(&mut self, index: usize, cause: Option<GroupError>) {
        let Active { number, statement, run, .. } = self.active.remove(index);
        let links = &mut self.links;
        self.inbox.retain(|heard| {
            if heard.call == number {
                links.taken(heard);
            }
            heard.call != number
        });
        let is_full = self.past.len() == PAST_COUNT;
        let oldest = if is_full { self.past.pop_front() } else { None };
        self.past.push_back((number, statement));
        let spare = oldest.map(|(_, statement)| statement).unwrap_or_default();
        self.shared.finish(number, Finished { run, cause }, spare);
    }
}

impl Drop for Engine {
    /// Ends the calls that nobody runs any more: the runtime is gone.
    fn drop(&mut self) {
        let over = self.shared.end();
        let cause = Some(self.broken.clone().unwrap_or(GroupError::Closed));
        let active = self.active.drain(..).map(|it| (it.number, it.run));
        for (number, run) in active.chain(over.into_iter().map(|it| (it.number, it.run))) {
            self.shared.finish(number, Finished { run, cause: cause.clone() }, Vec::new());
        }
    }
}

/// Whether a call waits for a rank, of which no word is there.
fn is_wanted(active: &[Active], inbox: &VecDeque<Heard>, rank: usize) -> bool {
    let is_there = |call: u64| inbox.iter().any(|it| it.call == call && it.from == rank);
    active.iter().any(|it| it.run.waits_for() == Some(rank) && !is_there(it.number))
}

fn error_of(fault: Fault) -> GroupError {
    match fault {
        Fault::Differs { call, ranks, statements } => {
            let calls = talk::texts(&statements);
            let ranks = ranks.map(|rank| rank as usize);
            GroupError::Differs(Box::new(CallDifference { call, ranks, calls }))
        }
        Fault::Said { rank, why } => GroupError::Rank { rank: rank as usize, why },
    }
}

fn next_change(mut changes: Changes) -> NextChange {
    Box::pin(async move {
        let change = changes.next().await;
        (changes, change)
    })
}
