//! The unit tests of the programs, which cargo would compile once for each program.

#![allow(dead_code, unreachable_pub)]
// Two programs share a part of their modules.
#![allow(clippy::duplicate_mod)]

#[path = "../examples/fft2d/convolution.rs"]
mod convolution;
#[path = "../examples/echo/main.rs"]
mod echo;
#[path = "../examples/fft2d/main.rs"]
mod fft2d;
#[path = "../examples/histogram/main.rs"]
mod histogram;
#[path = "../examples/kmeans/main.rs"]
mod kmeans;
#[path = "../../examples/mandelbrot/models.rs"]
mod models;
#[path = "../examples/multiblock/main.rs"]
mod multiblock;
#[path = "../examples/parsort/main.rs"]
mod parsort;
#[path = "../examples/redistribute/main.rs"]
mod redistribute;
#[path = "../examples/multiblock/steering.rs"]
mod steering;
