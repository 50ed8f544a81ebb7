//! The unit tests of the program, which would otherwise not be compiled as a program, too.

#![allow(dead_code, unreachable_pub)]

#[path = "../examples/telemetry/main.rs"]
mod telemetry;
