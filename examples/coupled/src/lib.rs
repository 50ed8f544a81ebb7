//! Parts that several of the programs share, those that rustfft makes long to compile, [`models`]: the
//! idioms of older systems, to copy from, and [`patterns`]: nodes in a chain or a ring, which `chunkperf` measures.

pub mod by_policy;
pub mod fourier;
pub mod models;
pub mod patterns;
pub mod signals;
