use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use super::*;

/// Elements of an increment of the default size.
const STEP: usize = INCREMENT_PAGES * 4096 / 8;

/// Settings with which a rewrite is an error.
fn strict() -> Tracking {
    Tracking::default().with_rewrites(Rewrites::Strict)
}

/// Writes all elements, and waits at `pause` until the first increment was handed on.
fn fill(elements: &mut [u64], pause: usize, comes: &mpsc::Receiver<Vec<u64>>) {
    for (index, element) in elements.iter_mut().enumerate() {
        *element = index as u64 + 1;
        if index == pause {
            let first = comes.recv_timeout(SOON).expect("the first has left");
            assert_eq!(first[..3], [1, 2, 3]);
        }
    }
}

#[test]
fn elements_are_handed_on_before_the_code_returns() {
    each_output::<u64>(64 * 1024, &Tracking::default(), |mut output| {
        let engine = output.engine();
        let (came, comes) = mpsc::channel();
        let mut copy = vec![0; output.len()];
        // The code waits in its middle, so it ends only if elements leave before its end.
        let (_, sent) = output
            .track(
                |elements| fill(elements, 40_000, &comes),
                |finished| {
                    assert!(!finished.again);
                    copy[finished.range()].copy_from_slice(finished.elements);
                    came.send(finished.elements.to_vec()).expect("the test listens");
                    Ok::<_, AccessError>(())
                },
            )
            .expect("written once");
        assert!(sent.before_return >= STEP, "{engine}: {sent:?}");
        assert!(copy.iter().zip(1..).all(|(element, index)| *element == index), "{engine}");
    });
}

#[test]
fn a_store_to_what_was_sent_is_an_error_that_names_the_elements() {
    each_output::<u64>(64 * 1024, &strict(), |mut output| {
        let engine = output.engine();
        let (came, comes) = mpsc::channel();
        let rewrite = |elements: &mut [u64]| {
            fill(elements, 40_000, &comes);
            elements[7] = 0;
        };
        let error = output.track(rewrite, |finished| {
            came.send(finished.elements.to_vec()).expect("the test listens");
            Ok::<_, AccessError>(())
        });
        let error = error.expect_err("written again");
        assert!(
            matches!(&error, AccessError::Rewritten { elements } if *elements == (0..STEP)),
            "{engine}: {error}"
        );
        let words = format!("elements 0..{STEP} were written again after they had been sent");
        assert_eq!(error.to_string(), words);
        assert_eq!(output.elements()[7], 0, "the code ran to its end");
        assert_eq!(output.elements()[64 * 1024 - 1], 64 * 1024);
    });
}

#[test]
fn a_store_to_what_was_sent_is_sent_again_where_that_is_asked_for() {
    let settings = Tracking::default().with_rewrites(Rewrites::Resend);
    each_output::<u64>(64 * 1024, &settings, |mut output| {
        let engine = output.engine();
        let (came, comes) = mpsc::channel();
        let rewrite = |elements: &mut [u64]| {
            fill(elements, 40_000, &comes);
            elements[7] = 0;
        };
        let (mut copy, mut again) = (vec![0; output.len()], Vec::new());
        let (_, sent) = output
            .track(rewrite, |finished| {
                copy[finished.range()].copy_from_slice(finished.elements);
                if finished.again {
                    again.push(finished.start);
                }
                came.send(finished.elements.to_vec()).expect("the test listens");
                Ok::<_, AccessError>(())
            })
            .expect("sent again");
        assert_eq!(copy, output.elements(), "{engine}");
        assert_eq!((again, sent.rewritten), (vec![0], 1), "{engine}");
    });
}

#[test]
fn a_late_store_that_changes_nothing_is_no_rewrite() {
    each_output::<u64>(64 * 1024, &strict(), |mut output| {
        let engine = output.engine();
        let (came, comes) = mpsc::channel();
        let rewrite = |elements: &mut [u64]| {
            fill(elements, 40_000, &comes);
            elements[7] = std::hint::black_box(8);
        };
        let (_, sent) = output
            .track(rewrite, |finished| {
                assert!(!finished.again);
                came.send(finished.elements.to_vec()).expect("the test listens");
                Ok::<_, AccessError>(())
            })
            .expect("nothing has changed");
        assert_eq!(sent.rewritten, 0, "{engine}");
    });
}

#[test]
fn an_end_of_the_buffer_waits_for_its_outermost_bytes() {
    const LEN: usize = 64 * 1024;
    for first in [true, false] {
        each_output::<u64>(LEN, &strict(), |mut output| {
            let (engine, mut copy) = (output.engine(), vec![0; LEN]);
            let (came, comes) = mpsc::channel();
            // As a large copy does: the last stores are those of a vector at one end.
            let outermost = if first { 0..8 } else { LEN - 8..LEN };
            let write = |elements: &mut [u64]| {
                for turn in 8..LEN {
                    elements[if first { turn } else { LEN - 1 - turn }] = 1;
                    if turn == 40_000 {
                        comes.recv_timeout(SOON).expect("others leave");
                    }
                }
                // The next look of a scan finds them late.
                std::thread::sleep(Duration::from_millis(5));
                elements[outermost].fill(1);
            };
            output
                .track(write, |finished| {
                    copy[finished.range()].copy_from_slice(finished.elements);
                    came.send(()).expect("the test listens");
                    Ok::<_, AccessError>(())
                })
                .unwrap_or_else(|error| panic!("{engine}, first {first}: {error}"));
            assert!(copy.iter().all(|element| *element == 1), "{engine}");
        });
    }
}

#[test]
fn large_copies_and_fills_are_no_rewrites() {
    const RUNS: u32 = 20;
    for kib in [64, 100, 256, 800, 1024, 4096, 33 * 1024] {
        let len = kib * 1024 / 4;
        each_output::<u32>(len, &strict(), |mut output| {
            let engine = output.engine();
            for run in 0..if kib > 4096 { 2 } else { RUNS } {
                // From each place in a page: where both addresses are alike, glibc copies downwards.
                let skew = (run as usize * 52) % 1024;
                let source: Vec<u32> = (run * 1_000..).take(len + skew).collect();
                let mut copy = vec![0; len];
                let write = |elements: &mut [u32]| match run % 4 {
                    0 => elements.fill(run + 7),
                    _ => elements.copy_from_slice(&source[skew..]),
                };
                output
                    .track(write, |finished| {
                        copy[finished.range()].copy_from_slice(finished.elements);
                        Ok::<_, AccessError>(())
                    })
                    .unwrap_or_else(|error| panic!("{engine}, {kib} KiB, run {run}: {error}"));
                assert!(copy == output.elements(), "{engine}, {kib} KiB, run {run}");
            }
        });
    }
}

#[test]
fn a_copy_that_differs_in_its_first_elements_alone_is_sent_as_it_is() {
    const LEN: usize = 256 * 1024;
    each_output::<u64>(LEN, &Tracking::default(), |mut output| {
        for run in 1..20 {
            let mut source = vec![0; LEN];
            source[0] = run;
            let mut copy = vec![9; LEN];
            let done = |finished: Finished<'_, u64>| {
                copy[finished.range()].copy_from_slice(finished.elements);
                Ok::<_, AccessError>(())
            };
            output.track(|elements| elements.copy_from_slice(&source), done).expect("sent again");
            assert!(copy == source, "{}, run {run}", output.engine());
        }
    });
}

#[test]
fn code_may_write_once_from_the_last_element_to_the_first() {
    each_output::<u64>(256 * 1024, &strict(), |mut output| {
        for round in 0..20 {
            let write = |elements: &mut [u64]| {
                for (index, element) in elements.iter_mut().enumerate().rev() {
                    *element = std::hint::black_box(index as u64 + round);
                }
            };
            assert_copied(&mut output, write, round);
        }
    });
}

/// Checks that what is handed on is what the code wrote.
fn assert_copied(output: &mut TrackedOutput<u64>, write: impl FnOnce(&mut [u64]), round: u64) {
    let (engine, mut copy) = (output.engine(), vec![0; output.len()]);
    output
        .track(write, |finished| {
            copy[finished.range()].copy_from_slice(finished.elements);
            Ok::<_, AccessError>(())
        })
        .unwrap_or_else(|error| panic!("{engine}, round {round}: {error}"));
    assert!(copy == output.elements(), "{engine}");
}

#[test]
fn code_may_begin_amid_the_buffer_and_go_down() {
    const COUNT: usize = 20;
    each_output::<u64>(COUNT * STEP, &strict(), |mut output| {
        for round in 0..10 {
            // Several increments are written before the first look, and the last of them is not finished.
            let write = |elements: &mut [u64]| {
                for (index, part) in elements.chunks_mut(STEP).enumerate().take(12).rev() {
                    let (low, high) = part.split_at_mut(STEP / 2);
                    high.fill(round);
                    if index == 5 {
                        std::thread::sleep(Duration::from_millis(3));
                    }
                    low.fill(round);
                }
            };
            assert_copied(&mut output, write, round);
        }
    });
}

#[test]
fn any_order_of_writes_arrives_in_the_end() {
    const LEN: usize = 30_011;
    for seed in 0..4 {
        let settings = Tracking::default().with_increment_pages(1 + seed as usize);
        each_output::<u64>(LEN, &settings.with_rewrites(Rewrites::Resend), |mut output| {
            let mut random = seeded(seed);
            let mut copy = vec![0; LEN];
            let write = |elements: &mut [u64]| {
                for turn in 1..3_000 {
                    let start = random.below(LEN as u64) as usize;
                    let end = (start + random.below(600) as usize).min(LEN);
                    elements[start..end].fill(turn);
                }
            };
            let done = |finished: Finished<'_, u64>| {
                copy[finished.range()].copy_from_slice(finished.elements);
                Ok::<_, AccessError>(())
            };
            output.track(write, done).expect("sent again as often as it needs");
            assert!(copy == output.elements(), "seed {seed}, {}", output.engine());
        });
    }
}

#[test]
fn each_element_comes_once_whatever_its_size_and_number() {
    fn check<T: Pod + Send + PartialEq + std::fmt::Debug>(len: usize, value: impl Fn(usize) -> T) {
        each_output::<T>(len, &Tracking::default().with_increment_pages(1), |mut output| {
            let engine = output.engine();
            // Twice: a buffer may be used again.
            for _ in 0..2 {
                let mut came = BTreeMap::new();
                let write = |elements: &mut [T]| {
                    for (index, element) in elements.iter_mut().enumerate() {
                        *element = value(index);
                    }
                };
                output
                    .track(write, |finished| {
                        for (index, element) in finished.range().zip(finished.elements) {
                            assert_eq!(came.insert(index, *element), None, "{engine}: twice");
                        }
                        Ok::<_, AccessError>(())
                    })
                    .expect("written once");
                assert_eq!(came.len(), len, "{engine}");
                assert!(came.iter().all(|(index, element)| *element == value(*index)));
            }
        });
    }
    for len in [0, 1, 4095, 4096, 4097, 50_001] {
        check(len, |index| index as u8);
        check(len, |index| [index as u8, (index >> 8) as u8, 9]);
    }
    check(1_001, |index| [index as u64; 13]);
    check(5, |index| [index as u64; 4096]);
}

#[test]
fn neighbours_are_handed_on_together_up_to_256_kib() {
    // Nothing is finished before the code returns.
    let settings = Tracking::default().with_open_increments(usize::MAX);
    each_output::<u64>(26 * STEP, &settings, |mut output| {
        let mut came = Vec::new();
        let (_, sent) = output
            .track(
                |elements| elements.fill(1),
                |finished| {
                    came.push(finished.range());
                    Ok::<_, AccessError>(())
                },
            )
            .expect("written once");
        assert_eq!(came, [0..12 * STEP, 12 * STEP..24 * STEP, 24 * STEP..26 * STEP]);
        assert_eq!(sent.increments, 26, "{}", output.engine());
    });
}

#[test]
fn a_panic_of_the_code_ends_the_run_and_the_buffer_stays_usable() {
    each_output::<u64>(64 * 1024, &Tracking::default(), |mut output| {
        let engine = output.engine();
        let mut count = 0;
        let run = catch_unwind(AssertUnwindSafe(|| {
            let write = |elements: &mut [u64]| {
                elements[..20_000].fill(1);
                panic!("in the middle");
            };
            output.track(write, |finished| {
                count += finished.elements.len();
                Ok::<_, AccessError>(())
            })
        }));
        let panic = run.expect_err("it goes on");
        assert_eq!(panic.downcast_ref(), Some(&"in the middle"), "{engine}");
        assert!(count <= 20_000, "{engine}: {count}");
        output.elements_mut()[0] = 3;
        let mut sum = 0;
        let write = |elements: &mut [u64]| elements[1..].fill(2);
        output
            .track(write, |finished| {
                sum += finished.elements.iter().sum::<u64>();
                Ok::<_, AccessError>(())
            })
            .expect("another run");
        assert_eq!(sum, 3 + 2 * (64 * 1024 - 1), "{engine}");
    });
}

#[test]
fn an_error_or_a_panic_of_the_receiver_lets_the_code_run_to_its_end() {
    each_output::<u64>(64 * 1024, &Tracking::default(), |mut output| {
        let engine = output.engine();
        let write = |elements: &mut [u64]| elements.fill(5);
        let refused = || AccessError::Rewritten { elements: 7..7 };
        let error = output.track(write, |_| Err(refused())).expect_err("refused");
        let is_it = |elements: &Range<usize>| *elements == (7..7);
        assert!(
            matches!(&error, AccessError::Rewritten { elements } if is_it(elements)),
            "{engine}: {error}"
        );
        assert!(output.elements().iter().all(|element| *element == 5));
        let write = |elements: &mut [u64]| elements.fill(6);
        let panicking = AssertUnwindSafe(|| {
            output.track(write, |_| -> Result<(), AccessError> { panic!("no") }).map(drop)
        });
        assert!(catch_unwind(panicking).is_err(), "{engine}");
        assert!(output.elements().iter().all(|element| *element == 6));
    });
}

#[test]
fn several_threads_may_write() {
    const LEN: usize = 100_000;
    let settings = Tracking::default().with_open_increments(8);
    each_output::<u64>(LEN, &settings.with_rewrites(Rewrites::Resend), |mut output| {
        let write = |elements: &mut [u64]| {
            std::thread::scope(|scope| {
                for (part, elements) in elements.chunks_mut(LEN / 3).enumerate() {
                    scope.spawn(move || elements.fill(part as u64));
                }
            });
        };
        let mut copy = vec![9; LEN];
        output
            .track(write, |finished| {
                copy[finished.range()].copy_from_slice(finished.elements);
                Ok::<_, AccessError>(())
            })
            .expect("the threads meet in two pages at most");
        assert!(copy == output.elements(), "{}", output.engine());
        assert_eq!((copy[0], copy[LEN - 2]), (0, 2));
    });
}
