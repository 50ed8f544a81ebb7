//! Tells the programs the versions of the systems that they are built with, from the lock file.

use std::fs;

/// Packages that are the systems themselves.
const PACKAGES: [&str; 4] = ["async-nats", "timely", "tonic", "zenoh"];

fn main() {
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock = fs::read_to_string("Cargo.lock").expect("the lock file is committed");
    for package in PACKAGES {
        let name = format!("name = \"{package}\"");
        let mut after = lock.lines().skip_while(|line| *line != name);
        let version = after.nth(1).and_then(|line| line.split('"').nth(1)).unwrap_or("unknown");
        let key = package.to_uppercase().replace('-', "_");
        println!("cargo:rustc-env=VERSION_{key}={version}");
    }
}
