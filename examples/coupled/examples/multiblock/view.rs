//! The picture: the solution in colours, and below it the residual on a logarithmic axis.

use chunkcomm_examples::picture::Pixel;

/// Width of a picture at least, if its points can be drawn larger.
const WIDTH_MIN: usize = 600;

/// Rows of the curve.
const CURVE_ROWS: usize = 200;

/// Shades of each sign, with a step between two of them.
const SHADES: f64 = 24.0;

const OUTSIDE: Pixel = [225; 3];
const PAPER: Pixel = [255; 3];
const DECADE: Pixel = [205; 3];
const CURVE: Pixel = [20, 20, 20];

/// Draws values of these columns, row by row, and residuals by their sweeps; returns the sides, too.
pub(crate) fn draw(
    values: &[f64],
    columns: usize,
    residuals: &[(usize, f64)],
) -> ((u32, u32), Vec<Pixel>) {
    let ((width, rows), mut pixels) = field(values, columns);
    pixels.extend(curve(width as usize, residuals));
    ((width, rows + CURVE_ROWS as u32), pixels)
}

/// Draws values of these columns, row by row; returns the sides, too.
pub(crate) fn field(values: &[f64], columns: usize) -> ((u32, u32), Vec<Pixel>) {
    let scale = (WIDTH_MIN / columns).max(1);
    let width = columns * scale;
    let largest = values.iter().filter(|it| it.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
    let mut pixels = Vec::new();
    for row in values.chunks(columns) {
        let row: Vec<Pixel> =
            row.iter().flat_map(|value| vec![colour(value / largest); scale]).collect();
        (0..scale).for_each(|_| pixels.extend_from_slice(&row));
    }
    ((width as u32, (pixels.len() / width) as u32), pixels)
}

/// Returns the colour of a value from -1, blue, by 0, white, to 1, red.
fn colour(value: f64) -> Pixel {
    if !value.is_finite() {
        return OUTSIDE;
    }
    // Contours follow from the steps.
    let share = (value.abs() * SHADES).floor() / SHADES;
    let faded = |full: f64| (255.0 - share * (255.0 - full)) as u8;
    if value > 0.0 {
        [faded(190.0), faded(20.0), faded(30.0)]
    } else {
        [faded(30.0), faded(60.0), faded(180.0)]
    }
}

/// Draws the residual over the sweeps, with a line at each power of 10.
fn curve(width: usize, residuals: &[(usize, f64)]) -> Vec<Pixel> {
    let first = residuals.first().map_or(1.0, |(_, residual)| *residual);
    let decades = |residual: f64| (residual / first).max(f64::MIN_POSITIVE).log10();
    let all = residuals.iter().map(|(_, residual)| decades(*residual));
    let highest = all.clone().fold(0.0, f64::max).ceil();
    let lowest = all.fold(highest - 1.0, f64::min).floor();
    let row_of = |decades: f64| {
        let share = (highest - decades) / (highest - lowest);
        (share * (CURVE_ROWS - 1) as f64).round() as usize
    };
    let mut pixels = vec![PAPER; width * CURVE_ROWS];
    for decade in lowest as i32..=highest as i32 {
        let start = row_of(f64::from(decade)) * width;
        pixels[start..start + width].fill(DECADE);
    }
    let last = residuals.last().map_or(1, |(sweep, _)| *sweep).max(2);
    let at = |(sweep, residual): (usize, f64)| {
        ((sweep - 1) as f64 / (last - 1) as f64 * (width - 1) as f64, decades(residual))
    };
    let mut above = None;
    for column in 0..width {
        let x = column as f64;
        let behind = residuals.iter().position(|it| at(*it).0 >= x).unwrap_or_default();
        let ((x0, y0), (x1, y1)) = (at(residuals[behind.saturating_sub(1)]), at(residuals[behind]));
        let y = if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y1 };
        let row = row_of(y.clamp(lowest, highest));
        let from = above.replace(row).unwrap_or(row);
        for row in from.min(row)..=from.max(row) {
            pixels[row * width + column] = CURVE;
        }
    }
    pixels
}
