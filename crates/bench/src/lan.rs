//! The network between the nodes of a measurement: this machine's, or a virtual one.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::options::Common;

/// Options of commands whose nodes may be virtual.
#[derive(Debug, Clone, Args)]
pub struct LanArgs {
    /// Network between the nodes: real is this machine's, virtual:NAME or virtual:FILE one in virtual
    /// time, on which each node is a host
    #[arg(long, default_value = "real", value_parser = lan)]
    pub lan: String,
    /// Write the timeline of a virtual LAN to this file, for Perfetto or Chrome, and print how busy
    /// its hosts and wires were
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Run on a virtual LAN twice, and name the first delivery that differs
    #[arg(long)]
    pub check: bool,
}

impl LanArgs {
    /// The preset or the file of a virtual LAN; `None` for the real one.
    #[must_use]
    pub fn spec(&self) -> Option<&str> {
        self.lan.strip_prefix("virtual:")
    }

    /// Refuses options that have no meaning on this network.
    ///
    /// # Errors
    /// If there is one.
    pub fn check(&self, common: &Common) -> Result<(), Failure> {
        if self.spec().is_some() {
            return common.check_virtual();
        }
        if self.trace.is_some() || self.check {
            return Err(Failure::Refused(
                "--trace and --check need virtual time: allowed with --lan virtual:NAME".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Parses the network between the nodes: real, or virtual with a preset's name or a file's path.
///
/// # Errors
/// A text that says what is allowed.
pub(crate) fn lan(text: &str) -> Result<String, String> {
    match text.strip_prefix("virtual:") {
        None if text == "real" => Ok(text.to_owned()),
        Some(spec) if !spec.is_empty() && cfg!(feature = "virtual") => Ok(text.to_owned()),
        Some(spec) if !spec.is_empty() => {
            Err("virtual time needs a build with the feature: cargo \
            run --release -p chunkcomm-bench --features virtual --bin chunkperf -- ..."
                .to_owned())
        }
        _ => Err("allowed are real, virtual:NAME and virtual:FILE".to_owned()),
    }
}

#[cfg(feature = "virtual")]
pub use world::{Ran, load, run, run_world};

#[cfg(feature = "virtual")]
mod world {
    use std::fs;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use chunkcomm::with_causes;
    use chunkcomm_cluster::{Cluster, ClusterConfig};
    use chunkcomm_simulation::{Network, Report, Simulation, WorldSpec, check, run_within};

    use super::LanArgs;
    use crate::failure::{Doing, Failure};
    use crate::table::Row;

    /// Virtual time after which a run counts as hung: ten days.
    const LIMIT: Duration = Duration::from_secs(10 * 24 * 3600);

    /// Virtual time in which all nodes must have ended.
    const END_DEADLINE: Duration = Duration::from_secs(600);

    /// Seed of the runs.
    const SEED: u64 = 1;

    /// World of this program, besides the presets.
    const ONE_CORE: (&str, &str) =
        ("lan-1g-one-core", include_str!("../worlds/lan-1g-one-core.toml"));

    /// Most spans of a timeline: 100 MB.
    const SPANS_MAX: usize = 1_000_000;

    /// Results of a program of virtual hosts, and what the run took.
    #[derive(Debug)]
    pub struct Ran<R> {
        /// Results by rank.
        pub results: Vec<R>,
        /// Virtual seconds until all nodes were members.
        pub joined_seconds: f64,
        /// Real seconds of the run, of both where it was checked.
        pub real_seconds: f64,
        /// The virtual time, the digest and the timeline.
        pub report: Report,
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
                .set("lan", args.lan.as_str())
                .set("virtual_seconds", self.report.time.as_secs_f64())
                .set("real_seconds", self.real_seconds)
                .set("steps", self.report.steps)
                .set("steps_per_second", self.report.steps as f64 * runs / self.real_seconds)
                .set("digest", format!("{:016x}", self.report.digest))
                .print(json);
            if let (false, Some(timeline)) = (json, &self.report.timeline) {
                print!("\n{}", timeline.to_table());
            }
        }
    }

    /// Returns the world of a preset, of this program or of a file.
    ///
    /// # Errors
    /// If there is no such world.
    pub fn load(spec: &str) -> Result<WorldSpec, Failure> {
        let world = match ONE_CORE {
            (name, text) if name == spec => {
                Ok(WorldSpec::from_toml(text).expect("a test reads it"))
            }
            _ => chunkcomm_simulation::load(spec),
        };
        world.map_err(|error| {
            Failure::Refused(format!("--lan virtual:{spec}: {}", with_causes(&error)))
        })
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
        run_world(args, &load(spec)?, count, program)
    }

    /// As [`run`], on the hosts of this world.
    ///
    /// # Errors
    /// If a program fails, or with `--check` a second run differs.
    pub fn run_world<R, F>(
        args: &LanArgs,
        world: &WorldSpec,
        count: usize,
        program: impl Fn(Cluster) -> F + Clone + Send + 'static,
    ) -> Result<Ran<R>, Failure>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
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
            (results, simulation.report())
        };
        let began = Instant::now();
        let (results, report) = if args.check {
            check(network, programs).doing("comparing two runs")?
        } else {
            let hung = || Failure::broken("running in virtual time", "ten days passed");
            run_within(network(), LIMIT, programs).ok_or_else(hung)?
        };
        let real_seconds = began.elapsed().as_secs_f64();
        let results = results.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let (joined, results): (Vec<Duration>, _) = results.into_iter().unzip();
        if let (Some(path), Some(timeline)) = (&args.trace, &report.timeline) {
            let doing = format!("writing the timeline to {}", path.display());
            fs::write(path, timeline.to_trace_json()).doing(&doing)?;
        }
        Ok(Ran {
            results,
            joined_seconds: joined.iter().max().map_or(0.0, Duration::as_secs_f64),
            real_seconds,
            report,
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
        assert_eq!(lan("real"), Ok("real".to_owned()));
        for wrong in ["", "virtual", "virtual:", "real:x", "other:x"] {
            assert!(lan(wrong).is_err(), "{wrong}");
        }
        #[cfg(feature = "virtual")]
        {
            let mut one_core = chunkcomm_simulation::WorldSpec::preset("lan-1g").unwrap();
            one_core.hosts[0].spec.cores = 1;
            assert_eq!(load("lan-1g-one-core").unwrap(), one_core);
            assert!(load("moon").is_err_and(|it| it.to_string().contains("nor a preset")));
        }
        match lan("virtual:lan-1g") {
            Ok(text) => assert!(cfg!(feature = "virtual") && text == "virtual:lan-1g"),
            Err(told) => assert!(told.contains("--features virtual"), "{told}"),
        }
    }
}
