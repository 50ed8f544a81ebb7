//! Memory of idle connections: ours and each system one after the other, since it does not depend on
//! the load of the machine.

use std::time::{Duration, Instant};

use super::lines::Line;
use super::{Cell, Column, Measured, PeersArgs};
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::{PolicyKind, Usage};
use crate::ours::idle::Links;
use crate::pair;
use crate::peers::{Discipline, Flavour, System, Task, start};
use crate::stats::median;

/// Connections that are measured together.
const CONNECTIONS: u64 = 100;

/// Those of a tiny run.
const CONNECTIONS_QUICK: u64 = 5;

/// Connections made before, so that one-time setup is not counted.
const CONNECTIONS_BEFORE: u64 = 2;

/// Growths of each side.
const TURNS: usize = 3;

/// Time after which a side has no further turn: 10 s. Connections of zenoh take half a minute.
const LONG: Duration = Duration::from_secs(10);

/// Time for which all connections are idle before memory is read: 1.5 s.
const SETTLE: Duration = Duration::from_millis(1500);

/// The discipline's only task.
const TASK: Task = Task { discipline: Discipline::Idle, bytes: 16, in_flight: 1, first_try: 1 };

/// Measures the line.
///
/// # Errors
/// If ours fails.
pub(super) fn measure(
    line: &'static Line,
    columns: &[Column],
    args: &PeersArgs,
    each: &mut dyn FnMut(Cell),
) -> Result<(), Failure> {
    let count = if args.quick { CONNECTIONS_QUICK } else { CONNECTIONS };
    // Growths of one process are no turns of a pair: each of theirs is compared with the same.
    let ours = median(&ours(line, count)?);
    for &column in columns {
        let Column::Of(system) = column else { continue };
        let measured = theirs(line, system, count, args);
        let measured = measured
            .map(|measured| Measured { ours: vec![ours; measured.theirs.len()], ..measured });
        each(Cell { line, column, measured: measured.map_err(|failure| failure.to_string()) });
    }
    Ok(())
}

/// Returns the bytes a connection of ours, a turn each.
fn ours(line: &Line, count: u64) -> Result<Vec<f64>, Failure> {
    let bench = pair::start(&line.setting())?;
    let all = CONNECTIONS_BEFORE as usize + TURNS * count as usize;
    let mut links = Links::open(bench, all, false, line.setting().node(PolicyKind::Chunked))?;
    links.add(CONNECTIONS_BEFORE as usize)?;
    let mut before = settled(links.bench())?;
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        links.add(count as usize)?;
        let after = settled(links.bench())?;
        turns.push(grown(before, after, count));
        before = after;
    }
    Ok(turns)
}

/// Returns the figures of a system with the settings that need less.
fn theirs(line: &Line, system: System, count: u64, args: &PeersArgs) -> Result<Measured, Failure> {
    let mut bench = pair::start(&line.setting())?;
    if system.is_within() {
        return within(&mut bench, system, count);
    }
    let mut least: Result<Measured, Failure> =
        Err(Failure::broken("measuring", "there are no settings"));
    for flavour in [Flavour::Docs, Flavour::Best] {
        let measured = external(&bench, system, flavour, count, args);
        let is_better = match (&measured, &least) {
            (Ok(new), Ok(known)) => median(&new.theirs) < median(&known.theirs),
            (_, known) => known.is_err(),
        };
        if is_better {
            least = measured;
        }
    }
    least
}

fn external(
    bench: &Bench,
    system: System,
    flavour: Flavour,
    count: u64,
    args: &PeersArgs,
) -> Result<Measured, Failure> {
    let mut program = start(bench, system, &TASK, flavour, &args.peers)?;
    program.grow(bench, CONNECTIONS_BEFORE)?;
    let mut theirs = Vec::new();
    let started = Instant::now();
    while theirs.is_empty() || (theirs.len() < TURNS && started.elapsed() < LONG) {
        theirs.push(program.grow(bench, count)? / count as f64);
    }
    let version = program.version().to_owned();
    Ok(Measured { version, flavour: flavour.word(), ours: Vec::new(), theirs })
}

#[cfg(feature = "peers")]
fn within(bench: &mut Bench, system: System, count: u64) -> Result<Measured, Failure> {
    use crate::baseline::held::Held;
    use crate::harness::protocol::HeldKind;

    let kind = if system == System::Framed { HeldKind::Framed } else { HeldKind::Tarpc };
    let mut held = Held::open(bench, kind)?;
    held.add(bench, CONNECTIONS_BEFORE)?;
    let mut before = settled(bench)?;
    let mut theirs = Vec::new();
    for _ in 0..TURNS {
        held.add(bench, count)?;
        let after = settled(bench)?;
        theirs.push(grown(before, after, count));
        before = after;
    }
    let (version, flavour) = (system.version_within(), Flavour::Docs.word());
    Ok(Measured { version, flavour, ours: Vec::new(), theirs })
}

/// Fails: this build has no such system.
#[cfg(not(feature = "peers"))]
fn within(_: &mut Bench, _: System, _: u64) -> Result<Measured, Failure> {
    Err(crate::failure::no_peers())
}

fn settled(bench: &mut Bench) -> Result<Usage, Failure> {
    bench.rest(SETTLE);
    bench.usage()
}

/// Returns the bytes a connection; NaN where the system reports no memory.
fn grown(before: Usage, after: Usage, count: u64) -> f64 {
    after.grown_bytes(before).map_or(f64::NAN, |bytes| bytes / count as f64)
}
