//! Collectives that flow, beside whole messages and calls, in a group of processes or of virtual hosts.

mod tree;

use std::mem;
use std::time::Instant;

use chunkcomm_cluster::Cluster;
use chunkcomm_coupled::patterns::{Compute, Pass, source_of};
use chunkcomm_group::{Algorithm, Group, Op};
use chunkcomm_pipeline::{DeltaEnd, DeltaReceiver, DeltaSender, Flow, GroupDeltas, Increment};

use self::tree::Tree;
use super::collective::{OursKind, end_cluster, join_cluster};
use crate::failure::{Doing, Failure};
use crate::harness::flows::{FlowKind, FlowPattern, FlowWay};
use crate::harness::ranks::{Control, Player};
use crate::harness::runtime;
use crate::stats::median;

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a transfer fails.
pub async fn serve(
    port: u16,
    rank: usize,
    kind: FlowKind,
    way: FlowWay,
    ours: OursKind,
) -> Result<(), Failure> {
    let cluster = join_cluster(ours.runtime).await?;
    let nodes = kind.nodes;
    let mut member = Member::join(&cluster, kind, way).await?;
    let (mut control, _) = Control::report(port, rank, 0, nodes).await?;
    let served = control.serve(&mut member).await;
    drop(member);
    served?;
    end_cluster(cluster).await
}

/// Takes part in the cluster of the environment, by each of these ways; returns the median seconds of a
/// run by each at rank 0.
///
/// # Errors
/// If a transfer fails, or an element is wrong.
pub fn member(
    kind: &FlowKind,
    ours: &OursKind,
    ways: &[FlowWay],
    runs: u64,
) -> Result<Option<Vec<f64>>, Failure> {
    runtime::start(ours.threads)?.block_on(async {
        let cluster = join_cluster(ours.runtime).await?;
        let mut medians = Vec::new();
        for &way in ways {
            let mut member = Member::join(&cluster, kind.clone(), way).await?;
            let mut seconds = Vec::new();
            for call in 0..=runs {
                member.fill(call).await?;
                member.meet().await?;
                let started = Instant::now();
                member.call().await?;
                member.meet().await?;
                seconds.push(started.elapsed().as_secs_f64());
                member.is_right(call).await?;
            }
            // The first run opens windows.
            medians.push(median(&seconds[1..]));
        }
        let is_first = cluster.rank() == 0;
        end_cluster(cluster).await?;
        Ok(is_first.then_some(medians))
    })
}

/// One rank of the group with its arrays.
pub(crate) struct Member {
    group: Group,
    kind: FlowKind,
    op: Op<f32>,
    /// Input of the computing; the array itself where nothing is written.
    source: Vec<f32>,
    ends: Ends,
    /// Computation of a rank on elements that it got.
    result: Vec<f32>,
    has_begun: bool,
    expected: Vec<f32>,
}

/// Transfers of the elements; set up once.
enum Ends {
    Whole(Tree),
    /// The array of the calls.
    Calls(Vec<f32>),
    Delta {
        input: Option<DeltaSender<f32>>,
        output: Option<DeltaReceiver<f32>>,
    },
}

impl Member {
    /// Joins the group of all members, and sets up what carries the elements.
    pub(crate) async fn join(
        cluster: &Cluster,
        kind: FlowKind,
        way: FlowWay,
    ) -> Result<Self, Failure> {
        let mut group = Group::world(cluster).await.doing("making the group")?;
        let rank = group.rank();
        let op = Op::sum();
        let op = if kind.gamma_ns > 0.0 { op.declared(kind.gamma_ns) } else { op };
        let source = if kind.gives(rank) { source_of(rank, kind.len()) } else { Vec::new() };
        let ends = match way {
            FlowWay::Whole => Ends::Whole(Tree::grow(&group, &kind).await?),
            FlowWay::Calls => {
                let gives = !source.is_empty();
                Ends::Calls(if gives { source.clone() } else { vec![0.0; kind.len()] })
            }
            FlowWay::Delta => flow(&mut group, &kind, &source, op.clone()).await?,
        };
        let computes_after = kind.pattern == FlowPattern::Broadcast && rank > 0 && kind.writes();
        let result = if computes_after { vec![f32::NAN; kind.len()] } else { Vec::new() };
        let (has_begun, expected) = (false, Vec::new());
        Ok(Self { group, kind, op, source, ends, result, has_begun, expected })
    }

    /// Returns the elements that this rank got, or computed from them.
    fn found(&self) -> &[f32] {
        if !self.result.is_empty() {
            return &self.result;
        }
        match &self.ends {
            Ends::Whole(tree) => tree.found(),
            Ends::Calls(array) => array,
            Ends::Delta { output, .. } => output.as_ref().map_or(&[], DeltaReceiver::landed),
        }
    }

    fn pass(&self) -> Pass {
        Pass::over(self.kind.compute, self.kind.len())
    }

    /// Computes on `input` all at once.
    async fn compute_after(&mut self) {
        let gets = self.kind.pattern == FlowPattern::Broadcast && self.group.rank() > 0;
        if !gets || self.kind.compute == Compute::Empty {
            return;
        }
        let mut result = mem::take(&mut self.result);
        let input = self.found();
        self.pass().apply(input, 0..self.kind.len(), &mut result).await;
        self.result = result;
    }

    async fn by_calls(&mut self) -> Result<(), Failure> {
        let doing = "calling";
        let Ends::Calls(array) = &mut self.ends else { return Ok(()) };
        let mut array = mem::take(array);
        if self.kind.gives(self.group.rank()) {
            self.pass().apply(&self.source, 0..self.kind.len(), &mut array).await;
        }
        if self.kind.pattern != FlowPattern::Broadcast {
            array = self.group.reduce(0, array, self.op.clone()).await.doing(doing)?;
        }
        if self.kind.pattern != FlowPattern::Reduce {
            array = self.group.broadcast(0, array).await.doing(doing)?;
        }
        self.ends = Ends::Calls(array);
        self.compute_after().await;
        Ok(())
    }

    async fn by_whole(&mut self) -> Result<(), Failure> {
        let pass = self.pass();
        let Ends::Whole(tree) = &mut self.ends else { return Ok(()) };
        if self.kind.gives(self.group.rank()) {
            tree.reduce(&self.kind, &self.source, pass).await?;
        }
        if self.kind.pattern != FlowPattern::Reduce {
            tree.broadcast().await?;
        }
        self.compute_after().await;
        Ok(())
    }

    async fn by_delta(&mut self) -> Result<(), Failure> {
        let pass = self.pass();
        let Ends::Delta { input, output } = &mut self.ends else { return Ok(()) };
        if let Some(input) = input {
            produce(input, &self.source, &self.kind, pass).await?;
        } else if let (Some(output), FlowPattern::Broadcast) = (&mut *output, self.kind.pattern) {
            consume(output, &mut self.result, &self.kind, pass).await?;
        }
        if let Some(output) = output {
            output.finish().await.doing("receiving in increments")?;
        }
        match input {
            Some(input) => input.finish().await.doing("sending in increments"),
            None => Ok(()),
        }
    }
}

impl Player for Member {
    async fn fill(&mut self, _call: u64) -> Result<(), Failure> {
        let has_begun = mem::replace(&mut self.has_begun, true);
        match &mut self.ends {
            Ends::Whole(tree) => tree.start(has_begun).await,
            Ends::Calls(array) => {
                if !self.kind.writes() && self.kind.gives(self.group.rank()) {
                    array.copy_from_slice(&self.source);
                }
                Ok(())
            }
            Ends::Delta { input, output } if has_begun => {
                if let Some(output) = output {
                    output.start().await.doing("starting to receive")?;
                }
                match input {
                    Some(input) => input.start().await.doing("starting to send"),
                    None => Ok(()),
                }
            }
            Ends::Delta { .. } => Ok(()),
        }
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.group.barrier().await.doing("meeting in a barrier")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        match &self.ends {
            Ends::Whole(_) => self.by_whole().await,
            Ends::Calls(_) => self.by_calls().await,
            Ends::Delta { .. } => self.by_delta().await,
        }
    }

    async fn is_right(&mut self, _call: u64) -> Result<bool, Failure> {
        if !self.kind.gets(self.group.rank()) {
            return Ok(true);
        }
        if self.expected.is_empty() {
            self.expected = self.kind.expected();
        }
        match self.kind.first_wrong(&self.expected, self.found()) {
            None => Ok(true),
            Some(index) => {
                let (found, expected) = (self.found().get(index), self.expected.get(index));
                let cause = format!("element {index} is {found:?}, not {expected:?}");
                Err(Failure::broken("verifying an array", cause))
            }
        }
    }
}

/// Sets the collective up whose elements flow.
async fn flow(
    group: &mut Group,
    kind: &FlowKind,
    source: &[f32],
    op: Op<f32>,
) -> Result<Ends, Failure> {
    let doing = "setting up what flows";
    group.set_algorithm(kind.algorithm.parse().doing("understanding the algorithm")?);
    let flow = Flow::default().increment(Increment::Fixed(kind.delta_bytes));
    let data = if source.is_empty() { vec![f32::NAN; kind.len()] } else { source.to_vec() };
    let (input, output) = match kind.pattern {
        FlowPattern::Reduce => {
            let ends = group.reduce_delta(0, data, op, flow).await.doing(doing)?;
            (Some(ends.operand), ends.result)
        }
        FlowPattern::Broadcast => match group.broadcast_delta(0, data, flow).await.doing(doing)? {
            DeltaEnd::Sender(input) => (Some(input), None),
            DeltaEnd::Receiver(output) => (None, Some(output)),
        },
        FlowPattern::AllReduce => {
            let ends = group.all_reduce_delta(data, op, flow).await.doing(doing)?;
            (Some(ends.operand), Some(ends.result))
        }
    };
    group.set_algorithm(Algorithm::Auto);
    Ok(Ends::Delta { input, output })
}

/// Computes the array and commits each increment.
async fn produce(
    input: &mut DeltaSender<f32>,
    source: &[f32],
    kind: &FlowKind,
    mut pass: Pass,
) -> Result<(), Failure> {
    let doing = "sending in increments";
    while let Some(mut chunk) = input.next(kind.grain()).doing(doing)? {
        pass.apply(source, chunk.range(), &mut chunk).await;
        chunk.commit().await.doing(doing)?;
    }
    Ok(())
}

/// Computes on the elements as they land.
async fn consume(
    output: &mut DeltaReceiver<f32>,
    result: &mut [f32],
    kind: &FlowKind,
    mut pass: Pass,
) -> Result<(), Failure> {
    let (mut start, mut end) = (0, 0);
    let computes = kind.compute != Compute::Empty;
    while let Some(part) = output.next().await.doing("receiving in increments")? {
        end += part.len();
        while computes && start < end {
            let range = start..end.min(start + kind.grain());
            start = range.end;
            let chunk = result.get_mut(range.clone()).unwrap_or_default();
            pass.apply(output.landed(), range, chunk).await;
            // The runtime may take bytes that have arrived.
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
