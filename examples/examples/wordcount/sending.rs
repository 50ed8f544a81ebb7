//! The lines on their way from the files to the counting processes.

use std::error::Error;
use std::path::PathBuf;

use chunkcomm::{Sender, host};
use chunkcomm_examples::program::on_a_thread;
use chunkcomm_examples::thread::Thread;

use super::Failure;
use super::text::{self, Sent, TextError};

type Broken = Box<dyn Error + Send + Sync>;

/// Work of reading a byte and of sending its line on a virtual host: measured as the time of
/// copying lines, 1 ns a byte, and as much again assumed for the rest.
const READ_NANOS_PER_BYTE: u64 = 2;

/// Sends each line of the files to one of `to`, in turn, and ends the streams. Reading blocks, so a
/// thread does it. When a process has failed meanwhile, the thread is not waited for.
pub(crate) async fn send(
    files: Vec<PathBuf>,
    mut to: Vec<Sender<String>>,
) -> Result<Sent, Failure> {
    if host::is_virtual() {
        return send_all_read(&files, to).await;
    }
    let reading = on_a_thread(move || {
        let mut turn = (0..to.len()).cycle();
        let sent = text::all_lines(&files, |line| {
            let next = turn.next().unwrap_or(0);
            to[next].blocking_send(&line.to_owned()).map_err(Broken::from)
        });
        sent.map(|sent| (sent, to))
    });
    let (sent, to) = reading.await?.map_err(|broken| -> Failure { broken })?;
    end(sent, to).await
}

/// Sends as [`send`] does, from a virtual host: its time does not pass while a thread waits. All lines
/// are read first.
async fn send_all_read(files: &[PathBuf], mut to: Vec<Sender<String>>) -> Result<Sent, Failure> {
    let mut lines = Vec::new();
    let sent = text::all_lines(files, |line| {
        lines.push(line.to_owned());
        Ok::<_, TextError>(())
    })?;
    let (mut turn, thread) = ((0..to.len()).cycle(), Thread::default());
    for line in &lines {
        thread.work(|| READ_NANOS_PER_BYTE * line.len() as u64).await;
        to[turn.next().unwrap_or(0)].send(line).await?;
    }
    end(sent, to).await
}

/// Ends the streams when all lines have arrived, and counts their packets.
async fn end(mut sent: Sent, to: Vec<Sender<String>>) -> Result<Sent, Failure> {
    for mut lines in to {
        lines.sync().await?;
        sent.packets += lines.stats().packets;
    }
    Ok(sent)
}
