//! The node that collects the events.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use chunkcomm::{Receiver, TryRecvError};

use super::event::Event;

/// Destination of the events, a line of JSON each.
pub(crate) struct Output {
    to: BufWriter<Box<dyn Write + Send>>,
    name: String,
}

impl Output {
    /// Appends to this file, which is made if there is none.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn file(path: &Path) -> io::Result<Output> {
        let name = path.display().to_string();
        let opened = File::options().append(true).create(true).open(path);
        let file = opened.map_err(|error| named(&name, &error))?;
        Ok(Output { to: BufWriter::new(Box::new(file)), name })
    }

    /// Writes to standard output.
    pub(crate) fn standard() -> Output {
        let name = "standard output".to_owned();
        Output { to: BufWriter::new(Box::new(io::stdout())), name }
    }

    /// Writes nowhere: events are only counted.
    pub(crate) fn nowhere() -> Output {
        Output { to: BufWriter::new(Box::new(io::sink())), name: "nowhere".to_owned() }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let Output { to, name } = self;
        let written = serde_json::to_writer(&mut *to, event).map_err(io::Error::from);
        written.and_then(|()| to.write_all(b"\n")).map_err(|error| named(name, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(|error| named(&self.name, &error))
    }
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Writes events until their stream ends; returns their number. Hands them to the system whenever
/// no further event is there.
///
/// # Errors
/// The service is gone, or events cannot be written. Events that came before are written.
///
/// # Cancel safety
/// When the future is dropped early, every event taken is written or in `output`.
pub(crate) async fn collect(
    events: &mut Receiver<Event>,
    output: &mut Output,
) -> Result<u64, Box<dyn Error>> {
    let mut count = 0;
    loop {
        let event = match events.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Failed(error)) => {
                output.flush()?;
                return Err(error.into());
            }
            Err(_) => {
                output.flush()?;
                events.recv().await?
            }
        };
        let Some(event) = event else { return Ok(count) };
        output.write(&event)?;
        count += 1;
        tokio::task::coop::consume_budget().await;
    }
}
