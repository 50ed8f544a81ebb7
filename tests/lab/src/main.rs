//! `lab`: real faults, with node processes on this machine, a proxy between them, and signals.
//!
//! Each scenario runs the library as a user would, exposes it to faults of networks and machines,
//! and reports which of the library's promises held. A seed decides the faults, their places and
//! times. The machine's reaction does not follow from it: two runs of a seed are alike, but not the
//! same.
//!
//! Reading order: [`chunkcomm_testkit::proxy`] (faults of connections), [`node`] and [`processes`] (both sides of a
//! node process) with [`protocol`] (their words), [`checks`] (a receiver's checks), then the scenarios: [`cuts`], [`stop`],
//! [`resumes`], [`idle_links`], [`slow`], [`corrupt`], [`namespaces`], [`farm`],
//! [`farmer`], [`subfarmers`], and [`cli`].

pub mod checks;
pub mod cli;
pub mod corrupt;
pub mod cuts;
pub mod farm;
pub mod farmer;
pub mod idle_links;
pub mod namespaces;
pub mod node;
pub mod processes;
pub mod protocol;
pub mod resumes;
pub mod slow;
pub mod stop;
pub mod subfarmers;

use std::process::ExitCode;
use std::time::Duration;

use chunkcomm_bench::cli::run_program;
use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::near::Setting;
use chunkcomm_bench::harness::protocol::Place;
use chunkcomm_bench::table::Row;
use chunkcomm_cluster::Registry;
use chunkcomm_farm::serve_if_started;
use chunkcomm_proto::random::Random;
use chunkcomm_testkit::proxy::{Direction, Proxy};
use serde_json::Value;

use self::processes::Process;
use self::protocol::{Collected, Outcome, Work};

fn main() -> ExitCode {
    // Workers of a farm are copies of this program: they part from it here.
    let mut functions = Registry::new();
    farm::register(&mut functions);
    serve_if_started(&functions);
    run_program(|cli| cli::run(&cli))
}

/// Place of the node processes, and the source of a scenario's faults.
#[derive(Debug, Clone)]
pub struct Lab {
    /// Place and settings, as for measurements.
    pub place: Place,
    /// Silence of a peer after which its session is given up for dead.
    pub dead: Duration,
    /// Delay that still counts as in time, for timers and a busy machine.
    pub late_max: Duration,
    /// Seed of the faults and of the bytes of all messages.
    pub seed: u64,
    /// Generator of the seed's numbers.
    pub random: Random,
}

impl Lab {
    /// Makes the lab that the options ask for.
    pub fn new(setting: &Setting, seed: u64, dead: Duration, late_max: Duration) -> Self {
        let place = setting.place("127.0.0.1");
        Self { place, dead, late_max, seed, random: Random::new(seed) }
    }

    /// Returns a random time between zero and twice `mean`.
    fn about(&mut self, mean: Duration) -> Duration {
        Duration::from_nanos(self.random.below(2 * mean.as_nanos() as u64 + 1))
    }

    /// Returns the longest time until stopped work, or work of a dead session, ends; after that it
    /// hangs. Twice the dead time, for either side, and the time of closing.
    fn ended(&self) -> Duration {
        2 * self.dead + 2 * self.late_max + Duration::from_secs(5)
    }

    /// Starts two node processes, a link between them, and the proxy that the link passes.
    ///
    /// # Errors
    /// If a process does not start.
    pub async fn pair(&self) -> Result<Pair, Failure> {
        self.pair_apart(Duration::ZERO).await
    }

    /// As `pair`, with a time of `delay` for each byte from one process to the other.
    ///
    /// # Errors
    /// If a process does not start.
    pub async fn pair_apart(&self, delay: Duration) -> Result<Pair, Failure> {
        let mut dialler = Process::start(self, 0).await?;
        let mut acceptor = Process::start(self, 1).await?;
        let target = acceptor.listen().await?;
        let proxy = Proxy::start_apart(target, delay).doing("starting the proxy")?;
        let (dialled, met) = tokio::join!(dialler.dial(1, &proxy.address), acceptor.meet(1));
        dialled.and(met)?;
        Ok(Pair { dialler, acceptor, proxy, ended: self.ended() })
    }
}

/// Two node processes with one link.
pub struct Pair {
    /// The process that dialled.
    pub dialler: Process,
    /// The process that was dialled.
    pub acceptor: Process,
    /// The proxy that the link passes.
    pub proxy: Proxy,
    ended: Duration,
}

/// Outcomes of both ends of a stream.
#[derive(Debug)]
pub struct Stream {
    /// Its sender.
    pub sent: Outcome,
    /// Its receiver.
    pub taken: Outcome,
}

impl Pair {
    /// Begins a saturated stream in each of the directions.
    ///
    /// # Errors
    /// If a process is gone.
    pub async fn begin(&mut self, directions: &[Direction], bytes: usize) -> Result<(), Failure> {
        for &direction in directions {
            let channel = format!("{direction:?}").to_lowercase();
            let (from, to) = match direction {
                Direction::Forth => (&mut self.dialler, &mut self.acceptor),
                Direction::Back => (&mut self.acceptor, &mut self.dialler),
            };
            let taken = channel.clone();
            let work = Work::Consume { channel: taken, bytes, rate: None, silences: true };
            to.work(work).await?;
            from.work(Work::Produce { channel, bytes }).await?;
        }
        Ok(())
    }

    /// Ends the streams that `begin` began and returns their outcomes; `None` if something hangs.
    ///
    /// # Errors
    /// If a process is gone.
    pub async fn end(
        &mut self,
        directions: &[Direction],
        promises: &mut Promises,
    ) -> Result<Option<Vec<Stream>>, Failure> {
        self.dialler.stop().await?;
        self.acceptor.stop().await?;
        let (dialler, acceptor) =
            tokio::join!(self.dialler.collect(self.ended), self.acceptor.collect(self.ended));
        let (dialler, acceptor) = (dialler?, acceptor?);
        for (side, collected) in [("that dialled", &dialler), ("that was dialled", &acceptor)] {
            promises.hold(collected.is_some(), || {
                format!(
                    "the node {side} still waits {} s after it was stopped",
                    self.ended.as_secs()
                )
            });
            promises.no_panic(collected.as_ref());
        }
        let (Some(dialler), Some(acceptor)) = (dialler, acceptor) else { return Ok(None) };
        let both = dialler.outcomes.into_iter().zip(acceptor.outcomes);
        let streams =
            directions.iter().zip(both).map(|(direction, (dialler, acceptor))| match direction {
                Direction::Forth => Stream { sent: dialler, taken: acceptor },
                Direction::Back => Stream { sent: acceptor, taken: dialler },
            });
        Ok(Some(streams.collect()))
    }
}

/// Findings of a scenario: the broken promises.
#[derive(Debug, Default)]
pub struct Promises {
    broken: Vec<String>,
}

impl Promises {
    /// Notes a promise if it was not held.
    pub fn hold(&mut self, held: bool, otherwise: impl FnOnce() -> String) {
        if !held {
            self.broken.push(otherwise());
        }
    }

    /// Whether all promises were held.
    pub fn are_held(&self) -> bool {
        self.broken.is_empty()
    }

    /// Checks that no thread of a process has panicked.
    pub fn no_panic(&mut self, collected: Option<&Collected>) {
        let panics = collected.map_or(0, |collected| collected.panics);
        self.hold(panics == 0, || format!("{panics} panics in a node process"));
    }

    /// Checks a stream: nothing was lost, repeated, reordered or changed.
    pub fn exactly_once(&mut self, stream: &Stream) {
        let Stream { sent, taken } = stream;
        for (who, error) in [("sender", &sent.error), ("receiver", &taken.error)] {
            let text = || error.as_ref().map_or_else(String::new, |error| error.text.clone());
            self.hold(error.is_none(), || format!("the {who} ended with an error: {}", text()));
        }
        self.hold(taken.fault.is_none(), || format!("a message was wrong: {:?}", taken.fault));
        self.hold(taken.messages > 0, || "nothing was delivered".to_owned());
        if sent.error.is_none() && taken.error.is_none() && taken.fault.is_none() {
            self.hold(sent.messages == taken.messages, || {
                format!("{} messages were sent and {} came", sent.messages, taken.messages)
            });
        }
    }

    /// Checks a stream that ended with its session: both ends know, and the account is true.
    pub fn both_know(&mut self, stream: &Stream) {
        let Stream { sent, taken } = stream;
        self.told(&sent.error, "sender");
        self.told(&taken.error, "receiver");
        self.hold(taken.fault.is_none(), || format!("a message was wrong: {:?}", taken.fault));
        let account = sent.error.as_ref().and_then(|error| error.account);
        if let Some((accepted, acknowledged)) = account {
            self.hold((acknowledged..=accepted).contains(&taken.messages), || {
                format!(
                    "of {accepted} messages {acknowledged} were said to be acknowledged, and {} \
                     came",
                    taken.messages
                )
            });
        }
    }

    /// Checks that an end whose session is dead got an error with the peer's name. A sender's error
    /// has an account too.
    pub fn told(&mut self, error: &Option<protocol::Ended>, who: &str) {
        let Some(error) = error else {
            self.hold(false, || format!("the {who} did not learn that the session is dead"));
            return;
        };
        self.hold(!error.peer.is_empty() && error.text.contains(&error.peer), || {
            format!("the {who}'s error does not name its peer: {}", error.text)
        });
        self.hold(who != "sender" || error.account.is_some(), || {
            format!("the sender's error gives no account: {}", error.text)
        });
    }

    /// Prints the broken promises on standard error, and puts them into the row.
    pub fn report(&self, row: &mut Row) {
        for broken in &self.broken {
            eprintln!("lab: promise broken: {broken}");
        }
        let broken: Vec<Value> =
            self.broken.iter().map(|text| Value::from(text.as_str())).collect();
        row.set("broken", Value::Array(broken));
    }
}
