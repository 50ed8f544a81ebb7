//! `chunkperf lan-study`: the processor farms of the LAN study in virtual time, its numbers beside
//! ours.
//!
//! The text of the study has the numbers of table 4 and of figure 8; of the other figures it has
//! what they show. Those are *claims*, which hold for ours or not.

mod claims;

use chunkcomm_farm::settings::Model;
use clap::{Args, ValueEnum};

use self::claims::{Claim, claims_of};
use super::Verdict;
use crate::failure::Failure;
use crate::harness::slices::name_of;
use crate::options::Common;
use crate::study::{Machine, Picture, Setup, Tool};
use crate::table::{Row, aligned, significant, write_out};

/// Pixels of a task, a line: "for the further study the 800 pixels per task granularity has been
/// chosen" (section 4).
const LINE: u64 = 800;

/// Options of `chunkperf lan-study`.
#[derive(Debug, Args)]
pub struct LanStudyArgs {
    #[command(flatten)]
    common: Common,
    /// The one figure to run
    #[arg(long, value_enum)]
    only: Option<Figure>,
}

/// A figure or table of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// Pixels of a task, on 8 SLC.
    Figure4,
    /// PVM and Strand on SLC.
    Figure5,
    /// Double buffering with SR.
    Figure6,
    /// Models A and B on SLC.
    Figure7,
    /// Ray tracing on many machines.
    Figure8,
    /// Fractal and ray tracing.
    Figure9,
    /// Models A and B on SPARCstation 2 and RS6000.
    Table4,
}

/// One farm of a figure, with the study's seconds where its text has them.
#[derive(Debug, Clone)]
struct Point {
    setup: Setup,
    paper_seconds: Option<f64>,
    /// With local messages in model A, as the study's processes have them.
    seconds: f64,
    /// Without, as our farm is; the same in model B.
    own_seconds: f64,
}

/// Runs the command.
///
/// # Errors
/// If a farm fails.
pub fn run(args: &LanStudyArgs) -> Result<Verdict, Failure> {
    args.common.check_virtual()?;
    for &figure in Figure::value_variants() {
        if args.only.is_some_and(|only| only != figure) {
            continue;
        }
        let mut points = figure.points();
        for point in &mut points {
            let setup = &point.setup;
            point.seconds = setup.seconds()?;
            point.own_seconds = match setup.model {
                Model::A => Setup { local_messages: false, ..setup.clone() }.seconds()?,
                _ => point.seconds,
            };
        }
        let claims = claims_of(figure, &points);
        print(figure, &points, &claims, args.common.json);
    }
    Ok(Verdict::Fine)
}

fn print(figure: Figure, points: &[Point], claims: &[Claim], json: bool) {
    if json {
        points.iter().for_each(|point| point.row(figure).print(true));
        claims.iter().for_each(|claim| claim.row(figure).print(true));
        return;
    }
    let heading = [
        "tool",
        "stations",
        "model",
        "workers",
        "pixels",
        "held",
        "paper s",
        "ours s",
        "ours / paper",
        "speed-up",
        "without local messages, s",
    ];
    let mut lines = vec![heading.map(str::to_owned).to_vec()];
    lines.extend(points.iter().map(Point::line));
    write_out(&format!("{}\n{}", name_of(figure), aligned(&lines)));
    for claim in claims {
        let holds = if claim.holds { "holds" } else { "DOES NOT HOLD" };
        let note = claim.note.map_or_else(String::new, |note| format!(" ({note})"));
        write_out(&format!("{holds}: {}{note}\n", claim.text));
    }
    write_out("\n");
}

impl Figure {
    /// Returns the farms of the figure, not yet run.
    fn points(self) -> Vec<Point> {
        let slc = |count: usize| vec![Machine::Slc; count];
        let fractal = |tool, stations, model| Setup {
            tool,
            stations,
            model,
            picture: Picture::Fractal,
            pixels: LINE,
            prefetch: 1,
            local_messages: true,
        };
        let rays =
            |stations| Setup { picture: Picture::Rays, ..fractal(Tool::Pvm, stations, Model::A) };
        // Strand "automatically exploits such a mechanism as double buffering" (section 4).
        let strand = |stations| Setup { prefetch: 2, ..fractal(Tool::Strand, stations, Model::A) };
        let setups: Vec<Setup> = match self {
            Self::Figure4 => {
                let both = [fractal(Tool::Pvm, slc(8), Model::A), strand(slc(8))];
                let sizes = [50, 100, 200, 400, 800, 1600, 2000, 4000, 8000, 16000, 32000];
                let of = |setup: Setup| sizes.map(|pixels| Setup { pixels, ..setup.clone() });
                both.into_iter().flat_map(of).collect()
            }
            Self::Figure5 => {
                let pvm = (1..=10).map(|count| fractal(Tool::Pvm, slc(count), Model::A));
                pvm.chain((1..=10).map(|count| strand(slc(count)))).collect()
            }
            Self::Figure6 => {
                let of = |prefetch| {
                    (1..=9).map(move |workers| {
                        let stations = [vec![Machine::Sparc], slc(workers)].concat();
                        Setup { prefetch, ..fractal(Tool::Sr, stations, Model::B) }
                    })
                };
                of(1).chain(of(2)).collect()
            }
            Self::Figure7 => {
                let each = [Tool::P4, Tool::Ansa, Tool::Pvm]
                    .into_iter()
                    .flat_map(|tool| [Model::A, Model::B].map(|model| (tool, model)));
                each.flat_map(|(tool, model)| {
                    (2..=10).map(move |count| fractal(tool, slc(count), model))
                })
                .collect()
            }
            Self::Figure8 => {
                let [sparc, rs] = [vec![Machine::Sparc; 7], vec![Machine::Rs; 5]];
                let all = [sparc.clone(), rs.clone(), vec![Machine::Hp]].concat();
                vec![rays(sparc), rays(rs), rays(all)]
            }
            Self::Figure9 => {
                let fractals = (1..=10).map(|count| fractal(Tool::Pvm, slc(count), Model::A));
                fractals.chain((1..=10).map(|count| rays(slc(count)))).collect()
            }
            Self::Table4 => {
                let of = |machine: Machine| {
                    let stations = move |count| vec![machine; count];
                    let five = fractal(Tool::Pvm, stations(5), Model::B);
                    let a = (1..=5).map(move |count| fractal(Tool::Pvm, stations(count), Model::A));
                    a.chain([five])
                };
                of(Machine::Sparc).chain(of(Machine::Rs)).collect()
            }
        };
        let paper = self.paper_seconds();
        let point = |(index, setup)| {
            let paper_seconds = paper.get(index).copied().flatten();
            Point { setup, paper_seconds, seconds: f64::NAN, own_seconds: f64::NAN }
        };
        setups.into_iter().enumerate().map(point).collect()
    }

    /// Returns the study's seconds, in the order of the farms.
    fn paper_seconds(self) -> Vec<Option<f64>> {
        match self {
            Self::Table4 => {
                [43.95, 26.47, 20.10, 15.23, 12.90, 14.18, 20.81, 18.91, 14.77, 13.02, 12.10, 10.77]
                    .map(Some)
                    .to_vec()
            }
            // "51 times", against the T800, which needs 1788 s (table 5).
            Self::Figure8 => vec![None, None, Some(1788.0 / 51.0)],
            _ => Vec::new(),
        }
    }
}

impl Point {
    /// Returns how many times as fast the farm is as the last station alone, which works in both
    /// models.
    fn speedup(&self) -> f64 {
        let last = self.setup.stations.last().copied().unwrap_or(Machine::Slc);
        self.setup.picture.seconds_on(last) / self.seconds
    }

    /// Returns the stations as people write them: 5 RS6000.
    fn stations(&self) -> String {
        let runs = self.setup.stations.chunk_by(|one, other| one == other);
        runs.map(|run| format!("{} {}", run.len(), run[0])).collect::<Vec<_>>().join(", ")
    }

    fn model(&self) -> &'static str {
        if self.setup.model == Model::A { "a" } else { "b" }
    }

    fn line(&self) -> Vec<String> {
        let Setup { tool, pixels, prefetch, .. } = &self.setup;
        let paper = |of: fn(f64, f64) -> f64| {
            let seconds = self.paper_seconds;
            seconds
                .map_or_else(|| "-".to_owned(), |paper| format!("{:.2}", of(self.seconds, paper)))
        };
        vec![
            tool.to_string(),
            self.stations(),
            self.model().to_owned(),
            self.setup.workers().to_string(),
            pixels.to_string(),
            prefetch.to_string(),
            paper(|_, paper| paper),
            significant(self.seconds),
            paper(|ours, paper| ours / paper),
            format!("{:.2}", self.speedup()),
            significant(self.own_seconds),
        ]
    }

    fn row(&self, figure: Figure) -> Row {
        let Setup { tool, stations, picture, pixels, prefetch, .. } = &self.setup;
        let mut row = Row::default();
        row.set("bench", "lan-study")
            .set("transport", "virtual")
            .set("runtime", "virtual")
            .set("figure", name_of(figure))
            .set("tool", tool.to_string())
            .set("picture", if *picture == Picture::Fractal { "fractal" } else { "rays" })
            .set("stations", self.stations())
            .set("processors", stations.len())
            .set("workers", self.setup.workers())
            .set("model", self.model())
            .set("pixels", *pixels)
            .set("prefetch", *prefetch)
            .set("paper_seconds", self.paper_seconds)
            .set("seconds", self.seconds)
            .set("own_seconds", self.own_seconds)
            .set("paper_ratio", self.paper_seconds.map(|paper| self.seconds / paper))
            .set("speedup", self.speedup());
        row
    }
}
