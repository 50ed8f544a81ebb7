//! Discrete Fourier transforms of rows, by rustfft.

use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;
use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};

/// An element of an array.
pub type Number = Complex<f64>;

/// The number 0.
pub const ZERO: Number = Number::new(0.0, 0.0);

/// Elements that are transformed at a time, before the node's other tasks have their turn: 64 KiB.
const AT_ONCE: usize = 4096;

/// Transforms rows of one length.
pub struct Rows {
    fft: Arc<dyn Fft<f64>>,
    scratch: Vec<Number>,
    /// Work of a row on the reference machine, in nanoseconds.
    row_nanos: f64,
}

impl Rows {
    /// Makes a transform of rows of `length` elements, which is not scaled. `flop_nanos` is the time of a
    /// floating point operation on a virtual host.
    #[must_use]
    pub fn new(length: usize, direction: FftDirection, flop_nanos: f64) -> Rows {
        let fft = FftPlanner::new().plan_fft(length, direction);
        let scratch = fft.get_inplace_scratch_len().max(fft.get_immutable_scratch_len());
        let scratch = vec![ZERO; scratch];
        Rows { fft, scratch, row_nanos: flops(length) * flop_nanos }
    }

    /// Transforms each of these rows in its place, on this thread.
    pub async fn transform(&mut self, rows: &mut [Number]) {
        for some in rows.chunks_mut(self.at_once()) {
            let rows = some.len() / self.fft.len();
            self.work(rows, |fft, scratch| fft.process_with_scratch(some, scratch)).await;
        }
    }

    /// Transforms each of these rows into another place, on this thread.
    pub async fn transform_into(&mut self, from: &[Number], to: &mut [Number]) {
        for (from, to) in from.chunks(self.at_once()).zip(to.chunks_mut(self.at_once())) {
            let rows = from.len() / self.fft.len();
            self.work(rows, |fft, scratch| fft.process_immutable_with_scratch(from, to, scratch))
                .await;
        }
    }

    /// Elements of as many rows as are transformed at a time.
    fn at_once(&self) -> usize {
        (AT_ONCE / self.fft.len()).max(1) * self.fft.len()
    }

    /// Transforms some rows, and lets the node's other tasks have their turn.
    async fn work(&mut self, rows: usize, transform: impl FnOnce(&dyn Fft<f64>, &mut [Number])) {
        let nanos = self.row_nanos * rows as f64;
        let ((), work) = host::working(|| {
            host::spend(Duration::from_nanos(nanos as u64));
            transform(&*self.fft, &mut self.scratch);
        });
        work.done().await;
        host::yield_now().await;
    }
}

/// Returns the usual count of operations of a transform: 5 n log2 n.
fn flops(length: usize) -> f64 {
    5.0 * length as f64 * (length as f64).log2()
}
