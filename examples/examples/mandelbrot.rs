//! Renders the Mandelbrot set with a farm of worker processes:
//!
//! ```text
//! cargo run --release --example mandelbrot -- --help
//! ```
//!
//! The program is the library's module [`chunkcomm_examples::mandelbrot`].

fn main() -> std::process::ExitCode {
    chunkcomm_examples::mandelbrot::run()
}
