//! The I/O thread of a host: it spends the costs of packets, one after another.
//!
//! ```text
//! write -> [I/O thread: send cost] -> interface -> wire ... -> arrived packet
//!                                         readable bytes <- [I/O thread: receive cost] <-'
//! ```
//!
//! A host has one such thread for both directions, and it takes packets in the order in which they
//! came. Its work is a job on the host's cores, beside those that compute. A host without costs
//! has no such thread: its packets pass at once.

use super::connection::{End, Life};
use super::cores::Work;
use super::hosts::Task;
use super::timeline::Activity;
use super::{EndId, HostId, HostSpec, Network};
use std::collections::VecDeque;
use std::time::Duration;

/// Costs of packets at a host.
#[derive(Debug)]
pub(super) struct Costs {
    send_packet_picos: u128,
    send_byte_picos: u64,
    receive_packet_picos: u128,
    receive_byte_picos: u64,
}

impl Costs {
    pub(super) fn of(spec: &HostSpec) -> Costs {
        Costs {
            send_packet_picos: picos(spec.send_cost_per_packet),
            send_byte_picos: spec.send_picos_per_byte,
            receive_packet_picos: picos(spec.receive_cost_per_packet),
            receive_byte_picos: spec.receive_picos_per_byte,
        }
    }

    fn are_zero(&self) -> bool {
        let packets = self.send_packet_picos + self.receive_packet_picos;
        packets == 0 && self.send_byte_picos == 0 && self.receive_byte_picos == 0
    }

    fn picos_of(&self, errand: &Errand) -> u128 {
        let (packet, byte, bytes) = match *errand {
            Errand::Send { bytes, .. } => (self.send_packet_picos, self.send_byte_picos, bytes),
            Errand::Receive { bytes, begins, .. } => {
                let packet = if begins { self.receive_packet_picos } else { 0 };
                (packet, self.receive_byte_picos, bytes)
            }
        };
        packet + u128::from(byte) * bytes as u128
    }
}

fn picos(duration: Duration) -> u128 {
    u128::from(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)) * 1_000
}

/// A thing to do for the I/O thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Errand {
    /// A written packet is to go to its interface.
    Send { end: EndId, bytes: usize },
    /// Arrived bytes are to become readable: a packet, or a part of a large one.
    Receive { end: EndId, bytes: usize, begins: bool },
}

/// The thread's errands; it works on the first.
#[derive(Debug, Default)]
pub(super) struct Errands {
    queue: VecDeque<Errand>,
    working: bool,
}

impl Errands {
    pub(super) fn clear(&mut self) {
        *self = Errands::default();
    }
}

/// The I/O threads.
impl Network {
    /// Whether packets cost this host nothing.
    pub(super) fn packets_are_free(&self, host: HostId) -> bool {
        self.hosts[host.index()].costs.are_zero()
    }

    /// Whether packets cost this host something, and received bytes nothing beside. Then it has the
    /// bytes of a packet as they arrive; else they wait for the costs of the whole.
    pub(super) fn receives_in_parts(&self, host: HostId) -> bool {
        let costs = &self.hosts[host.index()].costs;
        costs.receive_byte_picos == 0 && !costs.are_zero()
    }

    /// Takes a packet that was just written at `end` to its interface.
    pub(super) fn handle_written(&mut self, end: EndId, bytes: usize) {
        let Some(host) = self.end_ref(end).map(|this| this.host) else { return };
        if self.packets_are_free(host) {
            return self.enqueue(end);
        }
        if let Some(this) = self.end_mut(end) {
            this.hold_last_packet();
        }
        self.give_errand(host, Errand::Send { end, bytes });
    }

    /// Gives the thread of `host` one more errand.
    pub(super) fn give_errand(&mut self, host: HostId, errand: Errand) {
        self.hosts[host.index()].errands.queue.push_back(errand);
        self.begin_errand(host);
    }

    /// Begins with the first errand of an idle thread, past those that nobody waits for any more.
    fn begin_errand(&mut self, host: HostId) {
        while !self.hosts[host.index()].errands.working {
            let Some(&errand) = self.hosts[host.index()].errands.queue.front() else { return };
            if !self.is_awaited(&errand) {
                self.hosts[host.index()].errands.queue.pop_front();
                continue;
            }
            self.apply_load(host);
            let (now, this) = (self.now, &mut self.hosts[host.index()]);
            this.errands.working = true;
            let work = Work::at_speed(this.costs.picos_of(&errand), this.spec.speed_permille);
            this.cores.add(now, Task::Messages, work);
            self.note_begin(host, Task::Messages, Activity::of(&errand));
            self.watch_cores(host);
        }
    }

    fn is_awaited(&self, errand: &Errand) -> bool {
        match *errand {
            Errand::Send { end, .. } => self.end_ref(end).is_some_and(End::has_held_packet),
            Errand::Receive { end, .. } => {
                self.end_ref(end).is_some_and(|it| !it.arrived.is_empty())
            }
        }
    }

    /// Handles the end of the thread's work on its first errand.
    pub(super) fn handle_errand_done(&mut self, host: HostId) {
        let errands = &mut self.hosts[host.index()].errands;
        errands.working = false;
        match errands.queue.pop_front() {
            Some(Errand::Send { end, .. }) => {
                if let Some(this) = self.end_mut(end) {
                    this.release_packet();
                }
                self.enqueue(end);
            }
            Some(Errand::Receive { end, bytes, .. }) => self.handle_received(end, bytes),
            None => {}
        }
        self.begin_errand(host);
    }

    /// Makes bytes readable that the thread has received.
    fn handle_received(&mut self, end: EndId, bytes: usize) {
        let Some(this) = self.end_mut(end) else { return };
        let bytes = this.arrived.take_received(bytes);
        self.make_readable(end, bytes);
        let Some(this) = self.end_mut(end) else { return };
        if this.arrived.end_is_due() && matches!(this.life, Life::Open | Life::Left) {
            self.handle_end(end);
        }
    }
}
