//! What the `main` of a program that runs as a cluster does: its work to the end, and why it failed.

use std::error::Error;
use std::process::ExitCode;

use tokio::runtime::Builder;

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
