use super::end::over_index;
use super::*;
use chunkcomm_proto::endpoint::SessionEnd;

/// Seeds of a plain run.
const SEEDS: u64 = 60;

#[test]
fn seeds_show_no_violation_and_run_the_same_way_twice() {
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
        let outcome = run(seed, None);
        let violation = outcome.violation;
        assert_eq!(violation, None, "seed {seed}: see chunkcomm-simulate --seed {seed} --trace");
        if seed % 10 == 0 {
            assert_eq!(run(seed, None).trace, outcome.trace, "seed {seed}");
        }
        coverage.add(&outcome.coverage);
    }
    assert_eq!(coverage.short_of, [0, 0], "{coverage}");
    // The minimum is not reached by sessions that end where they should not, and others that
    // follow.
    let dead = coverage.over[over_index(SessionEnd::Dead)];
    assert!(coverage.sessions < 6 * SEEDS && dead < SEEDS, "{coverage}");
    assert!(coverage.resumes > 5 * SEEDS && coverage.duplicates > 0, "{coverage}");
    // Networks of each kind, with full buffers and cuts in the midst of what was under way.
    assert!(coverage.wirings.iter().all(|seeds| *seeds >= SEEDS / 10), "{coverage}");
    assert!(coverage.full > 10 * SEEDS && coverage.torn > SEEDS / 2, "{coverage}");
    assert!(coverage.read > SEEDS << 15, "{coverage}");
}
