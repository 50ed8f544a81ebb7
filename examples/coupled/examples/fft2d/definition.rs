//! The discrete Fourier transform of an array by the sum that defines it.

use std::f64::consts::TAU;
use std::ops::Range;

use num_complex::Complex;

use chunkcomm_coupled::fourier::{Number, ZERO};

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
