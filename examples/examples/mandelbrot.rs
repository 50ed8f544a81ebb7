//! Renders the Mandelbrot set with a farm of worker processes, or of the nodes of a cluster:
//!
//! ```text
//! cargo run --release --example mandelbrot -- --help
//! mpiexec.hydra -n 4 target/release/examples/mandelbrot
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::mandelbrot`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::mandelbrot::run()
}
