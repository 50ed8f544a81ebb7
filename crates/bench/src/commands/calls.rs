//! `chunkperf calls`: requests to a service and their answers.

use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::raw_calls::RawCalls;
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::{PolicyKind, RuntimeKind};
use crate::harness::slices::{Contender, Outcome, Plan, Slice, name_of};
use crate::options::{Common, Shorter, values};
use crate::ours::calls::{CallsKind, Form, TRAIT_BYTES, near};
use crate::ours::latency::{self, EchoKind};
use crate::pair;
use crate::peers::against::{self, Opponent, Pairing, Rival, Told};
use crate::peers::{Discipline, PeersDir, System, Task};
use crate::stats::percentile_us;
use crate::table::Row;

/// Options of `chunkperf calls`.
#[derive(Debug, Args)]
pub struct CallsArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    shorter: Shorter,
    /// Encoded bytes of a request, and of an answer; at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
    /// Calls at a time, each by a task of its own
    #[arg(long, value_name = "N", default_value = "256", value_parser = values::in_flight)]
    in_flight: u64,
    /// Form of the service; a trait has messages of 16 bytes
    #[arg(long, value_name = "FORM", default_value = "closure")]
    form: Form,
    /// Calls of all counted slices [default: as many as fill two seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    calls: Option<u64>,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_name = "BASELINE",
          value_parser = against::parser::<Against>(Discipline::Calls))]
    against: Option<Opponent<Against>>,
    #[command(flatten)]
    peers: PeersDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Plain sockets with as many messages in flight.
    Raw,
    /// Our round trip of one message over two channels; the ratio is that of p50.
    Latency,
    /// The same calls of a closure.
    Closure,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &CallsArgs) -> Result<Verdict, Failure> {
    args.check()?;
    let setting = args.common.setting_with(args.shorter)?;
    let plan = Plan::new(args.calls, 4 * args.in_flight, args.against.is_some())?;
    let mut bench = pair::start(&setting)?;
    let node = setting.node(PolicyKind::Chunked);
    let CallsArgs { size: bytes, in_flight, form, .. } = *args;
    let kind = CallsKind { bytes, in_flight, form, node };
    let pairing = Pairing::new(args.against, args.task(), &args.peers, plan);
    let spins = setting.runtime == RuntimeKind::BusyPoll;
    let own = |bench: &mut Bench, own| match own {
        Against::Raw => {
            let raw = RawCalls::open(bench, args.size, args.in_flight, spins)?;
            Ok(Box::new(raw) as Box<dyn Contender>)
        }
        Against::Latency => latency::near(bench, EchoKind::of(args.size, node)),
        Against::Closure => near(bench, CallsKind { form: Form::Closure, ..kind }),
    };
    let (outcome, told) = pairing.run(&mut bench, |bench| near(bench, kind), own)?;
    args.row(&outcome, &told).print(args.common.json);
    Ok(Verdict::Fine)
}

impl CallsArgs {
    fn check(&self) -> Result<(), Failure> {
        if self.form == Form::Trait && self.size != TRAIT_BYTES {
            let text = format!("--form trait needs --size {TRAIT_BYTES}, not {}", self.size);
            return Err(Failure::Refused(text));
        }
        if self.form == Form::Trait && !cfg!(feature = "peers") {
            let text = "--form trait is not in this build: cargo build --release -p chunkcomm-bench --features peers";
            return Err(Failure::Refused(text.to_owned()));
        }
        match self.against {
            Some(Opponent::Own(Against::Raw)) => self.common.needs_sockets("raw"),
            Some(Opponent::Rival(Rival::System(System::Tarpc))) if !cfg!(feature = "peers") => {
                Err(Failure::Refused(
                    "--against tarpc is not in this build: cargo build --release \
                     -p chunkcomm-bench --features peers"
                        .to_owned(),
                ))
            }
            Some(Opponent::Rival(rival)) => rival.check(&self.common),
            _ => Ok(()),
        }
    }

    fn task(&self) -> Task {
        Task {
            discipline: Discipline::Calls,
            bytes: self.size,
            in_flight: self.in_flight,
            first_try: 4 * self.in_flight,
        }
    }

    fn row(&self, outcome: &Outcome, told: &Told) -> Row {
        let samples = outcome.samples_ns();
        let calls = outcome.messages();
        let mut row = self.common.row("calls");
        row.set("payload_bytes", self.size)
            .set("in_flight", self.in_flight)
            .set("form", name_of(self.form))
            .set("calls", calls)
            .set("calls_per_second", calls as f64 / outcome.seconds())
            .set("p50_us", percentile_us(&samples, 50))
            .set("p99_us", percentile_us(&samples, 99))
            .set("cpu_us_per_call", outcome.cpu_us() / calls as f64)
            .set("session", name_of(self.common.session));
        self.shorter.set(&mut row);
        if let Some(stats) = outcome.stats {
            row.set("calls_per_packet", calls as f64 / stats.message_packets_sent as f64);
        }
        if let Some(against) = self.against {
            let ratio = match against {
                Opponent::Own(Against::Latency) => outcome.ratio(Slice::p50_us),
                _ => outcome.ratio(Slice::rate),
            };
            let samples = outcome.baseline_samples_ns();
            set_ratio(&mut row, &against.name(), ratio);
            // Programs of their own do not tell their processor time.
            let cpu_us = Some(outcome.baseline_cpu_us_per_message()).filter(|us| *us > 0.0);
            row.set("baseline_calls_per_second", outcome.baseline_rate())
                .set("baseline_p50_us", percentile_us(&samples, 50))
                .set("baseline_p99_us", percentile_us(&samples, 99))
                .set("baseline_cpu_us_per_call", cpu_us);
        }
        told.set(&mut row);
        row
    }
}
