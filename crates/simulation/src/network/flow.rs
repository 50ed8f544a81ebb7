//! The travel of a frame: from an end's packets over an interface and a wire, then through time, to
//! the other end.

use super::arrived::Portion;
use super::bridges::{Room, Traveller};
use super::connection::{Connection, End, Frame, Item, Life};
use super::contention;
use super::io::Errand;
use super::schedule::Step;
use super::timeline::Activity;
use super::trace::{Arrival, Delivery};
use super::ways::Leg;
use super::wires::{Cargo, Sending, Turn, after_nanos};
use super::{EndId, Event, Network};
use chunkcomm_proto::Time;

/// Most bytes of a frame that arrive at once. With smaller parts a chain that forwards is a little faster, and
/// a run has more steps. The delta paper's section of docs/measurements.md has what larger ones give.
const PART_BYTES: usize = 8 * 1024;

/// Sending.
impl Network {
    /// Queues an end at its interface, if it has something to send.
    pub(super) fn enqueue(&mut self, end: EndId) {
        let Some(this) = self.end_mut(end) else { return };
        if this.queued || !this.has_frame() {
            return;
        }
        this.queued = true;
        self.queue_again(end);
    }

    /// Queues an end at its interface that is marked as queued.
    pub(super) fn queue_again(&mut self, end: EndId) {
        let Some(this) = self.end_ref(end) else { return };
        let interface = this.way.leg.interface;
        self.wires.interfaces[interface].queue.push_back(end);
        self.start(interface);
    }

    /// Begins with the next frame of an interface that is idle.
    pub(super) fn start(&mut self, interface: usize) {
        while matches!(self.wires.interfaces[interface].state, Sending::Idle) {
            if let Some(&first) = self.wires.interfaces[interface].passing.front() {
                self.pass(interface, first);
                continue;
            }
            let Some(end) = self.wires.interfaces[interface].queue.pop_front() else { return };
            let Some(this) = self.end_mut(end) else { continue };
            if !this.has_frame() {
                this.queued = false;
                continue;
            }
            let cost = this.way.spec.cost_per_packet;
            let costs = this.begins_packet() && !cost.is_zero();
            let Ok(room) = self.take_room(end) else { continue };
            let turn = Turn::Own(end, room);
            if costs {
                self.wires.interfaces[interface].state = Sending::Preparing(turn);
                self.scheduled.push(self.now.after(cost), Step::Prepared(interface));
            } else {
                self.wait_for_wire(interface, turn);
            }
        }
    }

    /// Passes on what is first at a bridge's interface. News need no wire.
    fn pass(&mut self, interface: usize, first: Traveller) {
        if first.bytes() > 0 {
            self.wait_for_wire(interface, Turn::Passing);
        } else {
            self.wires.interfaces[interface].passing.pop_front();
            self.depart(first);
        }
    }

    pub(super) fn handle_prepared(&mut self, interface: usize) {
        if let Sending::Preparing(turn) = self.wires.interfaces[interface].state {
            self.wait_for_wire(interface, turn);
            self.start(interface);
        }
    }

    fn wait_for_wire(&mut self, interface: usize, turn: Turn) {
        let wire = self.wires.interfaces[interface].wire;
        if self.wires.wires[wire].busy {
            self.wires.interfaces[interface].state = Sending::Waiting(turn);
            self.wires.wires[wire].waiting.push_back(interface);
        } else {
            self.put_on_wire(interface, turn);
        }
    }

    /// Takes the free wire, unless there is nothing left to send.
    fn put_on_wire(&mut self, interface: usize, turn: Turn) {
        self.wires.interfaces[interface].state = Sending::Idle;
        let Some((cargo, nanos)) = self.take_cargo(interface, turn) else { return };
        let wire = &mut self.wires.wires[self.wires.interfaces[interface].wire];
        wire.busy = true;
        let lost = contention::lost_nanos(wire.waiting.len() + 1, wire.slot_nanos);
        let begins = after_nanos(self.now, lost);
        if let Some(recorder) = &mut self.recorder {
            recorder.add(wire.lane, Activity::Contention, self.now, begins);
        }
        self.carry(interface, cargo, begins, nanos);
    }

    /// Puts a frame, or a part of one, on the wire that its interface has.
    fn carry(&mut self, interface: usize, cargo: Cargo, begins: Time, nanos: u64) {
        let sent = after_nanos(begins, nanos);
        if let Some(recorder) = &mut self.recorder {
            let (to, bytes) = cargo.receiver_and_bytes();
            let lane = self.wires.wires[self.wires.interfaces[interface].wire].lane;
            recorder.add(lane, Activity::Frame { to, bytes }, begins, sent);
        }
        self.wires.interfaces[interface].state = Sending::OnWire(cargo);
        self.scheduled.push(sent, Step::Sent(interface));
    }

    /// Takes the frame of a turn; returns it with the nanoseconds for which it holds the wire.
    fn take_cargo(&mut self, interface: usize, turn: Turn) -> Option<(Cargo, u64)> {
        let Turn::Own(end, room) = turn else {
            let traveller = self.wires.interfaces[interface].passing.pop_front()?;
            let nanos = self.leg_behind_relay(&traveller).spec.wire_nanos(traveller.bytes());
            return Some((Cargo::Passing(traveller), nanos));
        };
        if let Some(this) = self.end_mut(end) {
            if let Some(frame) = this.take_frame(room.map_or(usize::MAX, |room| room.bytes())) {
                return self.own_cargo(end, frame, room);
            }
            this.queued = false;
        }
        self.give_room_back(room);
        None
    }

    /// Returns what is on the wire at once of a frame, or of the rest of one, with its nanoseconds. A
    /// bridge takes in frames as a whole.
    fn own_cargo(&self, end: EndId, frame: Frame, room: Option<Room>) -> Option<(Cargo, u64)> {
        let (this, peer) = (self.end_ref(end)?, self.end_ref(end.peer())?);
        let in_parts = room.is_none() && self.receives_in_parts(peer.host);
        let (part, rest) = frame.split(if in_parts { PART_BYTES } else { frame.bytes });
        let nanos = this.way.leg.spec.wire_nanos(part.bytes);
        Some((Cargo::Own(end, part, rest, room), nanos))
    }

    pub(super) fn handle_sent(&mut self, interface: usize) {
        let state = &mut self.wires.interfaces[interface].state;
        match std::mem::replace(state, Sending::Idle) {
            Sending::OnWire(Cargo::Own(end, part, Some(rest), room)) => {
                self.part_left(end, part);
                if let Some((cargo, nanos)) = self.own_cargo(end, rest, room) {
                    return self.carry(interface, cargo, self.now, nanos);
                }
            }
            Sending::OnWire(Cargo::Own(end, frame, None, room)) => {
                self.frame_left(end, frame, room);
            }
            Sending::OnWire(Cargo::Passing(traveller)) => self.depart(traveller),
            _ => {}
        }
        let wire = self.wires.interfaces[interface].wire;
        if self.wires.wires[wire].slot_nanos > 0 {
            // This host contends for the wire with the others, behind which it waits.
            self.start(interface);
        }
        self.wires.wires[wire].busy = false;
        // Waiting interfaces go before this host's next frame.
        self.give_wire(wire);
        self.start(interface);
    }

    fn give_wire(&mut self, wire: usize) {
        while !self.wires.wires[wire].busy {
            let Some(next) = self.wires.wires[wire].waiting.pop_front() else { return };
            if let Sending::Waiting(turn) = self.wires.interfaces[next].state {
                self.put_on_wire(next, turn);
                self.start(next);
            }
        }
    }

    fn part_left(&mut self, end: EndId, part: Frame) {
        let Some(this) = self.end_mut(end) else { return };
        let tell = this.frame_left(part.bytes);
        self.try_dispatch(end, Item::Bytes(part));
        if tell {
            self.tell(Event::Writable(end));
        }
    }

    fn frame_left(&mut self, end: EndId, frame: Frame, room: Option<Room>) {
        let Some(this) = self.end_mut(end) else { return self.give_room_back(room) };
        let interface = this.way.leg.interface;
        let tell = this.frame_left(frame.bytes);
        this.queued = this.has_frame();
        let queued = this.queued;
        if !self.try_dispatch(end, Item::Bytes(frame)) {
            self.give_room_back(room);
        }
        if queued {
            self.wires.interfaces[interface].queue.push_back(end);
        }
        if tell {
            self.tell(Event::Writable(end));
        }
        self.finish_if_all_left(end);
    }

    /// Ends the writing for the peer, once everything is on the wire.
    pub(super) fn finish_if_all_left(&mut self, end: EndId) {
        let Some(this) = self.end_mut(end) else { return };
        let opening = this.life == Life::Opening;
        if this.finishing && !this.finished && !this.broken && !opening && this.all_left() {
            this.finished = true;
            self.dispatch(end, Item::End);
            self.forget_if_over(end);
        }
    }

    /// Sends `item` from `end` to its peer, behind all items on their way.
    pub(super) fn dispatch(&mut self, end: EndId, item: Item) {
        self.try_dispatch(end, item);
    }

    /// As [`Network::dispatch`]; returns false when nothing is sent there any more.
    fn try_dispatch(&mut self, end: EndId, item: Item) -> bool {
        let Some(Some(connection)) = self.connections.get(end.connection as usize) else {
            return false;
        };
        let this = &connection.ends[usize::from(end.accepted)];
        if connection.severed || this.life == Life::Gone {
            return false;
        }
        let way = this.way;
        match way.route {
            None => self.send_to_end(end.peer(), item, &way.leg),
            Some(route) => self.send_to_relay(Traveller::new(end.peer(), item, route), &way.leg),
        }
        true
    }

    /// Sends an item over the last leg of its way.
    pub(super) fn send_to_end(&mut self, to: EndId, item: Item, leg: &Leg) {
        let Some(jitter) = self.end_ref(to.peer()).map(|from| from.way.spec.jitter) else { return };
        let jitter = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX - 1);
        let jitter = if jitter == 0 { 0 } else { self.random.below(jitter + 1) };
        let mut at = after_nanos(self.now.after(leg.spec.latency), jitter);
        if let Item::Bytes(frame) = &item {
            at = self.through(leg, at, to, frame.bytes);
        }
        if let Some(there) = self.end_mut(to) {
            at = at.max(there.last_arrival);
            there.last_arrival = at;
            self.scheduled.push(at, Step::Arrive(to, item));
        }
    }
}

/// Arriving.
impl Network {
    pub(super) fn handle_arrival(&mut self, end: EndId, item: Item) {
        let held = self.is_held(end);
        match self.end_mut(end) {
            // Behind the held items, even when those may go on soon.
            Some(this) if held || !this.held.is_empty() => this.held.push_back(item),
            Some(_) => self.deliver(end, item),
            None => {}
        }
    }

    pub(super) fn deliver(&mut self, end: EndId, item: Item) {
        let Some(this) = self.end_ref(end) else { return };
        let (life, host) = (this.life, this.host);
        if this.broken || !self.hosts[host.index()].up {
            return;
        }
        match (item, life) {
            (Item::Dial, Life::Opening) => self.handle_dial(end),
            (Item::Agree, Life::Opening) => self.handle_agree(end),
            (Item::Refuse, Life::Opening) => self.handle_refuse(end),
            (Item::End | Item::Consumed(_), _) if this.has_loss() => {}
            (Item::Bytes(frame), Life::Open) => self.handle_bytes(end, frame),
            (Item::End, Life::Open | Life::Left) if !this.arrived.is_empty() => {
                if let Some(this) = self.end_mut(end) {
                    this.arrived.end_behind();
                }
            }
            (Item::End, Life::Open | Life::Left) => self.handle_end(end),
            (Item::Reset, _) => self.handle_break(end),
            (Item::Consumed(total), Life::Open | Life::Left) => {
                if let Some(this) = self.end_mut(end) {
                    this.peer_consumed(total);
                }
                self.enqueue(end);
            }
            (Item::Bytes(_), Life::Left) => {
                self.reset_peer_of(end);
                self.forget_if_over(end);
            }
            (Item::Agree, Life::Left) => self.reset_peer_of(end),
            // The host was restarted and knows nothing of the connection.
            (Item::Bytes(_) | Item::End, Life::Gone) => self.answer_with_reset(end),
            _ => {}
        }
    }

    fn handle_dial(&mut self, end: EndId) {
        let Some(this) = self.end_mut(end) else { return };
        let (host, port) = (this.host, this.port);
        if !self.listening.contains(&(host, port)) {
            self.dispatch(end, Item::Refuse);
            if let Some(this) = self.end_mut(end) {
                this.vanish();
            }
            return;
        }
        this_open(self.end_mut(end));
        self.arrived(end, Arrival::Opened);
        self.tell(Event::Incoming { host, port, end });
        self.dispatch(end, Item::Agree);
    }

    fn handle_agree(&mut self, end: EndId) {
        this_open(self.end_mut(end));
        self.arrived(end, Arrival::Agreed);
        self.tell(Event::Connected(end));
        self.finish_if_all_left(end);
    }

    fn handle_refuse(&mut self, end: EndId) {
        self.arrived(end, Arrival::Refused);
        if let Some(this) = self.end_mut(end) {
            this.vanish();
        }
        self.tell(Event::Refused(end));
        self.forget_if_over(end);
    }

    fn handle_bytes(&mut self, end: EndId, frame: Frame) {
        let Some(this) = self.end_mut(end) else { return };
        let (host, bytes) = (this.host, this.before_loss(frame.bytes));
        if self.packets_are_free(host) {
            return self.make_readable(end, bytes);
        }
        let in_parts = self.receives_in_parts(host);
        let Some(this) = self.end_mut(end) else { return };
        let step = if in_parts { 1 } else { this.report_step() };
        let is_last = frame.ends_packet || bytes < frame.bytes;
        if let Some(Portion { bytes, begins }) = this.arrived.collect(bytes, step, is_last) {
            self.give_errand(host, Errand::Receive { end, bytes, begins });
        }
    }

    pub(super) fn make_readable(&mut self, end: EndId, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let content = self.content_of_next(end, bytes);
        self.arrived_with(end, Arrival::Bytes(bytes as u32), content);
        if self.end_mut(end).is_some_and(|this| this.receive(bytes)) {
            self.tell(Event::Readable(end));
        }
    }

    pub(super) fn handle_end(&mut self, end: EndId) {
        self.arrived(end, Arrival::End);
        let Some(this) = self.end_mut(end) else { return };
        this.ended = true;
        if this.life == Life::Open {
            self.tell(Event::Readable(end));
        }
        self.forget_if_over(end);
    }

    pub(super) fn handle_break(&mut self, end: EndId) {
        let Some(this) = self.end_mut(end) else { return };
        if this.broken || this.life == Life::Gone {
            return;
        }
        if end.accepted && this.life == Life::Opening {
            // The host has not heard of the connection yet.
            return this.vanish();
        }
        // Nobody waits for the I/O thread any more.
        let arrived = this.arrived.take_all();
        self.make_readable(end, arrived);
        let Some(this) = self.end_mut(end) else { return };
        this.broken = true;
        this.clear_sending();
        this.held.clear();
        let known = matches!(this.life, Life::Opening | Life::Open);
        self.arrived(end, Arrival::Broken);
        if known {
            self.tell(Event::Broken(end));
        }
        self.forget_if_over(end);
    }

    fn arrived(&mut self, end: EndId, what: Arrival) {
        self.arrived_with(end, what, 0);
    }

    fn arrived_with(&mut self, end: EndId, what: Arrival, content: u64) {
        if let Some(peer) = self.end_mut(end.peer()) {
            let from = peer.host;
            self.trace.add(Delivery { at: self.now, from, end, what, content });
        }
    }

    /// Returns a digest of the next bytes that become readable at an end.
    fn content_of_next(&self, end: EndId, bytes: usize) -> u64 {
        match (self.end_ref(end), self.end_ref(end.peer())) {
            (Some(this), Some(peer)) => peer.content(this.unread_bytes(), bytes),
            _ => 0,
        }
    }

    /// Breaks the connection for the peer of an end that is left or gone.
    pub(super) fn reset_peer_of(&mut self, end: EndId) {
        self.dispatch(end, Item::Reset);
        if let Some(this) = self.end_mut(end) {
            this.vanish();
        }
    }

    fn answer_with_reset(&mut self, end: EndId) {
        // A dead end sends nothing by itself; its host does.
        let Some(latency) = self.end_mut(end).map(|this| this.way.spec.latency) else { return };
        self.scheduled.push(self.now.after(latency), Step::Arrive(end.peer(), Item::Reset));
    }

    /// Forgets a connection that neither end needs.
    pub(super) fn forget_if_over(&mut self, end: EndId) {
        let slot = &mut self.connections[end.connection as usize];
        if slot.as_deref().is_some_and(Connection::is_over) {
            *slot = None;
        }
    }
}

fn this_open(end: Option<&mut End>) {
    if let Some(end) = end {
        end.life = Life::Open;
    }
}
