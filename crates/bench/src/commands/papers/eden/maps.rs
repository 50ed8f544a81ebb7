//! A function that is mapped over a list: the caller deals indices to the other elements in turns, and
//! each sends its results back as they come. *Assumed* of the paper's skeleton, whose text is not there.

use std::sync::Arc;

use chunkcomm::host::Instant;

use super::pool::{Pe, Pool, Sending, item, word};
use crate::commands::papers::Scene;
use crate::failure::{Doing, Failure};

/// Microseconds of one step of a pixel. *Fitted*: the gathered time of `mandelbrot`.
const STEP_US: f64 = 36.0;

/// Milliseconds of a line of the scene. *Fitted*: the gathered time of `raytracer`.
const LINE_MS: f64 = 625.0;

/// Most steps of a pixel. *Assumed.*
const STEPS_MAX: u32 = 200;

/// Usual pixels a side; of the scene it is *assumed*.
const SIDE: usize = 300;

/// Mapped items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picture {
    /// `mandelbrot`, pixel by pixel.
    Mandelbrot,
    /// `raytracer`, line by line.
    Raytracer,
}

/// One map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Map {
    pub(super) sending: Sending,
    pub(super) picture: Picture,
    pub(super) workers: usize,
    /// Pixels a side.
    pub(super) side: usize,
}

/// Outcome of a map.
#[derive(Debug, Clone)]
pub(super) struct Mapped {
    pub(super) seconds: f64,
    pub(super) results: Vec<u32>,
    /// Whether a result came back before the last index had left.
    pub(super) interleaved: bool,
}

impl Map {
    /// The paper's: 8 elements, of which one deals and takes.
    pub(super) fn usual(scene: &Scene<'_>, picture: Picture, sending: Sending) -> Self {
        let workers = scene.numbers("beowulf")[0] as usize - 1;
        Self { sending, picture, workers, side: scene.sized(SIDE, 30) }
    }

    fn items(self) -> usize {
        match self.picture {
            Picture::Mandelbrot => self.side * self.side,
            Picture::Raytracer => self.side,
        }
    }

    /// Maps on a pool.
    pub(super) fn run(self, pool: &Pool) -> Result<Mapped, Failure> {
        let mut results = pool.run(1 + self.workers, self.sending, |pe| async move {
            if pe.rank > 0 {
                self.worker(&pe).await?;
                return Ok(None);
            }
            Ok(Some(self.caller(&pe).await?))
        })?;
        Ok(results.swap_remove(0).expect("rank 0 has it"))
    }

    async fn caller(self, pe: &Arc<Pe>) -> Result<Mapped, Failure> {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for rank in 1..=self.workers {
            to.push(pe.open(rank, "items").await?);
            from.push(pe.accept(&format!("results {rank}")).await?);
        }
        let begun = Instant::now();
        let dealing = async {
            for index in 0..self.items() {
                pe.send(&mut to[index % self.workers], &item(index, 1)).await?;
            }
            for stream in &mut to {
                stream.sync().await.doing("dealing the last items")?;
            }
            to.clear();
            Ok::<_, Failure>(Instant::now())
        };
        let taking = async {
            let (mut results, mut first) = (Vec::with_capacity(self.items()), None);
            for index in 0..self.items() {
                let (_, stream) = &mut from[index % self.workers];
                let result = pe.take(stream, &mut []).await?;
                first = first.or_else(|| Some(Instant::now()));
                let result = result.ok_or_else(|| Failure::wrong_message(index as u64))?;
                results.push(word(&result));
            }
            Ok::<_, Failure>((results, first))
        };
        let (dealt, (results, first)) = tokio::try_join!(dealing, taking)?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Mapped { seconds, results, interleaved: first.is_some_and(|it| it < dealt) })
    }

    async fn worker(self, pe: &Pe) -> Result<(), Failure> {
        let (peer, mut from) = pe.accept("items").await?;
        let mut to = [pe.open_to(&peer, &format!("results {}", pe.rank)).await?];
        while let Some(index) = pe.take(&mut from, &mut to).await? {
            let index = word(&index) as usize;
            let result = match self.picture {
                Picture::Mandelbrot => {
                    let steps = steps(index % self.side, index / self.side, self.side);
                    pe.work(STEP_US * f64::from(steps)).await;
                    item(steps as usize, 1)
                }
                Picture::Raytracer => {
                    pe.work(LINE_MS * 1e3).await;
                    item(index, SIDE)
                }
            };
            pe.send(&mut to[0], &result).await?;
        }
        Ok(())
    }
}

/// Returns the steps of a pixel of the Mandelbrot set.
fn steps(column: usize, line: usize, side: usize) -> u32 {
    let at = |index: usize| index as f64 / side as f64 * 3.0;
    let (x, y) = (at(column) - 2.0, at(line) - 1.5);
    let (mut re, mut im, mut steps) = (0.0, 0.0, 0);
    while re * re + im * im <= 4.0 && steps < STEPS_MAX {
        (re, im) = (re * re - im * im + x, 2.0 * re * im + y);
        steps += 1;
    }
    steps
}
