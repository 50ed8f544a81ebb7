//! Needs of a rank in each step: its input, the ends of its transfers, products, and the check of its results.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_array::{Array, ArrayReceiver, ArraySender, Transfer};
use chunkcomm_examples::groups::STATUS_DIED;
use chunkcomm_examples::program::on_a_thread;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::Group;

use super::Failure;
use super::convolve::{Convolution, Results};
use super::inputs::Stream;
use chunkcomm_coupled::fourier::Number;

/// Floating point operations of a product of two complex numbers.
const PRODUCT_FLOPS: f64 = 6.0;

impl Convolution {
    /// Multiplies element by element.
    pub(super) async fn product(
        &self,
        product: &mut [Number],
        image: &[Number],
        kernel: &[Number],
    ) {
        let work = self.options.costs.flop * PRODUCT_FLOPS * product.len() as f64;
        let ((), work) = host::working(|| {
            host::spend(Duration::from_nanos(work as u64));
            let factors = image.iter().zip(kernel);
            product.iter_mut().zip(factors).for_each(|(it, (image, kernel))| *it = image * kernel);
        });
        work.done().await;
    }

    /// Returns the numbers of all rounds, shows each at rank 0, and ends this process where it is to end.
    pub(super) fn rounds(&self) -> impl Iterator<Item = usize> + use<> {
        let (options, rank) = (self.options, self.world.rank());
        let bar = Bar::on_terminal(options.no_progress || rank > 0);
        (0..options.images).inspect(move |round| {
            if let Some(bar) = &bar {
                bar.draw(&format!("image {} of {}", round + 1, options.images));
            }
            if options.dies(rank as u32, *round) {
                std::process::exit(STATUS_DIED);
            }
        })
    }

    /// Makes these rows of an image or a kernel.
    pub(super) async fn input(
        &self,
        stream: Stream,
        round: usize,
        rows: Range<usize>,
    ) -> Result<Vec<Number>, Failure> {
        let inputs = Arc::clone(&self.inputs);
        let made = move || inputs.rows(stream, round, rows).into_iter().map(Number::from).collect();
        // On another thread, so that this one goes on sending signs of life to the other nodes.
        on_a_thread(made).await
    }

    /// Returns the largest difference from the definition so far. The last result has these rows.
    pub(super) async fn difference(
        &self,
        results: &Results,
        round: usize,
        rows: Range<usize>,
    ) -> Result<f64, Failure> {
        let inputs = Arc::clone(&self.inputs);
        let expected = on_a_thread(move || inputs.convolved(round, rows)).await?;
        let pairs = results.last.iter().zip(&expected);
        let differences = pairs.map(|(found, expected)| (found - expected).abs());
        // NaN counts as the largest.
        let larger = |most: f64, it: f64| if most.is_nan() || it <= most { most } else { it };
        Ok(differences.fold(results.difference, larger))
    }

    /// Shape of transposed arrays, which all spectra are.
    pub(super) fn turned(&self) -> [usize; 2] {
        let [rows, columns] = self.inputs.shape;
        [columns, rows]
    }

    pub(super) async fn sender(
        &self,
        group: &mut Group,
        meeting: &str,
    ) -> Result<ArraySender<Number>, Failure> {
        let spectra = Array::zeros(group, "(block,*)", self.turned())?;
        Ok(spectra.sender_with(&mut group.meet(meeting).await?, self.transfer()).await?)
    }

    pub(super) async fn receiver(
        &self,
        group: &mut Group,
        meeting: &str,
    ) -> Result<ArrayReceiver<Number>, Failure> {
        let spectra = Array::zeros(group, "(block,*)", self.turned())?;
        Ok(spectra.receiver_with(&mut group.meet(meeting).await?, self.transfer()).await?)
    }

    /// Two rounds are under way: one is computed while the one before travels.
    fn transfer(&self) -> Transfer {
        Transfer::default().depth(2).declared_nanos_per_byte(self.options.costs.packing)
    }
}
