//! The node's own thread for driving its links.

use super::accepting::AcceptTable;
use crate::descriptors::with_limit;
use crate::driver::clock;
use crate::driver::wakers::locked;
use crate::error::NodeError;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Most time that the thread waits for its links to end: 5 s.
const IO_THREAD_LINGER: Duration = Duration::from_secs(5);

/// Most time that the end of a node waits for the thread's links: 100 ms. After it `main` may return,
/// which ends the thread. Where peers answer, accepted messages leave within this time.
const END_WAIT_MAX: Duration = Duration::from_millis(100);

/// Most time that the end of a node waits until the thread runs and knows of it: 1 s. That takes
/// microseconds where a processor is free.
const HEARD_MAX: Duration = Duration::from_secs(1);

/// The thread of `io_thread`. Its runtime ends after the node, once the node's links have ended.
pub(super) struct IoThread {
    pub(super) handle: Handle,
    table: Arc<OnceLock<Arc<AcceptTable>>>,
    end: Option<oneshot::Sender<()>>,
    /// Has a word when the thread knows that it is to end; closed when it has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: ThreadId,
}

impl IoThread {
    pub(super) fn start() -> Result<IoThread, NodeError> {
        let system = |error| NodeError::System(Arc::new(with_limit(error)));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system)?;
        let handle = runtime.handle().clone();
        let table = Arc::new(OnceLock::<Arc<AcceptTable>>::new());
        let (end, ended) = oneshot::channel();
        let watched = Arc::clone(&table);
        let (ends, has_ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new()
            .name("chunkcomm-io".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let _ = ended.await;
                    let _ = ends.send(());
                    if let Some(table) = watched.get() {
                        let here = Handle::current();
                        let _ = clock::within(&here, IO_THREAD_LINGER, table.all_ended()).await;
                    }
                });
            })
            .map_err(system)?;
        let thread = thread.thread().id();
        Ok(IoThread { handle, table, end: Some(end), ended: Mutex::new(has_ended), thread })
    }

    pub(super) fn watch(&self, table: &Arc<AcceptTable>) {
        let _ = self.table.set(Arc::clone(table));
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
            if thread::current().id() != self.thread {
                let ended = locked(&self.ended);
                if ended.recv_timeout(HEARD_MAX).is_ok() {
                    let _ = ended.recv_timeout(END_WAIT_MAX);
                }
            }
        }
    }
}
