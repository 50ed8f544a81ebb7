//! The thread of its own that a node may drive its links on.

use super::accepting::AcceptTable;
use crate::driver::clock;
use crate::error::NodeError;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread waits so long for its links to end.
const IO_THREAD_LINGER: Duration = Duration::from_secs(5);

/// The thread of `io_thread`: a runtime of its own that ends after the node,
/// once its links have ended.
pub(super) struct IoThread {
    pub(super) handle: Handle,
    table: Arc<OnceLock<Arc<AcceptTable>>>,
    end: Option<oneshot::Sender<()>>,
}

impl IoThread {
    pub(super) fn start() -> Result<IoThread, NodeError> {
        let system = |error| NodeError::System(Arc::new(error));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system)?;
        let handle = runtime.handle().clone();
        let table = Arc::new(OnceLock::<Arc<AcceptTable>>::new());
        let (end, ended) = oneshot::channel();
        let watched = Arc::clone(&table);
        thread::Builder::new()
            .name("chunkcomm-io".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let _ = ended.await;
                    if let Some(table) = watched.get() {
                        let here = Handle::current();
                        let _ = clock::within(&here, IO_THREAD_LINGER, table.all_ended()).await;
                    }
                });
            })
            .map_err(system)?;
        Ok(IoThread { handle, table, end: Some(end) })
    }

    pub(super) fn watch(&self, table: &Arc<AcceptTable>) {
        let _ = self.table.set(Arc::clone(table));
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
    }
}
