//! Large messages that are copied once: between nodes of one host the receiver reads them from the sender's memory,
//! where a socket copies twice.
//!
//! ```text
//!     on each connection over a Unix socket, both ways:
//!     sender                                     receiver
//!     word of 16 random bytes in its memory
//!       "memory": its address, its bytes     ──▶ reads there, and finds the same bytes
//!                                            ◀── "reads"
//!     packet with a fragment, whose address
//!       stands in the place of its bytes     ──▶ reads fragment and word in one call of the system;
//!                                                is the word still the same, the fragment has come
//!                                            ◀── acknowledges the packet, as any
//!     lets go of the fragment, as always
//! ```
//!
//! - A session keeps its packets until they are acknowledged. So the fragment is there as long as it is wanted, and
//!   a packet that comes again on another connection comes with all its bytes.
//! - The sender overwrites the word before it lets go of anything that is not acknowledged: at the end of the
//!   connection. So the word, read behind the fragment, proves that the fragment was whole. It proves as well that
//!   the process is still the one that connected: not another one of its number, nor another program in it. One call
//!   reads from one address space.
//! - A fragment that left so counts as written when it is acknowledged, and anything written behind it no earlier.
//! - Where the system forbids the reading, or a page cannot be read, the connection is given up, and the session
//!   goes on without any of this, over the next one.

use super::writing::TxSlots;
use crate::explain::OneCopy as Shown;
use crate::proto::link::Link;
use crate::proto::packet::WORD_BYTES;
use crate::proto::session::Carried;
use crate::transport::{PeerMemory, Transport};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The state of one link.
#[derive(Default)]
pub(crate) struct OneCopy {
    /// Whether both ends allow it.
    is_allowed: bool,
    memory: Option<Box<dyn PeerMemory>>,
    own: Option<Word>,
    /// The peer's word and its address, once they were read.
    theirs: Option<(u64, [u8; WORD_BYTES])>,
    /// Why the peer's memory is not read, on this and all later connections.
    refused: Option<String>,
    /// Bytes read so far.
    bytes: u64,
    /// Messages that were written, each with the packet that the peer has to read before they count as that.
    held: VecDeque<(u64, Carried)>,
}

/// Random bytes in this process's memory, gone when this is dropped.
struct Word(Box<[AtomicU64; 2]>);

/// Why nothing was read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The peer was not told that its memory is read here.
    Unasked,
    /// The sender has let go of the memory: its last word may follow on the connection, and nothing else.
    Gone,
    /// The connection is of no use.
    Io(io::Error),
}

impl OneCopy {
    pub(crate) fn new(is_allowed: bool) -> OneCopy {
        OneCopy { is_allowed, ..OneCopy::default() }
    }

    /// Returns the state of a link that reads this memory, where `word` is.
    #[cfg(test)]
    pub(super) fn reading(memory: Box<dyn PeerMemory>, word: [u8; WORD_BYTES]) -> OneCopy {
        let (memory, theirs) = (Some(memory), Some((0, word)));
        OneCopy { is_allowed: true, memory, theirs, ..OneCopy::default() }
    }

    /// Begins with a connection.
    pub(crate) fn begin(&mut self, transport: &dyn Transport, link: &mut Link) {
        self.end();
        if !self.is_allowed {
            return;
        }
        self.memory = transport.peer_memory();
        if self.memory.is_none() {
            return;
        }
        if let Some(why) = forbidden() {
            self.refused = Some(why);
            return;
        }
        // Without random bytes there is no word, and the socket serves.
        if let Ok(bytes) = super::entropy::bytes() {
            let word = Word::new(bytes);
            link.say_memory(word.address(), u128::from_le_bytes(bytes));
            self.own = Some(word);
        }
    }

    /// Ends with the connection. Called before any packet is let go that is not acknowledged.
    pub(crate) fn end(&mut self) {
        self.own = None;
        self.memory = None;
        self.theirs = None;
        // Packets that come again count as written when they are acknowledged.
        self.held.clear();
    }

    /// Keeps `carried`, which was written, until the peer has read packet `left`.
    #[cold]
    pub(super) fn hold(&mut self, left: u64, carried: &[Carried]) {
        self.held.extend(carried.iter().map(|carried| (left, *carried)));
    }

    /// Reports what counts as written since the last acknowledgement.
    #[inline]
    pub(super) fn report(&mut self, senders: &mut TxSlots, link: &Link) {
        if !self.held.is_empty() {
            self.report_held(senders, link);
        }
    }

    #[cold]
    fn report_held(&mut self, senders: &mut TxSlots, link: &Link) {
        let [_, acknowledged, _] = link.numbers();
        while let Some((left, carried)) = self.held.front().copied() {
            if left > acknowledged {
                return;
            }
            self.held.pop_front();
            senders.written_at_last(carried, link);
        }
    }

    /// Tries to read the peer's `word`, and tells it if that can be done.
    pub(crate) fn probe(&mut self, address: u64, word: u128, link: &mut Link) {
        let Some(memory) = self.memory.as_deref().filter(|_| self.refused.is_none()) else {
            return;
        };
        let word = word.to_le_bytes();
        match read(memory, address, &mut [], (address, word)) {
            Ok(()) => {
                self.theirs = Some((address, word));
                link.say_reads();
            }
            // The connection is over at the other end: the next one is another matter.
            Err(Fault::Gone) => {}
            Err(Fault::Refused(error)) if error.raw_os_error() == Some(EFAULT) => {}
            Err(Fault::Refused(error)) => self.refused = Some(error.to_string()),
        }
    }

    /// Whether the peer was told that its memory is read here.
    pub(crate) fn is_reading(&self) -> bool {
        self.theirs.is_some()
    }

    /// Reads from the peer's memory at `address`.
    pub(crate) fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Unread> {
        let (Some(memory), Some(word)) = (self.memory.as_deref(), self.theirs) else {
            return Err(Unread::Unasked);
        };
        match read(memory, address, into, word) {
            Ok(()) => {
                self.bytes += into.len() as u64;
                Ok(())
            }
            Err(Fault::Gone) => Err(Unread::Gone),
            Err(Fault::Refused(error)) => {
                self.refused = Some(error.to_string());
                Err(Unread::Io(error))
            }
        }
    }

    /// Returns the state for people.
    pub(crate) fn shown(&self) -> Shown {
        match (&self.refused, self.theirs) {
            (Some(why), _) => Shown::Refused { why: why.clone() },
            (None, Some(_)) => Shown::Reads { bytes: self.bytes },
            (None, None) => Shown::Off,
        }
    }
}

/// Why memory was not read.
enum Fault {
    /// The sender has let go of it, or is gone.
    Gone,
    /// The system reads nothing there.
    Refused(io::Error),
}

/// Reads `into` from `address`, and behind it the word, which must be as it was.
fn read(
    memory: &dyn PeerMemory,
    address: u64,
    into: &mut [u8],
    (word_at, word): (u64, [u8; WORD_BYTES]),
) -> Result<(), Fault> {
    let mut found = [0; WORD_BYTES];
    match memory.read(address, into, word_at, &mut found) {
        Ok(bytes) if bytes == into.len() + WORD_BYTES => {
            if found == word {
                Ok(())
            } else {
                Err(Fault::Gone)
            }
        }
        Ok(bytes) => {
            let whole = into.len() + WORD_BYTES;
            let why = format!("only {bytes} of {whole} bytes of the peer's memory can be read");
            Err(Fault::Refused(io::Error::other(why)))
        }
        // The process is gone: it is no reason against its successor on the next connection.
        Err(error) if error.raw_os_error() == Some(ESRCH) => Err(Fault::Gone),
        Err(error) => Err(Fault::Refused(error)),
    }
}

/// The system's number of the error that there is no such process.
const ESRCH: i32 = 3;

/// The system's number of the error that nothing is at an address.
const EFAULT: i32 = 14;

/// Returns why no memory is read on this machine; `None` where a try tells. Yama would note each try in the
/// kernel's log.
fn forbidden() -> Option<String> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    let scope = scope.trim();
    (scope != "0").then(|| format!("ptrace_scope of Yama is {scope}"))
}

impl Word {
    fn new(bytes: [u8; WORD_BYTES]) -> Word {
        let word = u128::from_le_bytes(bytes);
        // In memory it lies as `bytes` do.
        let halves = [word as u64, (word >> 64) as u64].map(u64::to_le);
        Word(Box::new(halves.map(AtomicU64::new)))
    }

    fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
}

impl Word {
    fn overwrite(&self) {
        for half in self.0.iter() {
            half.store(0, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.overwrite();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    /// The outcome of a reading of planted memory.
    enum Planted {
        /// Finds this word.
        Word([u8; WORD_BYTES]),
        /// Reads only this number of bytes.
        Short(usize),
        /// Fails with the system's number.
        Fails(i32),
    }

    struct Memory(Mutex<VecDeque<Planted>>);

    impl PeerMemory for Memory {
        fn read(&self, _: u64, into: &mut [u8], _: u64, word: &mut [u8; 16]) -> io::Result<usize> {
            match self.0.lock().unwrap().pop_front().unwrap() {
                Planted::Word(found) => {
                    *word = found;
                    Ok(into.len() + WORD_BYTES)
                }
                Planted::Short(bytes) => Ok(bytes),
                Planted::Fails(number) => Err(io::Error::from_raw_os_error(number)),
            }
        }
    }

    const WORD: [u8; WORD_BYTES] = [5; WORD_BYTES];
    const EPERM: i32 = 1;

    /// Returns the state of a link whose peer's memory does as planted, the word read first.
    fn link(planted: impl IntoIterator<Item = Planted>) -> OneCopy {
        let planted = std::iter::once(Planted::Word(WORD)).chain(planted);
        OneCopy::reading(Box::new(Memory(Mutex::new(planted.collect()))), WORD)
    }

    #[test]
    fn bytes_count_only_while_the_word_behind_them_is_there() {
        let other = [6; WORD_BYTES];
        let mut state = link([Planted::Word(other)]);
        let mut into = [0; 100];
        state.read(0, &mut into).unwrap();
        assert_eq!(state.shown(), Shown::Reads { bytes: 100 });
        assert!(matches!(state.read(0, &mut into), Err(Unread::Gone)));
        // The sender has let go of the connection, which is no reason against the next one.
        assert_eq!(state.shown(), Shown::Reads { bytes: 100 });
        state.end();
        assert!(matches!(state.read(0, &mut into), Err(Unread::Unasked)));
    }

    #[test]
    fn what_cannot_be_read_is_not_tried_again() {
        let refusals = [
            (Planted::Fails(EPERM), "Operation not permitted"),
            (Planted::Short(100), "only 100 of 116 bytes"),
            (Planted::Short(7), "only 7 of 116 bytes"),
        ];
        for (planted, text) in refusals {
            let mut state = link([planted]);
            let mut into = [0; 100];
            state.read(0, &mut into).unwrap();
            assert!(matches!(state.read(0, &mut into), Err(Unread::Io(_))));
            let Shown::Refused { why } = state.shown() else { panic!("{:?}", state.shown()) };
            assert!(why.contains(text), "{why}");
        }
        let mut state = link([Planted::Fails(ESRCH)]);
        state.read(0, &mut []).unwrap();
        assert!(matches!(state.read(0, &mut []), Err(Unread::Gone)));
        assert_eq!(state.shown(), Shown::Reads { bytes: 0 }, "its successor may be read");
    }

    #[test]
    fn a_word_lies_in_memory_as_it_was_drawn_and_is_overwritten_at_its_end() {
        let bytes = *b"0123456789abcdef";
        let word = Word::new(bytes);
        let halves =
            || [&word.0[0], &word.0[1]].map(|half| half.load(Ordering::SeqCst).to_ne_bytes());
        assert_eq!(halves().concat(), bytes);
        word.overwrite();
        assert_eq!(halves().concat(), [0; 16]);
    }
}
