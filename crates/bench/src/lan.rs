//! The network between the nodes of a measurement: this machine's, or a virtual one.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::cli::Common;
use crate::failure::Failure;

/// Options of commands whose nodes may be virtual.
#[derive(Debug, Clone, Args)]
pub struct LanArgs {
    /// Network between the nodes: real is this machine's, virtual:NAME or virtual:FILE one in virtual
    /// time, on which each node is a host
    #[arg(long, default_value = "real")]
    pub lan: Lan,
    /// Write the timeline of a virtual LAN to this file, for Perfetto or Chrome, and print how busy
    /// its hosts and wires were
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Run on a virtual LAN twice, and name the first delivery that differs
    #[arg(long)]
    pub check: bool,
}

impl LanArgs {
    /// Refuses options that have no meaning on this network.
    ///
    /// # Errors
    /// If there is one.
    pub fn check(&self, common: &Common) -> Result<(), Failure> {
        if self.lan != Lan::Real {
            return common.check_virtual();
        }
        let virtual_only = self.trace.is_some() || self.check;
        if virtual_only && self.lan == Lan::Real {
            return Err(Failure::Refused(
                "--trace and --check need virtual time: allowed with --lan virtual:NAME".to_owned(),
            ));
        }
        Ok(())
    }
}

/// The network between the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lan {
    /// This machine's network.
    Real,
    /// A network of the simulation, in virtual time: a preset's name, or the path of a file.
    Virtual(String),
}

impl FromStr for Lan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "real" => Ok(Self::Real),
            Some(("virtual", spec)) if !spec.is_empty() && cfg!(feature = "virtual") => {
                Ok(Self::Virtual(spec.to_owned()))
            }
            Some(("virtual", spec)) if !spec.is_empty() => Err("virtual time needs a build with \
                the feature: cargo run --release -p chunkcomm-bench --features virtual --bin \
                chunkperf -- ..."
                .to_owned()),
            _ => Err("allowed are real, virtual:NAME and virtual:FILE".to_owned()),
        }
    }
}

impl fmt::Display for Lan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real => f.write_str("real"),
            Self::Virtual(spec) => write!(f, "virtual:{spec}"),
        }
    }
}

#[cfg(feature = "virtual")]
pub use world::{Ran, run};

#[cfg(feature = "virtual")]
mod world {
    use std::fs;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use chunkcomm::with_causes;
    use chunkcomm_cluster::{Cluster, ClusterConfig};
    use chunkcomm_simulation::{Network, Simulation, Timeline, check, load, run_within};

    use super::LanArgs;
    use crate::failure::{Doing, Failure};
    use crate::table::Row;

    /// Virtual time after which a run counts as hung: ten days.
    const LIMIT: Duration = Duration::from_secs(10 * 24 * 3600);

    /// Virtual time in which all nodes must have ended.
    const END_DEADLINE: Duration = Duration::from_secs(600);

    /// Seed of the runs.
    const SEED: u64 = 1;

    /// Most spans of a timeline: 100 MB.
    const SPANS_MAX: usize = 1_000_000;

    /// Results of a program of virtual hosts, and what the run took.
    #[derive(Debug)]
    pub struct Ran<R> {
        /// Results by rank.
        pub results: Vec<R>,
        /// Digest of all deliveries: the same in each run.
        pub digest: u64,
        /// Virtual seconds until all nodes were members.
        pub joined_seconds: f64,
        /// Virtual seconds of the run.
        pub virtual_seconds: f64,
        /// Real seconds of the run, of both where it was checked.
        pub real_seconds: f64,
        /// Steps of the network, of one run.
        pub steps: u64,
        timeline: Option<Timeline>,
    }

    impl<R> Ran<R> {
        /// Adds what every virtual row has, and prints it; then the table of the timeline.
        pub fn print(&self, mut row: Row, args: &LanArgs, json: bool) {
            let runs = if args.check { 2.0 } else { 1.0 };
            if args.check {
                row.set("check", "same");
            }
            row.set("transport", "virtual")
                .set("runtime", "virtual")
                .set("lan", args.lan.to_string())
                .set("virtual_seconds", self.virtual_seconds)
                .set("real_seconds", self.real_seconds)
                .set("steps", self.steps)
                .set("steps_per_second", self.steps as f64 * runs / self.real_seconds)
                .set("digest", format!("{:016x}", self.digest))
                .print(json);
            if let (false, Some(timeline)) = (json, &self.timeline) {
                print!("\n{}", timeline.to_table());
            }
        }
    }

    /// Results of the programs of a run.
    struct Done<R> {
        results: Vec<Result<(Duration, R), Failure>>,
        digest: u64,
        end: Duration,
        steps: u64,
        timeline: Option<Timeline>,
    }

    /// Runs `program` on each of `count` hosts of a virtual LAN, as a member of a cluster.
    ///
    /// # Errors
    /// If there is no such LAN, or a program fails; the first by rank is reported. With `--check`
    /// also if a second run differs.
    pub fn run<R, F>(
        args: &LanArgs,
        spec: &str,
        count: usize,
        program: impl Fn(Cluster) -> F + Clone + Send + 'static,
    ) -> Result<Ran<R>, Failure>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let world = load(spec).map_err(|error| {
            Failure::Refused(format!("--lan virtual:{spec}: {}", with_causes(&error)))
        })?;
        let hosts = Arc::new(Mutex::new(Vec::new()));
        let network = || -> Network {
            let (mut network, made) = world.build(SEED, count);
            *hosts.lock().unwrap_or_else(PoisonError::into_inner) = made;
            if args.trace.is_some() {
                network.keep_timeline(SPANS_MAX);
            }
            network
        };
        let programs = async |simulation: Simulation| {
            let hosts = hosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let tasks = simulation.launch(&hosts, |_| member(simulation.clone(), program.clone()));
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await.doing("running a virtual program").and_then(|it| it));
            }
            let end = simulation.now();
            simulation.with(|network, _| Done {
                results,
                digest: network.digest(),
                end,
                steps: network.steps(),
                timeline: network.timeline(),
            })
        };
        let began = Instant::now();
        let done = if args.check {
            check(network, programs).doing("comparing two runs")?
        } else {
            let hung = || Failure::broken("running in virtual time", "ten days passed");
            run_within(network(), LIMIT, programs).ok_or_else(hung)?
        };
        let real_seconds = began.elapsed().as_secs_f64();
        let results = done.results.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let (joined, results): (Vec<Duration>, _) = results.into_iter().unzip();
        if let (Some(path), Some(timeline)) = (&args.trace, &done.timeline) {
            let doing = format!("writing the timeline to {}", path.display());
            fs::write(path, timeline.to_trace_json()).doing(&doing)?;
        }
        Ok(Ran {
            results,
            digest: done.digest,
            joined_seconds: joined.iter().max().map_or(0.0, Duration::as_secs_f64),
            virtual_seconds: done.end.as_secs_f64(),
            real_seconds,
            steps: done.steps,
            timeline: done.timeline,
        })
    }

    /// Joins the cluster, runs the program and ends; returns the time of the joining as well.
    async fn member<R, F>(
        simulation: Simulation,
        program: impl Fn(Cluster) -> F,
    ) -> Result<(Duration, R), Failure>
    where
        F: Future<Output = Result<R, Failure>>,
    {
        let config = ClusterConfig::new().ready_within(END_DEADLINE);
        let cluster = Cluster::join(config).await.doing("joining the cluster")?;
        let joined = simulation.now();
        let result = program(cluster.clone()).await?;
        cluster.end(END_DEADLINE).await.doing("ending the cluster")?;
        Ok((joined, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lans() {
        assert_eq!("real".parse(), Ok(Lan::Real));
        for wrong in ["", "virtual", "virtual:", "real:x", "other:x"] {
            assert!(wrong.parse::<Lan>().is_err(), "{wrong}");
        }
        let named = "virtual:lan-1g".parse::<Lan>();
        if cfg!(feature = "virtual") {
            assert_eq!(named.unwrap().to_string(), "virtual:lan-1g");
        } else {
            assert!(named.unwrap_err().contains("--features virtual"));
        }
    }
}
