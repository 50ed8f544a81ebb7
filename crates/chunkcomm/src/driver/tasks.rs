//! Tasks that belong to the host on which they are spawned.

#[cfg(not(feature = "simulation"))]
use real::here_at;
#[cfg(not(feature = "simulation"))]
pub use real::{Here, here};
#[cfg(feature = "simulation")]
use simulated::here_at;
#[cfg(feature = "simulation")]
pub use simulated::{Here, here};

use crate::transport::Home;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Whether the program runs in a simulation.
#[must_use]
pub fn is_virtual() -> bool {
    #[cfg(feature = "simulation")]
    let is_virtual = crate::transport::world::is_entered();
    #[cfg(not(feature = "simulation"))]
    let is_virtual = false;
    is_virtual
}

/// Spawns a task of the host that is `home`.
pub(crate) fn spawn_at<F>(runtime: &Handle, home: Home, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    runtime.spawn(here_at(home, future))
}

/// Spawns a task of the present host on `runtime`.
pub fn spawn_on<F>(runtime: &Handle, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    runtime.spawn(here(future))
}

/// Spawns a task of the present host on the current runtime.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(here(future))
}

#[cfg(not(feature = "simulation"))]
mod real {
    /// A future of the present host.
    pub type Here<F> = F;

    /// Lets `future` run on the present host: on the only one.
    pub fn here<F: Future>(future: F) -> Here<F> {
        future
    }

    pub(super) fn here_at<F: Future>(_home: crate::transport::Home, future: F) -> Here<F> {
        future
    }
}

#[cfg(feature = "simulation")]
mod simulated {
    use crate::transport::world::{self, Process};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    pin_project_lite::pin_project! {
        /// A future of the host on which it was made.
        #[derive(Debug)]
        pub struct Here<F> {
            process: Option<Process>,
            #[pin]
            future: F,
        }
    }

    /// Lets `future` run on the present host, whichever task polls it.
    pub fn here<F: Future>(future: F) -> Here<F> {
        Here { process: world::current_process(), future }
    }

    pub(super) fn here_at<F: Future>(home: crate::transport::Home, future: F) -> Here<F> {
        Here { process: home.host().map(Process::of), future }
    }

    impl<F: Future> Future for Here<F> {
        type Output = F::Output;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
            let this = self.project();
            match *this.process {
                // A process that has ended does nothing more.
                Some(process) => process.run(|| this.future.poll(context)).unwrap_or(Poll::Pending),
                None => this.future.poll(context),
            }
        }
    }
}
