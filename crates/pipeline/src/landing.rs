//! The receiving end of a buffer: bytes go from the socket to their place in it, and the end of the
//! channel becomes an end with a reason.

use std::mem;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Waker};

use bytemuck::Pod;
use chunkcomm::channel::Landing;
use chunkcomm::{BytesReceiver, BytesSender, RecvError, host, with_causes};

use crate::error::DeltaRecvError;
use crate::memory::{Lease, Share};
use crate::proto::frame::{
    CORRECTION_BYTES_MAX, FrameFault, HEADER_BYTES, Header, Reply, encode_round,
};
use crate::proto::ledger::Taken;

/// The receiver's direction of a delta's channel: a few bytes a round.
pub(crate) struct WayBack(Mutex<Option<BytesSender>>);

impl WayBack {
    pub(crate) fn new(sender: BytesSender) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    /// Says that all bytes of `round` have landed, or that there is a buffer for it.
    pub(crate) fn say_round(&self, landed: bool, round: u32) {
        self.say(&encode_round(landed, round));
    }

    /// Sends `message`, without waiting and, where the channel has room, without an allocation.
    pub(crate) fn say(&self, message: &[u8]) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_mut() else { return };
        let sent = pin!(sender.send_slice_now(message))
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        if !sent {
            // Nothing was accepted. A later message may overtake this one: each says all that the ones
            // before it said.
            let (mut sender, message) = (sender.clone(), message.to_vec());
            host::spawn(async move {
                // The user sees the transfer's own outcome.
                let _ = sender.send_slice_now(&message).await;
            });
        }
    }

    /// Ends this direction: the sender learns that its receiver is gone.
    pub(crate) fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Held by a receiver and its forwards. Without a holder, nothing more lands.
pub(crate) struct Interest(pub(crate) Arc<WayBack>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Names of a transfer for its errors.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) peer: String,
    pub(crate) channel: String,
}

/// Lets all further bytes of `channel` land in `share`, as long as the interest is held.
pub(crate) fn land<T: Pod>(
    channel: BytesReceiver,
    share: Share<T>,
    interest: &Arc<Interest>,
    origin: Origin,
) {
    share.land();
    let (back, interest) = (interest.0.clone(), Arc::downgrade(interest));
    let at = At::header();
    channel.land(Box::new(Lander { share, interest, back, origin, at }));
}

/// The place for the next bytes.
enum At<T: Pod> {
    Header { bytes: [u8; HEADER_BYTES], filled: usize },
    Increment(Lease<T>),
    Correction { offset: usize, bytes: Vec<u8>, filled: usize },
    Cause { bytes: Vec<u8>, filled: usize },
    Over,
}

impl<T: Pod> At<T> {
    fn header() -> Self {
        Self::Header { bytes: [0; HEADER_BYTES], filled: 0 }
    }
}

/// Returns the range that a header names, which may be outside the buffer.
fn range_of(offset: u64, bytes: u64) -> Result<Range<usize>, FrameFault> {
    let range = || {
        let start = usize::try_from(offset).ok()?;
        Some(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    };
    range().ok_or(FrameFault::Outside { offset, bytes })
}

/// The driver's way to put bytes into the buffer.
struct Lander<T: Pod> {
    share: Share<T>,
    interest: Weak<Interest>,
    back: Arc<WayBack>,
    origin: Origin,
    at: At<T>,
}

impl<T: Pod> Lander<T> {
    /// Returns the place for what follows a complete header.
    fn begin(&self, header: &[u8; HEADER_BYTES]) -> Result<At<T>, FrameFault> {
        let header = Header::decode(header)?;
        let ours = self.share.state().round;
        match header {
            Header::Increment { round, .. }
            | Header::Correction { round, .. }
            | Header::End { round, .. }
                if round != ours =>
            {
                Err(FrameFault::Round { theirs: round, ours })
            }
            Header::Increment { offset, bytes, .. } => self.place(offset, bytes),
            Header::Correction { offset, bytes, .. } => self.place_apart(offset, bytes),
            Header::End { bytes, .. } => self.cut(bytes),
            Header::Broken { bytes } => Ok(At::Cause { bytes: vec![0; bytes], filled: 0 }),
        }
    }

    /// Ends the last round behind `bytes` bytes, which must have landed.
    fn cut(&self, bytes: u64) -> Result<At<T>, FrameFault> {
        let (landed, round, is_end) = {
            let state = self.share.state();
            let (ledger, landed) = (state.ledger(), state.ledger().done_bytes());
            let is_open = !ledger.is_whole() && ledger.prefix() == landed;
            let corrected = state.corrections.ranges().last().map_or(0, |range| range.end);
            (landed, state.round, is_open && landed as u64 == bytes && corrected <= landed)
        };
        if !is_end {
            return Err(FrameFault::End { end: bytes, landed });
        }
        // Whoever sees the end may leave, and then nothing more is said.
        self.back.say_round(true, round);
        assert!(self.share.cut(), "nothing else lands");
        Ok(At::header())
    }

    /// Returns the place for an increment.
    fn place(&self, offset: u64, bytes: u64) -> Result<At<T>, FrameFault> {
        let (range, outside) = (range_of(offset, bytes)?, FrameFault::Outside { offset, bytes });
        let (is_open, round) = {
            let state = self.share.state();
            (state.ledger().is_open(), state.round)
        };
        if is_open && range == (0..0) {
            self.back.say_round(true, round);
            self.share.end_empty();
            return Ok(At::header());
        }
        let parts = [range.start, range.len()].map(|bytes| bytes % size_of::<T>());
        if range.is_empty() || parts != [0, 0] {
            return Err(outside);
        }
        match self.share.lease(range) {
            Ok(lease) => Ok(At::Increment(lease)),
            Err(Taken::Outside) => Err(outside),
            Err(Taken::Done(part) | Taken::Out(part)) => {
                Err(FrameFault::Twice { start: part.start, end: part.end })
            }
        }
    }

    /// Returns the place for a correction: each byte has one a round, before all have landed.
    fn place_apart(&self, offset: u64, bytes: u64) -> Result<At<T>, FrameFault> {
        let range = range_of(offset, bytes)?;
        let state = self.share.state();
        let fits =
            (1..=CORRECTION_BYTES_MAX).contains(&range.len()) && range.end <= state.ledger().len();
        if !fits || state.ledger().is_whole() {
            return Err(FrameFault::Outside { offset, bytes });
        }
        match state.corrections.overlap(&range) {
            Some(part) => Err(FrameFault::Twice { start: part.start, end: part.end }),
            None => {
                Ok(At::Correction { offset: range.start, bytes: vec![0; range.len()], filled: 0 })
            }
        }
    }

    /// Goes on when the current place is full.
    fn turn(&mut self) {
        self.at = match mem::replace(&mut self.at, At::Over) {
            At::Header { bytes, filled } if filled == HEADER_BYTES => match self.begin(&bytes) {
                Ok(at) => at,
                Err(fault) => {
                    let Origin { peer, channel } = self.origin.clone();
                    let error = DeltaRecvError::Frame { peer, channel, fault };
                    self.back.say(&Reply::Fault(with_causes(&error)).encode());
                    self.back.end();
                    return self.over(error);
                }
            },
            At::Increment(lease) if lease.range().is_empty() => At::header(),
            At::Correction { offset, bytes, filled } if filled == bytes.len() => {
                self.share.state().corrections.note(offset, bytes.into());
                At::header()
            }
            at => at,
        };
        match &self.at {
            At::Cause { bytes, filled } if *filled == bytes.len() => {
                let cause = String::from_utf8_lossy(bytes).into_owned();
                self.over(self.ended(Some(cause)));
            }
            _ => {}
        }
    }

    fn ended(&self, cause: Option<String>) -> DeltaRecvError {
        let Origin { peer, channel } = self.origin.clone();
        let state = self.share.state();
        let ledger = state.ledger();
        let (landed_bytes, length_bytes) = (ledger.done_bytes(), ledger.len());
        DeltaRecvError::Ended { peer, channel, landed_bytes, length_bytes, cause }
    }

    /// Ends the landing, unless it has ended.
    fn over(&mut self, error: DeltaRecvError) {
        // The memory is released before the end is reported.
        self.at = At::Over;
        self.share.change(|state| {
            state.end.get_or_insert(error);
        });
    }
}

impl<T: Pod> Landing for Lander<T> {
    fn room(&mut self) -> &mut [u8] {
        if self.interest.strong_count() == 0 {
            return &mut [];
        }
        match &mut self.at {
            At::Header { bytes, filled } => &mut bytes[*filled..],
            At::Increment(lease) => lease.bytes_mut(),
            At::Correction { bytes, filled, .. } | At::Cause { bytes, filled } => {
                &mut bytes[*filled..]
            }
            At::Over => &mut [],
        }
    }

    fn advance(&mut self, bytes: usize) {
        match &mut self.at {
            At::Header { filled, .. }
            | At::Correction { filled, .. }
            | At::Cause { filled, .. } => *filled += bytes,
            At::Increment(lease) => {
                let state = self.share.state();
                let ledger = state.ledger();
                let (whole, round) = (ledger.done_bytes() + bytes == ledger.len(), state.round);
                drop(state);
                if whole {
                    self.back.say_round(true, round);
                }
                lease.advance(bytes);
            }
            At::Over => {}
        }
        self.turn();
    }

    fn end(mut self: Box<Self>, outcome: Result<(), RecvError>) {
        let error = match outcome {
            Ok(()) => self.ended(None),
            Err(error) => DeltaRecvError::Channel(error),
        };
        self.over(error);
    }
}

impl<T: Pod> Drop for Lander<T> {
    fn drop(&mut self) {
        let error = self.ended(Some("the node was closed".to_owned()));
        self.over(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Owner, share};

    struct Ends {
        owner: Owner<u16>,
        interest: Arc<Interest>,
    }

    fn lander(len: usize) -> (Box<Lander<u16>>, Ends) {
        let owner = share(vec![0; len]);
        owner.share().land();
        let back = Arc::new(WayBack(Mutex::new(None)));
        let interest = Arc::new(Interest(back.clone()));
        let origin = Origin { peer: "far".to_owned(), channel: "data".to_owned() };
        let lander = Lander {
            share: owner.share().clone(),
            interest: Arc::downgrade(&interest),
            back,
            origin,
            at: At::header(),
        };
        (Box::new(lander), Ends { owner, interest })
    }

    fn header(round: u32, offset: u64, bytes: u64) -> [u8; HEADER_BYTES] {
        Header::Increment { round, offset, bytes }.encode()
    }

    /// Puts `bytes` where the lander wants them, at most `step` at a time; returns the number that
    /// found room.
    fn put(lander: &mut Lander<u16>, bytes: &[u8], step: usize) -> usize {
        let mut put = 0;
        while put < bytes.len() {
            let room = lander.room();
            let count = room.len().min(step).min(bytes.len() - put);
            if count == 0 {
                break;
            }
            room[..count].copy_from_slice(&bytes[put..put + count]);
            lander.advance(count);
            put += count;
        }
        put
    }

    #[test]
    fn increments_land_at_their_places_however_the_bytes_are_cut() {
        for step in [1, 5, 1000] {
            let (mut lander, ends) = lander(4);
            let last = [&header(1, 6, 2)[..], &[7, 7]].concat();
            assert_eq!(put(&mut lander, &last, step), last.len());
            assert_eq!(ends.owner.elements(3..4), Some(&[0x0707][..]));
            let first = [&header(1, 0, 6)[..], &[1, 1, 2, 2, 3]].concat();
            assert_eq!(put(&mut lander, &first, step), first.len());
            assert_eq!(ends.owner.prefix(), [0x0101, 0x0202], "half an element is not shown");
            assert_eq!(put(&mut lander, &[3], step), 1);
            assert_eq!(ends.owner.prefix(), [0x0101, 0x0202, 0x0303, 0x0707]);
            assert_eq!(lander.room().len(), HEADER_BYTES, "the next round may follow");
        }
    }

    #[test]
    fn an_increment_that_does_not_fit_is_an_error_by_name() {
        let outside = |offset, bytes| FrameFault::Outside { offset, bytes };
        let end = |round, bytes| Header::End { round, bytes }.encode();
        let kind = [[9; 4].to_vec(), vec![0; 20]].concat().try_into().unwrap();
        for (bytes, expected) in [
            (header(1, 6, 4), outside(6, 4)),
            (header(1, u64::MAX - 1, 2), outside(u64::MAX - 1, 2)),
            (header(1, 0, u64::MAX - 1), outside(0, u64::MAX - 1)),
            (header(1, 3, 2), outside(3, 2)),
            (header(1, 4, 3), outside(4, 3)),
            (header(1, 4, 0), outside(4, 0)),
            (header(1, 0, 8), FrameFault::Twice { start: 2, end: 4 }),
            (header(2, 4, 2), FrameFault::Round { theirs: 2, ours: 1 }),
            (kind, FrameFault::Kind { kind: 0x0909_0909 }),
            // There is a gap before the bytes that have landed.
            (end(1, 2), FrameFault::End { end: 2, landed: 2 }),
            (end(1, 0), FrameFault::End { end: 0, landed: 2 }),
            (end(2, 2), FrameFault::Round { theirs: 2, ours: 1 }),
            (Header::Broken { bytes: 0 }.encode(), FrameFault::Cause),
        ] {
            let (mut lander, ends) = lander(4);
            let good = [&header(1, 2, 2)[..], &[5, 5]].concat();
            put(&mut lander, &good, 100);
            put(&mut lander, &bytes, 100);
            assert!(lander.room().is_empty(), "{expected:?}");
            let end = ends.owner.share().state().end.clone().expect("it has ended");
            match end {
                DeltaRecvError::Frame { peer, fault, .. } => {
                    assert_eq!((peer.as_str(), fault), ("far", expected));
                }
                // A sender may end for no reason.
                DeltaRecvError::Ended { cause, .. } => assert_eq!(cause, Some(String::new())),
                other => panic!("{other}"),
            }
            assert_eq!(ends.owner.elements(1..2), Some(&[0x0505][..]), "what landed stays");
        }
    }

    #[test]
    fn an_empty_round_lands_with_its_header_and_once() {
        let outside = |offset| FrameFault::Outside { offset, bytes: 0 };
        for (bytes, fault) in [
            (header(1, 0, 0), outside(0)),
            (Header::End { round: 1, bytes: 0 }.encode(), FrameFault::End { end: 0, landed: 0 }),
        ] {
            let (mut lander, ends) = lander(0);
            assert!(!ends.owner.share().state().ledger().is_whole(), "nothing has come");
            put(&mut lander, &header(1, 0, 0), 5);
            assert!(ends.owner.share().state().ledger().is_whole());
            put(&mut lander, &bytes, 100);
            let end = ends.owner.share().state().end.clone();
            assert!(matches!(&end, Some(DeltaRecvError::Frame { fault: it, .. }) if *it == fault));
        }
        let (mut lander, ends) = lander(0);
        put(&mut lander, &header(1, 2, 0), 100);
        let end = ends.owner.share().state().end.clone();
        assert!(matches!(&end, Some(DeltaRecvError::Frame { fault, .. }) if *fault == outside(2)));
    }

    #[test]
    fn a_round_ends_once_before_it_is_whole_and_behind_its_corrections() {
        let end = |round, bytes| Header::End { round, bytes }.encode();
        let two = [&header(1, 0, 4)[..], &[1, 1, 2, 2]].concat();
        let four = [&header(1, 0, 8)[..], &[5; 8]].concat();
        let corrected = [&correction(1, 4, 2)[..], &[3, 3], &two].concat();
        let ended = [&two[..], &end(1, 4)].concat();
        let outside = FrameFault::Outside { offset: 4, bytes: 2 };
        for (before, bytes, expected) in [
            (&ended, end(1, 4), FrameFault::End { end: 4, landed: 4 }),
            (&ended, header(1, 4, 2), outside),
            (&ended, header(1, 0, 2), FrameFault::Twice { start: 0, end: 2 }),
            (&ended, correction(1, 0, 2), FrameFault::Outside { offset: 0, bytes: 2 }),
            (&four, end(1, 8), FrameFault::End { end: 8, landed: 8 }),
            (&corrected, end(1, 4), FrameFault::End { end: 4, landed: 4 }),
        ] {
            let (mut lander, ends) = lander(4);
            assert_eq!(put(&mut lander, before, 1000), before.len());
            assert!(ends.owner.share().state().end.is_none());
            put(&mut lander, &bytes, 100);
            let end = ends.owner.share().state().end.clone();
            match end {
                Some(DeltaRecvError::Frame { fault, .. }) => assert_eq!(fault, expected),
                other => panic!("{other:?}, not {expected:?}"),
            }
        }
    }

    fn correction(round: u32, offset: u64, bytes: u64) -> [u8; HEADER_BYTES] {
        Header::Correction { round, offset, bytes }.encode()
    }

    #[tokio::test]
    async fn corrections_wait_until_the_owner_asks_for_them() {
        for step in [1, 5, 1000] {
            let (mut lander, mut ends) = lander(4);
            let first = [&header(1, 0, 4)[..], &[1, 1, 2, 2], &correction(1, 2, 2)].concat();
            assert_eq!(put(&mut lander, &first, step), first.len());
            let last = [&[9, 9][..], &header(1, 4, 4), &[3, 3, 4, 4]].concat();
            assert_eq!(put(&mut lander, &last, step), last.len());
            assert_eq!(ends.owner.prefix(), [0x0101, 0x0202, 0x0303, 0x0404]);
            ends.owner.correct().await;
            assert_eq!(ends.owner.prefix(), [0x0101, 0x0909, 0x0303, 0x0404]);
        }
    }

    #[test]
    fn a_correction_that_does_not_fit_is_an_error_by_name() {
        let outside = |offset, bytes| FrameFault::Outside { offset, bytes };
        let large = CORRECTION_BYTES_MAX as u64 + 2;
        let good = [&header(1, 2, 2)[..], &[5, 5], &correction(1, 2, 2), &[6, 6]].concat();
        let whole = [&good[..], &header(1, 0, 2), &[1, 1], &header(1, 4, large), &[0; 65_538]];
        for (before, bytes, expected) in [
            (&good, correction(1, large + 2, 4), outside(large + 2, 4)),
            (&good, correction(1, u64::MAX - 1, 2), outside(u64::MAX - 1, 2)),
            (&good, correction(1, 0, large), outside(0, large)),
            (&good, correction(1, 4, 0), outside(4, 0)),
            (&good, correction(1, 0, 3), FrameFault::Twice { start: 2, end: 3 }),
            (&good, correction(2, 4, 2), FrameFault::Round { theirs: 2, ours: 1 }),
            (&whole.concat(), correction(1, 4, 2), outside(4, 2)),
        ] {
            let (mut lander, ends) = lander(2 + large as usize / 2);
            assert_eq!(put(&mut lander, before, 1000), before.len());
            put(&mut lander, &bytes, 100);
            assert!(lander.room().is_empty(), "{expected:?}");
            let end = ends.owner.share().state().end.clone();
            match end {
                Some(DeltaRecvError::Frame { fault, .. }) => assert_eq!(fault, expected),
                other => panic!("{other:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn without_interest_there_is_no_room() {
        let (mut lander, ends) = lander(3);
        let forward = ends.interest.clone();
        drop(ends.interest);
        assert_eq!(lander.room().len(), HEADER_BYTES);
        drop(forward);
        assert!(lander.room().is_empty());
    }

    #[test]
    fn the_end_is_known_once_and_releases_the_bytes_that_were_landing() {
        let (mut torn, ends) = lander(2);
        put(&mut torn, &header(1, 0, 4), 100);
        assert!(!ends.owner.share().state().ledger().none_out());
        let broken =
            DeltaRecvError::Channel(RecvError::BufferTooSmall { bytes: 2, buffer_bytes: 1 });
        torn.over(broken);
        torn.end(Ok(()));
        let state = ends.owner.share().state();
        assert!(state.ledger().none_out());
        assert!(matches!(state.end, Some(DeltaRecvError::Channel(_))), "the first reason stays");
    }
}
