//! Tests that cross the crates.

pub mod farm_tasks;
