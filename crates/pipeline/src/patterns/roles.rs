//! The part of one node in one run, whole or in deltas, by its place.

use chunkcomm::{Node, Peer};

use super::compute::{Compute, Pass, source, source_of};
use super::{Pattern, PatternError, Run, Transfer};
use crate::turns::Turns;
use crate::{DeltaReceiver, DeltaSender, Increment};

/// Elements that are computed independently before the runtime may send: 64 KiB.
const INDEPENDENT_GRAIN: usize = 16 * 1024;

/// The arrays of one node, kept from run to run so that their pages are mapped.
///
/// ```text
/// source ▶ compute ▶ output ──▶        the first node, and each of a ring
/// ──▶ input ▶ compute ▶ output ──▶     a node between two
/// ──▶ input ▶ compute ▶ result         the last node, and each of a ring
/// ```
#[derive(Debug, Default)]
pub struct Arrays {
    source: Vec<f32>,
    /// Index of the node whose source `source` holds.
    source_of: Option<usize>,
    input: Vec<f32>,
    output: Vec<f32>,
    result: Vec<f32>,
}

impl Arrays {
    /// Makes the arrays of the node with `index` of `nodes` as long as `run` needs, before its time is
    /// taken. With `run.verify` old elements are overwritten by NaN, so that none passes for a new one.
    pub fn prepare(&mut self, run: &Run, index: usize, nodes: usize) {
        let in_ring = run.pattern == Pattern::Ring;
        if index > 0 || in_ring {
            renew(&mut self.input, run);
        }
        if index + 1 < nodes || in_ring {
            renew(&mut self.output, run);
        }
        if index + 1 == nodes || in_ring {
            renew(&mut self.result, run);
        }
        let of = Some(index);
        if (index == 0 || in_ring) && (self.source_of != of || self.source.len() != run.elements) {
            self.source = source_of(index, run.elements);
            self.source_of = of;
        }
    }

    /// Returns the array that the first node sends: its result or, without compute, its source.
    fn sent(&mut self, run: &Run) -> &mut Vec<f32> {
        if run.compute.has_result() { &mut self.output } else { &mut self.source }
    }

    /// Waits until the result has landed and takes its array back.
    async fn take_back(
        &mut self,
        run: &Run,
        mut sender: DeltaSender<f32>,
    ) -> Result<(), PatternError> {
        sender.finish().await?;
        *self.sent(run) = sender.into_buffer().await;
        Ok(())
    }

    /// Returns the elements that the last node, or a node of a ring, computed.
    #[must_use]
    pub fn result(&self, compute: Compute) -> &[f32] {
        if compute.has_result() { &self.result } else { &self.input }
    }
}

/// Runs the first node: computes on its source and sends the result to `next`.
///
/// Returns when `next` has the whole result.
///
/// # Errors
/// When the transfer fails; the arrays are then lost.
///
/// # Cancel safety
/// When the future is dropped, the run is broken off and the next node gets a notice.
pub async fn run_head(
    node: &Node,
    next: &Peer,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<(), PatternError> {
    let sender = produce(node, next, run, arrays).await?;
    arrays.take_back(run, sender).await
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
    let input = std::mem::take(&mut arrays.input);
    let mut receiver = DeltaReceiver::accept(node, &run.channel(), input).await?;
    if run.is_whole() {
        receiver.finish().await?;
    }
    if !run.compute.has_result() {
        receiver.forward(node, next, &run.channel()).await?.finish().await?;
    } else {
        let mut sender = open(node, next, run, std::mem::take(&mut arrays.output)).await?;
        let (mut pass, mut end) = (Pass::new(run), 0);
        while let Some(part) = receiver.next().await? {
            end += part.len();
            while sender.position() < end {
                let start = sender.position();
                let chunk = sender.next(run.grain().min(end - start)).expect("not at the end");
                let range = start..start + chunk.len();
                pass.apply(receiver.landed(), range, chunk).await;
                sender.commit().await?;
            }
        }
        leave(&mut sender, run).await?;
        arrays.take_back(run, sender).await?;
    }
    arrays.input = receiver.into_buffer().await?;
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
    let input = std::mem::take(&mut arrays.input);
    let receiver = DeltaReceiver::accept(node, &run.channel(), input).await?;
    consume(receiver, run, arrays).await
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
    let (channel, input) = (run.channel(), std::mem::take(&mut arrays.input));
    // The input lands while the source is computed.
    let (receiver, sender) = tokio::try_join!(
        biased;
        async { Ok(DeltaReceiver::accept(node, &channel, input).await?) },
        produce(node, next, run, arrays),
    )?;
    consume(receiver, run, arrays).await?;
    arrays.take_back(run, sender).await
}

/// Computes on the source and commits all of the result. Then computes independently: of whole buffers,
/// once the result has landed.
async fn produce(
    node: &Node,
    next: &Peer,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<DeltaSender<f32>, PatternError> {
    let buffer = std::mem::take(arrays.sent(run));
    let mut sender = open(node, next, run, buffer).await?;
    let mut pass = Pass::new(run);
    while sender.position() < run.elements {
        let start = sender.position();
        let chunk = sender.next(run.grain()).expect("not at the end");
        if run.compute.has_result() {
            let range = start..start + chunk.len();
            pass.apply(&arrays.source, range, chunk).await;
        }
        sender.commit().await?;
    }
    leave(&mut sender, run).await?;
    Ok(sender)
}

/// Computes the result from the input.
async fn consume(
    mut receiver: DeltaReceiver<f32>,
    run: &Run,
    arrays: &mut Arrays,
) -> Result<(), PatternError> {
    if run.is_whole() {
        receiver.finish().await?;
    }
    if run.compute.has_result() {
        let (mut pass, mut turns, mut start, mut end) = (Pass::new(run), Turns::default(), 0, 0);
        while let Some(part) = receiver.next().await? {
            end += part.len();
            while start < end {
                let range = start..end.min(start + run.grain());
                start = range.end;
                let chunk = &mut arrays.result[range.clone()];
                pass.apply(receiver.landed(), range, chunk).await;
                // The runtime may take bytes that have arrived.
                turns.take().await;
            }
        }
    }
    arrays.input = receiver.into_buffer().await?;
    Ok(())
}

async fn open(
    node: &Node,
    next: &Peer,
    run: &Run,
    buffer: Vec<f32>,
) -> Result<DeltaSender<f32>, PatternError> {
    let increment = Increment::Fixed(run.increment_bytes());
    Ok(DeltaSender::open(node, next, &run.channel(), buffer, increment).await?)
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

fn renew(array: &mut Vec<f32>, run: &Run) {
    let stale = if run.verify { f32::NAN } else { 0.0 };
    if array.len() != run.elements {
        *array = vec![stale; run.elements];
    } else if run.verify {
        array.fill(stale);
    }
}
