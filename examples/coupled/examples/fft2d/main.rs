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

use chunkcomm_array::{Array, ArrayError, Transfer};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{end_led, end_served, with_all_founders};
use chunkcomm_examples::command_line::parse_with;
use chunkcomm_examples::groups::{STATUS_DIED, config_of_ranks, group_of, sizes};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, Pair};
use rustfft::FftDirection::Forward;

use arrays::Stream;
use chunkcomm_coupled::fourier::{Number, Rows};
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

    /// Returns an array of rows.
    fn by_rows(&self, group: &Group) -> Result<Array<Number>, ArrayError> {
        Array::zeros(group, "(block,*)", self.shape)
    }

    /// Returns an array of columns, each of which is a row of the memory.
    fn by_columns(&self, group: &Group) -> Result<Array<Number>, ArrayError> {
        Array::zeros(group, "(block,*) permuted 1,0", self.shape)
    }

    /// Transforms the stream; returns the outcome at rank 0.
    async fn run(&self, cluster: &Cluster) -> Result<Option<Outcome>, Failure> {
        let groups = self.groups(cluster)?;
        let mut world = Group::world(cluster).await?;
        let rank = world.rank();
        world.barrier().await?;
        let course = if let [rows, columns] = groups[..] {
            let group = group_of([rows, columns], rank);
            let mut ours = world.split(Some(group as u32), 0).await?.expect("each has a group");
            let mut pair = ours.meet("arrays").await?;
            match group {
                0 => self.rows(&ours, &mut pair, cluster).await?,
                _ => self.columns(&ours, &mut pair, cluster).await?,
            }
        } else {
            self.data_parallel(&world).await?
        };
        Outcome::gathered(course, &mut world, groups, self.options).await
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
    async fn rows(
        &self,
        group: &Group,
        pair: &mut Pair,
        cluster: &Cluster,
    ) -> Result<Course, Failure> {
        let rows = self.by_rows(group)?;
        let first_row = rows.local().index(0).map_or(0, |index| index[0]);
        let mut fft = Rows::new(self.shape[1], Forward, self.options.costs.flop);
        let mut sender = rows.sender_with(pair, self.settings()).await?;
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
        Ok(course.end(None))
    }

    /// Receives rows as columns, and transforms them.
    async fn columns(
        &self,
        group: &Group,
        pair: &mut Pair,
        cluster: &Cluster,
    ) -> Result<Course, Failure> {
        let height = self.shape[0];
        let mut fft = Rows::new(height, Forward, self.options.costs.flop);
        let mut transformed = self.by_columns(group)?;
        let columns = self.by_columns(group)?;
        let mut receiver = columns.receiver_with(pair, self.settings()).await?;
        let mut course = Course::begin();
        for array in 0..self.options.arrays {
            while let Some((columns, elements)) = receiver.next_slab().await? {
                course.works();
                let to = columns.start * height..columns.end * height;
                fft.transform_into(elements, &mut transformed.local_mut()[to]).await;
                course.waits();
            }
            course.ended_array();
            self.check(&mut course, array, &transformed).await?;
            self.progress(None, array, cluster);
            if array + 1 < self.options.arrays {
                receiver.start().await?;
            }
        }
        Ok(course.end(Some(transformed)))
    }

    /// Transforms rows and columns with one group, an array after the other.
    async fn data_parallel(&self, group: &Group) -> Result<Course, Failure> {
        let (mut rows, mut columns) = (self.by_rows(group)?, self.by_columns(group)?);
        let first_row = rows.local().index(0).map_or(0, |index| index[0]);
        let [mut of_rows, mut of_columns] =
            [1, 0].map(|axis| Rows::new(self.shape[axis], Forward, self.options.costs.flop));
        let bar = Bar::on_terminal(self.options.no_progress || group.rank() > 0);
        let mut course = Course::begin();
        for array in 0..self.options.arrays {
            course.works();
            let mut local = rows.local_mut();
            for (number, some) in (0..).zip(local.chunks_mut(ROWS_AT_ONCE * self.shape[1])) {
                self.stream.fill(array, first_row + number * ROWS_AT_ONCE, some);
                of_rows.transform(some).await;
            }
            course.waits();
            self.options.costs.pass(0.0, size_of_val(&*local)).await;
            rows.copy_to(&mut columns).await?;
            let mut local = columns.local_mut();
            self.options.costs.pass(0.0, size_of_val(&*local)).await;
            course.works();
            of_columns.transform(&mut local).await;
            course.waits();
            course.ended_array();
            self.check(&mut course, array, &columns).await?;
            self.progress(bar.as_ref(), array, group.cluster());
        }
        Ok(course.end(Some(columns)))
    }

    /// Compares this rank's columns of a transform with the sums that define them, where an option says so.
    async fn check(
        &self,
        course: &mut Course,
        array: usize,
        transformed: &Array<Number>,
    ) -> Result<(), Failure> {
        if !self.options.check {
            return Ok(());
        }
        let local = transformed.local();
        let first = local.index(0).map_or(0, |index| index[1]);
        let columns = first..first + local.len() / self.shape[0];
        course.compare((self.stream, array), columns, &local).await
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
