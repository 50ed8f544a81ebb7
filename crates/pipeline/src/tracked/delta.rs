//! Tracked buffers as the ends of a delta.

use bytes::Bytes;
use chunkcomm_group::layer::{CORRECTION_BYTES_MAX, PumpHandle, Ranges};
use chunkcomm_group::{Element, PartError};
use chunkcomm_pages::{Arrivals, Filler, Finished, Received, Sent, TrackedInput, TrackedOutput};

use super::error::TrackedError;
use crate::recv::DeltaReceiver;
use crate::send::DeltaSender;

impl<T: Element> DeltaSender<T> {
    /// Runs `write`, ordinary code, with `output` as a plain slice, and commits the elements of this delta as
    /// they are finished there.
    ///
    /// Blocks until `write` has returned and all elements are committed. [`finish`](Self::finish) waits until
    /// they have landed. The elements leave on the runtime in which the delta was opened, so a thread of that
    /// runtime must be free: else none of them leaves before the end. Call this on a thread of its own or in
    /// `tokio::task::block_in_place`.
    ///
    /// [`Sent::before_return`] counts the elements that had left the node when `write` returned: they were
    /// handed to its transport.
    ///
    /// With [`Rewrites::Strict`](super::Rewrites::Strict), `write` has one thread: of several, one that does not
    /// run for a while counts as done. With `mprotect`, a store that needs more mappings than the system allows
    /// **aborts the process** ([`SendEngine::Mprotect`](super::SendEngine::Mprotect)).
    ///
    /// Costs a page fault an increment, with `wp-async` one a page, and two copies, on top of an explicit
    /// [`part`](Self::part): use that in code of your own. `costs::send_costs` measures it.
    ///
    /// [`Rewrites::Resend`](super::Rewrites::Resend), the default, concerns elements that are written again after
    /// they have left. Their last values follow when `write` has returned, each once. Both ends keep them apart
    /// until `finish`, [`start`](Self::start) or `into_buffer`, so that no reference sees a change. `finish` of
    /// the receiver returns the last values. Elements that it showed before may have earlier ones;
    /// [`DeltaReceiver::corrected`] names them.
    ///
    /// ```no_run
    /// # fn example(sender: &mut chunkcomm_pipeline::DeltaSender<f64>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use chunkcomm_pipeline::tracked::{TrackedOutput, Tracking};
    ///
    /// fn ordinary(buffer: &mut [f64]) {
    ///     for (index, element) in buffer.iter_mut().enumerate() {
    ///         *element = (index as f64).sin();
    ///     }
    /// }
    ///
    /// let mut output = TrackedOutput::new(sender.len(), Tracking::default())?;
    /// let ((), sent) = sender.tracked_send(&mut output, ordinary)?;
    /// println!("{} elements had left before the end", sent.before_return);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Before `write` runs:
    ///
    /// - [`TrackedError::Length`] when the lengths differ;
    /// - [`TrackedError::Send`] when this is the operand of a collective;
    /// - [`TrackedError::Part`] when elements of this round are out or committed already. Begin another round
    ///   by [`start`](Self::start).
    ///
    /// After `write` has run to its end. Drop this delta: its receiver gets an error, even if it has each element:
    ///
    /// - [`TrackedError::Buffer`] with strict settings when elements were written again after they were
    ///   committed, or when the system refused a call;
    /// - [`TrackedError::Part`] when a part was taken meanwhile;
    /// - [`TrackedError::Send`] when the transfer failed.
    ///
    /// # Panics
    /// When `write` panics, or no thread can be started.
    pub fn tracked_send<R>(
        &mut self,
        output: &mut TrackedOutput<T>,
        write: impl FnOnce(&mut [T]) -> R,
    ) -> Result<(R, Sent), TrackedError> {
        let (tracked, delta) = (output.len(), self.len());
        if tracked != delta {
            return Err(TrackedError::Length { tracked, delta });
        }
        if self.peer().is_none() {
            let why = "the elements of a collective cannot be tracked: others combine them at once";
            return Err(PumpHandle::refused(why).into());
        }
        // Each element must be free: one that is committed would keep its value of an earlier run.
        drop(self.part(..).map_err(TrackedError::Part)?);
        let mut rewritten = Ranges::default();
        self.pump().count_leaving();
        self.share().change(|state| state.withheld = true);
        let write = |elements: &mut [T]| {
            let result = write(elements);
            (result, self.pump().left_bytes() / size_of::<T>())
        };
        let ((result, before_return), mut sent) = output.track(write, |finished| {
            self.put(&finished, &mut rewritten)?;
            self.check().map_err(TrackedError::from)
        })?;
        self.correct(&rewritten, output.elements());
        sent.before_return = before_return;
        Ok((result, sent))
    }

    /// Lets the receiver have the last values of the `rewritten` elements, and then the last of all bytes.
    fn correct(&self, rewritten: &Ranges, elements: &[T]) {
        let size = size_of::<T>();
        // Copied without the lock, for which tasks of the runtime wait.
        let mut parts = Vec::new();
        for range in rewritten.runs() {
            let bytes: &[u8] = bytemuck::cast_slice(&elements[range.clone()]);
            for (index, part) in bytes.chunks(CORRECTION_BYTES_MAX).enumerate() {
                let offset = range.start * size + index * CORRECTION_BYTES_MAX;
                parts.push((offset, Bytes::copy_from_slice(part)));
            }
        }
        self.share().change(|state| {
            parts.into_iter().for_each(|(offset, bytes)| state.corrections.note(offset, bytes));
            state.withheld = false;
        });
    }

    /// Commits those of the elements that are not committed. Notes the others, if this run committed them.
    fn put(&self, finished: &Finished<'_, T>, rewritten: &mut Ranges) -> Result<(), TrackedError> {
        let (range, again) = (finished.range(), finished.again);
        match self.part(range.clone()) {
            Ok(mut part) => {
                part.copy_from_slice(finished.elements);
                part.commit();
                Ok(())
            }
            Err(PartError::Committed { taken, .. }) if again => {
                let taken = taken.start.max(range.start)..taken.end.min(range.end);
                let same = self.committed_at(taken.clone()).is_some_and(|committed| {
                    let now = finished.within(taken.clone()).elements;
                    bytemuck::cast_slice::<T, u8>(committed) == bytemuck::cast_slice::<T, u8>(now)
                });
                if !same {
                    rewritten.cover(taken.clone());
                }
                if taken.start > range.start {
                    self.put(&finished.within(range.start..taken.start), rewritten)?;
                }
                if taken.end < range.end {
                    self.put(&finished.within(taken.end..range.end), rewritten)?;
                }
                Ok(())
            }
            Err(error) => Err(TrackedError::Part(error)),
        }
    }
}

impl<T: Element> DeltaReceiver<T> {
    /// Runs `read`, ordinary code, with `input` as a plain slice, and puts the elements of this delta there
    /// as they land. A load of an element that has not landed waits for it.
    ///
    /// Blocks until `read` has returned and all elements have landed. Elements that
    /// [`next_any`](Self::next_any) has shown in this round are there from the start. The others land on the
    /// runtime in which the delta was accepted, so a thread of that runtime must be free. Call this on a thread
    /// of its own or in `tokio::task::block_in_place`.
    ///
    /// Costs a copy of each element, and a fault for each page that is read early. In code of your own use
    /// [`next_any`](Self::next_any) or [`wait`](Self::wait).
    ///
    /// A load cannot return an error. When its element does not come, **the process is aborted**, unless
    /// the settings of `input` say otherwise ([`Missing`](super::Missing)): after the deadline, or
    /// at once when the sender has ended or the transfer failed. [`Arrivals::wait`] in `read` returns an
    /// error instead.
    ///
    /// In a stream the [last round](DeltaSender::end) may be shorter than the buffer, and elements behind its end
    /// never come. Take streams by [`next`](Self::next), or with
    /// [`Missing::Unfilled`](super::Missing::Unfilled).
    ///
    /// ```no_run
    /// # fn example(receiver: &mut chunkcomm_pipeline::DeltaReceiver<f64>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use chunkcomm_pipeline::tracked::{Awaiting, TrackedInput};
    ///
    /// let mut input = TrackedInput::new(receiver.len(), Awaiting::default())?;
    /// let (sum, _) = receiver.tracked_recv(&mut input, |elements, _| elements.iter().sum::<f64>())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrackedError::Length`] when the lengths differ; then `read` did not run. After the others `read` has
    /// run to its end, and its value is dropped:
    ///
    /// - [`TrackedError::Recv`] when the transfer failed;
    /// - [`TrackedError::Buffer`] when an element did not come within the deadline of a load or a wait, or
    ///   the system refused a call;
    /// - [`TrackedError::Short`] when the stream ended before the buffer was full: [`finish`](Self::finish)
    ///   returns the elements of the round;
    /// - [`TrackedError::Corrected`] when the sender wrote elements again that `read` may have used:
    ///   [`finish`](Self::finish) returns the last values.
    ///
    /// # Panics
    /// When `read` panics, or no thread can be started.
    pub fn tracked_recv<R>(
        &mut self,
        input: &mut TrackedInput<T>,
        read: impl FnOnce(&[T], &Arrivals<'_>) -> R,
    ) -> Result<(R, Received), TrackedError> {
        let (tracked, delta) = (input.len(), self.len());
        if tracked != delta {
            return Err(TrackedError::Length { tracked, delta });
        }
        let ran = input.track(read, |filler| {
            // The waits need a waker, and neither a clock nor sockets.
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.expect("a runtime without drivers needs nothing of the system");
            runtime.block_on(self.fill(filler))
        })?;
        match self.corrected().into_iter().next() {
            Some(elements) if self.is_stale() => Err(TrackedError::Corrected { elements }),
            _ => Ok(ran),
        }
    }

    async fn fill(&mut self, filler: &mut Filler<'_, T>) -> Result<(), TrackedError> {
        // Elements that the program took by `next_any` come first.
        self.show_again();
        loop {
            let landed = tokio::select! {
                biased;
                landed = self.next_any() => landed?,
                // The run has the reason.
                () = filler.stopped() => return Ok(()),
            };
            let Some((range, elements)) = landed else { break };
            filler.put(range.start, elements)?;
        }
        let (landed, length) = (self.landed().len(), self.len());
        if landed < length { Err(TrackedError::Short { landed, length }) } else { Ok(()) }
    }
}
