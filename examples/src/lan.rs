//! The network between the nodes of a program: that of the machines, or a virtual one.
//!
//! On a virtual LAN the program runs once for each host, all in this process, in virtual time
//! (`chunkcomm-simulation`, behind the feature `virtual`).

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use clap::Args;

use crate::cluster_options::GROUP;

/// Options of the network.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LanOptions {
    /// Network between the nodes: real is that of the machines; virtual:NAME or virtual:FILE is a
    /// described one, on whose hosts the program runs in virtual time
    #[arg(long, help_heading = GROUP, default_value = "real", value_parser = lan)]
    pub(crate) lan: String,

    /// Write the timeline of a virtual LAN to this file, for Perfetto or Chrome, and print how busy
    /// its hosts and wires were
    #[arg(long, value_name = "FILE", help_heading = GROUP)]
    pub(crate) trace: Option<PathBuf>,
}

impl LanOptions {
    /// The preset or the file of a virtual LAN; `None` for the real one.
    pub(crate) fn spec(&self) -> Option<&str> {
        self.lan.strip_prefix("virtual:")
    }
}

/// Parses the network between the nodes: real, or virtual with a preset's name or a file's path.
fn lan(text: &str) -> Result<String, String> {
    let spec = text.strip_prefix("virtual:");
    if text == "real" || spec.is_some_and(|spec| !spec.is_empty()) {
        return Ok(text.to_owned());
    }
    Err("allowed are real, virtual:NAME and virtual:FILE".to_owned())
}

/// Error of options that do not go together, or of a LAN that there is not.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Refused {}

#[cfg(not(feature = "virtual"))]
pub(crate) use without::run;
#[cfg(feature = "virtual")]
pub(crate) use world::run;

/// A build without the feature.
#[cfg(not(feature = "virtual"))]
mod without {
    use super::{Error, Refused};
    use crate::cluster_options::ClusterOptions;
    use crate::program::Program;

    /// Refuses a virtual LAN.
    pub(crate) fn run<T>(
        name: &str,
        spec: &str,
        _options: &ClusterOptions,
        _program: Program<'_>,
    ) -> Result<T, Box<dyn Error>> {
        Err(Refused(format!(
            "--lan virtual:{spec} needs a build with the feature virtual: cargo run --release \
             --features chunkcomm-examples/virtual --example {name} -- --lan virtual:{spec}"
        ))
        .into())
    }
}

#[cfg(feature = "virtual")]
mod world {
    use std::error::Error;
    use std::fs;
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    use chunkcomm::with_causes;
    use chunkcomm_simulation::{Simulation, load, run_within};

    use super::Refused;
    use crate::cluster_options::ClusterOptions;
    use crate::program::Program;

    /// Virtual time after which a run counts as hung: ten days.
    const LIMIT: Duration = Duration::from_secs(10 * 24 * 3600);

    /// Seed of the runs.
    const SEED: u64 = 1;

    /// Most spans of a timeline: 100 MB.
    const SPANS_MAX: usize = 1_000_000;

    /// Runs the program on each host of a virtual LAN; returns the result of rank 0, or the first
    /// error by rank. Prints the times to standard error.
    ///
    /// # Errors
    /// There is no such LAN, a program failed, or none ended in ten days of virtual time.
    pub(crate) fn run(
        name: &str,
        spec: &str,
        options: &ClusterOptions,
        program: Program<'_>,
    ) -> Result<ExitCode, Box<dyn Error>> {
        let world = load(spec)
            .map_err(|error| Refused(format!("--lan virtual:{spec}: {}", with_causes(&error))))?;
        let count = options.nodes.map_or(world.host_count(), |nodes| nodes as usize);
        let (mut network, hosts) = world.build(SEED, count);
        if options.lan.trace.is_some() {
            network.keep_timeline(SPANS_MAX);
        }
        let began = Instant::now();
        let ran = run_within(network, LIMIT, async |simulation: Simulation| {
            let results = simulation.launch_local(&hosts, |_| program()).await;
            (results, simulation.report())
        });
        let (results, report) =
            ran.ok_or("the programs did not end in ten days of virtual time")?;
        let (end, real) = (report.time.as_secs_f64(), began.elapsed().as_secs_f64());
        let digest = report.digest;
        eprintln!(
            "{name}: {count} hosts of virtual:{spec}, {end:.6} s of virtual time in {real:.3} s, \
             digest {digest:016x}"
        );
        if let (Some(path), Some(timeline)) = (&options.lan.trace, report.timeline) {
            eprint!("\n{}", timeline.to_table());
            let written = fs::write(path, timeline.to_trace_json());
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut codes = Vec::new();
        for result in results {
            codes.push(result??);
        }
        Ok(codes[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lans() {
        for right in ["real", "virtual:lan-1g", "virtual:a file:1"] {
            assert_eq!(lan(right).unwrap(), right);
        }
        for wrong in ["", "virtual", "virtual:", "real:x", "other:x"] {
            assert!(lan(wrong).unwrap_err().contains("allowed"), "{wrong}");
        }
    }
}
