//! The part of one node in one run, whole or in deltas, by its place.

use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::{Node, Peer};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Forward, Increment};

use super::compute::{Compute, Pass, source, source_of};
use super::{Pattern, PatternError, Run, Transfer};

/// Elements that are computed independently before the runtime may send: 64 KiB.
const INDEPENDENT_GRAIN: usize = 16 * 1024;

/// Time that a node computes its result before the runtime may take bytes that have arrived: 50 us, as between
/// two commits of a delta.
const TURN_EVERY: Duration = Duration::from_micros(50);

/// Most kinds of runs whose requests stand at a time: whole, overlapped and in deltas, as one program
/// measures them. Each holds up to two buffers of the size of the array.
const STANDING_MAX: usize = 3;

/// The arrays of one node, and the standing requests that carry them: the first run of a kind sets its
/// requests up, each further one starts their next round.
///
/// ```text
/// source ▶ compute ▶ output ──▶        the first node, and each of a ring
/// ──▶ input ▶ compute ▶ output ──▶     a node between two
/// ──▶ input ▶ compute ▶ result         the last node, and each of a ring
/// ```
///
/// Runs are of one kind if they differ in number, independent computing and verification only. The
/// requests of the last three kinds stand. All nodes of a chain have to take part in the same runs, each
/// with one `Arrays` of its own and the same neighbours.
#[derive(Debug, Default)]
pub struct Arrays {
    /// Index of the node, and number of nodes.
    place: Option<(usize, usize)>,
    source: Vec<f32>,
    result: Vec<f32>,
    /// That of the latest run is the last.
    standing: Vec<Standing>,
}

/// The requests of one kind of run, with the buffers `input` and `output`.
#[derive(Debug)]
struct Standing {
    kind: Run,
    input: Option<DeltaReceiver<f32>>,
    /// The next round of the input was started when the run was prepared.
    is_started: bool,
    output: Option<DeltaSender<f32>>,
    /// In place of an output, where nothing is computed between two nodes.
    forward: Option<Forward>,
}

impl Arrays {
    /// Makes source and result of the node with `index` of `nodes` as long as `run` needs, before its time
    /// is taken. With `run.verify` old results are overwritten by NaN, and elements that landed in earlier runs
    /// are not shown any more, so that none passes for a new one.
    ///
    /// At another place than before, the requests of that place end.
    ///
    /// # Errors
    /// When the transfer of an earlier run of this kind has failed.
    ///
    /// # Cancel safety
    /// When the future is dropped, call it again.
    pub async fn prepare(
        &mut self,
        run: &Run,
        index: usize,
        nodes: usize,
    ) -> Result<(), PatternError> {
        let place = Some((index, nodes));
        if self.place != place {
            *self = Self { place, ..Self::default() };
        }
        let in_ring = run.pattern == Pattern::Ring;
        if (index == 0 || in_ring) && self.source.len() != run.elements {
            self.source = source_of(index, run.elements);
        }
        if (index + 1 == nodes || in_ring) && (run.verify || self.result.len() != run.elements) {
            self.result.clear();
            self.result.resize(run.elements, f32::NAN);
        }
        if run.verify
            && let Some(found) = self.find(run)
        {
            let Standing { input, is_started, .. } = &mut self.standing[found];
            if let Some(input) = input
                && !*is_started
            {
                input.start().await?;
                *is_started = true;
            }
        }
        Ok(())
    }

    /// Returns the elements that the last node, or a node of a ring, computed.
    #[must_use]
    pub fn result(&self, compute: Compute) -> &[f32] {
        let input = self.standing.last().and_then(|standing| standing.input.as_ref());
        if compute.has_result() { &self.result } else { input.map_or(&[], DeltaReceiver::landed) }
    }

    /// Returns the index of the standing requests of such runs.
    fn find(&self, run: &Run) -> Option<usize> {
        let kind = kind_of(run);
        self.standing.iter().position(|standing| standing.kind == kind)
    }

    /// Takes out the requests of such runs, none of them set up if this is the first. They are lost with
    /// a run that fails.
    fn take(&mut self, run: &Run) -> Standing {
        if let Some(found) = self.find(run) {
            return self.standing.remove(found);
        }
        if self.standing.len() == STANDING_MAX {
            self.standing.remove(0);
        }
        Standing { kind: kind_of(run), input: None, is_started: false, output: None, forward: None }
    }
}

/// Returns what is the same in all runs of a kind.
fn kind_of(run: &Run) -> Run {
    Run { number: 0, independent: 0, verify: false, ..run.clone() }
}

/// Runs the first node: computes on its source and sends the result to `next`.
///
/// Returns when `next` has the whole result.
///
/// # Errors
/// When the transfer fails; the requests are then lost.
///
/// # Cancel safety
/// When the future is dropped, the run is broken off and the next node gets a notice.
pub async fn run_head(
    node: &Node,
    next: &Peer,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<(), PatternError> {
    let mut standing = arrays.take(run);
    let source = &arrays.source;
    produce(&mut standing.output, node, next, run, source).await?.finish().await?;
    arrays.standing.push(standing);
    Ok(())
}

/// Runs a node between two: receives, computes, and sends the result to `next`.
///
/// Without compute the node forwards.
///
/// # Errors
/// As [`run_head`].
///
/// # Cancel safety
/// When the future is dropped, the run is broken off and both neighbours see its end.
pub async fn run_middle(
    node: &Node,
    next: &Peer,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<(), PatternError> {
    let mut standing = arrays.take(run);
    let receiver = receive(&mut standing.input, &mut standing.is_started, node, run).await?;
    if !run.compute.has_result() {
        let forward = match &mut standing.forward {
            Some(forward) => forward,
            empty => {
                let channel = run.channel();
                empty.insert(if run.is_whole() {
                    receiver.forward_whole(node, next, &channel).await?
                } else {
                    receiver.forward(node, next, &channel).await?
                })
            }
        };
        receiver.finish().await?;
        forward.finish().await?;
    } else {
        if run.is_whole() {
            receiver.finish().await?;
        }
        let buffer = || vec![f32::NAN; run.elements];
        let sender = send(&mut standing.output, node, next, run, buffer).await?;
        let (mut pass, mut end) = (Pass::new(run), 0);
        while let Some(part) = receiver.next().await? {
            end += part.len();
            compute(sender, receiver.landed(), end, &mut pass, run).await?;
        }
        leave(sender, run).await?;
        sender.finish().await?;
    }
    arrays.standing.push(standing);
    Ok(())
}

/// Runs the last node: receives and computes; the result is in [`Arrays::result`].
///
/// # Errors
/// As [`run_head`].
///
/// # Cancel safety
/// When the future is dropped, the run is broken off and the node before sees its end.
pub async fn run_tail(node: &Node, run: &Run, arrays: &mut Arrays) -> Result<(), PatternError> {
    let mut standing = arrays.take(run);
    let receiver = receive(&mut standing.input, &mut standing.is_started, node, run).await?;
    consume(receiver, run, &mut arrays.result).await?;
    arrays.standing.push(standing);
    Ok(())
}

/// Runs a node of a ring: computes on its source and sends the result to `next`, then computes on what
/// comes from the node before; the result is in [`Arrays::result`].
///
/// # Errors
/// As [`run_head`].
///
/// # Cancel safety
/// As [`run_middle`].
pub async fn run_ring(
    node: &Node,
    next: &Peer,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<(), PatternError> {
    let mut standing = arrays.take(run);
    // The input lands while the source is computed.
    let (receiver, sender) = tokio::try_join!(
        biased;
        receive(&mut standing.input, &mut standing.is_started, node, run),
        produce(&mut standing.output, node, next, run, &arrays.source),
    )?;
    consume(receiver, run, &mut arrays.result).await?;
    sender.finish().await?;
    arrays.standing.push(standing);
    Ok(())
}

/// Computes on the source and commits all of the result. Then computes independently: of whole buffers,
/// once the result has landed.
async fn produce<'a>(
    output: &'a mut Option<DeltaSender<f32>>,
    node: &Node,
    next: &Peer,
    run: &Run,
    source: &[f32],
) -> Result<&'a mut DeltaSender<f32>, PatternError> {
    // Without compute the source itself is sent, which each round leaves as it was.
    let has_result = run.compute.has_result();
    let buffer = || if has_result { vec![f32::NAN; run.elements] } else { source.to_vec() };
    let sender = send(output, node, next, run, buffer).await?;
    compute(sender, source, run.elements, &mut Pass::new(run), run).await?;
    leave(sender, run).await?;
    Ok(sender)
}

/// Computes the elements before `end` that are not computed yet, and commits each increment of them.
async fn compute(
    sender: &mut DeltaSender<f32>,
    input: &[f32],
    end: usize,
    pass: &mut Pass,
    run: &Run,
) -> Result<(), PatternError> {
    while sender.position() < end {
        let count = run.grain().min(end - sender.position());
        let mut chunk = sender.next(count)?.expect("not at the end");
        if run.compute.has_result() {
            pass.apply(input, chunk.range(), &mut chunk).await;
        }
        chunk.commit().await?;
    }
    Ok(())
}

/// Computes the result from the input.
async fn consume(
    receiver: &mut DeltaReceiver<f32>,
    run: &Run,
    result: &mut [f32],
) -> Result<(), PatternError> {
    if run.is_whole() {
        receiver.finish().await?;
    }
    if run.compute.has_result() {
        let (mut pass, mut turn, mut start, mut end) = (Pass::new(run), None::<Instant>, 0, 0);
        while let Some(part) = receiver.next().await? {
            end += part.len();
            while start < end {
                let range = start..end.min(start + run.grain());
                start = range.end;
                let chunk = &mut result[range.clone()];
                pass.apply(receiver.landed(), range, chunk).await;
                if turn.is_none_or(|last| last.elapsed() >= TURN_EVERY) {
                    // Once for a task with something to do, once for a link that looks whether more is coming.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    turn = Some(Instant::now());
                }
            }
        }
    }
    receiver.finish().await?;
    Ok(())
}

/// Begins to receive: sets the request up, or starts its next round unless that is done.
async fn receive<'a>(
    input: &'a mut Option<DeltaReceiver<f32>>,
    is_started: &mut bool,
    node: &Node,
    run: &Run,
) -> Result<&'a mut DeltaReceiver<f32>, PatternError> {
    match input {
        Some(receiver) => {
            if !std::mem::take(is_started) {
                receiver.start().await?;
            }
            Ok(receiver)
        }
        empty => {
            let buffer = vec![f32::NAN; run.elements];
            Ok(empty.insert(DeltaReceiver::accept(node, &run.channel(), buffer).await?))
        }
    }
}

/// Begins to send: sets the request up with `buffer`, or starts its next round.
async fn send<'a>(
    output: &'a mut Option<DeltaSender<f32>>,
    node: &Node,
    next: &Peer,
    run: &Run,
    buffer: impl FnOnce() -> Vec<f32>,
) -> Result<&'a mut DeltaSender<f32>, PatternError> {
    match output {
        Some(sender) => {
            sender.start().await?;
            Ok(sender)
        }
        empty => {
            let (channel, increment) = (run.channel(), Increment::Fixed(run.increment_bytes()));
            Ok(empty.insert(DeltaSender::open(node, next, &channel, buffer(), increment).await?))
        }
    }
}

/// Computes independently, while the result is on its way or, of whole buffers, when it has landed.
async fn leave(sender: &mut DeltaSender<f32>, run: &Run) -> Result<(), PatternError> {
    if run.transfer == Transfer::Whole {
        sender.finish().await?;
    }
    compute_independently(run).await;
    Ok(())
}

/// Computes on arrays that nobody waits for, and lets the runtime move bytes meanwhile.
async fn compute_independently(run: &Run) {
    if run.independent == 0 {
        return;
    }
    let input = source(INDEPENDENT_GRAIN);
    let mut output = vec![0.0; INDEPENDENT_GRAIN];
    for _ in 0..run.independent {
        let mut pass = Pass::new(run);
        for start in (0..run.elements).step_by(INDEPENDENT_GRAIN) {
            let count = INDEPENDENT_GRAIN.min(run.elements - start);
            pass.apply(&input, 0..count, &mut output[..count]).await;
            tokio::task::yield_now().await;
        }
    }
    std::hint::black_box(output);
}
