//! Sends items to another node and back, by nodes that gather messages and by nodes that do not:
//!
//! ```text
//! cargo run --release --example echo
//! cargo run --release --example echo -- --items 100000 --words 1,8,64
//! mpiexec.hydra -n 4 target/release/examples/echo
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::echo`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::echo::run()
}
