//! Reading a log: the messages that are not settled.

use super::record::{self, Head};
use super::{Identity, NUMBER_DIGITS, segment};
use crate::error::LogError;
use crate::proto::message::{Prefix, read_prefix};
use bytes::{Buf as _, Bytes};
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// The content of a log.
pub(crate) struct Recovered {
    pub(crate) stream: u128,
    /// Number of messages that are settled.
    pub(crate) settled: u64,
    /// The unsettled messages as they were staged, in order, each piece with its number of
    /// messages.
    pub(crate) staged: VecDeque<(Bytes, u32)>,
    /// The large messages among them.
    pub(crate) large: VecDeque<Bytes>,
}

impl Recovered {
    pub(super) fn nothing(stream: u128) -> Recovered {
        let (staged, large) = (VecDeque::new(), VecDeque::new());
        Recovered { stream, settled: 0, staged, large }
    }

    /// Returns the number of messages that are not settled.
    pub(crate) fn messages(&self) -> u64 {
        self.staged.iter().map(|(_, messages)| u64::from(*messages)).sum()
    }

    /// Returns the number of the next message.
    pub(crate) fn next(&self) -> u64 {
        self.settled + self.messages()
    }

    /// Settles messages up to `settled`, as far as there are any. Returns false when the staged
    /// bytes are no messages.
    fn settle(&mut self, settled: u64) -> bool {
        while self.settled < settled
            && let Some((staged, messages)) = self.staged.pop_front()
        {
            let skipped = (settled - self.settled).min(u64::from(messages)) as u32;
            let Some(rest) = self.skip(staged, skipped) else { return false };
            self.settled += u64::from(skipped);
            if skipped < messages {
                self.staged.push_front((rest, messages - skipped));
            }
        }
        true
    }

    fn skip(&mut self, mut staged: Bytes, messages: u32) -> Option<Bytes> {
        for _ in 0..messages {
            match read_prefix(&staged) {
                Prefix::Message { prefix, length } if prefix + length <= staged.len() => {
                    staged.advance(prefix + length);
                }
                Prefix::Large => {
                    staged.advance(1);
                    self.large.pop_front()?;
                }
                _ => return None,
            }
        }
        Some(staged)
    }
}

/// Returns the numbers of the first messages of the segments in `directory`, in order.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let first = name.to_str().and_then(|name| name.strip_suffix(".log"));
        let first = first.filter(|first| first.len() == NUMBER_DIGITS);
        segments.extend(first.and_then(|first| first.parse::<u64>().ok()));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Reads the segments. A record at the end of the last segment that is not whole is cut off. A last
/// segment without a whole head is removed. `cut` gets words about both.
pub(super) fn read(
    directory: &Path,
    segments: &mut Vec<u64>,
    identity: &Identity,
    cut: &mut Vec<String>,
) -> Result<Option<Recovered>, LogError> {
    let mut recovered: Option<Recovered> = None;
    let last = segments.len().saturating_sub(1);
    for (index, first) in segments.clone().into_iter().enumerate() {
        let path = segment(directory, first);
        let failed = |error| LogError::io(&path, error);
        let damaged = |offset| LogError::Damaged { path: path.clone(), offset };
        let mut bytes = Bytes::from(std::fs::read(&path).map_err(failed)?);
        let whole = bytes.len();
        let Some((head, head_bytes)) = Head::decode(&bytes) else {
            // The segment was being made when the process or the machine stopped.
            if index == last && record::is_part_of_head(&bytes, identity) {
                std::fs::remove_file(&path).map_err(failed)?;
                segments.pop();
                if !bytes.is_empty() {
                    cut.push(format!(
                        "the log's last file {} was being begun when its process or the machine \
                         stopped, and held no message: its {whole} bytes are removed",
                        path.display()
                    ));
                }
                break;
            }
            return Err(damaged(0));
        };
        bytes.advance(head_bytes);
        if head.identity != *identity {
            let Identity { channel, .. } = head.identity;
            return Err(LogError::OtherStream { path, channel });
        }
        let known = recovered
            .get_or_insert_with(|| Recovered { settled: first, ..Recovered::nothing(head.stream) });
        // A missing segment had messages.
        if head.stream != known.stream || head.first != first || first != known.next() {
            return Err(damaged(0));
        }
        while !bytes.is_empty() {
            let offset = (whole - bytes.len()) as u64;
            if let Some(record) = record::read(&mut bytes) {
                known.large.extend(record.large);
                if record.messages > 0 {
                    known.staged.push_back((record.staged, record.messages));
                }
                if !known.settle(record.settled) {
                    return Err(damaged(offset));
                }
            } else if index == last && record::was_being_written(&bytes, offset) {
                cut.push(format!(
                    "the end of the log's file {} was being written when its process or the \
                     machine stopped: its last {} bytes are cut off",
                    path.display(),
                    bytes.len()
                ));
                let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                file.set_len(offset).map_err(failed)?;
                bytes.clear();
            } else {
                return Err(damaged(offset));
            }
        }
    }
    Ok(recovered)
}
