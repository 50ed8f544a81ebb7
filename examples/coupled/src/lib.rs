//! Parts that several of the programs share, and those that rustfft makes long to compile.

pub mod by_policy;
pub mod fourier;
pub mod signals;
