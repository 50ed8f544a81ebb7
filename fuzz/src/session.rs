//! The numbers of a session: two honest ends over connections that are lost at any time, and now
//! and then an impossible resume message or ack.
//!
//! The bytes are read as a list of deeds of either end. A plain account of the packets sent,
//! arrived and acknowledged gives the expected state.

use std::collections::VecDeque;
use std::time::Duration;

use chunkcomm::proto::Time;
use chunkcomm::proto::error::ProtocolError;
use chunkcomm::proto::limits::{ACK_BYTES_MAX, ACK_DELAY_MS, ACK_PACKETS_MAX};
use chunkcomm::proto::packet::Packet;
use chunkcomm::proto::resume::{Kind, RESUME_BYTES, Resume};
use chunkcomm::proto::session::{Carried, Session};
use chunkcomm::proto::spares::Spares;

use crate::deeds::Deeds;

const KEPT_BYTES_MAX: usize = 2048;
const EDGES: [u64; 4] = [1, 64, u32::MAX as u64, u64::MAX];

/// Checks that the ends keep to the account, whatever their connections do, and agree in the end.
pub fn run(data: &[u8]) {
    word(data);
    let mut deeds = Deeds::new(data);
    let mut pair = Pair::default();
    while !deeds.is_empty() {
        pair.deed(&mut deeds);
        pair.check();
    }
    pair.settle();
}

/// Writes and reads back what was read as a resume message; both must be the same.
fn word(data: &[u8]) {
    let mut bytes = [0; RESUME_BYTES];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    if let Ok(word) = Resume::decode(&bytes) {
        assert_eq!(Resume::decode(&word.encode()), Ok(word));
    }
}

/// A packet on its way.
struct OnWire {
    /// Number of the packet; 0 for one with an ack alone.
    sequence: u64,
    ack: u64,
    ack_now: bool,
    bytes: Vec<u8>,
}

struct End {
    session: Session,
    spares: Spares,
    /// Packet that the writer has, and its number.
    writing: Option<(u64, Packet)>,
    /// Packets that this end wrote and the other has not read.
    wire: VecDeque<OnWire>,

    // Fields of the account.
    sent: Vec<Vec<u8>>,
    written: u64,
    acked: u64,
    received: u64,
    carried: Vec<(u64, Carried)>,
    /// Number of entries of `carried` that were reported as acknowledged.
    released: usize,
    /// Packets and bytes that came since the last ack, since when, and whether an ack was asked for.
    owed: (u64, u64, Option<Time>, bool),
    /// Number of bytes since the other end was asked for an ack.
    unasked_bytes: usize,
}

impl Default for End {
    fn default() -> End {
        End {
            session: Session::new(true, KEPT_BYTES_MAX),
            spares: Spares::default(),
            writing: None,
            wire: VecDeque::new(),
            sent: Vec::new(),
            written: 0,
            acked: 0,
            received: 0,
            carried: Vec::new(),
            released: 0,
            owed: (0, 0, None, false),
            unasked_bytes: 0,
        }
    }
}

#[derive(Default)]
struct Pair {
    ends: [End; 2],
    now: Time,
}

impl Pair {
    fn deed(&mut self, deeds: &mut Deeds<'_>) {
        let deed = deeds.byte();
        let who = usize::from(deed & 1);
        match (deed >> 1) % 16 {
            0..=4 => self.ends[who].fill(deeds, self.now),
            5..=8 => self.ends[who].write(),
            9..=11 => self.read(who),
            12 => self.ends[who].ack_alone(self.now, deeds.one_in(2)),
            13 => self.now = self.now.after(Duration::from_millis(deeds.byte().into())),
            14 => self.reconnect(),
            _ => self.ends[who].told_wrong(deeds, self.now),
        }
    }

    /// Lets the end `who` read the next packet of the other.
    fn read(&mut self, who: usize) {
        let [first, second] = &mut self.ends;
        let (reader, writer) = if who == 0 { (first, second) } else { (second, first) };
        let Some(packet) = writer.wire.pop_front() else { return };
        assert!(packet.ack <= reader.written);
        reader.acknowledged(packet.ack);
        if packet.sequence != 0 && packet.sequence <= reader.received {
            return; // The decoder skips it as a whole.
        }
        assert_eq!(reader.session.check_next(packet.sequence), Ok(()));
        if packet.sequence != 0 {
            assert_eq!(packet.sequence, reader.received + 1, "in order, and each once");
            assert_eq!(packet.bytes, writer.sent[reader.received as usize], "the very bytes");
        }
        reader.arrived(&packet, self.now);
    }

    /// Loses the connection with all that is on it, then connects again.
    fn reconnect(&mut self) {
        for end in &mut self.ends {
            end.lost();
        }
        let received = [0, 1].map(|who: usize| self.ends[who].session.received());
        let word = Resume {
            kind: Kind::Again,
            session: 7,
            attempt: 2,
            received: received[0],
            addressee: 1,
        };
        let words = [word, word.answer(Kind::Agreed, received[1], 0)];
        for (who, end) in self.ends.iter_mut().enumerate() {
            let word = Resume::decode(&words[1 - who].encode()).expect("a word is read");
            assert_eq!(word, words[1 - who]);
            end.resumed(word.received);
        }
    }

    fn check(&self) {
        let [first, second] = &self.ends;
        first.check(second);
        second.check(first);
    }

    /// Checks that without further losses everything arrives, is acknowledged and forgotten.
    fn settle(&mut self) {
        for _ in 0..2 {
            for who in [0, 1] {
                while self.ends[who].writing.is_some() || self.ends[who].session.is_behind() {
                    self.ends[who].write();
                    self.ends[who].again();
                }
                self.ends[who].ack_alone(self.now, true);
                while !self.ends[who].wire.is_empty() {
                    self.read(1 - who);
                }
            }
        }
        self.check();
        for end in &self.ends {
            let [sent, acked, _] = end.session.numbers();
            assert_eq!((sent, end.session.kept_bytes()), (acked, 0));
            assert!(!end.session.in_flight() && !end.session.is_behind());
        }
    }
}

impl End {
    /// Gives the writer its next packet: one that comes again, otherwise a new one.
    fn fill(&mut self, deeds: &mut Deeds<'_>, now: Time) {
        self.again();
        if self.writing.is_some() || self.session.is_full() {
            return;
        }
        let number = self.sent.len() as u64 + 1;
        let entries = deeds.below(3) as u32;
        for entry in 0..entries {
            let carried = Carried { channel: entry, messages: number, end: deeds.one_in(8) };
            self.carried.push((number, carried));
            self.session.carry(carried);
        }
        let bytes = 32 + 4 * usize::from(deeds.byte());
        self.unasked_bytes += bytes;
        let asks = self.unasked_bytes >= KEPT_BYTES_MAX / 2;
        self.unasked_bytes *= usize::from(!asks);
        assert_eq!(self.session.wants_ack(bytes), asks);
        let ack = self.says_ack(now);
        let head: Vec<u8> =
            number.to_le_bytes().into_iter().chain(ack.to_le_bytes()).cycle().take(bytes).collect();
        assert_eq!(self.session.sent(entries, bytes, |_| panic!("not yet")), number);
        self.sent.push(head.clone());
        self.writing = Some((number, Packet { head, ..Packet::default() }));
    }

    /// Gives the writer a packet of a lost connection, if there is one.
    fn again(&mut self) {
        let mut packet = Packet::default();
        if self.writing.is_some() || !self.session.is_behind() {
            return;
        }
        let number = self.session.again(&mut packet).expect("the packet is kept");
        assert_eq!(packet.head, self.sent[number as usize - 1], "the very bytes");
        self.writing = Some((number, packet));
    }

    /// Passes the writer's packet to the transport.
    fn write(&mut self) {
        let Some((sequence, mut packet)) = self.writing.take() else { return };
        let bytes = packet.head.clone();
        let ack = u64::from_le_bytes(bytes[8..16].try_into().expect("it has a head"));
        self.wire.push_back(OnWire { sequence, ack, ack_now: false, bytes });
        self.session.written(sequence, &mut packet);
        self.written = self.written.max(sequence);
    }

    fn ack_alone(&mut self, now: Time, ack_now: bool) {
        let ack = self.says_ack(now);
        self.wire.push_back(OnWire { sequence: 0, ack, ack_now, bytes: Vec::new() });
    }

    /// Returns the ack for a packet; checks that it was due in time, and is no longer due then.
    fn says_ack(&mut self, now: Time) -> u64 {
        let (packets, bytes, since, asked) = self.owed;
        let late = since.map(|since| since.after(Duration::from_millis(ACK_DELAY_MS)));
        let due = asked || packets >= ACK_PACKETS_MAX || bytes >= ACK_BYTES_MAX;
        assert_eq!(self.session.ack_deadline(), late);
        assert_eq!(self.session.ack_due(now), due || late.is_some_and(|late| now >= late));
        self.owed = (0, 0, None, false);
        let ack = self.session.ack();
        assert_eq!(ack, self.received);
        assert!(!self.session.ack_due(now));
        ack
    }

    fn arrived(&mut self, packet: &OnWire, now: Time) {
        let bytes = packet.bytes.len() as u64;
        self.session
            .handle_packet(packet.sequence, bytes, packet.ack_now, now)
            .expect("it is its turn");
        self.owed.3 |= packet.ack_now;
        if packet.sequence != 0 {
            self.received = packet.sequence;
            self.owed.0 += 1;
            self.owed.1 += bytes;
            self.owed.2.get_or_insert(now);
        }
    }

    fn acknowledged(&mut self, ack: u64) {
        let account = (&self.carried[..], &mut self.released);
        self.session
            .handle_ack(ack, &mut self.spares, release(account, ack))
            .expect("it was written");
        self.acked = self.acked.max(ack);
    }

    fn lost(&mut self) {
        self.wire.clear();
        if let Some((number, mut packet)) = self.writing.take() {
            self.session.give_back(number, &mut packet);
        }
    }

    fn resumed(&mut self, received: u64) {
        let account = (&self.carried[..], &mut self.released);
        self.session
            .resume(received, &mut self.spares, release(account, received))
            .expect("the other has what it says");
        self.acked = received;
        self.owed.3 = false;
        assert_eq!(self.session.is_behind(), received < self.sent.len() as u64);
    }

    /// Checks that an impossible ack, number or resume message is refused and changes nothing.
    fn told_wrong(&mut self, deeds: &mut Deeds<'_>, now: Time) {
        let number = deeds.number(&EDGES);
        let (sent, acknowledged, due) = (self.written, self.acked, self.received + 1);
        let nothing = |_: Carried| panic!("nothing is acknowledged");
        let beyond = Err(ProtocolError::Ack { got: number, sent });
        match deeds.below(3) {
            0 if number > sent => {
                assert_eq!(self.session.handle_ack(number, &mut self.spares, nothing), beyond);
            }
            0 if number <= acknowledged => {
                assert_eq!(self.session.handle_ack(number, &mut self.spares, nothing), Ok(()));
            }
            1 if number != 0 && number != due => {
                let wrong = Err(ProtocolError::Sequence { got: number, due });
                assert_eq!(self.session.check_next(number), wrong);
                assert_eq!(self.session.handle_packet(number, 1, false, now), wrong);
            }
            2 if number > sent => {
                assert_eq!(self.session.resume(number, &mut self.spares, nothing), beyond);
            }
            2 if number < acknowledged => {
                let forgotten = Err(ProtocolError::Forgotten { got: number, acknowledged });
                assert_eq!(self.session.resume(number, &mut self.spares, nothing), forgotten);
            }
            _ => {}
        }
    }

    fn check(&self, other: &End) {
        let sent = self.sent.len() as u64;
        assert_eq!(self.session.numbers(), [sent, self.acked, self.received]);
        assert!(self.acked <= other.received && other.received <= self.written);
        let kept: usize = self.sent[self.acked as usize..].iter().map(Vec::len).sum();
        assert_eq!(
            (self.session.kept_bytes(), self.session.in_flight()),
            (kept, self.acked < sent)
        );
        assert_eq!(self.session.is_full(), kept >= KEPT_BYTES_MAX);
        assert!(kept < KEPT_BYTES_MAX + 32 + 4 * 255, "{kept} bytes are kept");
        // Entries of packets up to the ack are released, and none of those behind it.
        let next = self.carried.get(self.released);
        assert!(next.is_none_or(|(number, _)| *number > self.acked));
    }
}

/// Checks that the entries released up to packet `ack` are those of the account, in its order.
fn release<'a>(
    (carried, released): (&'a [(u64, Carried)], &'a mut usize),
    ack: u64,
) -> impl FnMut(Carried) + 'a {
    move |said| {
        let (number, expected) = carried[*released];
        assert!(said == expected && number <= ack, "{said:?} where {expected:?} is due");
        *released += 1;
    }
}

/// Returns deeds of a connection that lasts and of some that do not, and a resume message.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let word = Resume { kind: Kind::Again, session: 7, attempt: 2, received: 3, addressee: 9 };
    let send: &[u8] = &[0, 1, 255, 20, 10];
    let read: &[u8] = &[19, 24, 255, 18];
    let again: &[u8] = &[28, 1, 1];
    vec![
        word.encode().to_vec(),
        [send, read, send, read].concat(),
        [send, send, again, send, read, again, read].concat(),
        [send, &[30, 77, 0, 30, 200, 5, 5, 1, 30, 0, 2], read].concat(),
    ]
}
