//! The unit tests of the programs, which cargo would compile once for each program.

#![allow(dead_code, unreachable_pub)]

#[path = "../examples/mandelbrot/main.rs"]
mod mandelbrot;
#[path = "../examples/raytracer/main.rs"]
mod raytracer;
#[path = "../examples/wordcount/main.rs"]
mod wordcount;
