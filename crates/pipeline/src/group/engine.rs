//! The standing task of a group: it runs the calls, whether somebody waits for them or not.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::layer::{Wait, warn};
use chunkcomm_cluster::cluster::{Change, Changes};

use super::error::{CallDifference, GroupError};
use super::io::{Heard, Io};
use super::links::{Links, Lost};
use super::shared::{Finished, Line, Run, Shared, Submitted};
use crate::proto::talk::{self, Fault, Kind, Word};

/// Age of a call at which the rank that it waits for is asked, so that two ranks that wait for each
/// other in different calls learn it: 100 ms.
const ASK_AFTER: Duration = Duration::from_millis(100);

/// Number of finished calls whose statements are kept: a rank may find only later that it differs.
const PAST_COUNT: usize = 64;

/// A call under way.
struct Active {
    number: u64,
    statement: Vec<u8>,
    run: Box<dyn Run>,
    since: Instant,
    /// A rank whose link failed a transfer; the run is not polled any more.
    lost: Option<(usize, Lost)>,
    asked: bool,
    reported: bool,
    /// Keeps the wait in the node's report.
    _wait: Option<Wait>,
}

type NextChange = Pin<Box<dyn Future<Output = (Changes, Option<Change>)> + Send>>;
type Tick = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Engine {
    shared: Arc<Shared>,
    links: Links,
    active: Vec<Active>,
    inbox: VecDeque<Heard>,
    past: VecDeque<(u64, Vec<u8>)>,
    /// Number of the last call that began here.
    begun: u64,
    change: Option<NextChange>,
    tick: Option<Tick>,
    report_after: Duration,
    broken: Option<GroupError>,
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
        let deaths = self.links.cluster.deaths();
        for rank in 0..self.links.members.len() {
            let member = self.links.members[rank];
            if let Some(death) = deaths.iter().find(|death| death.id == member) {
                self.fail(GroupError::Died { rank, death: death.clone() }, None);
            }
        }
        poll_fn(|context| self.poll(context)).await;
        let farewell = self.links.farewell();
        drop(self);
        farewell.say().await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_closed = self.take_submitted(context);
            while let Poll::Ready(heard) = self.links.poll_hear(context) {
                self.handle(heard);
            }
            self.poll_changes(context);
            let has_moved = self.progress(context);
            self.links.poll_send(context);
            if self.look_for_lost() || has_moved {
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
                asked: false,
                reported: false,
                _wait: None,
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
            if let Some(fault) = Fault::decode(heard.payload()) {
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
    fn fail(&mut self, cause: GroupError, fault: Option<Fault>) {
        if self.broken.is_some() {
            return;
        }
        self.broken = Some(cause.clone());
        self.shared.state().broken = Some(cause);
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
            let Active { number, statement, run, lost, .. } = &mut self.active[index];
            let (links, inbox) = (&mut self.links, &mut self.inbox);
            let call = *number;
            let mut io = Io { call, statement, links, inbox, context };
            let ended = match self.broken.clone() {
                Some(cause) => run.stop(&mut io).map(|()| Some(cause)),
                None if lost.is_some() => Poll::Pending,
                None => match run.poll(&mut io) {
                    Poll::Ready(Ok(())) => Poll::Ready(None),
                    Poll::Ready(Err(GroupError::Gone { rank, why })) => {
                        *lost = Some((rank, Lost::new(why)));
                        Poll::Pending
                    }
                    Poll::Ready(Err(error)) => {
                        let (rank, why) = (self.links.rank as u32, error.to_string());
                        self.fail(error, Some(Fault::Said { rank, why }));
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
        let mut spare = Vec::new();
        if self.past.len() == PAST_COUNT {
            spare = self.past.pop_front().map(|(_, statement)| statement).unwrap_or_default();
        }
        self.past.push_back((number, statement));
        self.shared.finish(number, Finished { run, cause }, mem::take(&mut spare));
    }

    /// Breaks the group when a call waits for a rank from which nothing comes; returns whether it did.
    fn look_for_lost(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let lost = self.active.iter().find_map(|active| {
            if let Some((rank, lost)) = &active.lost {
                return lost.is_final().then(|| (*rank, lost.why.clone()));
            }
            let rank = active.run.waits_for()?;
            let has_word = self.inbox.iter().any(|it| it.call == active.number && it.from == rank);
            let lost = self.links.lost(rank)?;
            (lost.is_final() && !has_word).then_some((rank, lost.why))
        });
        let Some((rank, why)) = lost else { return false };
        let said = format!("rank {rank} is gone: {why}");
        let fault = Fault::Said { rank: self.links.rank as u32, why: said };
        self.fail(GroupError::Gone { rank, why }, Some(fault));
        true
    }

    /// Looks at calls that wait for long; returns whether it did.
    fn poll_tick(&mut self, context: &mut Context<'_>) -> bool {
        if self.active.is_empty() {
            return false;
        }
        let tick = self.tick.get_or_insert_with(|| Box::pin(host::sleep(ASK_AFTER)));
        if tick.as_mut().poll(context).is_pending() {
            return false;
        }
        self.tick = None;
        let mut lines = Vec::new();
        for active in &mut self.active {
            let (number, waits_for) = (active.number, active.run.waits_for());
            lines.push(Line { number, statement: active.statement.clone(), waits_for });
            let (Some(rank), age) = (waits_for, active.since.elapsed()) else { continue };
            if age >= ASK_AFTER && !active.asked {
                active.asked = true;
                let statement = &active.statement;
                let word = Word { kind: Kind::Asks, call: number, left: 0, statement };
                self.links.send(rank, &word, &[]);
                let what = waited_for(&self.links, number, statement, rank);
                active._wait = Some(Wait::begin(self.links.cluster.node(), what));
            }
            if age >= self.report_after && !active.reported {
                active.reported = true;
                let what = waited_for(&self.links, number, &active.statement, rank);
                warn(self.links.cluster.node().name(), &format!("waits for {what} for {age:.0?}"));
            }
        }
        self.shared.state().lines = lines;
        true
    }
}

impl Drop for Engine {
    /// Ends the calls that nobody runs any more: the runtime is gone.
    fn drop(&mut self) {
        let mut over: Vec<Submitted> = Vec::new();
        {
            let mut state = self.shared.state();
            state.is_over = true;
            over.extend(std::iter::from_fn(|| state.take_submitted()));
        }
        let cause = Some(self.broken.clone().unwrap_or(GroupError::Closed));
        let active = self.active.drain(..).map(|it| (it.number, it.run));
        for (number, run) in active.chain(over.into_iter().map(|it| (it.number, it.run))) {
            self.shared.finish(number, Finished { run, cause: cause.clone() }, Vec::new());
        }
    }
}

/// Returns a rank that a call waits for, in words.
fn waited_for(links: &Links, number: u64, statement: &[u8], rank: usize) -> String {
    let member = links.members[rank].rank;
    let call = talk::text(statement);
    format!("rank {rank} of the group (rank {member} of the cluster) in call {number}, {call}")
}

fn error_of(fault: Fault) -> GroupError {
    match fault {
        Fault::Differs { call, ranks, statements } => {
            let [a, b] = statements;
            let calls = [talk::text(&a), talk::text(&b)];
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
