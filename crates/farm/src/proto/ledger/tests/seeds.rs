//! Farms by seed, each with its own faults.

use std::panic::{catch_unwind, resume_unwind};

use chunkcomm_testkit::random::Random;

use super::world::{Fault, Plan, World};

/// Number of seeds, which take some seconds without optimization.
const SEEDS: u64 = 5_000;

fn faults(random: &mut Random, is_below: bool) -> Vec<Fault> {
    let mut all = vec![
        Fault::Death,
        Fault::Leave,
        Fault::Freeze,
        Fault::Cut,
        Fault::Slow,
        Fault::Stray,
        Fault::GiveBack,
        Fault::Join,
        Fault::Keep,
    ];
    if is_below {
        all.extend([Fault::Want; 4]);
    }
    if random.one_in(4) {
        all.retain(|fault| !matches!(fault, Fault::Death | Fault::Stray));
    }
    (0..random.below(9)).map(|_| random.pick(&all)).collect()
}

/// Every task is accepted once or set aside once, whatever happens. While only tasks kill, no other
/// one is set aside.
fn run(seed: u64) {
    let mut random = Random::new(seed);
    let is_below = random.one_in(3);
    let tasks_max = if random.one_in(10) { 200 } else { 50 };
    let tasks = random.range(1, tasks_max);
    let poison = if random.one_in(3) { random.range(1, 3) } else { 0 };
    let poison = (0..poison).map(|_| random.below(tasks)).collect();
    let faults = faults(&mut random, is_below);
    let plan = Plan {
        tasks,
        workers: random.range(1, 7),
        poison,
        faults,
        deaths_max: random.range(1, 4) as u32,
        is_below,
        task_ns: 10_u64.pow(random.range(4, 9) as u32),
        delay_ns: 10_u64.pow(random.range(4, 9) as u32),
    };
    let (poison, deaths_max) = (plan.poison.clone(), plan.deaths_max);
    // A worker may also say that it has done a task of which it then dies.
    let is_certain = !plan.faults.iter().any(|fault| matches!(fault, Fault::Death | Fault::Stray));
    let aside = World::new(random, plan).run();
    for (task, deaths) in aside {
        assert!(deaths >= deaths_max);
        assert!(!is_certain || poison.contains(&task), "task {task} killed nobody");
    }
}

#[test]
fn every_task_has_one_end_in_farms_with_faults() {
    for seed in 0..SEEDS {
        if let Err(panic) = catch_unwind(|| run(seed)) {
            eprintln!("this is seed {seed}");
            resume_unwind(panic);
        }
    }
}
