//! Output of nodes, with the rank before each line.

use super::{NOT_STARTED_LINE, PORT_LINE, READY_LINE};
use std::io::Write as _;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::sync::mpsc;

/// Longest line, in bytes; a longer one is printed in parts.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Word of rank 0 to the process that started it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Port(u16),
    Ready,
    /// The cluster did not start; these ranks are to blame.
    NotStarted {
        ranks: Vec<u32>,
        why: String,
    },
}

/// Most characters that are kept of a last line.
const WORDS_MAX: usize = 400;

/// Prints the output until it ends; returns the last line that is not blank.
pub(super) async fn pass_on(
    from: impl AsyncRead + Unpin,
    to_stderr: bool,
    prefix: String,
    rank: usize,
    says: mpsc::Sender<Said>,
) -> Option<String> {
    let mut last_words = None;
    let mut lines = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return last_words,
            Ok(_) => {}
        }
        if let Some(said) = said_by(rank, to_stderr, &line) {
            // Fails when all is over and nothing listens.
            let _ = says.send(said).await;
            continue;
        }
        if to_stderr {
            last_words = words_of(&line).or(last_words);
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        line.splice(0..0, prefix.bytes());
        // Fails when nothing reads the output any more; the nodes find that out themselves, if at
        // all.
        let _ = if to_stderr {
            std::io::stderr().lock().write_all(&line)
        } else {
            let mut out = std::io::stdout().lock();
            out.write_all(&line).and_then(|()| out.flush())
        };
    }
}

fn words_of(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let words = line.trim();
    (!words.is_empty()).then(|| words.chars().take(WORDS_MAX).collect())
}

fn said_by(rank: usize, to_stderr: bool, line: &[u8]) -> Option<Said> {
    if rank != 0 || to_stderr {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?.trim_end();
    if line == READY_LINE {
        return Some(Said::Ready);
    }
    if let Some(blame) = line.strip_prefix(NOT_STARTED_LINE) {
        let (ranks, why) = blame.split_once(' ')?;
        let ranks = ranks.split(',').filter_map(|rank| rank.parse().ok()).collect();
        return Some(Said::NotStarted { ranks, why: why.to_owned() });
    }
    line.strip_prefix(PORT_LINE)?.parse().ok().map(Said::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rank_0_speaks_to_the_starter() {
        let port = format!("{PORT_LINE}17700\n");
        assert_eq!(said_by(0, false, port.as_bytes()), Some(Said::Port(17_700)));
        assert_eq!(said_by(0, false, format!("{READY_LINE}\n").as_bytes()), Some(Said::Ready));
        let blame = format!("{NOT_STARTED_LINE}1,3 they are late\n");
        let why = "they are late".to_owned();
        let said = Said::NotStarted { ranks: vec![1, 3], why };
        assert_eq!(said_by(0, false, blame.as_bytes()), Some(said));
        let nobody = format!("{NOT_STARTED_LINE} it is so\n");
        let said = Said::NotStarted { ranks: Vec::new(), why: "it is so".to_owned() };
        assert_eq!(said_by(0, false, nobody.as_bytes()), Some(said));
        assert_eq!(said_by(1, false, port.as_bytes()), None);
        assert_eq!(said_by(0, true, port.as_bytes()), None);
        assert_eq!(said_by(0, false, b"chunkcomm: \xFF"), None);
    }
}
