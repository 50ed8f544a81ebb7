//! Fuzz targets for everything that parses bytes from elsewhere. A target is a function that takes
//! any bytes and panics when a promise is broken. There are two ways to run the targets:
//!
//! - `cargo run -p chunkcomm-fuzz --bin smoke`: some thousand random and mutated inputs by a seed, on the stable
//!   toolchain, in seconds. It is also a test.
//! - `./guided packet -runs=10000000`: guided by coverage, on the stable toolchain too, for as long
//!   as one likes (needs g++ for libFuzzer's engine).

pub mod address;
pub mod call;
pub mod codec;
pub mod deeds;
pub mod hello;
pub mod link;
pub mod npy;
pub mod packet;
pub mod session;

/// A target and its name.
pub struct Target {
    /// Name of the target's module.
    pub name: &'static str,
    /// Function that runs the target on one input.
    pub run: fn(&[u8]),
    /// Function that returns inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target { name: "packet", run: packet::run, seeds: packet::seeds },
    Target { name: "session", run: session::run, seeds: session::seeds },
    Target { name: "link", run: link::run, seeds: link::seeds },
    Target { name: "hello", run: hello::run, seeds: hello::seeds },
    Target { name: "codec", run: codec::run, seeds: codec::seeds },
    Target { name: "call", run: call::run, seeds: call::seeds },
    Target { name: "address", run: address::run, seeds: address::seeds },
    Target { name: "npy", run: npy::run, seeds: npy::seeds },
];
