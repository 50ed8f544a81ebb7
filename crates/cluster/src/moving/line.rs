//! A line: words of two nodes about ends that move and about processes. It is a channel each way
//! beside all others of a link.
//!
//! ```text
//!   our node                                                        the peer
//!   say ──▶ waiting words ──▶ speak ───── "\0chunkcomm.words" ────▶ hear ──▶ custody, processes
//!                                                                               │ answers
//!   custody, processes ◀── hear ◀──────── the same channel back ◀── speak ◀── waiting words
//! ```
//!
//! | event | effect |
//! |---|---|
//! | a line starts | one task speaks until the link ends |
//! | the peer opens its channel of words | [`Line::hear`]: another task reads them |
//! | 65,536 words wait | the peer's words are not read, so it cannot make us answer more |
//! | 4 MiB of processes' inputs wait | creating a process waits |
//! | the link ends | waiting words are dropped, all waits end, `line_ended` tells the custody |

use super::Moving;
use super::process::{self, words::ProcessWord};
use crate::proto::custody::Word;
use crate::tasks::spawn_on;
use chunkcomm::layer::{Link, Next, Opened, Owed, RawReceiver, WordSender, share_last_woken};
use chunkcomm::{LinkError, SendError, with_causes};
use chunkcomm_proto::codec;
use serde::{Deserialize, Serialize};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The name of the channel; no user's name begins with a zero byte by accident.
pub(crate) const WORDS_CHANNEL: &str = "\0chunkcomm.words";

/// Name of the words, compared instead of a type. It never changes: the form of the words depends
/// on the version that the link agreed on.
const WORDS_SCHEMA: &str = "chunkcomm.words/1";

/// Most words that wait to be sent. So a peer that makes this node answer, and does not listen,
/// costs no more memory.
const WORDS_WAITING_MAX: usize = 64 * 1024;

/// Most bytes of processes' inputs that wait to be sent: 4 MiB. Beyond that, creating a process
/// waits.
const INPUTS_WAITING_BYTES_MAX: usize = 4 << 20;

/// A word on a line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LineWord {
    Custody(Word),
    Process(ProcessWord),
}

impl LineWord {
    /// Returns the size of the input in the word, in bytes.
    fn input_bytes(&self) -> usize {
        match self {
            LineWord::Process(ProcessWord::Create(create)) => create.input.0.len(),
            _ => 0,
        }
    }
}

/// This node's side of the line beside one link.
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) link: Link,
    words: UnboundedSender<LineWord>,
    waiting: Waiting,
    /// Whether the peer has opened its channel of words.
    heard: AtomicBool,
}

/// Counters of the words that wait to be sent.
#[derive(Default)]
struct Waiting {
    count: AtomicUsize,
    /// Bytes of the inputs in the waiting words.
    input_bytes: AtomicUsize,
    /// Whether the line has ended, so that no waiting word will be sent.
    over: AtomicBool,
    fewer: Notify,
}

impl Waiting {
    fn are_many(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= WORDS_WAITING_MAX
            && !self.over.load(Ordering::Relaxed)
    }

    fn are_large(&self) -> bool {
        self.input_bytes.load(Ordering::Relaxed) >= INPUTS_WAITING_BYTES_MAX
            && !self.over.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn add(&self, word: &LineWord) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.input_bytes.fetch_add(word.input_bytes(), Ordering::Relaxed);
    }

    fn remove(&self, word: &LineWord) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.input_bytes.fetch_sub(word.input_bytes(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.fewer.notify_waiters();
    }
}

/// A line, for the parts that send words on it.
pub(crate) type Saying = Arc<Line>;

impl Line {
    pub(super) fn start(moving: &Arc<Moving>, number: u64, link: &Link) -> Arc<Line> {
        let (words, to_say) = unbounded_channel();
        let line = Arc::new(Line {
            number,
            link: link.clone(),
            words,
            waiting: Waiting::default(),
            heard: AtomicBool::new(false),
        });
        let (moving, kept) = (Arc::downgrade(moving), Arc::clone(&line));
        let runtime = moving.upgrade().map(|moving| moving.runtime.clone());
        let node = moving.upgrade().and_then(|moving| moving.node());
        let what = || format!("words about ends and processes to {}", link.name());
        let owed = node.map(|node| Owed::standing(&node, what()));
        let task = async move {
            let link = kept.link.clone();
            let mut ended = std::pin::pin!(poll_fn(|context| link.poll_ended(context)));
            let speaking = async {
                let speaking = speak(&moving, &kept, to_say);
                match owed {
                    Some(owed) => owed.during(speaking, || kept.waiting.is_empty()).await,
                    // Nobody closes a node that is gone.
                    None => speaking.await,
                }
            };
            let error = tokio::select! {
                biased;
                error = &mut ended => error,
                error = speaking => error,
            };
            kept.waiting.end();
            if let Some(moving) = moving.upgrade() {
                moving.line_ended(&kept, &error);
            }
        };
        if let Some(runtime) = runtime {
            spawn_on(&runtime, Box::pin(task));
            share_last_woken();
        }
        line
    }

    /// Sends a word, in order, as soon as possible.
    pub(crate) fn say(&self, word: LineWord) {
        self.waiting.add(&word);
        // Fails when the line has ended; nobody reads the word then.
        let _ = self.words.send(word);
        share_last_woken();
    }

    /// Reads the peer's words from the channel that it opened.
    pub(super) fn hear(
        self: &Arc<Self>,
        moving: &Arc<Moving>,
        opened: Opened,
    ) -> Result<(), Box<Opened>> {
        if !opened.is_words(WORDS_SCHEMA) {
            return Err(Box::new(opened));
        }
        self.heard.store(true, Ordering::Release);
        let (line, weak) = (Arc::clone(self), Arc::downgrade(moving));
        let mut words = opened.into_receiver();
        let hearing = async move {
            while let Some(word) = next_word(&mut words).await {
                line.wait_for_fewer().await;
                let Some(moving) = weak.upgrade() else { return };
                match word {
                    LineWord::Custody(word) => {
                        moving.custody(|custody| custody.handle_word(line.number, word));
                    }
                    LineWord::Process(word) => {
                        process::heard(&moving, &line, word);
                    }
                }
            }
        };
        spawn_on(&moving.runtime, Box::pin(hearing));
        Ok(())
    }

    async fn wait_for_fewer(&self) {
        self.wait_while(Waiting::are_many).await;
    }

    /// Waits until one more process can be asked for.
    pub(crate) async fn wait_for_room(&self) {
        self.wait_while(|waiting| waiting.are_many() || waiting.are_large()).await;
    }

    async fn wait_while(&self, waits: impl Fn(&Waiting) -> bool) {
        loop {
            let fewer = self.waiting.fewer.notified();
            if !waits(&self.waiting) {
                return;
            }
            fewer.await;
        }
    }
}

/// Waits for the next word of the peer; `None` at the end of the session. An invalid word ends the
/// session.
async fn next_word(words: &mut RawReceiver) -> Option<LineWord> {
    tokio::task::coop::consume_budget().await;
    loop {
        if let Some(word) = words.take_with(codec::decode::<LineWord>) {
            if let Ok(word) = word {
                return Some(word);
            }
            words.malformed();
            return None;
        }
        match poll_fn(|context| words.poll_next(context)).await {
            Next::Ended(_) => return None,
            Next::Message | Next::Empty => {}
        }
    }
}

/// A word that a peer without this layer leaves unanswered: it has no ends and runs no processes.
pub(super) enum Unanswered {
    Settle(u64),
    Create { id: u64, hops: Vec<u64> },
}

impl Unanswered {
    fn of(word: &LineWord) -> Option<Unanswered> {
        match word {
            LineWord::Custody(Word::Settle(hop)) => Some(Unanswered::Settle(*hop)),
            LineWord::Process(ProcessWord::Create(create)) => {
                Some(Unanswered::Create { id: create.id, hops: create.hops.clone() })
            }
            // All other words answer the peer's layer, or end a process that the refusal already
            // ends.
            _ => None,
        }
    }
}

/// Sends the waiting words, many at once; returns the error that ends the line.
///
/// A peer may have no layer for these words yet, and refuse their channel. This node then answers
/// them in the peer's place, and the next word opens another channel.
async fn speak(
    moving: &Weak<Moving>,
    line: &Line,
    mut to_say: UnboundedReceiver<LineWord>,
) -> LinkError {
    let mut next = None;
    loop {
        if next.is_none() {
            next = to_say.recv().await;
        }
        if next.is_none() {
            return line.link.closed();
        }
        let mut sender = match line.link.open_words(WORDS_CHANNEL, WORDS_SCHEMA) {
            Ok(sender) => sender,
            Err(error) => return error,
        };
        let mut unanswered = Vec::new();
        let spoken = speak_on(&mut sender, line, &mut next, &mut to_say, &mut unanswered).await;
        match spoken {
            SendError::Closed => return line.link.closed(),
            SendError::Lost(lost) => return lost.link.clone(),
            SendError::Refused(_) => {
                let Some(moving) = moving.upgrade() else { return line.link.closed() };
                moving.refused(line, unanswered);
            }
            error => {
                let why = with_causes(&error);
                return line.link.gone(format!("it takes no word of ends and processes: {why}"));
            }
        }
    }
}

/// Sends `next`, and the words after it, on one channel until that fails; `Closed` when no more
/// words come. If the channel is refused, adds the words that need an answer to `unanswered`. An
/// unsent reply goes back into `next`.
async fn speak_on(
    sender: &mut WordSender,
    line: &Line,
    next: &mut Option<LineWord>,
    to_say: &mut UnboundedReceiver<LineWord>,
    unanswered: &mut Vec<Unanswered>,
) -> SendError {
    loop {
        while let Some(word) = next.take() {
            unanswered.extend(Unanswered::of(&word));
            let heard = line.heard.load(Ordering::Acquire);
            let sent = sender.send(&word).await;
            if let Err(error) = sent {
                match (&error, Unanswered::of(&word)) {
                    (SendError::Refused(_), None) => *next = Some(word),
                    _ => line.waiting.remove(&word),
                }
                return error;
            }
            line.waiting.remove(&word);
            if heard {
                // The peer speaks, so it has the layer, and refused no word before. A refusal would
                // have come first, and the word would not have been accepted.
                unanswered.clear();
            }
            *next = to_say.try_recv().ok();
        }
        line.waiting.fewer.notify_waiters();
        sender.urgent();
        *next = tokio::select! {
            biased;
            error = sender.failed() => return error,
            word = to_say.recv() => word,
        };
        if next.is_none() {
            return SendError::Closed;
        }
    }
}
