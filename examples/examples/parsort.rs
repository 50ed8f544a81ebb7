//! Sorts numbers by processes on other nodes, in three ways and by two policies:
//!
//! ```text
//! cargo run --release --example parsort -- --workers 2
//! cargo run --release --example parsort -- --count 5000000 --sweep
//! mpiexec.hydra -n 6 target/release/examples/parsort
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::parsort`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::parsort::run()
}
