//! A chain of nodes that each filter a large array and pass it on: whole buffers against
//! deltas.
//!
//! ```text
//! cargo run --release --example cascade
//! cargo run --release --example cascade -- --nodes 2 --size 64MiB --compute random --delta 128KiB
//! mpiexec.hydra -n 4 target/release/examples/cascade
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::cascade`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::cascade::run()
}
