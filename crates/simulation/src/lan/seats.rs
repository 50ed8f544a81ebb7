//! Places of processes on the hosts, and what belongs to each: listeners, connections, computations.

use super::State;
use crate::network::{EndId, HostId};
use chunkcomm::layer::world::Process;
use chunkcomm_proto::Time;

/// A place of processes on a host, one at a time: each rank of a launch has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    pub(crate) host: HostId,
    /// Number among the host's places, from 0; most hosts have one.
    pub(crate) index: u32,
}

impl Seat {
    /// Returns the first place of a host.
    pub(crate) fn first(host: HostId) -> Seat {
        Seat { host, index: 0 }
    }

    pub(crate) fn of(process: Process) -> Seat {
        Seat { host: HostId::of_number(process.host), index: process.index }
    }

    /// Returns the present process of the place.
    pub(crate) fn process(self) -> Process {
        Process::of(self.host.number(), self.index)
    }
}

impl State {
    /// Lets go of an end.
    pub(super) fn leave(&mut self, now: Time, end: EndId) {
        self.owners.remove(&end);
        self.network.leave(now, end);
    }

    /// Closes the listeners and connections of one process, as its system does when it ends. Other
    /// processes of its host keep theirs.
    pub(crate) fn close(&mut self, now: Time, seat: Seat) {
        for ((host, port), listening) in &self.listening {
            if listening.seat == seat {
                self.network.unlisten(*host, *port);
            }
        }
        for (end, owner) in &self.owners {
            if *owner == seat {
                self.network.leave(now, *end);
            }
        }
        self.forget(now, |it| it == seat);
    }

    /// Forgets the processes of these seats, which have ended.
    pub(crate) fn forget(&mut self, now: Time, ended: impl Fn(Seat) -> bool) {
        self.listening.retain(|_, listening| !ended(listening.seat));
        self.owners.retain(|_, owner| !ended(*owner));
        self.computing.retain(|job, computing| {
            let is_left = !ended(computing.seat);
            if !is_left {
                self.network.cancel(now, *job);
            }
            is_left
        });
    }
}
