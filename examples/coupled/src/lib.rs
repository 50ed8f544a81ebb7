//! Parts that several of the programs share, those that rustfft makes long to compile, and [`models`]: the
//! idioms of older systems, to copy from.

pub mod by_policy;
pub mod fourier;
pub mod models;
pub mod signals;
