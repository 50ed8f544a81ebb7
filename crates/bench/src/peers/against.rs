//! `--against SYSTEM`: another system as a command's baseline, or the reason why there is none.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::{Discipline, Opened, PeersDir, System, Task, open, open_best};
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::Transport;
use crate::harness::slices::{Contender, Outcome, Plan, name_of};
use crate::options::Common;
use crate::table::Row;

/// The word for the fastest system.
const BEST: &str = "best";

/// Another system as a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// This one.
    System(System),
    /// The fastest of those that are there.
    Best,
}

impl Rival {
    /// Returns its word on the command line.
    pub fn name(self) -> String {
        match self {
            Self::System(system) => name_of(system),
            Self::Best => BEST.to_owned(),
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        if name == BEST {
            return Some(Self::Best);
        }
        System::from_str(name, false).ok().map(Self::System)
    }

    fn opened(
        self,
        bench: &mut Bench,
        task: &Task,
        spinning: bool,
        folder: &PeersDir,
    ) -> Result<Opened, Failure> {
        match self {
            Self::System(system) => open(bench, system, task, folder),
            Self::Best => {
                let rivals = System::rivals(task.discipline, spinning);
                open_best(bench, &rivals, task, folder)
            }
        }
    }

    /// Refuses options of ours under which the system cannot be beside it.
    ///
    /// # Errors
    /// If the transport is not TCP, or a system in processes of its own is to be on another host.
    pub fn check(self, common: &Common) -> Result<(), Failure> {
        let name = self.name();
        if !matches!(common.transport, Transport::Tcp | Transport::Tls) {
            return Err(Failure::Refused(format!(
                "--against {name} uses plain TCP: allowed with --transport tcp and tls, not {}",
                name_of(common.transport)
            )));
        }
        let is_within = matches!(self, Self::System(system) if system.is_within());
        if common.connect.is_some() && !is_within {
            return Err(Failure::Refused(format!(
                "--against {name} runs on this host: allowed without --connect"
            )));
        }
        Ok(())
    }
}

/// Returns a parser of a command's own baselines and of the systems that have the discipline.
pub fn parser<O>(discipline: Discipline, rival: fn(Rival) -> O) -> impl TypedValueParser<Value = O>
where
    O: ValueEnum + Send + Sync + 'static,
{
    let own = O::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let mut values: Vec<PossibleValue> = own.collect();
    let others = System::of(discipline).into_iter().filter_map(|it| it.to_possible_value());
    let others: Vec<_> =
        others.filter(|it| values.iter().all(|own| own.get_name() != it.get_name())).collect();
    values.extend(others);
    values.push(PossibleValue::new(BEST).help(match discipline {
        Discipline::OneWay => "The fastest of the other systems that are built, without timely",
        Discipline::RoundTrip => {
            "The fastest that is built of those that sleep, or spin as ours does"
        }
        _ => "The fastest of the other systems that are built",
    }));
    PossibleValuesParser::new(values).map(move |name| {
        let own = O::from_str(&name, false).ok();
        own.or_else(|| Rival::of_name(&name).map(rival)).expect("it is one of the possible values")
    })
}

/// The system beside ours, or why there is none.
#[derive(Debug, Clone, Default)]
pub struct Told {
    version: Option<String>,
    flavour: Option<&'static str>,
    tried: Option<String>,
    /// Cause for which there is no figure of the system.
    pub reason: Option<String>,
}

impl Told {
    /// Adds the keys of the baseline.
    pub fn set(&self, row: &mut Row) {
        row.set("baseline_version", self.version.clone())
            .set("baseline_flavour", self.flavour)
            .set("baseline_of", self.tried.clone())
            .set("reason", self.reason.clone());
    }
}

/// Measures ours in turns with a system; alone if the system is missing or fails.
///
/// # Errors
/// If ours fails.
pub fn run(
    bench: &mut Bench,
    ours: &mut dyn Contender,
    plan: &Plan,
    rival: Rival,
    task: &Task,
    (spinning, folder): (bool, &PeersDir),
) -> Result<(Outcome, Told), Failure> {
    let mut told = Told::default();
    match rival.opened(bench, task, spinning, folder) {
        Err(failure) => told.reason = Some(failure.to_string()),
        Ok(mut opened) => {
            told.version = Some(opened.version);
            told.flavour = Some(opened.flavour.word());
            told.tried = (rival == Rival::Best).then(|| opened.tried.join(", "));
            match crate::harness::slices::run(bench, ours, Some(&mut opened.contender), plan) {
                Ok(outcome) => return Ok((outcome, told)),
                Err(failure) => told.reason = Some(failure.to_string()),
            }
        }
    }
    let outcome = crate::harness::slices::run(bench, ours, None, plan)?;
    Ok((outcome, told))
}
