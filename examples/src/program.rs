//! What the `main` of a program that runs as a cluster does: its work to the end, and why it failed.

use std::error::Error;
use std::process::ExitCode;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// Runs the program of this name to its end on this thread; says on standard error why it failed.
pub fn run_program(
    name: &str,
    program: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> ExitCode {
    run(name, Builder::new_current_thread(), program)
}

/// As [`run_program`], with a thread for each processor for the tasks that it spawns.
pub fn run_program_on_threads(
    name: &str,
    program: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> ExitCode {
    run(name, Builder::new_multi_thread(), program)
}

fn run(
    name: &str,
    mut runtime: Builder,
    program: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> ExitCode {
    let runtime = runtime.enable_all().build();
    match runtime.map_err(Box::<dyn Error>::from).and_then(|runtime| runtime.block_on(program)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Does what takes long on a thread, so that this one goes on telling the other nodes that it is
/// there. When nobody waits any more the thread is left to itself, which does not keep the program.
///
/// # Errors
/// The thread could not be started, or panicked.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Box<dyn Error>> {
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("computes".to_owned()).spawn(move || {
        // Nobody may wait any more.
        let _ = done.send(what());
    })?;
    Ok(outcome.await.map_err(|_| "a thread has panicked")?)
}

/// An error and what caused it in one line, for people.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
