//! Many stations: sub-farmers, bridges, and the power of a whole LAN (sections 2 and 5).

use chunkcomm_farm::settings::Model;

use super::farm::{AS_THERE, Changed, Farms, Setup};
use super::machines::{Machine, Tool};
use super::picture::PIXELS;
use super::{is_near, percent, short};
use crate::commands::papers::{Found, Scene};
use crate::failure::Failure;

/// Gain that is worth a mention.
const GAIN: f64 = 1.02;

/// Gain of a station without a bottleneck that shows it.
const BOTTLENECK: f64 = 1.1;

/// Stations of a group.
const GROUP: u32 = 7;

/// Factor of processors with which the cable is the bottleneck. *Assumed*.
const FAST: f64 = 10.0;

/// Difference of the powers of two LANs at which they count as one, and of a prediction at which it fails.
const NEAR: f64 = 0.25;

/// Runs farms with many workers, sub-farmers, and sections of the cable.
pub(super) fn bridges(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let mut farms = Farms::new(scene);
    let groups = scene.sized(GROUP, 2);
    let workers = (groups * GROUP) as usize;
    let plain = Setup::of(Tool::Pvm, Machine::Sparc, workers + 1, Model::B);
    let changed = |changed| Setup { changed, ..plain.clone() };
    let few = Setup::of(Tool::Pvm, Machine::Sparc, workers / 2 + 1, Model::B);
    let [half, one] = [farms.seconds(&few)?, farms.seconds(&plain)?];
    let relieved = farms.seconds(&changed(Changed { farmer_costs: 0.1, ..AS_THERE }))?;
    let holds = one > BOTTLENECK * relieved && half < 1.5 * one;
    let ours = format!("{}, unburdened {} s", short(one), short(relieved));
    found.verdict("farmer-overloaded", holds, ours);
    let free = farms.seconds(&changed(Changed { wire: 10.0, ..AS_THERE }))?;
    let ours = format!("{}, faster cable {} s", short(one), short(free));
    found.verdict("medium-contention", one > BOTTLENECK * free, ours);
    let tree = farms.seconds(&Setup { group: GROUP, ..plain.clone() })?;
    let ours = format!("{}, without {} s", short(tree), short(one));
    found.verdict("sub-farmers", one > GAIN * tree, ours);
    // Without shared load each sub-farmer has a part of the picture to itself, and its own cable.
    let mut slowest: f64 = 0.0;
    for group in 0..u64::from(groups) {
        let part = [group, group + 1].map(|it| it * PIXELS / u64::from(groups));
        let alone = Setup::of(Tool::Pvm, Machine::Sparc, GROUP as usize, Model::A);
        slowest = slowest.max(farms.seconds(&Setup { part, ..alone })?);
    }
    let ours = format!("{}, fixed parts {} s", short(tree), short(slowest));
    found.verdict("share-load", slowest > BOTTLENECK * tree, ours);
    let fast = Changed { power: FAST, ..AS_THERE };
    let fast = Setup { group: GROUP, changed: fast, ..plain.clone() };
    let [cable, sections] =
        [farms.seconds(&fast)?, farms.seconds(&Setup { bridged: true, ..fast.clone() })?];
    let ours = format!("fast stations: {}, {} s", short(cable), short(sections));
    found.verdict("bridges", cable > GAIN * sections, ours);
    farms.tell(found);
    Ok(())
}

/// Runs farms of slow and fast stations until more of them gain nothing.
pub(super) fn limit(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let machines = [Machine::Slc, Machine::Sparc, Machine::Rs, Machine::Hp];
    let counts = scene.sized(&[2, 3, 4, 6, 8, 12, 16, 24, 32][..], &[2, 4][..]);
    let mut farms = Farms::new(scene);
    let (mut powers, mut ends, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for machine in machines {
        let (mut power, mut end) = (0.0_f64, 0);
        for &count in counts {
            let setup = Setup::of(Tool::Pvm, machine, count, Model::A);
            let seconds = farms.seconds(&setup)?;
            power = power.max(1.0 / seconds);
            if setup.speed_up(seconds) / count as f64 >= 0.5 {
                end = count;
            }
            errors.push(formula(&setup) / seconds);
        }
        powers.push(power * PIXELS as f64 / 1e3);
        ends.push(end);
    }
    let five = Setup::of(Tool::Pvm, Machine::Rs, 5, Model::A);
    let mut of = |changed| farms.seconds(&Setup { changed, ..five.clone() });
    let [one, cable] = [of(AS_THERE)?, of(Changed { wire: 10.0, ..AS_THERE })?];
    let farmer = of(Changed { farmer_costs: 0.1, ..AS_THERE })?;
    let ours = format!(
        "faster cable {}, farmer {}",
        percent(1.0 - cable / one),
        percent(1.0 - farmer / one)
    );
    found.verdict("ethernet-too-slow", one > BOTTLENECK * cable, ours);
    // The text names RS6000 and SPARCstation 2 against SLC.
    let holds = ends[0] > ends[1] && ends[0] > ends[2];
    let told = ends[..3].iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    found.verdict("fast-degrade-early", holds, format!("half efficient: {told}"));
    let most = powers.iter().copied().fold(0.0, f64::max);
    let holds = powers.iter().all(|power| is_near(*power, most, NEAR));
    let told = powers.iter().map(|power| short(*power)).collect::<Vec<_>>().join(", ");
    found.verdict("same-limit", holds, format!("{told} kpixel/s"));
    let worst = errors.iter().map(|it| (it - 1.0).abs()).fold(0.0, f64::max);
    let ours = format!("at most {} off", percent(worst));
    found.verdict("hard-to-predict", worst > NEAR, ours);
    farms.tell(found);
    Ok(())
}

/// Returns the seconds that a formula predicts: the work on all processors less the farmer's messages, or the
/// farmer's messages alone.
fn formula(setup: &Setup) -> f64 {
    let [first, end] = setup.part;
    let tasks = (end - first).div_ceil(setup.pixels) as f64;
    let messages = tasks * setup.farmer_seconds();
    let alone = setup.seconds_on(setup.stations[0]);
    ((alone + messages) / setup.stations.len() as f64).max(messages)
}
