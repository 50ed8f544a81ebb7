//! Fuzz targets for what parses bytes that come from elsewhere. A target is a function that takes
//! any bytes and panics when a promise is broken; two things call it:
//!
//! - `cargo run --bin smoke`: some thousand random and mutated inputs by a seed, on the stable
//!   toolchain, in seconds. CI runs this.
//! - `cargo +nightly fuzz run --features libfuzzer packet`: coverage-guided, for as long as one likes
//!   (needs `cargo install cargo-fuzz`, the nightly toolchain and a C++ compiler).

pub mod address;
pub mod codec;
pub mod hello;
pub mod link;
pub mod packet;

/// A target, by its name.
pub struct Target {
    /// The name of its module.
    pub name: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 5] = [
    Target { name: "packet", run: packet::run, seeds: packet::seeds },
    Target { name: "link", run: link::run, seeds: link::seeds },
    Target { name: "hello", run: hello::run, seeds: hello::seeds },
    Target { name: "codec", run: codec::run, seeds: codec::seeds },
    Target { name: "address", run: address::run, seeds: address::seeds },
];
