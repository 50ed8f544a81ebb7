//! Bridges between segments.
//!
//! ```text
//! segment A -> [room in the queue] -> rate -> delay -> interface -> segment B
//! ```
//!
//! A bridge has a *relay* each way, which takes in a whole frame and then passes it on. A frame
//! leaves its host only when each relay on its way has room for it, and the room is taken at that
//! moment. So nothing is dropped, and relays never wait for each other. News without bytes (a
//! dial, an end, a report of read bytes) need no room, and stay in order with the frames.

use super::connection::Item;
use super::schedule::Step;
use super::spec::rate_nanos;
use super::timeline::{Activity, Lane};
use super::ways::Leg;
use super::wires::after_nanos;
use super::{BridgeSpec, EndId, Network};
use chunkcomm_proto::Time;
use std::collections::VecDeque;

/// One direction of a bridge.
#[derive(Debug)]
pub(super) struct Relay {
    spec: BridgeSpec,
    /// The interface that puts frames on the segment beyond.
    interface: usize,
    lane: Lane,
    /// Time at which it can take the next frame in.
    free_at: Time,
    /// Bytes of frames that left their hosts for it, and have not left it.
    held_bytes: usize,
    /// Largest frame that comes.
    frame_bytes: usize,
    /// Ends whose frames wait for room.
    waiting: VecDeque<EndId>,
}

impl Relay {
    pub(super) fn new(spec: BridgeSpec, interface: usize, lane: Lane) -> Relay {
        Relay {
            spec,
            interface,
            lane,
            free_at: Time(0),
            held_bytes: 0,
            frame_bytes: 1,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn spec(&self) -> &BridgeSpec {
        &self.spec
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Notes that frames of up to `bytes` come.
    pub(super) fn expect_frames(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.spec.queue_bytes);
        self.frame_bytes = self.frame_bytes.max(bytes);
    }

    /// Whether there is room for any frame. There is when the queue is empty, so a frame that finds
    /// none waits for one that leaves.
    fn has_room(&self) -> bool {
        self.spec.queue_bytes - self.held_bytes >= self.frame_bytes
    }
}

/// Room for a frame in all relays of a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    route: usize,
    bytes: usize,
}

impl Room {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An item on its way over bridges.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traveller {
    pub(super) to: EndId,
    pub(super) item: Item,
    route: usize,
    /// Index of the relay that it is at or comes to next.
    hop: usize,
}

impl Traveller {
    pub(super) fn new(to: EndId, item: Item, route: usize) -> Traveller {
        Traveller { to, item, route, hop: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        match self.item {
            Item::Bytes(frame) => frame.bytes,
            _ => 0,
        }
    }
}

/// Bridges.
impl Network {
    /// Takes room for the next frame of `end` in the relays of its way. Where one has none, the
    /// end waits there and stays queued.
    pub(super) fn take_room(&mut self, end: EndId) -> Result<Option<Room>, Full> {
        let Some(this) = self.end_ref(end) else { return Ok(None) };
        let Some(route) = this.way.route else { return Ok(None) };
        let bytes = this.next_frame_bytes();
        let (hops, relays) = (self.wires.ways.hops(route), &mut self.wires.relays);
        if let Some(full) = hops.iter().find(|hop| !relays[hop.relay].has_room()) {
            relays[full.relay].waiting.push_back(end);
            return Err(Full);
        }
        for hop in hops {
            relays[hop.relay].held_bytes += bytes;
        }
        Ok(Some(Room { route, bytes }))
    }

    /// Gives room back that no frame needs.
    pub(super) fn give_room_back(&mut self, room: Option<Room>) {
        let Some(Room { route, bytes }) = room else { return };
        for hop in 0..self.wires.ways.hops(route).len() {
            self.free_room(self.wires.ways.hops(route)[hop].relay, bytes);
        }
    }

    fn free_room(&mut self, relay: usize, bytes: usize) {
        self.wires.relays[relay].held_bytes -= bytes;
        while self.wires.relays[relay].has_room() {
            let Some(end) = self.wires.relays[relay].waiting.pop_front() else { return };
            self.queue_again(end);
        }
    }

    /// Takes in what reached a relay: one frame after another, by its rate.
    pub(super) fn handle_reached(&mut self, traveller: Traveller) {
        let at = self.wires.ways.hops(traveller.route)[traveller.hop].relay;
        let relay = &mut self.wires.relays[at];
        let nanos = rate_nanos(traveller.bytes(), relay.spec.bytes_per_second);
        let begins = relay.free_at.max(self.now);
        relay.free_at = after_nanos(begins, nanos);
        if let Some(recorder) = &mut self.recorder {
            let frame = Activity::Frame { to: traveller.to, bytes: traveller.bytes() };
            recorder.add(relay.lane, frame, begins, relay.free_at);
        }
        let passes_on = relay.free_at.after(relay.spec.delay);
        self.scheduled.push(passes_on, Step::PassOn(traveller));
    }

    /// Queues what a relay has taken in at its interface to the next segment.
    pub(super) fn handle_pass_on(&mut self, traveller: Traveller) {
        let at = self.wires.ways.hops(traveller.route)[traveller.hop].relay;
        let interface = self.wires.relays[at].interface;
        self.wires.interfaces[interface].passing.push_back(traveller);
        self.start(interface);
    }

    /// Returns the leg from the relay that has `traveller`.
    pub(super) fn leg_behind_relay(&self, traveller: &Traveller) -> Leg {
        self.wires.ways.hops(traveller.route)[traveller.hop].leg
    }

    /// Sends what left a relay on to the next relay, or to its receiver.
    pub(super) fn depart(&mut self, traveller: Traveller) {
        let hops = self.wires.ways.hops(traveller.route);
        let (hop, is_last) = (hops[traveller.hop], traveller.hop + 1 == hops.len());
        if traveller.bytes() > 0 {
            self.free_room(hop.relay, traveller.bytes());
        }
        if is_last {
            self.send_to_end(traveller.to, traveller.item, &hop.leg);
        } else {
            self.send_to_relay(Traveller { hop: traveller.hop + 1, ..traveller }, &hop.leg);
        }
    }

    /// Takes a turn for a frame in the switch of a leg; returns when the last byte, due at `at`,
    /// arrives.
    pub(super) fn through(&mut self, leg: &Leg, at: Time, to: EndId, bytes: usize) -> Time {
        let recorder = &mut self.recorder;
        self.wires.through(leg, at, bytes, |lane, begin, end| {
            if let Some(recorder) = recorder {
                recorder.add(lane, Activity::Frame { to, bytes }, begin, end);
            }
        })
    }

    /// Sends an item over `leg` to a relay. No jitter is added and all items take turns at the
    /// ports, so that they stay in order; the last leg has the jitter of the whole way.
    pub(super) fn send_to_relay(&mut self, traveller: Traveller, leg: &Leg) {
        let at = self.now.after(leg.spec.latency);
        let at = self.through(leg, at, traveller.to, traveller.bytes());
        self.scheduled.push(at, Step::Reach(traveller));
    }
}

/// A relay has no room for a frame.
#[derive(Debug)]
pub(super) struct Full;
