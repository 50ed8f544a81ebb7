//! Tasks that belong to the process that spawns them.

#[cfg(not(feature = "simulation"))]
use real::here_at;
#[cfg(not(feature = "simulation"))]
pub use real::{Here, here};
#[cfg(feature = "simulation")]
use simulated::here_at;
#[cfg(feature = "simulation")]
pub use simulated::{Here, here};

#[cfg(feature = "simulation")]
use crate::transport::world::Process;
use crate::transport::{BoxFuture, Home};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError};

#[cfg(feature = "simulation")]
pub mod panics;

/// Handle of a task. Awaited, it returns the task's output, or [`JoinError`] if the task panicked or was
/// aborted. The task goes on when the handle is dropped.
///
/// As tokio's, except in a simulation: a panic of a task whose handle is not awaited fails the run.
#[derive(Debug)]
pub struct JoinHandle<T> {
    task: tokio::task::JoinHandle<T>,
    /// None where the task runs on a real machine.
    #[cfg(feature = "simulation")]
    witness: Option<panics::Witness>,
}

impl<T> JoinHandle<T> {
    /// Ends the task where it waits, if it has not ended.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Returns a handle that can only abort the task.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        self.task.abort_handle()
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.task).poll(context);
        #[cfg(feature = "simulation")]
        if let (Poll::Ready(Err(_)), Some(witness)) = (&polled, &self.witness) {
            witness.saw();
        }
        polled
    }
}

/// Whether the program runs in a simulation.
#[must_use]
pub fn is_virtual() -> bool {
    #[cfg(feature = "simulation")]
    let is_virtual = crate::transport::world::is_entered();
    #[cfg(not(feature = "simulation"))]
    let is_virtual = false;
    is_virtual
}

/// Spawns a task of the process that is `home`.
pub(crate) fn spawn_at<F>(runtime: &Handle, home: Home, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn_here(runtime, here_at(home, future))
}

/// Spawns a task of the present process on `runtime`.
pub fn spawn_on<F>(runtime: &Handle, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn_here(runtime, here(future))
}

/// Spawns a task that is seldom polled. A runtime's code for a task is compiled anew for each type
/// of future: some 1,100 lines of LLVM's input. Behind a pointer they have one type.
pub(crate) fn spawn_boxed(runtime: &Handle, future: BoxFuture<'static, ()>) -> JoinHandle<()> {
    spawn_on(runtime, future)
}

/// Spawns a task of the present process on the current runtime.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn_here(&Handle::current(), here(future))
}

fn spawn_here<F>(runtime: &Handle, future: Here<F>) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    #[cfg(feature = "simulation")]
    if is_virtual() {
        return panics::spawn_watched(future, |task| runtime.spawn(task));
    }
    JoinHandle {
        task: runtime.spawn(future),
        #[cfg(feature = "simulation")]
        witness: None,
    }
}

#[cfg(not(feature = "simulation"))]
mod real {
    use crate::transport::Home;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    pin_project_lite::pin_project! {
        /// A future of the process that made it.
        #[derive(Debug)]
        pub struct Here<F> {
            #[pin]
            future: F,
        }
    }

    /// Lets `future` run as a part of the present process, whichever task polls it.
    pub fn here<F: Future>(future: F) -> Here<F> {
        Here { future }
    }

    pub(super) fn here_at<F: Future>(_home: Home, future: F) -> Here<F> {
        Here { future }
    }

    impl<F: Future> Future for Here<F> {
        type Output = F::Output;

        #[inline]
        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
            self.project().future.poll(context)
        }
    }
}

#[cfg(feature = "simulation")]
mod simulated {
    use crate::transport::Home;
    use crate::transport::world::{self, Process};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    pin_project_lite::pin_project! {
        /// A future of the process that made it.
        #[derive(Debug)]
        pub struct Here<F> {
            process: Option<Process>,
            // Taken when this is dropped.
            #[pin]
            future: Option<F>,
        }

        impl<F> PinnedDrop for Here<F> {
            fn drop(this: Pin<&mut Self>) {
                let mut this = this.project();
                // The drop of the future is a part of its process.
                let _within = this.process.map(Process::enter);
                this.future.set(None);
            }
        }
    }

    impl Process {
        /// Makes a future a part of this process, whichever task polls it.
        pub fn owned<F: Future>(self, future: F) -> Here<F> {
            Here { process: Some(self), future: Some(future) }
        }
    }

    impl<F> Here<F> {
        pub(super) fn process(&self) -> Option<Process> {
            self.process
        }
    }

    /// Lets `future` run as a part of the present process, whichever task polls it.
    pub fn here<F: Future>(future: F) -> Here<F> {
        Here { process: world::current_process(), future: Some(future) }
    }

    pub(super) fn here_at<F: Future>(home: Home, future: F) -> Here<F> {
        Here { process: home.process(), future: Some(future) }
    }

    impl<F: Future> Future for Here<F> {
        type Output = F::Output;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
            let this = self.project();
            let future = this.future.as_pin_mut().expect("it is there until it is dropped");
            match *this.process {
                // A process that has ended does nothing more.
                Some(process) => process.run(|| future.poll(context)).unwrap_or(Poll::Pending),
                None => future.poll(context),
            }
        }
    }
}
