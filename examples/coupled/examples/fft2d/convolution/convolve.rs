//! The two forms of the program: four blocks side by side, or all steps in turn.

use std::sync::Arc;

use chunkcomm::host::Instant;
use chunkcomm_group::Group;
use rustfft::FftDirection::{Forward, Inverse};

use super::Failure;
use super::inputs::{Inputs, Stream};
use super::options::Options;
use super::transform::Transform;
use chunkcomm_coupled::fourier::ZERO;

/// Names under which the groups of two neighbouring blocks meet.
const MEETINGS: [&str; 3] = ["images", "kernels", "products"];

/// A convolution at one rank.
pub(crate) struct Convolution {
    pub(crate) options: &'static Options,
    pub(crate) inputs: Arc<Inputs>,
    pub(crate) world: Group,
}

/// Knowledge of a rank at the end; the ranks that transform back know all of it.
#[derive(Default)]
pub(crate) struct Results {
    /// Seconds until the result of each round.
    pub(crate) seconds: Vec<f64>,
    /// Largest difference from a convolution by definition, with `--check`.
    pub(crate) difference: f64,
    /// Rows of the last round's result.
    pub(crate) last: Vec<f64>,
}

impl Convolution {
    /// Runs this rank's block of the pipeline: that of its group.
    pub(crate) async fn pipelined(
        &mut self,
        group: &mut Group,
        block: usize,
    ) -> Result<Results, Failure> {
        match block {
            0 => self.transform(group, Stream::Images, MEETINGS[0]).await,
            1 => self.transform(group, Stream::Kernels, MEETINGS[1]).await,
            2 => self.multiply(group).await,
            _ => self.transform_back(group).await,
        }
    }

    /// First and second block: transforms one of the streams. Rows leave as they are finished.
    async fn transform(
        &mut self,
        group: &mut Group,
        stream: Stream,
        meeting: &str,
    ) -> Result<Results, Failure> {
        let mut transform = Transform::new(group, self.inputs.shape, Forward, self.options)?;
        let mut spectra = self.sender(group, meeting).await?;
        self.world.barrier().await?;
        for round in self.rounds() {
            let image = self.input(stream, round, transform.parts[0].clone()).await?;
            transform.take(0, &image).await;
            transform.transpose().await?;
            if round > 0 {
                spectra.start().await?;
            }
            while let Some(mut slab) = spectra.next_slab() {
                transform.give(slab.rows(), &mut slab).await;
                spectra.commit(slab).await?;
            }
        }
        spectra.finish().await?;
        Ok(Results::default())
    }

    /// Third block: multiplies both streams, rows by rows as they come.
    async fn multiply(&mut self, group: &mut Group) -> Result<Results, Failure> {
        let mut images = self.receiver(group, MEETINGS[0]).await?;
        let mut kernels = self.receiver(group, MEETINGS[1]).await?;
        let mut products = self.sender(group, MEETINGS[2]).await?;
        self.world.barrier().await?;
        for round in self.rounds() {
            if round > 0 {
                products.start().await?;
            }
            while let Some(mut slab) = products.next_slab() {
                let rows = slab.rows();
                let (image, kernel) = (images.wait(rows.clone()).await?, kernels.wait(rows).await?);
                self.product(&mut slab, image, kernel).await;
                products.commit(slab).await?;
            }
            if round + 1 < self.options.images {
                images.start().await?;
                kernels.start().await?;
            }
        }
        products.finish().await?;
        Ok(Results::default())
    }

    /// Fourth block: transforms products back. They are transposed, and so the result is not.
    async fn transform_back(&mut self, group: &mut Group) -> Result<Results, Failure> {
        let turned = self.turned();
        let mut transform = Transform::new(group, turned, Inverse, self.options)?;
        let mut products = self.receiver(group, MEETINGS[2]).await?;
        self.world.barrier().await?;
        let (begun, mut results) = (Instant::now(), Results::default());
        for round in self.rounds() {
            while let Some((rows, elements)) = products.next_slab().await? {
                transform.take(rows.start, elements).await;
            }
            if round + 1 < self.options.images {
                products.start().await?;
            }
            self.give_back(&mut transform, &mut results, begun).await?;
        }
        Ok(results)
    }

    /// The same by one group, which takes all steps of a round before the next one.
    pub(crate) async fn data_parallel(&mut self, group: &mut Group) -> Result<Results, Failure> {
        let (shape, turned) = (self.inputs.shape, self.turned());
        let mut forward = Transform::new(group, shape, Forward, self.options)?;
        let mut inverse = Transform::new(group, turned, Inverse, self.options)?;
        let columns = forward.parts[1].len();
        let [mut image, mut kernel, mut product] = [0; 3].map(|_| vec![ZERO; columns * shape[0]]);
        self.world.barrier().await?;
        let (begun, mut results) = (Instant::now(), Results::default());
        for round in self.rounds() {
            for (stream, spectrum) in [(Stream::Images, &mut image), (Stream::Kernels, &mut kernel)]
            {
                let image = self.input(stream, round, forward.parts[0].clone()).await?;
                forward.take(0, &image).await;
                forward.transpose().await?;
                forward.give(0..columns, spectrum).await;
            }
            self.product(&mut product, &image, &kernel).await;
            inverse.take(0, &product).await;
            self.give_back(&mut inverse, &mut results, begun).await?;
        }
        Ok(results)
    }

    /// Ends a round: transposes products and transforms them to this rank's rows of the result.
    async fn give_back(
        &self,
        transform: &mut Transform,
        results: &mut Results,
        begun: Instant,
    ) -> Result<(), Failure> {
        let (rows, round) = (transform.parts[1].clone(), results.seconds.len());
        let mut numbers = vec![ZERO; rows.len() * self.inputs.shape[1]];
        transform.transpose().await?;
        transform.give(0..rows.len(), &mut numbers).await;
        let scale = 1.0 / self.inputs.shape.iter().product::<usize>() as f64;
        results.last = numbers.iter().map(|number| number.re * scale).collect();
        results.seconds.push(begun.elapsed().as_secs_f64());
        if self.options.check {
            results.difference = self.difference(results, round, rows).await?;
        }
        Ok(())
    }
}
