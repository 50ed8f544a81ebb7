//! The main loop: sweep after sweep, until the residual is small.

use chunkcomm::host::Instant;
use chunkcomm_examples::groups::{Costs, STATUS_DIED};
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, Op};

use super::Failure;
use super::concurrent::Concurrent;
use super::data_parallel::DataParallel;
use super::options::Options;
use super::part::Part;
use super::problem::{Parameters, Spread, assembled};
use super::steered::Steered;

/// A rank's part of the computation.
pub(crate) enum Form {
    Concurrent(Box<Concurrent>),
    DataParallel(DataParallel),
}

/// The solution, and how it was found.
#[derive(Default)]
pub(crate) struct Solved {
    /// Values of the whole geometry, at rank 0.
    pub(crate) values: Vec<f64>,
    /// Number of a sweep, and its residual: the root of the sum of squares. The first is that of sweep 1.
    pub(crate) residuals: Vec<(usize, f64)>,
    pub(crate) sweeps: usize,
    /// Each with the number of the sweep after which it was set.
    pub(crate) sources: Vec<(usize, Parameters)>,
    pub(crate) seconds: f64,
    /// Of the last three quarters of the sweeps.
    pub(crate) seconds_a_sweep: f64,
}

impl Solved {
    fn last_residual(&self) -> f64 {
        self.residuals.last().map_or(0.0, |(_, residual)| *residual)
    }

    /// Returns the last residual in that of the first sweep.
    pub(crate) fn residual(&self) -> f64 {
        match self.residuals.first() {
            Some((_, first)) if *first > 0.0 => self.last_residual() / first,
            // Without a source the solution is there.
            _ => self.last_residual(),
        }
    }
}

impl Form {
    async fn open(world: &mut Group, options: &Options, spread: &Spread) -> Result<Form, Failure> {
        let (geometry, rank) = (options.geometry(), world.rank());
        if options.data_parallel {
            return Ok(Form::DataParallel(DataParallel::new(world, geometry)?));
        }
        let opened = Concurrent::open(world, geometry, spread.block_of(rank), options.costs);
        Ok(Form::Concurrent(Box::new(opened.await?)))
    }

    fn concurrent(&mut self) -> Option<&mut Concurrent> {
        match self {
            Form::Concurrent(form) => Some(form),
            Form::DataParallel(_) => None,
        }
    }

    fn parts(&mut self) -> &mut [Part] {
        match self {
            Form::Concurrent(form) => std::slice::from_mut(&mut form.part),
            Form::DataParallel(form) => &mut form.parts,
        }
    }

    async fn half_sweep(
        &mut self,
        colour: (usize, f64),
        costs: Costs,
        squares: &mut [f64],
    ) -> Result<(), Failure> {
        match self {
            Form::Concurrent(form) => form.half_sweep(colour, costs, squares).await,
            Form::DataParallel(form) => form.half_sweep(colour, costs, squares).await,
        }
    }
}

/// Solves with all ranks.
pub(crate) async fn solve(
    world: &mut Group,
    options: &Options,
    spread: &Spread,
) -> Result<Solved, Failure> {
    let geometry = options.geometry();
    let parameters = options.parameters();
    let mut form = Form::open(world, options, spread).await?;
    form.parts().iter_mut().for_each(|part| part.set(geometry, &parameters));
    let mut steered = match form.concurrent() {
        Some(form) if options.steered => Some(Steered::open(world, form, options, spread).await?),
        _ => None,
    };
    world.barrier().await?;
    let (mut solved, began, mut ends) = (Solved::default(), Instant::now(), Vec::new());
    solved.sources.push((0, parameters));
    let bar = Bar::on_terminal(options.no_progress || world.rank() > 0);
    for sweep in 1..=options.sweeps() {
        let mut squares = vec![0.0; geometry.width()];
        for colour in [0, 1] {
            form.half_sweep((colour, geometry.omega()), options.costs, &mut squares).await?;
        }
        ends.push(began.elapsed().as_secs_f64());
        if options.dies(world.cluster().rank(), sweep) {
            std::process::exit(STATUS_DIED);
        }
        if sweep == 1 || sweep % options.every == 0 || sweep == options.sweeps() {
            // A row is of one rank and the others add 0, so the sum is the same for any number of ranks.
            let squares = world.all_reduce(squares, Op::sum()).await?;
            let residual = squares.iter().sum::<f64>().sqrt();
            solved.residuals.push((sweep, residual));
            if let Some(bar) = &bar {
                bar.draw(&format!("sweep {sweep}: residual {residual:.3e}"));
            }
            if !options.steered && residual <= options.tolerance * solved.residuals[0].1 {
                break;
            }
        }
        // Between two sweeps all that was sent has been used, so the parameters may change here at all ranks.
        if let (Some(steered), Some(form)) = (&mut steered, form.concurrent())
            && sweep % options.offer == 0
            && !steered.offer(world, form, (sweep, solved.last_residual())).await?
        {
            break;
        }
    }
    if let Some(steered) = steered {
        solved.sources = steered.close().await;
    }
    let (sweeps, quarter) = (ends.len(), ends.len().div_ceil(4));
    (solved.sweeps, solved.seconds) = (sweeps, ends[sweeps - 1]);
    solved.seconds_a_sweep = match sweeps - quarter {
        0 => solved.seconds / sweeps as f64,
        counted => (solved.seconds - ends[quarter - 1]) / counted as f64,
    };
    let own = form.parts().iter().flat_map(Part::values).copied().collect();
    if let Some(all) = world.gather(0, own).await?.result {
        solved.values = assembled(geometry, spread, world.size(), &all.data);
    }
    Ok(solved)
}
