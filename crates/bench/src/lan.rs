//! The network between the nodes of a measurement: this machine's, or a virtual one.

use std::fmt;
use std::str::FromStr;

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
    use std::time::{Duration, Instant};

    use chunkcomm::with_causes;
    use chunkcomm_cluster::{Cluster, ClusterConfig};
    use chunkcomm_simulation::load;

    use crate::failure::{Doing, Failure};

    /// Virtual time after which a run counts as hung: ten days.
    const LIMIT: Duration = Duration::from_secs(10 * 24 * 3600);

    /// Virtual time in which all nodes must have ended.
    const END_DEADLINE: Duration = Duration::from_secs(600);

    /// Seed of the runs.
    const SEED: u64 = 1;

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
        /// Real seconds of the run.
        pub real_seconds: f64,
    }

    /// Runs `program` on each of `count` hosts of a virtual LAN, as a member of a cluster.
    ///
    /// # Errors
    /// If there is no such LAN, or a program fails; the first by rank is reported.
    pub fn run<R, F>(
        spec: &str,
        count: usize,
        program: impl Fn(Cluster) -> F + Clone + Send + 'static,
    ) -> Result<Ran<R>, Failure>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send,
    {
        let world = load(spec).map_err(|error| {
            Failure::Refused(format!("--lan virtual:{spec}: {}", with_causes(&error)))
        })?;
        let (network, hosts) = world.build(SEED, count);
        let began = Instant::now();
        let done = chunkcomm_simulation::run_within(network, LIMIT, async |simulation| {
            simulation.set_work_of(&world);
            let programs = simulation.launch(&hosts, |_| {
                let (program, simulation) = (program.clone(), simulation.clone());
                async move {
                    let config = ClusterConfig::new().ready_within(END_DEADLINE);
                    let cluster = Cluster::join(config).await.doing("joining the cluster")?;
                    let joined = simulation.now();
                    let result = program(cluster.clone()).await?;
                    cluster.end(END_DEADLINE).await.doing("ending the cluster")?;
                    Ok((joined, result))
                }
            });
            let mut results = Vec::new();
            for ended in programs {
                results.push(ended.await.doing("running a virtual program")?);
            }
            let virtual_seconds = simulation.now().as_secs_f64();
            let digest = simulation.with(|network, _| network.digest());
            Ok::<_, Failure>((results, digest, virtual_seconds))
        });
        let hung = || Failure::broken("running in virtual time", "ten days passed");
        let (results, digest, virtual_seconds) = done.ok_or_else(hung)??;
        let results = results.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        let (joined, results): (Vec<Duration>, _) = results.into_iter().unzip();
        let joined_seconds = joined.iter().max().map_or(0.0, Duration::as_secs_f64);
        let real_seconds = began.elapsed().as_secs_f64();
        Ok(Ran { results, digest, joined_seconds, virtual_seconds, real_seconds })
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
