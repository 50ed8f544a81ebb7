//! Where the time of a stream goes, at one rank and at all, and the report.

use std::error::Error;
use std::ops::Range;
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm_array::Array;
use chunkcomm_examples::command_line::write_out;
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::program::on_a_thread;
use chunkcomm_group::Group;
use serde_json::json;

use super::arrays::{self, Stream, TOLERANCE};
use super::options::{Options, Switch};
use chunkcomm_coupled::fourier::Number;

/// The course of a stream at one rank.
pub(crate) struct Course {
    begun: Instant,
    working_since: Option<Instant>,
    worked: Duration,
    /// Times at which arrays were done.
    ended: Vec<Instant>,
    /// Largest difference to the sums by definition, and largest magnitude.
    differs: [f64; 2],
    /// The last transform, at the ranks that have it.
    transformed: Option<Array<Number>>,
}

/// Number of figures of a rank.
const FIGURES: usize = 6;

impl Course {
    pub(crate) fn begin() -> Course {
        let (begun, working_since, worked) = (Instant::now(), None, Duration::ZERO);
        let (ended, differs, transformed) = (Vec::new(), [0.0; 2], None);
        Course { begun, working_since, worked, ended, differs, transformed }
    }

    /// From now on this rank fills and transforms.
    pub(crate) fn works(&mut self) {
        self.working_since = Some(Instant::now());
    }

    /// From now on it sends, receives and waits.
    pub(crate) fn waits(&mut self) {
        self.worked += self.working_since.take().map_or(Duration::ZERO, Instant::elapsed);
    }

    /// An array is done.
    pub(crate) fn ended_array(&mut self) {
        self.ended.push(Instant::now());
    }

    /// Compares this rank's columns of a transform with the sums that define them.
    pub(crate) async fn compare(
        &mut self,
        (stream, array): (Stream, usize),
        columns: Range<usize>,
        transformed: &[Number],
    ) -> Result<(), Box<dyn Error>> {
        let found = transformed.to_vec();
        let compare = move || arrays::compare(stream, array, columns, &found);
        // On another thread, so that this one goes on sending signs of life to the other nodes.
        let differs = on_a_thread(compare).await?;
        self.differs = [0, 1].map(|which| self.differs[which].max(differs[which]));
        Ok(())
    }

    pub(crate) fn end(self, transformed: Option<Array<Number>>) -> Course {
        Course { transformed, ..self }
    }

    fn figures(&self) -> [f64; FIGURES] {
        let arrays = self.ended.len();
        let seconds = (self.ended[arrays - 1] - self.begun).as_secs_f64();
        // Without the first quarter, in which the pipeline fills, and the last, in which it runs dry.
        let (from, to) = (arrays / 4, arrays * 3 / 4);
        let steady = match to - from {
            0 => seconds / arrays as f64,
            steady => (self.ended[to] - self.ended[from]).as_secs_f64() / steady as f64,
        };
        let worked = self.worked.as_secs_f64();
        let waiting = if seconds > 0.0 { 1.0 - worked / seconds } else { 0.0 };
        let [apart, largest] = self.differs;
        [seconds, steady, worked / arrays as f64, waiting, apart, largest]
    }
}

/// The figures of all ranks, at rank 0.
pub(crate) struct Outcome {
    /// Numbers of ranks of the groups.
    groups: Vec<usize>,
    /// Seconds of all arrays, and steady seconds of one.
    seconds: [f64; 2],
    /// Largest seconds of work of a rank on an array, and mean share of time that it does not work, for each group.
    of_groups: Vec<[f64; 2]>,
    /// Largest difference to the sums by definition, as a part of the largest magnitude; with `--check`.
    difference: Option<f64>,
    /// The last transform, if it is asked for.
    transformed: Option<Vec<Number>>,
}

impl Outcome {
    /// Collects what all ranks know; returns the outcome at rank 0.
    pub(crate) async fn gathered(
        course: Course,
        world: &mut Group,
        groups: Vec<usize>,
        options: &Options,
    ) -> Result<Option<Outcome>, Box<dyn Error>> {
        let figures = world.gather(0, course.figures().to_vec()).await?.result;
        let is_needed = options.output.is_some() || options.npy.is_some();
        let whole = match course.transformed.filter(|_| is_needed) {
            Some(transformed) => transformed.gather(0).await?,
            None => None,
        };
        // Of the last group's first rank alone.
        let whole = world.gather(0, whole.unwrap_or_default()).await?.result;
        let (Some(figures), Some(whole)) = (figures, whole) else { return Ok(None) };
        let figures: Vec<&[f64]> = figures.data.chunks(FIGURES).collect();
        let most = |figures: &[&[f64]], which: usize| {
            figures.iter().map(|it| it[which]).fold(0.0, f64::max)
        };
        let mut first = 0;
        let of_groups = groups.iter().map(|size| {
            let of_group = &figures[first..first + size];
            first += size;
            let waiting = of_group.iter().map(|it| it[3]).sum::<f64>() / *size as f64;
            [most(of_group, 2), waiting]
        });
        let of_groups = of_groups.collect();
        let last = figures.len() - groups[groups.len() - 1];
        let seconds = [most(&figures, 0), most(&figures[last..], 1)];
        // A transform of zeros has no magnitude.
        let difference =
            options.check.then(|| most(&figures, 4) / most(&figures, 5).max(f64::MIN_POSITIVE));
        let transformed = is_needed.then_some(whole.data);
        Ok(Some(Outcome { groups, seconds, of_groups, difference, transformed }))
    }

    /// Draws and writes the last transform as the options say, and prints the report.
    pub(crate) async fn tell(self, options: &'static Options) -> Result<(), Box<dyn Error>> {
        let mut report = Report::default();
        let [rows, columns] = options.shape;
        let form = if options.data_parallel { "data-parallel" } else { "pipelined" };
        let sizes: Vec<String> = self.groups.iter().map(ToString::to_string).collect();
        report.row("arrays", format_args!("{} of {rows} x {columns} complex f64", options.arrays));
        report.row("ranks", format_args!("{}, {form}", sizes.join(" and ")));
        let [seconds, steady] = self.seconds;
        report.row("time", format_args!("{seconds:.4} s, {:.3} ms an array", steady * 1e3));
        for (group, [worked, waiting]) in (1..).zip(&self.of_groups) {
            report.row(
                &format!("group {group}"),
                format_args!(
                    "{:.3} ms of work an array, {:.1} % of its time",
                    worked * 1e3,
                    (1.0 - waiting) * 1e2
                ),
            );
        }
        if let Some(transformed) = self.transformed {
            write(options, transformed, &mut report).await?;
        }
        if let Some(apart) = self.difference {
            let within = format!("{apart:.1e} of the largest magnitude; allowed is {TOLERANCE:e}");
            if apart.is_nan() || apart > TOLERANCE {
                return Err(format!(
                    "a transform differs from the sums that define it by {within}"
                )
                .into());
            }
            report.row(
                "check",
                format_args!("all transforms equal the sums that define them within {within}"),
            );
        }
        if !options.json {
            return Ok(write_out(report.text())?);
        }
        let json = json!({
            "program": "fft2d", "form": form, "ranks": self.groups,
            "shape": format!("{rows}x{columns}"), "arrays": options.arrays,
            "slabs": options.slabs == Switch::On, "overlap": options.overlap == Switch::On,
            "depth": options.depth, "seconds": seconds, "seconds_an_array": steady,
            "compute_seconds": self.of_groups.iter().map(|it| it[0]).collect::<Vec<_>>(),
            "waiting_share": self.of_groups.iter().map(|it| it[1]).collect::<Vec<_>>(),
            "difference": self.difference,
        });
        Ok(write_out(&format!("{json}\n"))?)
    }
}

/// Draws and writes the last transform as the options say.
async fn write(
    options: &'static Options,
    transformed: Vec<Number>,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let stream = Stream { shape: options.shape, seed: options.seed };
    let written = on_a_thread(move || -> Result<_, Box<dyn Error + Send + Sync>> {
        if let Some(file) = &options.output {
            arrays::draw(file, &transformed, options.shape)?;
        }
        if let Some(folder) = &options.npy {
            let array = stream.array(options.arrays - 1);
            arrays::write_npy(folder, &array, &transformed, options.shape)?;
        }
        Ok(())
    });
    written.await?.map_err(|error| -> Box<dyn Error> { error })?;
    if let Some(file) = &options.output {
        report.row("written", file.display());
    }
    if let Some(folder) = &options.npy {
        report.row("written", format_args!("input.npy, transform.npy in {}", folder.display()));
    }
    Ok(())
}
