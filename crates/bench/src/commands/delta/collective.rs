//! Collectives that flow, beside whole messages along a tree and beside calls.

#[cfg(feature = "virtual")]
mod forms;

#[cfg(feature = "virtual")]
use chunkcomm_coupled::patterns::auto_delta_bytes;
use chunkcomm_group::Algorithm;

use clap::Args;

use super::{Against, DeltaArgs, Measured, median_seconds};
#[cfg(feature = "virtual")]
use crate::commands::collective::world::{Times, WARM_UP_CALLS, once, seconds_of};
use crate::commands::{Verdict, set_ratio};
use crate::failure::Failure;
use crate::harness::flows::{FlowKind, FlowPattern, FlowWay};
use crate::harness::protocol::Transport;
use crate::harness::ranks::Ranks;
use crate::harness::slices::{Plan, Side, Slice, Slices, alternate, name_of};
#[cfg(feature = "virtual")]
use crate::lan::{LanArgs, Ran};
use crate::options::computing::nanoseconds;
use crate::options::values;
#[cfg(feature = "virtual")]
use crate::options::values::Auto;
use crate::ours::collective::OursKind;
#[cfg(feature = "virtual")]
use crate::ours::flows::Member;
use crate::ours::flows::member;
use crate::ranks::{Work, start};
use crate::table::Row;

/// Most ranks on this machine: more would measure its scheduler.
const RANKS_MAX: usize = 64;

/// Slices of each side: an array of 64 MiB takes a second with its computing.
const SLICES: usize = 10;

/// Counted runs of a member of a cluster.
const MEMBER_RUNS: u64 = 3;

/// Options of collectives.
#[derive(Debug, Args)]
pub(super) struct FlowArgs {
    /// Way in which a collective flows; auto is the one of the least modelled time
    #[arg(long, value_name = "NAME|auto", default_value = "auto", value_parser = values::algorithm)]
    algorithm: Algorithm,
    /// Nanoseconds of virtual time in which a collective combines a byte
    #[arg(long, value_name = "NS", default_value = "0", value_parser = nanoseconds)]
    gamma: f64,
    /// Take part in a collective as a member of the cluster that the environment names; rank 0 prints
    /// the row
    #[arg(long)]
    member: bool,
}

/// Runs the command.
pub(super) fn run(
    args: &DeltaArgs,
    pattern: FlowPattern,
    nodes: usize,
) -> Result<Verdict, Failure> {
    #[cfg(feature = "virtual")]
    if let Some(spec) = args.lan.spec() {
        return args.collective_virtually(spec, pattern, nodes);
    }
    let setting = args.common.setting()?;
    let kind = args.flow_kind(pattern, nodes, args.delta_bytes(nodes));
    let (runtime, threads) = (setting.runtime, setting.threads);
    let ours = OursKind { runtime, threads, algorithm: args.flow.algorithm.to_string() };
    if args.flow.member {
        return args.take_part(&kind, &ours);
    }
    let plan = Plan::cut(
        args.repeat,
        1,
        args.against.is_some(),
        Slices { given: Some(SLICES), fine: false },
    )?;
    let begin = |way| start(&Work::Flow { ours: ours.clone(), way, kind: kind.clone() });
    let mut delta = begin(FlowWay::Delta)?;
    let mut beside = |way| {
        let mut other = begin(way)?;
        alternate(&plan, Side::against(true), |side, count| match side {
            Side::Baseline => slice(&mut other, count.messages),
            _ => slice(&mut delta, count.messages),
        })
    };
    let whole = beside(FlowWay::Whole)?;
    let calls = args.against.map(|_| beside(FlowWay::Calls)).transpose()?;
    let seconds = [median_seconds(&whole.baseline), median_seconds(&whole.ours)];
    let mut row = args.flow_row(&kind, seconds);
    row.set("speedup", whole.ratio(Slice::rate).median);
    if let Some(calls) = &calls {
        set_ratio(&mut row, &name_of(Against::Calls), calls.ratio(Slice::rate));
        row.set("baseline_bytes_per_second", calls.baseline_rate() * args.bytes as f64);
    }
    row.print(args.common.json);
    Ok(Verdict::Fine)
}

/// Runs a collective `count` times.
fn slice(ranks: &mut Ranks, count: u64) -> Result<Slice, Failure> {
    Ok(Slice::timed(count, ranks.run(count, 1)?))
}

/// Runs a collective by each of these ways on a virtual LAN; returns the virtual seconds of each.
///
/// # Errors
/// If there is no such LAN, a program fails, or an element is wrong.
#[cfg(feature = "virtual")]
pub(crate) fn timed(
    lan: &LanArgs,
    spec: &str,
    kind: &FlowKind,
    ways: &[FlowWay],
) -> Result<(Vec<f64>, Ran<Times>), Failure> {
    let (count, of_all) = (ways.len(), (kind.clone(), ways.to_vec()));
    let ran = crate::lan::run(lan, spec, kind.nodes, move |cluster| {
        let (kind, ways) = of_all.clone();
        async move {
            let mut times = Vec::new();
            for way in ways {
                let mut member = Member::join(&cluster, kind.clone(), way).await?;
                for call in 0..WARM_UP_CALLS {
                    once(&mut member, call).await?;
                }
                times.push(once(&mut member, WARM_UP_CALLS).await?);
            }
            Ok(times)
        }
    })?;
    Ok((seconds_of(&ran.results, count), ran))
}

impl DeltaArgs {
    fn flow_kind(&self, pattern: FlowPattern, nodes: usize, delta_bytes: usize) -> FlowKind {
        FlowKind {
            pattern,
            nodes,
            bytes: self.bytes,
            delta_bytes,
            compute: self.compute(),
            gamma_ns: self.flow.gamma,
            algorithm: self.flow.algorithm.to_string(),
        }
    }

    /// Runs each way on a virtual LAN, the closed forms beside them.
    #[cfg(feature = "virtual")]
    fn collective_virtually(
        &self,
        spec: &str,
        pattern: FlowPattern,
        nodes: usize,
    ) -> Result<Verdict, Failure> {
        let delta_bytes = match self.delta {
            Auto::Fixed(bytes) => bytes,
            // By the costs of the world.
            Auto::Auto => {
                let (compute, bytes) = (self.compute(), self.bytes);
                let of_host = move || auto_delta_bytes(compute, nodes, bytes);
                crate::lan::run(&self.lan, spec, 1, move |_| async move { Ok(of_host()) })?.results
                    [0]
            }
        };
        let kind = self.flow_kind(pattern, nodes, delta_bytes);
        let mut ways = vec![FlowWay::Whole, FlowWay::Delta];
        ways.extend(self.against.map(|_| FlowWay::Calls));
        let (seconds, ran) = timed(&self.lan, spec, &kind, &ways)?;
        let mut row = self.flow_row(&kind, [seconds[0], seconds[1]]);
        if let Some(calls) = seconds.get(2) {
            row.set("baseline", name_of(Against::Calls))
                .set("ratio", calls / seconds[1])
                .set("baseline_bytes_per_second", self.bytes as f64 / calls);
        }
        let forms = forms::Forms::of(&crate::lan::load(spec)?, &kind);
        let [whole, delta] = forms
            .map_or([None; 2], |forms| [Some(forms.whole()), forms.delta(self.flow.algorithm)]);
        let error = |form: Option<f64>, seconds: f64| form.map(|form| (seconds / form - 1.0).abs());
        let errors = error(whole, seconds[0]).zip(error(delta, seconds[1]));
        row.set("whole_form_seconds", whole)
            .set("form_seconds", delta)
            .set("form_error", errors.map(|(whole, delta)| whole.max(delta)));
        ran.print(row, &self.lan, self.common.json);
        Ok(Verdict::Fine)
    }

    /// Takes part as a member of the cluster of the environment.
    fn take_part(&self, kind: &FlowKind, ours: &OursKind) -> Result<Verdict, Failure> {
        let runs = self.repeat.unwrap_or(MEMBER_RUNS);
        let mut ways = vec![FlowWay::Whole, FlowWay::Delta];
        ways.extend(self.against.map(|_| FlowWay::Calls));
        let Some(seconds) = member(kind, ours, &ways, runs)? else { return Ok(Verdict::Fine) };
        let mut row = self.flow_row(kind, [seconds[0], seconds[1]]);
        if let Some(calls) = seconds.get(2) {
            row.set("baseline", name_of(Against::Calls)).set("ratio", calls / seconds[1]);
        }
        row.print(self.common.json);
        Ok(Verdict::Fine)
    }

    /// Returns the row of these seconds, whole and in deltas.
    fn flow_row(&self, kind: &FlowKind, [whole_seconds, delta_seconds]: [f64; 2]) -> Row {
        let measured = Measured {
            delta_bytes: kind.delta_bytes,
            whole_seconds,
            overlap: None,
            delta_seconds,
            speedup: whole_seconds / delta_seconds,
            processors: None,
        };
        let mut row = self.row(kind.nodes, &measured);
        row.set("algorithm", self.flow.algorithm.name()).set("gamma_ns", self.flow.gamma);
        row
    }

    /// Refuses options that collectives do not have, or they alone have.
    pub(super) fn check_collective(&self, nodes: usize) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Refused(why.to_owned()));
        let alone =
            self.flow.algorithm != Algorithm::Auto || self.flow.gamma > 0.0 || self.flow.member;
        if self.pattern.collective().is_none() {
            return match self.against {
                Some(Against::Calls) => {
                    refuse("--against calls is allowed with reduce, broadcast and all-reduce")
                }
                _ if alone => refuse(
                    "--algorithm, --gamma and --member are allowed with reduce, broadcast and all-reduce",
                ),
                _ => Ok(()),
            };
        }
        if self.independent.is_some() || !matches!(self.against, None | Some(Against::Calls)) {
            return refuse(
                "a collective has no independent computing, and of --against calls alone",
            );
        }
        if self.lan.spec().is_some() {
            return match self.flow.member {
                true => refuse("--member is a real node: allowed with --lan real"),
                false => Ok(()),
            };
        }
        self.common.needs_session("a collective")?;
        if !matches!(self.common.transport, Transport::Tcp | Transport::Tls) {
            return refuse("the nodes of a collective meet over TCP: tcp and tls are allowed");
        }
        if nodes > RANKS_MAX {
            return refuse("--nodes: on this machine a collective has up to 64 nodes");
        }
        match self.flow.gamma {
            0.0 => Ok(()),
            _ => refuse("--gamma declares virtual time: allowed with --lan virtual:NAME"),
        }
    }
}
