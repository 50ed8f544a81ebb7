//! Statements of the study about its figures, and whether they hold for ours.

use chunkcomm_farm::settings::Model;

use super::{Figure, Point};
use crate::harness::slices::name_of;
use crate::study::{Machine, Picture, Tool};
use crate::table::Row;

/// The study's own table against its statement about figure 8.
const RAYS_NOTE: &str = "by table 5, without any message, five RS6000 take 64.6 s and seven \
    SPARCstation 2 take 55.4 s";

/// A statement of the study.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) text: String,
    pub(super) holds: bool,
    /// The reason why it cannot hold by the study's own numbers.
    pub(super) note: Option<&'static str>,
}

impl Claim {
    pub(super) fn row(&self, figure: Figure) -> Row {
        let mut row = Row::default();
        row.set("bench", "lan-study")
            .set("transport", "virtual")
            .set("runtime", "virtual")
            .set("figure", name_of(figure))
            .set("claim", self.text.as_str())
            .set("holds", self.holds)
            .set("note", self.note);
        row
    }
}

/// Returns the statements about a figure.
pub(super) fn claims_of(figure: Figure, points: &[Point]) -> Vec<Claim> {
    let all = Points(points);
    let claims = match figure {
        Figure::Figure4 => granularity(&all),
        Figure::Figure5 => {
            let of = |tool, count| all.one(|it| it.setup.tool == tool && it.count() == count);
            let rises = |tool| of(tool, 10).speedup() > of(tool, 2).speedup();
            vec![("both speed-ups grow with the stations", rises(Tool::Pvm) && rises(Tool::Strand))]
        }
        Figure::Figure6 => {
            let of = |held, count| all.one(|it| it.setup.prefetch == held && it.count() == count);
            let gain = |count| of(1, count).seconds / of(2, count).seconds;
            vec![(
                "double buffering improves the speed-up for a greater number of stations",
                gain(9) > 1.0,
            )]
        }
        Figure::Figure7 => crossing(&all),
        Figure::Figure8 => {
            let sparc = all.one(|it| it.setup.stations == [Machine::Sparc; 7]);
            let rs = all.one(|it| it.setup.stations == [Machine::Rs; 5]);
            vec![(
                "five RS6000 trace rays faster than seven SPARCstation 2",
                rs.seconds < sparc.seconds,
            )]
        }
        Figure::Figure9 => {
            let of = |picture| all.one(|it| it.setup.picture == picture && it.count() == 10);
            let [rays, fractal] = [Picture::Rays, Picture::Fractal].map(|it| of(it).speedup());
            vec![("ray tracing has the larger speed-up on ten stations", rays > fractal)]
        }
        Figure::Table4 => {
            let of = |machine, model| {
                let five =
                    |it: &Point| it.setup.stations == [machine; 5] && it.setup.model == model;
                all.one(five).seconds
            };
            vec![
                (
                    "five RS6000 as model A lose to four workers as model B",
                    of(Machine::Rs, Model::A) > of(Machine::Rs, Model::B),
                ),
                (
                    "five SPARCstation 2 as model A beat four workers as model B",
                    of(Machine::Sparc, Model::A) < of(Machine::Sparc, Model::B),
                ),
            ]
        }
    };
    let note = (figure == Figure::Figure8).then_some(RAYS_NOTE);
    let claim = |(text, holds): (&str, bool)| Claim { text: text.to_owned(), holds, note };
    claims.into_iter().map(claim).collect()
}

/// Returns the statements about the pixels of a task.
fn granularity(all: &Points<'_>) -> Vec<(&'static str, bool)> {
    let best = |tool| {
        let of = all.0.iter().filter(|it| it.setup.tool == tool);
        let best = of.min_by(|one, other| one.seconds.total_cmp(&other.seconds));
        best.map_or(0, |point| point.setup.pixels)
    };
    let of = |tool, pixels| all.one(|it| it.setup.tool == tool && it.setup.pixels == pixels);
    let small_hurts = |tool| of(tool, 50).seconds > 1.5 * of(tool, 800).seconds;
    vec![
        (
            "small tasks degrade the performance substantially",
            small_hurts(Tool::Pvm) && small_hurts(Tool::Strand),
        ),
        (
            "the best tasks have 800 to 2000 pixels, with both tools",
            [Tool::Pvm, Tool::Strand].into_iter().all(|it| (800..=2000).contains(&best(it))),
        ),
        (
            "Strand does better than PVM with small tasks",
            of(Tool::Strand, 100).seconds < of(Tool::Pvm, 100).seconds,
        ),
    ]
}

/// Returns the statements about the models on SLC.
fn crossing(all: &Points<'_>) -> Vec<(&'static str, bool)> {
    let of = |tool, model, count| {
        let is_it = |it: &Point| {
            it.setup.tool == tool && it.setup.model == model && it.setup.stations.len() == count
        };
        all.one(is_it).seconds
    };
    let tools = [Tool::P4, Tool::Ansa, Tool::Pvm];
    let crosses =
        |tool| (3..=10).any(|count| of(tool, Model::A, count) > of(tool, Model::B, count));
    vec![
        (
            "with two stations model A is faster, with all tools",
            tools.into_iter().all(|it| of(it, Model::A, 2) < of(it, Model::B, 2)),
        ),
        ("the curves of the models A and B cross, with some tool", tools.into_iter().any(crosses)),
        (
            "P4 is the fastest with model B, for each number of stations",
            (2..=10).all(|count| {
                tools.into_iter().all(|it| of(Tool::P4, Model::B, count) <= of(it, Model::B, count))
            }),
        ),
    ]
}

struct Points<'a>(&'a [Point]);

impl Points<'_> {
    /// Returns the point that is meant.
    fn one(&self, is_it: impl Fn(&Point) -> bool) -> &Point {
        self.0.iter().find(|point| is_it(point)).expect("the figure has this farm")
    }
}

impl Point {
    fn count(&self) -> usize {
        self.setup.workers()
    }
}
