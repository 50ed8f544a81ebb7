//! The same computation in one process, which knows nothing of blocks: one array with a mask.

use super::problem::{Geometry, Parameters};

/// Computes this number of sweeps; returns the whole geometry, with NaN outside of the blocks. Each of `sources`
/// has the number of the sweep after which it is there.
pub(crate) fn alone(
    geometry: Geometry,
    sources: &[(usize, Parameters)],
    sweeps: usize,
) -> Vec<f64> {
    let (rows, columns) = (geometry.side, geometry.width());
    let is_inside = |row: usize, column: usize| {
        let height = geometry.side / 2;
        let is_middle = (geometry.side..geometry.side + height).contains(&column);
        let top = (geometry.side - height) / 2;
        !is_middle || (top..top + height).contains(&row)
    };
    // With a row and a column of zeros all around.
    let wide = columns + 2;
    let mut values = vec![0.0; (rows + 2) * wide];
    let mut points = [Vec::new(), Vec::new()];
    for row in 0..rows {
        for column in 0..columns {
            if is_inside(row, column) {
                points[(row + column) % 2].push(((row + 1) * wide + column + 1, 0.0));
            }
        }
    }
    let factor = geometry.omega() / 4.0;
    for sweep in 0..sweeps {
        for (_, source) in sources.iter().filter(|(after, _)| *after == sweep) {
            for (at, inflow) in points.iter_mut().flatten() {
                *inflow = source.inflow(geometry, *at / wide - 1, *at % wide - 1);
            }
        }
        for points in &points {
            for (at, inflow) in points {
                let [north, south] = [values[at - wide], values[at + wide]];
                let [west, east] = [values[at - 1], values[at + 1]];
                let residual = ((north + south) + (west + east)) + inflow - 4.0 * values[*at];
                values[*at] += factor * residual;
            }
        }
    }
    let value = |row: usize, column: usize| match is_inside(row, column) {
        true => values[(row + 1) * wide + column + 1],
        false => f64::NAN,
    };
    (0..rows * columns).map(|at| value(at / columns, at % columns)).collect()
}
