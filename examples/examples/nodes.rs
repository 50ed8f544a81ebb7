//! Prints the nodes of a cluster and how far they are from rank 0:
//!
//! ```text
//! cargo run --release --example nodes -- --nodes 4
//! mpiexec.hydra -n 4 target/release/examples/nodes
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::nodes`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::nodes::run()
}
