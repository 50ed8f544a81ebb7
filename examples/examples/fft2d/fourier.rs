//! Discrete Fourier transforms: of rows by rustfft, and of a whole array by the sum that defines them.

use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;
use num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};

/// An element of an array.
pub(crate) type Number = Complex<f64>;

/// The number 0.
pub(crate) const ZERO: Number = Number::new(0.0, 0.0);

/// Elements that are transformed at a time, before the node's other tasks have their turn: 64 KiB.
const AT_ONCE: usize = 4096;

/// Transforms rows of one length.
pub(crate) struct Rows {
    fft: Arc<dyn Fft<f64>>,
    scratch: Vec<Number>,
    /// Work of a row on the reference machine, in nanoseconds.
    row_nanos: f64,
}

impl Rows {
    /// Makes a transform of rows of `length` elements, which is not scaled. `flop_nanos` is the time of a
    /// floating point operation on a virtual host.
    pub(crate) fn new(length: usize, direction: FftDirection, flop_nanos: f64) -> Rows {
        let fft = FftPlanner::new().plan_fft(length, direction);
        let scratch = fft.get_inplace_scratch_len().max(fft.get_immutable_scratch_len());
        let scratch = vec![ZERO; scratch];
        Rows { fft, scratch, row_nanos: flops(length) * flop_nanos }
    }

    /// Transforms each of these rows in its place, on this thread.
    pub(crate) async fn transform(&mut self, rows: &mut [Number]) {
        for some in rows.chunks_mut(self.at_once()) {
            let rows = some.len() / self.fft.len();
            self.work(rows, |fft, scratch| fft.process_with_scratch(some, scratch)).await;
        }
    }

    /// Transforms each of these rows into another place, on this thread.
    pub(crate) async fn transform_into(&mut self, from: &[Number], to: &mut [Number]) {
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

/// Transforms an array by the sum that defines the transform, along each of its dimensions:
/// `X[k] = sum over j of x[j] exp(-2 pi i j k / n)`. Returns these columns of the result, one behind the other.
///
/// For comparisons: a column costs all elements of the array, and the square of its length.
pub(crate) fn by_definition(
    array: &[Number],
    [rows, columns]: [usize; 2],
    wanted: Range<usize>,
) -> Vec<Number> {
    let mut by_rows = vec![ZERO; rows * wanted.len()];
    for (row, elements) in array.chunks(columns).enumerate() {
        sums(elements, wanted.clone(), |column, sum| by_rows[column * rows + row] = sum);
    }
    let mut whole = vec![ZERO; by_rows.len()];
    for (whole, column) in whole.chunks_mut(rows).zip(by_rows.chunks(rows)) {
        sums(column, 0..rows, |k, sum| whole[k] = sum);
    }
    whole
}

/// Computes these numbers of the transform of `elements` by definition.
fn sums(elements: &[Number], wanted: Range<usize>, mut take: impl FnMut(usize, Number)) {
    let n = elements.len();
    let roots: Vec<Number> =
        (0..n).map(|at| Complex::from_polar(1.0, -TAU * at as f64 / n as f64)).collect();
    for (index, k) in wanted.enumerate() {
        // Not j * k, which for long rows would overflow.
        let mut at = 0;
        let mut sum = ZERO;
        for element in elements {
            sum += element * roots[at];
            at = (at + k) % n;
        }
        take(index, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_is_one_number_of_its_transform() {
        let shape @ [rows, columns] = [6, 5];
        let wave = |at: usize| {
            let (row, column) = ((at / columns) as f64, (at % columns) as f64);
            Complex::from_polar(
                1.0,
                TAU * (2.0 * row / rows as f64 + 3.0 * column / columns as f64),
            )
        };
        let array: Vec<Number> = (0..rows * columns).map(wave).collect();
        let found = by_definition(&array, shape, 1..columns);
        assert_eq!(found.len(), 4 * rows);
        for (at, number) in found.into_iter().enumerate() {
            // Row 2 of column 3.
            let expected = if at == 2 * rows + 2 { 30.0 } else { 0.0 };
            assert!((number - expected).norm() < 1e-12, "{at}: {number}");
        }
    }
}
