//! Transforms a stream of complex arrays by a two-dimensional FFT, with two groups of processes:
//!
//! ```text
//! first group                                             second group
//! transforms rows  -- each slab as it is finished,  -->   transforms columns
//!                     transposed on the way
//! ```
//!
//! ```text
//! cargo run --release --example fft2d -- --check --output transform.png
//! mpiexec -n 4 target/release/examples/fft2d --shape 1024x1024
//! target/release/examples/fft2d --data-parallel
//! ```
//!
//! Each rank of the first group has some rows, each of the second some columns. From the two layouts follows who
//! sends which elements to whom. The second layout lies transposed in memory, so that a column is a row there.
//!
//! `--data-parallel` is the usual form: one group of all processes transforms the rows of an array, exchanges all
//! with all, and transforms the columns.
//!
//! The pipeline and its competitor are those of Foster, Kohr, Krishnaiyer and Choudhary ("Double Standards: Bringing Task
//! Parallelism to HPF via the Message Passing Interface", 1996, sections 2 and 6). `numpy.fft.fft2` compares with
//! `--npy FOLDER`: `python3 compare.py FOLDER`.

mod arrays;
mod course;
mod definition;
mod options;

use std::error::Error;
use std::process::ExitCode;

use chunkcomm_array::{ArrayExchange, ArrayReceiver, ArraySender, Layout, Transfer};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{end_led, end_served, with_all_founders};
use chunkcomm_examples::command_line::parse_with;
use chunkcomm_examples::groups::{STATUS_DIED, config_of_ranks, group_of, sizes};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, Pair};
use rustfft::FftDirection::Forward;

use arrays::Stream;
use chunkcomm_coupled::fourier::{Number, Rows, ZERO};
use course::{Course, Outcome};
use options::{Options, Switch};

/// Number of processes that the program starts by default.
const NODES: u32 = 4;

/// Rows that the data-parallel form makes before they are transformed.
const ROWS_AT_ONCE: usize = 16;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    let cluster = options.of_cluster();
    run_program("fft2d", &cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let config = config_of_ranks(&options.cluster, options.ranks, NODES)?;
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    let transform = Transform::new(options);
    if cluster.rank() == 0 {
        let done = async {
            options.check_files()?;
            let outcome = with_all_founders(&cluster, transform.run(&cluster)).await?;
            outcome.expect("rank 0 has the outcome").tell(options).await
        };
        let done = done.await;
        return end_led(&cluster, done).await;
    }
    if transform.groups(&cluster).is_err() {
        return end_served(&cluster).await; // rank 0 says why
    }
    match (transform.run(&cluster).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// The transform of a stream, at one rank.
struct Transform {
    options: &'static Options,
    stream: Stream,
    shape: [usize; 2],
}

impl Transform {
    fn new(options: &'static Options) -> Transform {
        let stream = Stream { shape: options.shape, seed: options.seed };
        Transform { options, stream, shape: options.shape }
    }

    /// Returns the numbers of ranks of the groups.
    fn groups(&self, cluster: &Cluster) -> Result<Vec<usize>, String> {
        if self.options.data_parallel {
            return Ok(vec![cluster.size() as usize]);
        }
        Ok(sizes(cluster, self.options.ranks, [1, 1])?.to_vec())
    }

    /// Layout of the rows, over this number of ranks.
    fn by_rows(&self, ranks: usize) -> Result<Layout, Failure> {
        Ok(Layout::parse(&format!("(block,*)@{ranks}x1"), &self.shape)?)
    }

    /// Layout of the columns, each of which is a row of the memory.
    fn by_columns(&self, ranks: usize) -> Result<Layout, Failure> {
        let [rows, columns] = self.shape;
        let text = format!("(block,*)@{ranks}x1 permuted 1,0");
        Ok(Layout::parse(&text, &[columns, rows])?)
    }

    /// Transforms the stream; returns the outcome at rank 0.
    async fn run(&self, cluster: &Cluster) -> Result<Option<Outcome>, Failure> {
        let groups = self.groups(cluster)?;
        let mut world = Group::world(cluster).await?;
        let rank = world.rank();
        world.barrier().await?;
        let (course, columns) = if let [rows, columns] = groups[..] {
            let group = group_of([rows, columns], rank);
            let mut ours = world.split(Some(group as u32), 0).await?.expect("each has a group");
            let mut pair = ours.meet("arrays").await?;
            let course = match group {
                0 => self.rows(&mut pair, cluster).await?,
                _ => self.columns(&mut pair, cluster).await?,
            };
            (course, self.by_columns(columns)?)
        } else {
            (self.data_parallel(&mut world).await?, self.by_columns(world.size())?)
        };
        Outcome::gathered(course, &mut world, (groups, columns), self.options).await
    }

    fn settings(&self) -> Transfer {
        let settings = Transfer::default()
            .depth(self.options.depth)
            .overlap(self.options.overlap == Switch::On)
            .declared_nanos_per_byte(self.options.costs.packing);
        match self.options.slabs {
            Switch::On => settings,
            // One slab of all rows: nothing leaves before the last one is finished.
            Switch::Off => settings.slab_rows(usize::MAX),
        }
    }

    /// Transforms rows, and sends them to the other group.
    async fn rows(&self, pair: &mut Pair, cluster: &Cluster) -> Result<Course, Failure> {
        let layout = self.by_rows(pair.size())?;
        let first_row = layout.global(pair.rank(), 0).map_or(0, |index| index[0]);
        let mut fft = Rows::new(self.shape[1], Forward, self.options.costs.flop);
        let storage = vec![ZERO; layout.local_len(pair.rank())];
        let mut sender = ArraySender::open_with(pair, &layout, storage, self.settings()).await?;
        let bar = Bar::on_terminal(self.options.no_progress || cluster.rank() > 0);
        let mut course = Course::begin();
        for array in 0..self.options.arrays {
            while let Some(mut slab) = sender.next_slab() {
                course.works();
                self.stream.fill(array, first_row + slab.rows().start, &mut slab);
                fft.transform(&mut slab).await;
                course.waits();
                sender.commit(slab).await?;
            }
            self.progress(bar.as_ref(), array, cluster);
            if array + 1 < self.options.arrays {
                sender.start().await?;
            }
            course.ended_array();
        }
        sender.finish().await?;
        Ok(course.end(vec![]))
    }

    /// Receives rows as columns, and transforms them.
    async fn columns(&self, pair: &mut Pair, cluster: &Cluster) -> Result<Course, Failure> {
        let (layout, rank, height) = (self.by_columns(pair.size())?, pair.rank(), self.shape[0]);
        let mut fft = Rows::new(height, Forward, self.options.costs.flop);
        let mut transformed = vec![ZERO; layout.local_len(rank)];
        let storage = transformed.clone();
        let mut receiver =
            ArrayReceiver::accept_with(pair, &layout, storage, self.settings()).await?;
        let mut course = Course::begin();
        for array in 0..self.options.arrays {
            while let Some((columns, elements)) = receiver.next_slab().await? {
                course.works();
                let slab = &mut transformed[columns.start * height..columns.end * height];
                fft.transform_into(elements, slab).await;
                course.waits();
            }
            course.ended_array();
            self.check(&mut course, array, (&layout, rank), &transformed).await?;
            self.progress(None, array, cluster);
            if array + 1 < self.options.arrays {
                receiver.start().await?;
            }
        }
        Ok(course.end(transformed))
    }

    /// Transforms rows and columns with one group, an array after the other.
    async fn data_parallel(&self, group: &mut Group) -> Result<Course, Failure> {
        let (from, to) = (self.by_rows(group.size())?, self.by_columns(group.size())?);
        let (rank, size) = (group.rank(), [&from, &to].map(|it| it.local_len(group.rank())));
        let first_row = from.global(rank, 0).map_or(0, |index| index[0]);
        let [mut of_rows, mut of_columns] =
            [1, 0].map(|axis| Rows::new(self.shape[axis], Forward, self.options.costs.flop));
        let storage = vec![ZERO; size[0].max(size[1])];
        let mut exchange = ArrayExchange::open(group, &from, &to, storage).await?;
        let bar = Bar::on_terminal(self.options.no_progress || rank > 0);
        let mut course = Course::begin();
        for array in 0..self.options.arrays {
            course.works();
            let rows = &mut exchange.storage_mut()[..size[0]];
            for (number, some) in (0..).zip(rows.chunks_mut(ROWS_AT_ONCE * self.shape[1])) {
                self.stream.fill(array, first_row + number * ROWS_AT_ONCE, some);
                of_rows.transform(some).await;
            }
            course.waits();
            self.options.costs.pass(0.0, size[0] * size_of::<Number>()).await;
            exchange.run().await?;
            self.options.costs.pass(0.0, size[1] * size_of::<Number>()).await;
            course.works();
            of_columns.transform(&mut exchange.storage_mut()[..size[1]]).await;
            course.waits();
            course.ended_array();
            let transformed = &exchange.storage()[..size[1]];
            self.check(&mut course, array, (&to, rank), transformed).await?;
            self.progress(bar.as_ref(), array, group.cluster());
        }
        let mut transformed = exchange.into_buffer();
        transformed.truncate(size[1]);
        Ok(course.end(transformed))
    }

    /// Compares this rank's columns of a transform with the sums that define them, where an option says so.
    async fn check(
        &self,
        course: &mut Course,
        array: usize,
        (layout, rank): (&Layout, usize),
        transformed: &[Number],
    ) -> Result<(), Failure> {
        if !self.options.check {
            return Ok(());
        }
        let first = layout.global(rank, 0).map_or(0, |index| index[1]);
        let columns = first..first + transformed.len() / self.shape[0];
        course.compare((self.stream, array), columns, transformed).await
    }

    /// Shows the progress, and ends this process where an option says so.
    fn progress(&self, bar: Option<&Bar>, array: usize, cluster: &Cluster) {
        if let Some(bar) = bar {
            bar.draw(&format!("array {} of {}", array + 1, self.options.arrays));
        }
        if self.options.dies(cluster.rank(), array) {
            std::process::exit(STATUS_DIED);
        }
    }
}
