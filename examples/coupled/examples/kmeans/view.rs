//! The picture: each point in the colour of its cluster, and a cross at each centre.

use chunkcomm_examples::picture::Pixel;

use super::lloyd::Point;

/// Side of the picture, in pixels.
pub(crate) const SIDE: u32 = 800;

/// Length of a cross from its middle, in pixels.
const CROSS: i64 = 6;

const WHITE: Pixel = [255; 3];
const BLACK: Pixel = [0; 3];

/// Draws points, each with the number of its cluster, and the centres of the clusters; returns the
/// pixels row by row from the top.
pub(crate) fn draw(points: &[Point], cluster_of: &[u32], centres: &[Point]) -> Vec<Pixel> {
    let side = i64::from(SIDE);
    let mut pixels = vec![WHITE; (side * side) as usize];
    let mut set = |[x, y]: Point, colour| {
        if (0..side).contains(&x) && (0..side).contains(&y) {
            pixels[((side - 1 - y) * side + x) as usize] = colour;
        }
    };
    // The square around all points.
    let corner = |first: i64, of_two: fn(i64, i64) -> i64| {
        points.iter().fold([first; 2], |[x, y], point| [of_two(x, point[0]), of_two(y, point[1])])
    };
    let (low, high) = (corner(i64::MAX, i64::min), corner(i64::MIN, i64::max));
    let width = (high[0] - low[0]).max(high[1] - low[1]).max(1);
    let place = |point: &Point| [0, 1].map(|axis| (point[axis] - low[axis]) * (side - 1) / width);

    for (point, cluster) in points.iter().zip(cluster_of) {
        set(place(point), colour(*cluster, centres.len()));
    }
    for [x, y] in centres.iter().map(place) {
        for (thickness, colour) in [(2, WHITE), (1, BLACK)] {
            for along in -CROSS..=CROSS {
                for across in 1 - thickness..thickness {
                    set([x + along, y + across], colour);
                    set([x + across, y + along], colour);
                }
            }
        }
    }
    pixels
}

/// Returns the colour of a cluster: that of its place in the rainbow.
fn colour(cluster: u32, clusters: usize) -> Pixel {
    let place = 6 * 256 * cluster as usize / clusters;
    let rising = (place % 256) as u8;
    let falling = 255 - rising;
    match place / 256 {
        0 => [255, rising, 0],
        1 => [falling, 255, 0],
        2 => [0, 255, rising],
        3 => [0, falling, 255],
        4 => [rising, 0, 255],
        _ => [255, 0, falling],
    }
}
