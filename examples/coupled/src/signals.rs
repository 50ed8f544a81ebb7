//! Functions as others write them: plain slices, and no word of chunkcomm.

use std::f64::consts::TAU;

use num_complex::Complex32;
use rustfft::FftPlanner;

/// Number of samples of a frame, and of frequencies of its spectrum.
pub const FRAME: usize = 2048;

/// Returns the frequency of the one tone in a frame.
#[must_use]
pub fn tone_of(frame: usize) -> usize {
    1 + frame * 37 % (FRAME / 2 - 1)
}

/// Returns a signal of `frames` frames, each with one tone.
#[must_use]
pub fn signal(frames: usize) -> Vec<Complex32> {
    let sample = |index: usize| {
        let turns = (index % FRAME * tone_of(index / FRAME)) as f64 / FRAME as f64;
        Complex32::new((TAU * turns).cos() as f32, 0.0)
    };
    (0..FRAME * frames).map(sample).collect()
}

/// Writes the spectrum of each frame of `signal`, which is used up.
pub fn transform(signal: &mut [Complex32], spectra: &mut [Complex32]) {
    let fft = FftPlanner::new().plan_fft_forward(FRAME);
    let mut scratch = vec![Complex32::ZERO; fft.get_outofplace_scratch_len()];
    fft.process_outofplace_with_scratch(signal, spectra, &mut scratch);
}

/// Returns the loudest frequency of each frame.
#[must_use]
pub fn loudest(spectra: &[Complex32]) -> Vec<usize> {
    let loudest = |spectrum: &[Complex32]| {
        let half = spectrum[..FRAME / 2].iter().enumerate();
        let loudest = half.max_by(|a, b| a.1.norm_sqr().total_cmp(&b.1.norm_sqr()));
        loudest.expect("a frame has frequencies").0
    };
    spectra.chunks(FRAME).map(loudest).collect()
}
