//! The part of one node of a chain in one run, whole or in deltas, by its place.

use chunkcomm::{Node, Peer, host};

use super::compute::{Compute, source};
use super::{PatternError, Run};
use crate::{DeltaReceiver, DeltaSender, Increment};

/// The arrays of one node, kept from run to run so that their pages are mapped.
#[derive(Debug, Default)]
pub struct Arrays {
    input: Vec<f32>,
    output: Vec<f32>,
    /// Whether `input` holds the first node's input, which is made once.
    holds_source: bool,
}

impl Arrays {
    /// Makes the arrays as long as `run` needs, before its time is taken. With `run.verify` old
    /// elements are overwritten by NaN, so that none passes for a new one.
    pub fn prepare(&mut self, run: &Run) {
        renew(&mut self.input, run);
        renew(&mut self.output, run);
        self.holds_source = false;
    }

    /// Prepares the arrays of the first node, whose input is [`source`](super::source); see
    /// [`prepare`](Self::prepare).
    pub fn prepare_head(&mut self, run: &Run) {
        renew(&mut self.output, run);
        if !self.holds_source || self.input.len() != run.elements {
            self.input = source(run.elements);
            self.holds_source = true;
        }
    }

    /// Returns the elements that the last node computed.
    #[must_use]
    pub fn result(&self, compute: Compute) -> &[f32] {
        if compute == Compute::Empty { &self.input } else { &self.output }
    }
}

/// Runs the first node: computes on its input and sends the result to `next`.
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
    let Arrays { input, output, .. } = arrays;
    let computes = run.compute != Compute::Empty;
    // Without compute the input itself is sent, and comes back.
    let buffer = std::mem::take(if computes { output } else { input });
    let mut sender = open(node, next, run, buffer).await?;
    while sender.position() < run.elements {
        let start = sender.position();
        let chunk = sender.next(run.grain()).expect("not at the end");
        if computes {
            let range = start..start + chunk.len();
            let ((), work) = host::working(|| run.compute.apply(input, range, chunk));
            work.done().await;
        }
        sender.commit().await?;
    }
    sender.finish().await?;
    *(if computes { output } else { input }) = sender.into_buffer().await;
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
    let input = std::mem::take(&mut arrays.input);
    let mut receiver = DeltaReceiver::accept(node, &run.channel(), input).await?;
    if run.delta_bytes.is_none() {
        receiver.finish().await?;
    }
    if run.compute == Compute::Empty {
        receiver.forward(node, next, &run.channel()).await?.finish().await?;
    } else {
        let mut sender = open(node, next, run, std::mem::take(&mut arrays.output)).await?;
        let mut end = 0;
        while let Some(part) = receiver.next().await? {
            end += part.len();
            while sender.position() < end {
                let start = sender.position();
                let chunk = sender.next(run.grain().min(end - start)).expect("not at the end");
                let range = start..start + chunk.len();
                let ((), work) =
                    host::working(|| run.compute.apply(receiver.landed(), range, chunk));
                work.done().await;
                sender.commit().await?;
            }
        }
        sender.finish().await?;
        arrays.output = sender.into_buffer().await;
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
    let mut receiver = DeltaReceiver::accept(node, &run.channel(), input).await?;
    if run.delta_bytes.is_none() || run.compute == Compute::Empty {
        receiver.finish().await?;
    }
    let (mut start, mut end) = (0, 0);
    while let Some(part) = receiver.next().await? {
        end += part.len();
        while start < end && run.compute != Compute::Empty {
            let range = start..end.min(start + run.grain());
            start = range.end;
            let chunk = &mut arrays.output[range.clone()];
            let ((), work) = host::working(|| run.compute.apply(receiver.landed(), range, chunk));
            work.done().await;
            // Between two increments the runtime may take bytes that have arrived.
            tokio::task::yield_now().await;
        }
    }
    arrays.input = receiver.into_buffer().await?;
    Ok(())
}

fn renew(array: &mut Vec<f32>, run: &Run) {
    let stale = if run.verify { f32::NAN } else { 0.0 };
    if array.len() != run.elements {
        *array = vec![stale; run.elements];
    } else if run.verify {
        array.fill(stale);
    }
}

async fn open(
    node: &Node,
    next: &Peer,
    run: &Run,
    buffer: Vec<f32>,
) -> Result<DeltaSender<f32>, PatternError> {
    let increment = Increment::Fixed(run.delta_bytes.unwrap_or(run.bytes()));
    Ok(DeltaSender::open(node, next, &run.channel(), buffer, increment).await?)
}
