//! Workers as processes and threads of a real machine; a simulation has neither.

use std::pin::{Pin, pin};
use std::process;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use chunkcomm_cluster::Registry;
use chunkcomm_cluster::launch;
use tokio::runtime::Builder;

use crate::compute::while_aside;
use crate::error::STATUS_STOPPED;
use crate::name::WorkerName;
use crate::settings::{FARM_NAME, NodeSettings};
use crate::worker::{Farmer, Post, Stopped, work};

/// Waits for a future on this thread, which steps aside meanwhile.
pub(crate) fn wait_blocking<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while_aside(thread::park);
    }
}

struct Unparks(thread::Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Serves the farm that started this process, and ends the process when the farm is done.
///
/// Returns at once in a process that no farm started. Call it first thing in `main`, with the
/// registry that the farmer uses. Worker processes are copies of the program with the same
/// arguments, and go no further than this call. Each runs all of `main` before the call: open and
/// write nothing there. Each makes the captures of a registered closure anew.
///
/// A worker that cannot go on prints the reason to stderr and ends with status 69. At the signal
/// `SIGUSR1` a worker prints [`Node::explain`](chunkcomm::Node::explain) there and goes on. A
/// worker's standard input is empty; its output and stderr are the farmer's.
pub fn serve_if_started(registry: &Registry) {
    let Some(settings) = std::env::var_os(NodeSettings::VARIABLE) else {
        return;
    };
    let Some(place) = launch::child() else {
        return;
    };
    let first = std::env::var(FIRST_INDEX).ok().and_then(|text| text.parse::<usize>().ok());
    let index = first.unwrap_or_default() + place.index;
    let stopped = match settings.to_string_lossy().parse::<NodeSettings>() {
        Ok(settings) => {
            let (farmer, token) = (Farmer::At(place.parent), place.token);
            let farm = FARM_NAME.to_owned();
            let post = Post { farmer, index, token, farm, settings, threads: 1, explains: true };
            serve_on_own_thread(&post, registry)
        }
        Err(error) => Err(Stopped(error.to_string())),
    };
    match stopped {
        Ok(()) => process::exit(0),
        Err(error) => {
            eprintln!("{} stops: {error}", WorkerName::process(index, process::id()));
            process::exit(STATUS_STOPPED);
        }
    }
}

/// Name of the environment variable with the index of the first worker process: in model A
/// the farmer's own worker comes before it.
pub(crate) const FIRST_INDEX: &str = "CHUNKCOMM_FARM_FIRST";

/// Works on a new thread, since a runtime cannot be entered inside the caller's.
fn serve_on_own_thread(post: &Post, registry: &Registry) -> Result<(), Stopped> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("farm-worker".into())
            .spawn_scoped(scope, || work_blocking(post, registry))?;
        worker.join().unwrap_or_else(|_| Err(Stopped("the worker panicked".into())))
    })
}

/// Works on a runtime of this thread's own, until the farmer is done.
pub(crate) fn work_blocking(post: &Post, registry: &Registry) -> Result<(), Stopped> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // On the heap, since `block_on` of any other future compiles all of its code three times.
    let work: Pin<Box<dyn Future<Output = _>>> = Box::pin(work(post, registry));
    runtime.block_on(work)
}
