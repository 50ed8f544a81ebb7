//! Frame of a program that runs as a cluster: runs its work to the end, and reports why it failed.

use std::error::Error;
use std::pin::Pin;
use std::process::ExitCode;

use chunkcomm::with_causes;
use chunkcomm_cluster::cluster::JoinError;
use chunkcomm_cluster::cluster::launch::HostsError;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Exit status of a wrong command line.
const STATUS_USAGE: u8 = 2;

/// Runs the program of this name to its end on this thread; prints to standard error why it failed.
pub fn run_program(
    name: &str,
    program: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> ExitCode {
    run(name, Builder::new_current_thread(), Box::pin(program))
}

/// Runs a program as [`run_program`] does, with a thread for each processor for its tasks.
pub fn run_program_on_threads(
    name: &str,
    program: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> ExitCode {
    run(name, Builder::new_multi_thread(), Box::pin(program))
}

/// A program on the heap: `block_on` of any other future compiles all of its code three times.
type Boxed<'a> = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>> + 'a>>;

fn run(name: &str, mut runtime: Builder, program: Boxed<'_>) -> ExitCode {
    let runtime = runtime.enable_all().build();
    match runtime.map_err(Box::<dyn Error>::from).and_then(|runtime| runtime.block_on(program)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(name, &*error),
    }
}

/// Prints to standard error why the program of this name failed. Returns its exit status: 2 where
/// the hosts file is wrong, as for a wrong option.
pub fn failed(name: &str, error: &(dyn Error + 'static)) -> ExitCode {
    // In one piece, since other nodes write there, too.
    let line = format!("{name}: {}\n", with_causes(error));
    eprint!("{line}");
    match error.downcast_ref() {
        Some(JoinError::Hosts(
            HostsError::Read { .. } | HostsError::Line { .. } | HostsError::Slots { .. },
        )) => ExitCode::from(STATUS_USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// Runs a long computation on a new thread, so that this one goes on sending signs of life to the
/// other nodes. When nobody waits any more, the thread does not keep the program from ending.
///
/// # Errors
/// The thread could not be started, or panicked.
pub async fn on_a_thread<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<dyn Error>> {
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("computes".to_owned()).spawn(move || {
        // A failed send means that nobody waits any more.
        let _ = done.send(what());
    })?;
    Ok(outcome.await.map_err(|_| "a thread has panicked")?)
}
