//! The control connection: JSON lines both ways.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::failure::{Doing, Failure};

/// Most bytes of a line: a report with the times of every marked message stays well below.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// One side of a control connection.
///
/// A thread of its own reads the lines, so that a runtime can wait for the next one while it drives
/// the measured connections. The thread sleeps during a slice.
#[derive(Debug)]
pub struct Control {
    writer: Writer,
    lines: UnboundedReceiver<std::io::Result<String>>,
}

struct Writer(Box<dyn Write + Send>);

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Writer")
    }
}

impl Control {
    /// Takes over both directions of a connection.
    pub fn new(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> Self {
        let (into, lines) = unbounded_channel();
        thread::spawn(move || read_lines(reader, &into));
        Self { writer: Writer(Box::new(writer)), lines }
    }

    /// Starts a child whose standard input and output are the connection; `doing` says so in errors.
    ///
    /// # Errors
    /// If the child cannot be started.
    pub fn of_child(mut command: Command, doing: &str) -> Result<(Child, Self), Failure> {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().doing(doing)?;
        let pipes = child.stdout.take().zip(child.stdin.take());
        let (stdout, stdin) = pipes.ok_or_else(|| Failure::broken(doing, "it has no pipes"))?;
        Ok((child, Self::new(stdout, stdin)))
    }

    /// Writes one line.
    ///
    /// # Errors
    /// If the other side is gone.
    pub fn send<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(value).doing("encoding a control line")?;
        line.push(b'\n');
        self.writer.0.write_all(&line).doing("writing to the control connection")?;
        self.writer.0.flush().doing("writing to the control connection")
    }

    /// Closes our direction: the other side then reads the end.
    pub fn close(&mut self) {
        self.writer = Writer(Box::new(std::io::sink()));
    }

    /// Waits for one line; returns `None` when the other side has closed.
    ///
    /// # Errors
    /// If the connection breaks or the line is not a `T`.
    ///
    /// # Cancel safety
    /// A line that has not been returned stays for the next call.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        let Some(line) = self.lines.recv().await else { return Ok(None) };
        let line = line.doing("reading from the control connection")?;
        serde_json::from_str(&line).doing("understanding a control line").map(Some)
    }
}

fn read_lines(reader: impl Read, into: &UnboundedSender<std::io::Result<String>>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_line(&mut line);
        let sent = match read {
            Ok(0) => return,
            Ok(_) => into.send(Ok(line)),
            Err(error) => {
                // The other side learns of the failure by the closed connection.
                let _ = into.send(Err(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::protocol::{Order, Reply, Request};

    #[tokio::test]
    async fn lines_go_both_ways_and_end() {
        let (their_reader, our_writer) = std::io::pipe().unwrap();
        let (our_reader, their_writer) = std::io::pipe().unwrap();
        let mut near = Control::new(our_reader, our_writer);
        let mut far = Control::new(their_reader, their_writer);
        let order = Order { first: 3, messages: 4, mark_every: 0 };
        near.send(&Request::Slice { end: 1, order }).unwrap();
        let request = far.receive::<Request>().await.unwrap();
        assert!(matches!(request, Some(Request::Slice { end: 1, order }) if order.messages == 4));
        far.send(&Reply::Started).unwrap();
        assert!(matches!(near.receive::<Reply>().await, Ok(Some(Reply::Started))));
        drop(far);
        assert!(near.receive::<Reply>().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_line_that_means_nothing_is_an_error() {
        let control_bytes = &b"{\"nonsense\": 1}\n"[..];
        let mut control = Control::new(control_bytes, std::io::sink());
        let error = control.receive::<Request>().await.unwrap_err();
        assert!(error.to_string().contains("understanding"), "{error}");
    }
}
