//! `chunkperf coupled models`: one farm in several programming models, after the processor farm study of Zieliński, Gajęcki
//! and Czajkowski ("Parallel Programming Systems for LAN Distributed Computing"): the built example `models`, and
//! PVM itself where it is installed.

mod pvm;

use std::path::PathBuf;

use chunkcomm_testkit::Scratch;
use clap::Args;
use serde_json::{Map, Value};

use super::program::{self, Said, line_of, number_of};
use crate::commands::Verdict;
use crate::failure::{Doing, Failure};
use crate::options::{Common, values};
use crate::stats::median;
use crate::table::{Column, Form, Row, Table, column};

/// The example.
const PROGRAM: &str = "models";

/// Ways in which the farm is written.
const IDIOMS: [&str; 4] = ["linda", "pvm", "sr", "farm"];

/// Both structures of the study: the farmer's node works too, or not.
const MODELS: [&str; 2] = ["a", "b"];

/// The picture of the study: its pixels, and most steps of one. A task is a row.
const PIXELS: [u64; 2] = [800, 600];
const ITERATIONS: u64 = 256;

/// Nanoseconds of a step on the virtual hosts: the picture takes a SPARCstation 2 43.95 s alone (table 4).
const SPARC_STEP_NS: u64 = 1_440;

/// Columns for people.
const COLUMNS: [Column; 11] = [
    column("system", "farm", 5),
    column("model", "model", 5),
    column("lines", "lines", 5),
    column("messages_per_task", "messages", 8),
    column("us_per_task", "us a task", 9),
    column("seconds", "picture s", 9),
    column("virtual_us_per_task", "virtual us", 10),
    column("virtual_seconds", "virtual s", 9),
    column("virtual_seconds_single", "one by one", 10),
    column("double_buffering", "two tasks by", 12),
    column("reason", "reason", 0),
];

/// Options of `chunkperf coupled models`.
#[derive(Debug, Args)]
#[command(
    after_help = "The example is built by `cargo build --release --features chunkcomm-examples/virtual \
    --examples`. A task is a row of the picture. `us_per_task` is the time of tasks without work, by the number of \
    tasks. PVM's row is null where it is not installed (Debian: pvm, pvm-dev)."
)]
pub(super) struct ModelsArgs {
    #[command(flatten)]
    common: Common,
    /// Folder of the built programs [default: `examples` beside this program]
    #[arg(long, value_name = "DIR", value_parser = program::folder)]
    examples: Option<PathBuf>,
    /// Nodes on this machine
    #[arg(long, value_name = "N", default_value = "3", value_parser = values::nodes)]
    nodes: u32,
    /// Runs of each farm on this machine, in turns
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::count)]
    runs: u64,
    /// Network in virtual time: virtual:NAME or virtual:FILE
    #[arg(long, default_value = "virtual:ethernet-10m-sparc", value_parser = world)]
    lan: String,
}

/// A run of PVM's farm.
struct Job {
    /// Tasks with a worker at a time.
    held: u64,
    workers: u64,
    pixels: [u64; 2],
    iterations: u64,
}

/// A farm: who wrote it, and whether the farmer's node works.
struct Farm {
    system: String,
    model: &'static str,
    /// Line of JSON of its last run.
    said: Map<String, Value>,
    /// Seconds of the tasks without work, and of the picture, of each run.
    empty: Vec<f64>,
    picture: Vec<f64>,
    speed_ups: Vec<f64>,
    /// In virtual time: the tasks without work, the picture, and the picture without double buffering.
    virtually: Option<[f64; 3]>,
    /// Reason why there are no figures.
    reason: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// If a farm fails, or PVM renders another picture.
pub(super) fn run(args: &ModelsArgs) -> Result<Verdict, Failure> {
    if !args.common.is_plain() || args.nodes < 2 {
        return Err(Failure::Refused(
            "the farms choose by themselves: allowed are no --transport, --runtime, --threads, --session, \
             --connect and --without, and --nodes 2 or more"
                .to_owned(),
        ));
    }
    let examples = args.examples.clone().map_or_else(program::beside, Ok)?;
    let study = Study { args, examples, scratch: Scratch::folder("models") };
    let mut farms = Vec::new();
    for system in IDIOMS {
        farms.extend(MODELS.map(|model| Farm::new(system, model)));
    }
    for farm in &mut farms {
        eprintln!("chunkperf: {}, model {}, in virtual time", farm.system, farm.model);
        study.virtually(farm)?;
    }
    let pvm = pvm::Pvm::start();
    farms.extend(MODELS.map(|model| Farm::new("PVM 3", model)));
    for run in 1..=args.runs {
        eprintln!("chunkperf: run {run} of {} on this machine", args.runs);
        for farm in &mut farms {
            match (&farm.system[..], &pvm) {
                ("PVM 3", Ok(pvm)) => study.of_pvm(farm, pvm)?,
                ("PVM 3", Err(why)) => farm.reason = Some(why.to_string()),
                _ => study.really(farm)?,
            }
        }
    }
    let mut table = Table::new(&COLUMNS, Form::of(args.common.json));
    farms.iter().for_each(|farm| table.add(farm.row(&args.common)));
    Ok(Verdict::Fine)
}

impl Farm {
    fn new(system: &str, model: &'static str) -> Farm {
        Farm {
            system: system.to_owned(),
            model,
            said: Map::new(),
            empty: Vec::new(),
            picture: Vec::new(),
            speed_ups: Vec::new(),
            virtually: None,
            reason: None,
        }
    }

    fn row(&self, common: &Common) -> Row {
        let mut row = common.row(PROGRAM);
        let number = |key: &str| self.said.get(key).cloned().unwrap_or_default();
        row.set("system", self.system.as_str())
            .set("model", self.model)
            .set("lines", number("lines"))
            .set("double_buffering", number("double_buffering"))
            .set("tasks", number("tasks"))
            .set("messages_per_task", number("messages_per_task"))
            .set("us_per_task", us_of(median_of(&self.empty)))
            .set("seconds", median_of(&self.picture))
            .set("speed_up", median_of(&self.speed_ups));
        let [empty, picture, single] = self.virtually.map_or([None; 3], |it| it.map(Some));
        row.set("virtual_us_per_task", us_of(empty))
            .set("virtual_seconds", picture)
            .set("virtual_seconds_single", single);
        if let Some(reason) = &self.reason {
            row.set("reason", reason.as_str());
        }
        row
    }
}

/// Parses a network in virtual time, which the example looks up.
fn world(text: &str) -> Result<String, String> {
    match text.strip_prefix("virtual:") {
        Some(name) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("allowed are virtual:NAME and virtual:FILE".to_owned()),
    }
}

fn median_of(figures: &[f64]) -> Option<f64> {
    (!figures.is_empty()).then(|| median(figures))
}

fn us_of(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| 1e6 * seconds / PIXELS[1] as f64)
}

/// Where the farms run.
struct Study<'a> {
    args: &'a ModelsArgs,
    examples: PathBuf,
    scratch: Scratch,
}

impl Study<'_> {
    /// Runs the farm in virtual time, once each: another run would be the same.
    fn virtually(&self, farm: &mut Farm) -> Result<(), Failure> {
        let step = format!("--step={SPARC_STEP_NS}");
        let lan = format!("--lan={}", self.args.lan);
        let empty = self.seconds(farm, &[&lan, "--iterations=1"])?;
        let picture = self.seconds(farm, &[&lan, &step])?;
        let single = self.seconds(farm, &[&lan, &step, "--double-buffering=off"])?;
        if let (Some(empty), Some(picture), Some(single)) = (empty, picture, single) {
            farm.virtually = Some([empty, picture, single]);
        }
        Ok(())
    }

    /// Runs the farm on this machine, without work and with it.
    fn really(&self, farm: &mut Farm) -> Result<(), Failure> {
        let nodes = format!("--nodes={}", self.args.nodes);
        let empty = self.seconds(farm, &[&nodes, "--iterations=1"])?;
        farm.empty.extend(empty);
        let picture = self.seconds(farm, &[&nodes, "--sequential-check"])?;
        farm.picture.extend(picture);
        farm.speed_ups.extend(farm.said.get("speed_up").and_then(Value::as_f64));
        Ok(())
    }

    fn seconds(&self, farm: &mut Farm, options: &[&str]) -> Result<Option<f64>, Failure> {
        let mut words: Vec<String> = ["--json", "--no-progress"].map(str::to_owned).to_vec();
        words.push(format!("--idiom={}", farm.system));
        words.push(format!("--model={}", farm.model));
        words.push(format!("--output={}", self.scratch.join("picture.png").display()));
        words.extend(options.iter().map(|&option| option.to_owned()));
        match line_of(&self.examples, PROGRAM, &words)? {
            Said::Line(said) => {
                let seconds = number_of(&said, PROGRAM, "seconds")?;
                farm.said = said;
                Ok(Some(seconds))
            }
            Said::NotBuilt(reason) => {
                farm.reason = Some(reason);
                Ok(None)
            }
        }
    }

    /// Runs PVM's farm. Its picture must be that of ours.
    fn of_pvm(&self, farm: &mut Farm, pvm: &pvm::Pvm) -> Result<(), Failure> {
        let workers = u64::from(self.args.nodes) - u64::from(farm.model == "b");
        let job = |iterations| Job { held: 2, workers, pixels: PIXELS, iterations };
        farm.empty.push(pvm.run(&job(1))?.seconds);
        let picture = pvm.run(&job(ITERATIONS))?;
        farm.picture.push(picture.seconds);
        let lines = pvm::SOURCE.lines().map(str::trim);
        let is_code = |line: &&str| !line.is_empty() && !line.starts_with(['*', '/']);
        let tasks = PIXELS[1];
        farm.said.insert("lines".to_owned(), lines.filter(is_code).count().into());
        farm.said.insert("tasks".to_owned(), tasks.into());
        farm.said.insert("double_buffering".to_owned(), "native".into());
        let each = picture.messages as f64 / tasks as f64;
        farm.said.insert("messages_per_task".to_owned(), each.into());
        self.compare(&picture.steps)
    }

    /// Compares the steps of PVM's farm with those of ours.
    fn compare(&self, steps: &[u8]) -> Result<(), Failure> {
        let doing = "comparing PVM's picture with ours";
        let file = self.scratch.join("steps.npy");
        if !file.is_file() {
            let words = [
                "--json".to_owned(),
                "--no-progress".to_owned(),
                format!("--npy={}", file.display()),
                format!("--output={}", self.scratch.join("picture.png").display()),
            ];
            if let Said::NotBuilt(_) = line_of(&self.examples, PROGRAM, &words)? {
                return Ok(());
            }
        }
        let ours = std::fs::read(&file).doing(doing)?;
        // 16 bits a pixel, behind a head.
        let pixels = (PIXELS[0] * PIXELS[1]) as usize;
        match ours.ends_with(steps) && steps.len() == 2 * pixels {
            true => Ok(()),
            false => Err(Failure::broken(doing, "they differ")),
        }
    }
}
