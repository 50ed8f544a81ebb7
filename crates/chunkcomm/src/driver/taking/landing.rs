//! Messages that had arrived before their landing was chosen.

use crate::driver::inbox::{Outcome, Run, RxShared};
use crate::driver::landing::Landing;
use crate::error::RecvError;
use crate::proto::message;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Gives a landing the messages that had arrived before the session ended, and the end: that of the
/// channel, or else `over`.
pub(crate) fn land_rest(
    shared: &RxShared,
    mut landing: Box<dyn Landing>,
    taken: &[Bytes],
    over: Option<Outcome>,
) {
    let (runs, outcome) = shared.with_queue(|queue| {
        let mut runs = VecDeque::new();
        queue.drain(&mut runs, &mut Vec::new());
        (runs, queue.outcome())
    });
    let mut fits = taken.iter().all(|bytes| put_in_landing(&mut *landing, bytes));
    for run in runs {
        fits &= match run {
            Run::Large { bytes, .. } => put_in_landing(&mut *landing, &bytes),
            Run::Shared { bytes, .. } => put_run_in_landing(&mut *landing, &bytes),
            Run::Copied { bytes, .. } => put_run_in_landing(&mut *landing, &bytes),
        };
    }
    landing.end(match outcome.or(over) {
        _ if !fits => Err(RecvError::LandingFull { channel: Arc::clone(&shared.name) }),
        Some(outcome) => outcome.result(&shared.name),
        None => Ok(()),
    });
}

fn put_run_in_landing(landing: &mut dyn Landing, run: &[u8]) -> bool {
    let mut at = 0;
    while let Some(range) = message::next_in_run(run, at) {
        at = range.end;
        if !put_in_landing(landing, &run[range]) {
            return false;
        }
    }
    true
}

/// Copies `bytes` into a landing; returns false when there is no room for all of them.
fn put_in_landing(landing: &mut dyn Landing, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let room = landing.room();
        let count = room.len().min(bytes.len());
        if count == 0 {
            return false;
        }
        room[..count].copy_from_slice(&bytes[..count]);
        landing.advance(count);
        bytes = &bytes[count..];
    }
    true
}
