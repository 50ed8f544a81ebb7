//! The engine of a group: it runs the calls, whether somebody waits for them or not.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chunkcomm::host::{self, Alarm, Instant};
use chunkcomm::layer::Owed;
use chunkcomm_cluster::cluster::Death;
use chunkcomm_cluster::roster::Event;

use super::calls::{Active, Calls};
use super::error::{CallDifference, GroupError};
use super::inbox::Inbox;
use super::io::{Heard, Io};
use super::links::Links;
use super::shared::{CALLS_MAX, Finished, Shared};
use crate::proto::talk::{self, Fault, Kind, Word};

/// Number of finished calls whose statements are kept: a rank may find only later that it differs.
const PAST_COUNT: usize = 64;

/// Time in which the others take this rank's word that the group is broken, before its callers hear
/// it: 1 s. A program usually ends then, and with rank 0 of the cluster all ranks.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// Time after which other tasks have their turn: 2 ms, and two looks at the clock. Thousands of calls that nobody awaits
/// may go on at once.
const TURN: Duration = Duration::from_millis(2);

/// Steps of a turn between two looks at the clock. A step takes 1 us, and 1 ms with much memory.
const STEPS_A_LOOK: u32 = 4;

type Telling = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Engine {
    pub(super) shared: Arc<Shared>,
    pub(super) links: Links,
    pub(super) calls: Calls,
    inbox: Inbox,
    past: VecDeque<(u64, Vec<u8>)>,
    /// The first rank that failed a call.
    pub(super) failing: Option<usize>,
    /// Number of the last call that began here.
    begun: u64,
    /// Time of the next look at calls that wait.
    pub(super) looks_at: Option<Instant>,
    pub(super) tick: Alarm,
    /// Number of the last call that a look at those which wait has come to; 0 where the next one begins anew.
    pub(super) looked: u64,
    pub(super) report_after: Duration,
    pub(super) broken: Option<GroupError>,
    /// Why it is broken, as ranks tell each other.
    fault: Option<Fault>,
    /// End of the time to tell the others, while callers do not know that the group is broken.
    telling: Option<Telling>,
    /// Words that wait when the node closes, and the farewell; `None` once they are said.
    owed: Option<Owed>,
}

/// A part of a turn of the engine: of taking calls in, of hearing and of running.
#[derive(Default)]
struct Turn {
    steps: u32,
    /// Time of the first look at the clock.
    since: Option<Instant>,
    is_over: bool,
}

impl Turn {
    /// Counts a step. In a simulation the turn has no end: there work takes the time that it declares.
    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_A_LOOK) && !self.is_over {
            let now = Instant::now();
            self.is_over = now - *self.since.get_or_insert(now) >= TURN;
        }
    }
}

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>, links: Links) -> Engine {
        shared.state().rank = links.rank;
        let what = format!("the last words of rank {} in a group", links.rank);
        let owed = Some(Owed::standing(links.cluster().node(), what));
        Engine {
            shared,
            calls: Calls::new(links.members().len()),
            links,
            inbox: Inbox::default(),
            past: VecDeque::new(),
            failing: None,
            begun: 0,
            looks_at: None,
            tick: Alarm::default(),
            looked: 0,
            report_after: Duration::ZERO,
            broken: None,
            fault: None,
            telling: None,
            owed,
        }
    }

    /// Runs calls until the group is dropped and all of them are over.
    pub(crate) async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
        let (farewell, owed) = (self.links.farewell(), self.owed.take());
        drop(self);
        farewell.say(owed).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Runs that were woken go on once: one that lets other tasks have their turn wakes itself.
        let mut takes_woken = true;
        let [mut taking, mut hearing, mut running] = [(); 3].map(|()| Turn::default());
        // The other sources have the turn of the roster and of the tick.
        let mut has_news = false;
        loop {
            // Calls that were made before the node closes are among those that are taken now, if the turn lasts.
            let is_due = self.owed.as_ref().is_some_and(Owed::is_due);
            let is_closed = self.take_submitted(mem::take(&mut takes_woken), &mut taking);
            let rest_has_news = self.links.rest.take_news();
            has_news |= rest_has_news;
            if rest_has_news {
                self.links.poll_accept();
            }
            while !hearing.is_over
                && let Poll::Ready(heard) = self.links.poll_hear(|rank| self.calls.want(rank))
            {
                self.handle(heard);
                hearing.step();
            }
            if rest_has_news {
                self.poll_roster();
            }
            self.progress(&mut running);
            let full_before = self.links.full_count();
            self.links.poll_send();
            let has_room = full_before > 0 && self.links.full_count() < full_before;
            if has_room {
                self.links.take_awaiting_room().into_iter().for_each(|call| self.calls.wake(call));
            }
            if taking.is_over || hearing.is_over || running.is_over {
                self.look_for_lost();
                self.poll_tick(has_news);
                // Woken now, this would run again before the runtime looks at its sockets.
                let _ = pin!(host::yield_now()).poll(context);
                return Poll::Pending;
            }
            let has_told = self.telling.is_some() && self.links.is_idle();
            if self.look_for_lost() || has_room || has_told || self.links.rest.has_news() {
                continue;
            }
            // Runs have taken words, and the waker of a channel that was held up is not set.
            if self.links.hears_more(|rank| self.calls.want(rank)) {
                continue;
            }
            if is_closed && self.calls.is_empty() && self.links.is_idle() {
                return Poll::Ready(());
            }
            if is_due && self.links.is_idle() && !self.calls.are_saying() {
                self.owed = None;
            } else if let Some(owed) = &mut self.owed
                && owed.poll_due(&self.links.rest.context()).is_ready()
                && !is_due
            {
                continue;
            }
            if !self.poll_tick(has_news) {
                return Poll::Pending;
            }
        }
    }

    /// Begins the calls that were made, and lets runs that were woken go on; returns whether no call follows.
    fn take_submitted(&mut self, takes_woken: bool, turn: &mut Turn) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if takes_woken {
            state.woken.drain(..).for_each(|number| self.calls.wake(number));
        }
        self.report_after = state.report_after();
        if state.shrinking && self.broken.is_none() {
            self.stop_by(GroupError::Closed);
        }
        let first = self.begun + 1;
        while !turn.is_over
            && let Some(submitted) = state.take_submitted()
        {
            self.begun = submitted.number;
            self.calls.add(submitted, &self.shared);
            turn.step();
        }
        let is_closed = state.closed || state.shrinking;
        let is_beyond = state.is_beyond;
        drop(state);
        if is_beyond {
            let (rank, bound) = (self.links.rank as u32, CALLS_MAX as u64);
            self.fail_by(Fault::TooManyCalls { rank, bound });
        }
        for number in first..=self.begun {
            self.compare(number);
            self.calls.look_at(number, &self.inbox);
        }
        is_closed
    }

    /// Compares a call that begins with what others have said of it.
    fn compare(&mut self, number: u64) {
        let Some(mine) = self.calls.statement(number) else { return };
        let differs = |heard: &&Heard| heard.statement() != mine;
        let fault = self.inbox.of_call(number).find(differs);
        let fault = fault.map(|heard| difference(self.links.rank, mine, heard));
        let asks = |heard: &Heard| heard.kind == Kind::Asks;
        while let Some(heard) = self.inbox.take_any(number, asks) {
            self.drop_word(heard);
        }
        if let Some(fault) = fault {
            self.fail_by(fault);
        }
    }

    /// Gives the memory of a word free.
    fn drop_word(&mut self, heard: Heard) {
        self.links.taken(&heard);
        self.links.give_back(heard);
    }

    /// Takes in a word.
    fn handle(&mut self, heard: Heard) {
        if heard.kind == Kind::Broken {
            let size = self.links.members().len();
            let fault = Fault::decode(heard.payload()).filter(|fault| fault.is_among(size));
            self.drop_word(heard);
            if let Some(fault) = fault {
                // A rank that waits for this one may not hear the one that broke the group. The end of rank 0
                // of the cluster may come before the word of another rank.
                let tells_all = self.links.cluster().rank() == 0;
                let hears = |links: &Links, rank| tells_all || links.has_talked(rank);
                self.fail_and_say(error_of(fault.clone()), fault, hears);
            }
            return;
        }
        if self.broken.is_some() {
            if let Some(fault) = self.fault.as_ref().filter(|_| heard.kind == Kind::Asks) {
                say_broken(&mut self.links, heard.from, fault);
            }
            self.drop_word(heard);
            return;
        }
        if heard.kind == Kind::Over {
            self.handle_over(heard);
            return;
        }
        let call = heard.call;
        let mine = self.calls.statement(call);
        let is_active = mine.is_some();
        let past = || self.past.iter().find(|(number, _)| *number == call);
        let mine = mine.or_else(|| past().map(|(_, mine)| &mine[..]));
        if let Some(mine) = mine.filter(|mine| *mine != heard.statement()) {
            let fault = difference(self.links.rank, mine, &heard);
            self.drop_word(heard);
            self.fail_by(fault);
        } else if mine.is_none() && call <= self.begun {
            self.handle_late(heard);
        } else if is_active && heard.kind != Kind::Asks {
            self.calls.hear(call, heard.from);
            self.inbox.push(heard);
        } else if call > self.begun {
            // A rank that asks of a later call is compared when that call begins here.
            self.inbox.push(heard);
        } else {
            self.drop_word(heard);
        }
    }

    /// Takes in a word of a call whose statement is forgotten.
    fn handle_late(&mut self, heard: Heard) {
        match heard.kind {
            // The call ended with all data that it takes: these are of another one.
            Kind::Data => {
                let fault = difference(self.links.rank, &[], &heard);
                self.fail_by(fault);
            }
            // The words for that rank are on their way, or the two ranks are in different calls.
            Kind::Asks => {
                let word = Word { kind: Kind::Over, call: heard.call, left: 0, statement: &[] };
                self.links.send(heard.from, &word, &[]);
            }
            _ => {}
        }
        self.drop_word(heard);
    }

    /// Takes in that a rank has ended a call: nothing more comes of it from there.
    fn handle_over(&mut self, heard: Heard) {
        if let Some(active) = self.calls.get_mut(heard.call) {
            if !active.over.contains(&heard.from) {
                active.over.push(heard.from);
            }
            self.calls.wake(heard.call);
        }
        self.drop_word(heard);
    }

    /// Breaks the group where a call waits for a rank that has ended it.
    fn look_for_over(&mut self, number: u64) {
        let Some(active) = self.calls.get_mut(number) else { return };
        let Some(from) = active.wants.filter(|rank| active.over.contains(rank)) else { return };
        let fault = differ(number, (self.links.rank, &active.statement), (from, &[]));
        self.fail_by(fault);
    }

    /// Breaks the group and says so to all.
    fn fail_by(&mut self, fault: Fault) {
        self.fail_and_say(error_of(fault.clone()), fault, |_, _| true);
    }

    /// Breaks the group, for a reason that these others hear from this rank.
    pub(super) fn fail_and_say(
        &mut self,
        cause: GroupError,
        fault: Fault,
        to: impl Fn(&Links, usize) -> bool,
    ) {
        if self.broken.is_some() {
            return;
        }
        for rank in 0..self.links.members().len() {
            if rank != self.links.rank && to(&self.links, rank) {
                say_broken(&mut self.links, rank, &fault);
            }
        }
        self.links.flush();
        self.telling = Some(Box::pin(host::sleep(TOLD_WITHIN)));
        self.fail(cause, Some(fault));
    }

    /// Whether callers still wait for the others to be told that the group is broken.
    fn is_telling(&mut self) -> bool {
        let Some(time) = &mut self.telling else { return false };
        let context = &mut self.links.rest.context();
        if !self.links.is_idle() && time.as_mut().poll(context).is_pending() {
            return true;
        }
        self.telling = None;
        if let Some(cause) = self.broken.clone() {
            self.shared.break_by(cause);
        }
        false
    }

    /// Breaks the group, for a reason that a rank which asks hears from this one where there is a `fault`.
    fn fail(&mut self, cause: GroupError, fault: Option<Fault>) {
        if self.broken.is_some() {
            return;
        }
        self.fault = fault;
        self.stop_by(cause.clone());
        if self.telling.is_none() {
            self.shared.break_by(cause);
        }
    }

    /// Lets all calls end for this cause. Words are not held for later ones.
    fn stop_by(&mut self, cause: GroupError) {
        self.broken = Some(cause);
        for heard in self.inbox.take_all() {
            self.drop_word(heard);
        }
        self.calls.wake_all();
    }

    /// Takes in who is gone. A death breaks the group at once, any other end when a call waits for the rank.
    fn poll_roster(&mut self) {
        while let Poll::Ready(event) = self.links.poll_event() {
            match event {
                Event::Lost(rank, loss) if loss.cause::<Death>().is_some() => {
                    self.fail(GroupError::Lost { rank, loss }, None);
                }
                Event::Ended(end) => self.fail(GroupError::Ended(end), None),
                _ => {}
            }
        }
    }

    /// Lets the calls go on that can.
    fn progress(&mut self, turn: &mut Turn) {
        while !turn.is_over && !self.is_telling() {
            // A call begins where all ranks take its words.
            let is_open = || self.broken.is_some() || self.links.full_to().is_none();
            let Some(number) = self.calls.next_ready(is_open) else { break };
            self.poll_call(number);
            turn.step();
        }
    }

    /// Lets a call go on.
    fn poll_call(&mut self, number: u64) {
        let Some(active) = self.calls.get_mut(number) else { return };
        let Active { statement, run, waker, is_lost, .. } = active;
        let waker = Waker::from(Arc::clone(waker));
        let context = &mut Context::from_waker(&waker);
        let (links, inbox) = (&mut self.links, &mut self.inbox);
        let mut io = Io { call: number, statement, links, inbox, context };
        let polled = match &self.broken {
            Some(cause) => run.stop(cause, &mut io).map(Ok),
            None if *is_lost => Poll::Pending,
            None => run.poll(&mut io),
        };
        match polled {
            Poll::Ready(Ok(())) => {
                self.end(number);
                return;
            }
            Poll::Ready(Err(GroupError::Lost { rank, loss })) if loss.is_gone() => {
                *is_lost = true;
                self.failing.get_or_insert(rank);
                self.links.note_failure(rank, loss);
            }
            Poll::Ready(Err(error)) => {
                let (rank, loss) = match &error {
                    GroupError::Lost { rank, loss } => (*rank, loss.clone()),
                    error => (self.links.rank, error.clone().into()),
                };
                self.fail_and_say(error, Fault::Lost { rank: rank as u32, loss }, |_, _| true);
            }
            Poll::Pending => {}
        }
        self.calls.look_at(number, &self.inbox);
        self.look_for_over(number);
    }

    fn end(&mut self, number: u64) {
        let Some(Active { statement, run, .. }) = self.calls.remove(number) else { return };
        while let Some(heard) = self.inbox.take_any(number, |_| true) {
            self.drop_word(heard);
        }
        let is_full = self.past.len() == PAST_COUNT;
        let oldest = if is_full { self.past.pop_front() } else { None };
        self.past.push_back((number, statement));
        let spare = oldest.map(|(_, statement)| statement).unwrap_or_default();
        self.shared.finish(number, Finished { run, cause: self.broken.clone() }, spare);
    }
}

impl Drop for Engine {
    /// Ends the calls that nobody runs any more: the runtime is gone.
    fn drop(&mut self) {
        let over = self.shared.end();
        let cause = Some(self.broken.clone().unwrap_or(GroupError::Closed));
        let active = self.calls.take_all().map(|(number, it)| (number, it.run));
        for (number, run) in active.chain(over.into_iter().map(|it| (it.number, it.run))) {
            self.shared.finish(number, Finished { run, cause: cause.clone() }, Vec::new());
        }
    }
}

/// Says to a rank why the group is broken.
fn say_broken(links: &mut Links, to: usize, fault: &Fault) {
    let word = Word { kind: Kind::Broken, call: 0, left: 0, statement: &[] };
    links.send(to, &word, &[&fault.encode()]);
}

/// Returns the fault of a rank that hears of another call than its own.
fn difference(me: usize, mine: &[u8], heard: &Heard) -> Fault {
    differ(heard.call, (me, mine), (heard.from, heard.statement()))
}

/// Returns the fault of two ranks with other statements of a call; that of a rank that has forgotten it is
/// empty.
fn differ(call: u64, one: (usize, &[u8]), other: (usize, &[u8])) -> Fault {
    let (low, high) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let ranks = [low.0 as u32, high.0 as u32];
    Fault::Differs { call, ranks, statements: [low.1.to_vec(), high.1.to_vec()] }
}

fn error_of(fault: Fault) -> GroupError {
    match fault {
        Fault::Differs { call, ranks, statements } => {
            let calls = talk::texts(&statements);
            let ranks = ranks.map(|rank| rank as usize);
            GroupError::Differs(Box::new(CallDifference { call, ranks, calls }))
        }
        Fault::Lost { rank, loss } => GroupError::Lost { rank: rank as usize, loss },
        Fault::TooManyCalls { rank, bound } => GroupError::TooManyCalls {
            bound: usize::try_from(bound).unwrap_or(usize::MAX),
            rank: rank as usize,
        },
    }
}

#[cfg(test)]
mod tests;
