//! Counts the words of text files on the nodes of a cluster:
//!
//! ```text
//! cargo run --release --example wordcount -- --nodes 3 README.md crates
//! mpiexec.hydra -n 4 target/release/examples/wordcount README.md
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::wordcount`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::wordcount::run()
}
