//! Frame of a program that runs as a cluster: runs its work to the end, and reports why it failed.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::process::{ExitCode, Termination};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm::with_causes;
use chunkcomm_cluster::cluster::JoinError;
use chunkcomm_cluster::launch::LaunchError;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::cluster_options::ClusterOptions;
use crate::lan::{self, Refused};
use crate::page;

/// Exit status of a wrong command line.
const STATUS_USAGE: u8 = 2;

/// Runs the program of this name to its end on this thread: once on the real LAN, and once for each
/// host of a virtual one. Prints to standard error why it failed.
pub fn run_program<T, F>(name: &str, options: &ClusterOptions, program: impl Fn() -> F) -> ExitCode
where
    T: Termination + 'static,
    F: Future<Output = Result<T, Box<dyn Error>>> + 'static,
{
    run_on_lan(name, options, &|| boxed(program()))
}

/// Runs a program of the real LAN as [`run_program`] does, with a thread for each processor for its
/// tasks.
pub fn run_program_on_threads(
    name: &str,
    program: impl Future<Output = Result<(), Box<dyn Error>>> + 'static,
) -> ExitCode {
    let done = run(Builder::new_multi_thread(), boxed(program));
    done.unwrap_or_else(|error| failed(name, &*error))
}

/// Makes a running program.
pub(crate) type Program<'a> = &'a dyn Fn() -> Running;

/// A running program on the heap: `block_on` of any other future compiles all of its code three
/// times.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<ExitCode, Box<dyn Error>>>>>;

fn boxed<T, F>(program: F) -> Running
where
    T: Termination + 'static,
    F: Future<Output = Result<T, Box<dyn Error>>> + 'static,
{
    Box::pin(async { Ok(program.await?.report()) })
}

fn run_on_lan(name: &str, options: &ClusterOptions, program: Program<'_>) -> ExitCode {
    let checked = options.check_lan().and_then(|()| page::want(options));
    let done = match (checked, options.lan.spec()) {
        (Err(refused), _) => Err(refused.into()),
        (Ok(()), None) => run(Builder::new_current_thread(), program()),
        (Ok(()), Some(spec)) => lan::run(name, spec, options, program),
    };
    page::end();
    done.unwrap_or_else(|error| failed(name, &*error))
}

fn run(mut runtime: Builder, program: Running) -> Result<ExitCode, Box<dyn Error>> {
    runtime.enable_all().build()?.block_on(program)
}

/// Prints to standard error why the program of this name failed. Returns its exit status: 2 where
/// the hosts file or the LAN is wrong, as for a wrong option.
pub fn failed(name: &str, error: &(dyn Error + 'static)) -> ExitCode {
    // In one piece, since other nodes write there, too.
    let line = format!("{name}: {}\n", with_causes(error));
    eprint!("{line}");
    if error.is::<Refused>() {
        return ExitCode::from(STATUS_USAGE);
    }
    match error.downcast_ref() {
        Some(JoinError::Launch(
            LaunchError::HostsFile { .. }
            | LaunchError::HostsLine { .. }
            | LaunchError::HostsSlots { .. },
        )) => ExitCode::from(STATUS_USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Returns a future, ready at the first SIGTERM or ctrl-c; from now on these do not end the process.
///
/// # Errors
/// The system cannot report signals.
#[cfg(unix)]
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Returns a future that is ready at ctrl-c.
///
/// # Errors
/// None here.
#[cfg(not(unix))]
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            // The system cannot report ctrl-c.
            std::future::pending::<()>().await;
        }
    })
}

/// Runs a long computation on a new thread, so that this one goes on sending signs of life to the
/// other nodes. When nobody waits any more, the thread does not keep the program from ending. On a
/// virtual host a core is busy for the work that the computation declares.
///
/// # Errors
/// The thread could not be started, or panicked.
pub async fn on_a_thread<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<dyn Error>> {
    if host::is_virtual() {
        return Ok(host::compute(Duration::ZERO, what).await);
    }
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("computes".to_owned()).spawn(move || {
        // A failed send means that nobody waits any more.
        let _ = done.send(what());
    })?;
    Ok(outcome.await.map_err(|_| "a thread has panicked")?)
}

/// Runs a computation as [`on_a_thread`] does; returns the time that it took as well.
///
/// # Errors
/// As [`on_a_thread`].
pub async fn timed_on_a_thread<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Duration), Box<dyn Error>> {
    let asked = Instant::now();
    let timed = move || {
        let begun = Instant::now();
        (what(), begun.elapsed())
    };
    let (result, took) = on_a_thread(timed).await?;
    // The clock of a virtual host stands still within a computation.
    Ok((result, if host::is_virtual() { asked.elapsed() } else { took }))
}
