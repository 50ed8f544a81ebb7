//! The built example programs: found by path, started with options, read by their line of JSON.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chunkcomm_testkit::Scratch;
use clap::ValueEnum;
use serde_json::{Map, Value};

use crate::baseline::mpich::output_of;
use crate::failure::{Doing, Failure};
use crate::harness::protocol::OnOff;
use crate::harness::slices::name_of;
#[cfg(feature = "virtual")]
use crate::options::values;

/// The command that builds the programs.
pub(crate) const BUILD: &str =
    "cargo build --release --features chunkcomm-examples/virtual --examples";

/// Most ranks of a group.
const RANKS_MAX: usize = 2048;

/// Longest time of one run: 300 s. After that it hangs.
const DEADLINE: Duration = Duration::from_secs(300);

/// A program of coupled groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// A stream of arrays through two groups: rows, then columns.
    Fft2d,
    /// Two streams of pictures through four groups.
    Convolution,
    /// Three coupled blocks, a group each.
    Multiblock,
}

impl Program {
    /// Returns the number of its groups.
    pub(crate) fn groups(self) -> usize {
        match self {
            Self::Fft2d => 2,
            Self::Convolution => 4,
            Self::Multiblock => 3,
        }
    }

    /// Returns its option for the length of the stream.
    pub(crate) fn count_option(self) -> &'static str {
        match self {
            Self::Fft2d => "arrays",
            Self::Convolution => "images",
            Self::Multiblock => "sweeps",
        }
    }

    /// Whether it writes a picture unless told otherwise.
    fn has_picture(self) -> bool {
        self != Self::Fft2d
    }

    /// Returns the key of the steady time.
    fn steady_key(self) -> &'static str {
        match self {
            Self::Fft2d | Self::Convolution => "seconds_an_array",
            Self::Multiblock => "seconds_a_sweep",
        }
    }
}

/// One run of a program; what is `None` is the program's to choose.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) program: Program,
    /// The network: `real` or `virtual:SPEC`.
    pub(crate) lan: String,
    pub(crate) nodes: Option<u32>,
    /// Ranks of each group.
    pub(crate) ranks: Option<Vec<usize>>,
    pub(crate) is_data_parallel: bool,
    pub(crate) shape: Option<[usize; 2]>,
    /// Arrays, or sweeps.
    pub(crate) count: Option<u64>,
    pub(crate) overlap: Option<OnOff>,
    pub(crate) slabs: Option<OnOff>,
    pub(crate) depth: Option<usize>,
    /// Nanoseconds of a floating point operation on a virtual host.
    pub(crate) flop_ns: Option<f64>,
    /// Nanoseconds of packing or unpacking a byte there.
    pub(crate) packing_ns: Option<f64>,
    pub(crate) trace: Option<PathBuf>,
}

/// Figures of a run.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    /// All that the program said.
    pub(crate) said: Map<String, Value>,
    /// Time of the whole stream.
    pub(crate) seconds: f64,
    /// Steady time of an array, or a sweep.
    pub(crate) steady_seconds: f64,
}

/// End of a run.
#[derive(Debug, Clone)]
pub(crate) enum Ran {
    Figures(Figures),
    /// There is no such program, or one without virtual time: the reason.
    NotBuilt(String),
}

impl Run {
    /// Returns a run whose every choice is the program's.
    pub(crate) fn new(program: Program, lan: &str) -> Self {
        Self {
            program,
            lan: lan.to_owned(),
            nodes: None,
            ranks: None,
            is_data_parallel: false,
            shape: None,
            count: None,
            overlap: None,
            slabs: None,
            depth: None,
            flop_ns: None,
            packing_ns: None,
            trace: None,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--json".to_owned(), "--no-progress".to_owned()];
        let mut set = |name: &str, value: Option<String>| {
            arguments.extend(value.map(|value| format!("--{name}={value}")));
        };
        set("lan", (self.lan != "real").then(|| self.lan.clone()));
        set("nodes", self.nodes.map(|nodes| nodes.to_string()));
        set("ranks", self.ranks.as_deref().map(joined));
        let shape = self.shape.map(|[rows, columns]| format!("{rows}x{columns}"));
        match self.program {
            Program::Multiblock => set("side", self.shape.map(|[side, _]| side.to_string())),
            _ => set("shape", shape),
        }
        set(self.program.count_option(), self.count.map(|count| count.to_string()));
        set("overlap", self.overlap.map(name_of));
        set("slabs", self.slabs.map(name_of));
        set("depth", self.depth.map(|depth| depth.to_string()));
        set("flop", self.flop_ns.map(|nanos| nanos.to_string()));
        set("packing", self.packing_ns.map(|nanos| nanos.to_string()));
        set("trace", self.trace.as_ref().map(|path| path.display().to_string()));
        arguments.extend(self.is_data_parallel.then(|| "--data-parallel".to_owned()));
        arguments
    }

    /// Starts the program of this folder and returns its figures.
    ///
    /// # Errors
    /// If it fails, hangs, or says something else than its figures.
    pub(crate) fn start(&self, examples: &Path) -> Result<Ran, Failure> {
        let folder = Scratch::folder("pictures");
        let mut arguments = self.arguments();
        if self.program.has_picture() {
            let picture = folder.join("picture.png").display().to_string();
            arguments.extend(["--output".to_owned(), picture]);
        }
        match line_of(examples, &name_of(self.program), &arguments)? {
            Said::Line(said) => self.figures(said).map(Ran::Figures),
            Said::NotBuilt(reason) => Ok(Ran::NotBuilt(reason)),
        }
    }

    fn figures(&self, said: Map<String, Value>) -> Result<Figures, Failure> {
        let number = |key| number_of(&said, &name_of(self.program), key);
        let (seconds, steady_seconds) = (number("seconds")?, number(self.program.steady_key())?);
        Ok(Figures { said, seconds, steady_seconds })
    }
}

#[cfg(feature = "virtual")]
impl Figures {
    /// Returns the ranks of each group.
    pub(crate) fn ranks(&self) -> Vec<usize> {
        let ranks = self.said.get("ranks").and_then(Value::as_array);
        let each = ranks.into_iter().flatten().filter_map(Value::as_u64);
        each.map(|ranks| ranks as usize).collect()
    }

    /// Returns the rows and columns of an array.
    pub(crate) fn shape(&self) -> Option<[usize; 2]> {
        values::shape(self.said.get("shape")?.as_str()?).ok()
    }

    /// Whether the program says that this is on.
    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.said.get(key).is_some_and(|value| value == true || value == "on")
    }

    /// Returns the number of rounds under way.
    pub(crate) fn depth(&self) -> usize {
        self.said.get("depth").and_then(Value::as_u64).unwrap_or(1) as usize
    }
}

/// The answer of a built program.
#[derive(Debug)]
pub(crate) enum Said {
    /// Its line of JSON.
    Line(Map<String, Value>),
    /// There is no such program, or one without virtual time: the reason.
    NotBuilt(String),
}

/// Starts the built program of this name with these options, and returns what it says.
///
/// # Errors
/// If it fails, hangs, or says something else than a line of JSON.
pub(crate) fn line_of(examples: &Path, name: &str, options: &[String]) -> Result<Said, Failure> {
    let file = examples.join(name);
    if !file.is_file() {
        return Ok(Said::NotBuilt(format!("there is no {}: {BUILD}", file.display())));
    }
    let mut command = Command::new(&file);
    command.args(options);
    match output_of(command, name, DEADLINE) {
        Ok(output) => {
            let said = serde_json::from_slice(&output.stdout);
            said.doing(&format!("understanding {name}")).map(Said::Line)
        }
        // As the example says when it is built without virtual time.
        Err(failure) if failure.to_string().contains("the feature virtual") => {
            Ok(Said::NotBuilt(format!("{} has no virtual time: {BUILD}", file.display())))
        }
        Err(failure) => Err(failure),
    }
}

/// Returns a number of a line of JSON.
///
/// # Errors
/// If the program does not say it.
pub(crate) fn number_of(said: &Map<String, Value>, name: &str, key: &str) -> Result<f64, Failure> {
    said.get(key).and_then(Value::as_f64).ok_or_else(|| {
        Failure::broken(format!("understanding {name}"), format!("it says no number {key}"))
    })
}

/// Returns the folder `examples` beside this program's file.
///
/// # Errors
/// If that file is not known.
pub(crate) fn beside() -> Result<PathBuf, Failure> {
    let file = std::env::current_exe().doing("finding this program's file")?;
    Ok(file.with_file_name("examples"))
}

/// Parses the folder of the programs.
///
/// # Errors
/// A text that says what is allowed.
pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    match Path::new(text) {
        path if path.is_dir() => Ok(path.to_owned()),
        _ => Err(format!("allowed is the folder of the built programs: {BUILD}")),
    }
}

/// Parses ranks of groups: `4,4`.
///
/// # Errors
/// A text that says what is allowed.
pub(crate) fn ranks(text: &str) -> Result<Ranks, String> {
    let group = |word: &str| word.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    let ranks: Option<Vec<usize>> = text.split(',').map(group).collect();
    ranks
        .map(Ranks)
        .ok_or_else(|| format!("allowed are ranks of each group, as 4,4, each 1 to {RANKS_MAX}"))
}

/// Ranks of each group, one option.
#[derive(Debug, Clone)]
pub(crate) struct Ranks(pub(crate) Vec<usize>);

fn joined(ranks: &[usize]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
