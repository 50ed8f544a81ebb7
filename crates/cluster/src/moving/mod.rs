//! Work of a node for channel ends on their way through messages, and for processes, behind the
//! public types.
//!
//! [`proto::custody`](crate::proto::custody) decides which node answers for an end. The transport
//! of the decisions is here:
//!
//! - a [`line`] per link;
//! - the [`crossing`] of an end into a message and out of it;
//! - the ends whose [`home`] is this node.
//!
//! A program that moves no end and starts no process has nothing of this.

pub(crate) mod crossing;
pub(crate) mod ends;
pub(crate) mod error;
pub(crate) mod home;
mod layer;
pub(crate) mod line;
pub mod process;
mod reaching;
pub(crate) mod value;

pub(crate) use layer::{MovingLayer, moving};
pub(crate) use line::{LineWord, Saying};

use crate::proto::custody::{Custody, Event, Fate, Origin, Word};
use crate::report::MovingReport;
use crate::sync::locked;
use crate::tasks::spawn_on;
use chunkcomm::layer::{Link, Opened, Site, Watch, WeakNode, share_last_woken};
use chunkcomm::{LinkError, Node, Peer};
use chunkcomm_proto::causes::with_causes;
use crossing::Leaving;
use home::Homes;
use line::{Line, Unanswered, WORDS_CHANNEL};
use process::Processes;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// State of a node about ends that move and about processes.
pub(crate) struct Moving {
    node: WeakNode,
    runtime: Handle,
    /// Name of this node for its peers.
    pub(crate) name: String,
    custody: Mutex<Custody>,
    lines: Mutex<Lines>,
    carriers: Mutex<Carriers>,
    pub(crate) homes: Homes,
    pub(crate) processes: Processes,
    /// Addresses at which others reach this node, if better ones are known than those it listens
    /// at.
    advertised: OnceLock<Vec<String>>,
    /// Whether the node is a member of its cluster.
    member: watch::Sender<bool>,
}

#[derive(Default)]
struct Lines {
    last: u64,
    there: Vec<Arc<Line>>,
}

/// Returns the place for the ends in a message that leaves by this channel to this peer.
pub(crate) fn leaving_by(peer: &Peer, channel: Watch) -> Leaving {
    let moving = moving(&peer.node());
    let line = moving.line(&Link::of(peer));
    Leaving::new(&moving, &line, moving.carrier(channel))
}

/// Channels that carried an end and have not ended, by number.
#[derive(Default)]
struct Carriers {
    last: u64,
    there: Vec<(u64, Watch)>,
}

impl Moving {
    pub(crate) fn new(site: Site, processes: Processes) -> Arc<Moving> {
        let Site { node, runtime, name, .. } = site;
        Arc::new(Moving {
            node,
            runtime,
            name,
            custody: Mutex::default(),
            lines: Mutex::default(),
            carriers: Mutex::default(),
            homes: Homes::default(),
            processes,
            advertised: OnceLock::new(),
            member: watch::channel(false).0,
        })
    }

    /// Returns the node, unless everything that belongs to it is dropped.
    pub(crate) fn node(&self) -> Option<Node> {
        self.node.upgrade()
    }

    /// Sets the addresses at which others reach this node.
    pub(crate) fn advertise(&self, addresses: Vec<String>) {
        let _ = self.advertised.set(addresses);
    }

    pub(crate) fn advertised(&self) -> Option<&[String]> {
        self.advertised.get().map(Vec::as_slice)
    }

    /// Notes that the node is a member of its cluster, so that waiting processes begin.
    pub(crate) fn set_member(&self) {
        self.member.send_replace(true);
    }

    /// Becomes true when the node is a member of its cluster.
    pub(crate) fn member(&self) -> watch::Receiver<bool> {
        self.member.subscribe()
    }

    /// Returns the line beside this link; begins the line if there was none.
    pub(crate) fn line(self: &Arc<Self>, link: &Link) -> Arc<Line> {
        let mut lines = locked(&self.lines);
        if let Some(line) = lines.there.iter().find(|line| line.link == *link) {
            return Arc::clone(line);
        }
        lines.last += 1;
        let line = Line::start(self, lines.last, link);
        lines.there.push(Arc::clone(&line));
        line
    }

    fn line_numbered(&self, number: u64) -> Option<Arc<Line>> {
        let lines = locked(&self.lines);
        lines.there.iter().find(|line| line.number == number).map(Arc::clone)
    }

    /// Returns the number of this channel, which carries ends; watches the channel from now on.
    fn carrier(self: &Arc<Self>, channel: Watch) -> u64 {
        let mut carriers = locked(&self.carriers);
        if let Some((number, _)) = carriers.there.iter().find(|(_, it)| *it == channel) {
            return *number;
        }
        carriers.last += 1;
        let number = carriers.last;
        carriers.there.push((number, channel.clone()));
        drop(carriers);
        let moving = Arc::downgrade(self);
        let watching = async move {
            let lost = channel.over().await;
            let Some(moving) = moving.upgrade() else { return };
            locked(&moving.carriers).there.retain(|(it, _)| *it != number);
            if lost {
                moving.custody(|custody| custody.handle_carrier_failed(number));
            }
        };
        spawn_on(&self.runtime, Box::pin(watching));
        share_last_woken();
        number
    }

    /// Runs `act` on the custody, then executes the events that the custody asks for.
    pub(crate) fn custody<R>(self: &Arc<Self>, act: impl FnOnce(&mut Custody) -> R) -> R {
        let mut custody = locked(&self.custody);
        let result = act(&mut custody);
        self.execute_events(custody);
        result
    }

    fn execute_events(&self, mut custody: MutexGuard<'_, Custody>) {
        let mut events = Vec::new();
        while let Some(event) = custody.poll_event() {
            // The order matters: the word that an end arrived comes before the word that it was
            // settled.
            match event {
                Event::Say(number, word) => match self.line_numbered(number) {
                    Some(line) => line.say(LineWord::Custody(word)),
                    // The line has ended meanwhile: words sent on it since are lost too.
                    None => custody.handle_link_ended(number, "the link has ended"),
                },
                event @ Event::Home(..) => events.push(event),
            }
        }
        drop(custody);
        for event in events {
            if let Event::Home(number, fate) = event {
                self.homes.ended(number, fate);
            }
        }
    }

    /// Counts of waiting ends and processes.
    pub(crate) fn report(&self) -> MovingReport {
        let (processes_running, processes_asked) = self.processes.counts();
        MovingReport {
            ends_waiting: self.homes.count(),
            ends_sent: locked(&self.custody).outstanding(),
            processes_running,
            processes_asked,
        }
    }

    /// Follows the channel that connected an end from `origin`. Reports towards the end's home that
    /// the home has the channel, or why it never will.
    pub(crate) fn connected(self: &Arc<Self>, origin: Origin, channel: Watch) {
        let moving = Arc::downgrade(self);
        let name = self.name.clone();
        let following = async move {
            let reached = channel.reached().await;
            let Some(moving) = moving.upgrade() else { return };
            let fate = if reached {
                Fate::Connected
            } else {
                Fate::Lost { why: format!("the channel that {name} opened to it was lost") }
            };
            moving.custody(|custody| custody.release(origin, fate));
        };
        spawn_on(&self.runtime, Box::pin(following));
        share_last_woken();
    }

    /// Takes a channel of this layer that a peer opened; gives it back when it must be refused.
    pub(crate) fn opened(self: &Arc<Self>, opened: Opened) -> Result<(), Box<Opened>> {
        if opened.name() == WORDS_CHANNEL {
            return self.line(&opened.link()).hear(self, opened);
        }
        match home::number_of(opened.name()) {
            Some(number) => self.homes.connect(number, opened),
            None => Err(Box::new(opened)),
        }
    }

    /// Ends all waiting ends: the node has no runtime, so no channel will come.
    pub(crate) fn runtime_gone(&self) {
        self.homes.end_all("the runtime that drove the node is gone");
    }

    /// Answers words in the place of a peer that has no layer for them.
    fn refused(self: &Arc<Self>, line: &Line, unanswered: Vec<Unanswered>) {
        for word in unanswered {
            match word {
                Unanswered::Settle(hop) => {
                    self.custody(|it| it.handle_word(line.number, Word::Settled(hop)));
                }
                Unanswered::Create { id, hops } => {
                    for hop in hops {
                        let fate = Fate::Dropped { by: line.link.name().to_owned() };
                        self.custody(|it| it.handle_word(line.number, Word::Done(hop, fate)));
                    }
                    self.processes.refused(line.number, id);
                }
            }
        }
    }

    /// Ends a line: nothing more is sent on it.
    fn line_ended(self: &Arc<Self>, line: &Arc<Line>, error: &LinkError) {
        let why = with_causes(error);
        self.custody(|custody| {
            // One lock covers both: a caller that finds no line in between could not name the
            // cause.
            locked(&self.lines).there.retain(|it| it.number != line.number);
            custody.handle_link_ended(line.number, &why);
        });
        self.processes.line_ended(line.number, error);
    }
}
