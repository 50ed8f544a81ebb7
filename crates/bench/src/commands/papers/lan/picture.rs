//! The paper's pictures: 800 x 600 pixels, and the work of each.

use std::sync::OnceLock;
use std::time::Duration;

use super::machines::Machine;

/// Width of the pictures in pixels.
const WIDTH: u64 = 800;

/// Height of the pictures in pixels.
const HEIGHT: u64 = 600;

/// Pixels of a picture.
pub(super) const PIXELS: u64 = WIDTH * HEIGHT;

/// Most iterations of a pixel of the fractal.
const ITERATIONS_MAX: u32 = 256;

/// Region of the fractal: real and imaginary parts of two corners. *Assumed*: the paper names none.
const REGION: [[f64; 2]; 2] = [[-2.2, 1.0], [-1.2, 1.2]];

/// A picture of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picture {
    /// The Mandelbrot set, at most 256 iterations a pixel.
    Fractal,
    /// A ray-traced scene. *Assumed*: 800 x 600 pixels, and the same work for each.
    Rays,
}

impl Picture {
    /// Returns the seconds of the sequential program on this machine.
    pub(super) fn seconds_on(self, machine: Machine) -> f64 {
        machine.seconds()[usize::from(self == Self::Rays)]
    }

    /// Returns the bytes of a pixel in a result. *Assumed*: an iteration count, or three colours.
    pub(super) fn bytes_a_pixel(self) -> u64 {
        match self {
            Self::Fractal => 1,
            Self::Rays => 3,
        }
    }

    /// Returns the work of the pixels, in time of a SPARCstation 2.
    pub(super) fn work(self) -> &'static Work {
        static WORK: [OnceLock<Work>; 2] = [const { OnceLock::new() }; 2];
        WORK[usize::from(self == Self::Rays)].get_or_init(|| self.summed())
    }

    fn summed(self) -> Work {
        let iterations = |pixel| match self {
            Self::Fractal => mandelbrot(pixel),
            Self::Rays => 1,
        };
        let mut before = vec![0];
        let mut sum = 0_u64;
        for pixel in 0..PIXELS {
            sum += u64::from(iterations(pixel));
            before.push(sum);
        }
        Work { before, second_parts: sum as f64 / self.seconds_on(Machine::Sparc) }
    }
}

/// Work of the pixels of a picture.
#[derive(Debug)]
pub(super) struct Work {
    /// Iterations before each pixel, and of all.
    before: Vec<u64>,
    /// Iterations that a SPARCstation 2 makes in a second.
    second_parts: f64,
}

impl Work {
    /// Returns the work of the pixels from `first` to before `end`.
    pub(super) fn of(&self, first: u64, end: u64) -> Duration {
        let iterations = self.before[end as usize] - self.before[first as usize];
        Duration::from_secs_f64(iterations as f64 / self.second_parts)
    }
}

/// Returns the iterations of a pixel.
fn mandelbrot(pixel: u64) -> u32 {
    let [real, imaginary] = REGION;
    let at = |range: [f64; 2], part: f64| range[0] + (range[1] - range[0]) * part;
    let c = [
        at(real, (pixel % WIDTH) as f64 / WIDTH as f64),
        at(imaginary, (pixel / WIDTH) as f64 / HEIGHT as f64),
    ];
    let [mut x, mut y] = [0.0, 0.0];
    for iteration in 1..ITERATIONS_MAX {
        [x, y] = [x * x - y * y + c[0], 2.0 * x * y + c[1]];
        if x * x + y * y > 4.0 {
            return iteration;
        }
    }
    ITERATIONS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pixels_together_are_the_sequential_program() {
        for picture in [Picture::Fractal, Picture::Rays] {
            let all = picture.work().of(0, PIXELS).as_secs_f64();
            assert!((all - picture.seconds_on(Machine::Sparc)).abs() < 1e-6, "{picture:?}: {all}");
        }
    }

    #[test]
    fn the_middle_of_the_fractal_takes_all_iterations_and_its_corner_few() {
        assert_eq!(mandelbrot(HEIGHT / 2 * WIDTH + WIDTH / 2), ITERATIONS_MAX);
        assert!(mandelbrot(0) < 5);
    }
}
