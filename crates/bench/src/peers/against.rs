//! `--against`: a baseline of a command's own, or another system, in turns with ours.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::{Discipline, Opened, PeersDir, System, Task, open, open_best};
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::Transport;
use crate::harness::slices::{self, Contender, Outcome, Plan, beside, name_of};
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

/// A baseline of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opponent<O> {
    /// One of the command's own.
    Own(O),
    /// Another system.
    Rival(Rival),
}

impl<O: ValueEnum + Copy> Opponent<O> {
    /// Returns its word on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Own(own) => name_of(own),
            Self::Rival(rival) => rival.name(),
        }
    }
}

/// Returns a parser of a command's own baselines and of the systems that have the discipline.
pub fn parser<O>(discipline: Discipline) -> impl TypedValueParser<Value = Opponent<O>>
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
        let own = O::from_str(&name, false).ok().map(Opponent::Own);
        let rival = || Rival::of_name(&name).map(Opponent::Rival);
        own.or_else(rival).expect("it is one of the possible values")
    })
}

/// The baseline beside ours, or why there is none.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Whether it was to be another system.
    is_rival: bool,
    version: Option<String>,
    flavour: Option<&'static str>,
    tried: Option<String>,
    /// Cause for which there is no figure of it.
    pub reason: Option<String>,
}

impl Told {
    /// Adds the keys of another system.
    pub fn set(&self, row: &mut Row) {
        if self.is_rival {
            row.set("baseline_version", self.version.clone())
                .set("baseline_flavour", self.flavour)
                .set("baseline_of", self.tried.clone())
                .set("reason", self.reason.clone());
        }
    }
}

/// Ours and a baseline, to be measured in turns.
pub struct Pairing<'a, O> {
    /// The baseline, if there is one.
    pub against: Option<Opponent<O>>,
    /// Whether the baseline may be missing or fail, as other systems may: ours is measured all the same.
    pub may_fail: bool,
    /// Whether `best` takes the fastest of those that spin.
    pub spinning: bool,
    /// Work of other systems.
    pub task: Task,
    /// Place of their programs.
    pub peers: &'a PeersDir,
    /// The slices.
    pub plan: Plan,
    /// Whether connections are opened anew every few slices: beside a baseline of the command's own.
    pub fine: bool,
}

impl<'a, O: Copy> Pairing<'a, O> {
    /// Makes one of sides that sleep, on one connection each; only other systems may fail.
    pub fn new(against: Option<Opponent<O>>, task: Task, peers: &'a PeersDir, plan: Plan) -> Self {
        Self { against, may_fail: false, spinning: false, task, peers, plan, fine: false }
    }

    /// Opens both sides and measures them in turns.
    ///
    /// # Errors
    /// If ours fails, or a baseline that may not.
    pub fn run(
        &self,
        bench: &mut Bench,
        mut ours: impl FnMut(&mut Bench) -> Result<Box<dyn Contender>, Failure>,
        mut own: impl FnMut(&mut Bench, O) -> Result<Box<dyn Contender>, Failure>,
    ) -> Result<(Outcome, Told), Failure> {
        let mut told = Told::default();
        if self.fine {
            let outcome = slices::run_on(bench, &self.plan, true, |bench| {
                let baseline = match self.against {
                    Some(Opponent::Own(it)) => Some(own(bench, it)?),
                    _ => None,
                };
                Ok((ours(bench)?, baseline))
            })?;
            return Ok((outcome, told));
        }
        let mut ours = ours(bench)?;
        let baseline = match self.against {
            None => Ok(None),
            Some(Opponent::Own(it)) => own(bench, it).map(Some),
            Some(Opponent::Rival(rival)) => {
                told.is_rival = true;
                let opened = rival.opened(bench, &self.task, self.spinning, self.peers);
                opened.map(|opened| {
                    told.version = Some(opened.version);
                    told.flavour = Some(opened.flavour.word());
                    told.tried = (rival == Rival::Best).then(|| opened.tried.join(", "));
                    Some(opened.contender)
                })
            }
        };
        let may_fail = self.may_fail || told.is_rival;
        let (outcome, _, reason) = beside(may_fail, baseline, |baseline| {
            slices::run(bench, &mut *ours, baseline, &self.plan)
        })?;
        told.reason = reason;
        Ok((outcome, told))
    }
}
