use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use super::*;

const LEN: usize = 10_000;

/// Waits until the filler is told to stop.
fn stopped<T: Pod>(filler: &Filler<'_, T>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let stopped = async { tokio::time::timeout(SOON, filler.stopped()).await };
    runtime.expect("a runtime").block_on(stopped).expect("the filler is told");
}

#[test]
fn reads_wait_for_their_elements() {
    each_input::<u64>(LEN, &Awaiting::default(), |mut input| {
        let engine = input.engine();
        for round in 0..3 {
            let (read, reads) = mpsc::channel();
            let closure = |elements: &[u64], _: &Arrivals<'_>| {
                let mut sum = 0;
                for (index, element) in elements.iter().enumerate() {
                    sum += element;
                    if index == 100 {
                        read.send(*element).expect("the filler waits");
                    }
                }
                sum
            };
            let fill = move |filler: &mut Filler<'_, u64>| {
                let elements: Vec<u64> = (0..LEN).map(|index| index as u64 + round).collect();
                filler.put(0, &elements[..1_000])?;
                // The others come only after the first were read.
                assert_eq!(reads.recv_timeout(SOON).expect("it is read"), 100 + round);
                filler.put(7_777, &elements[7_777..])?;
                filler.put(1_000, &elements[1_000..7_777])
            };
            let (sum, _) = input.track(closure, fill).expect("all came");
            let len = LEN as u64;
            assert_eq!(sum, len * (len - 1) / 2 + len * round, "{engine}");
            assert_eq!(input.elements()[LEN - 1], len - 1 + round);
        }
    });
}

#[test]
fn a_read_that_stops_is_counted() {
    each_input::<u64>(LEN, &Awaiting::default(), |mut input| {
        let engine = input.engine();
        let (_, received) = input
            .track(
                |elements, _| elements[LEN - 1],
                |filler| {
                    // Puts it only when the reader has stopped.
                    while filler.stalls() == 0 {
                        std::thread::yield_now();
                    }
                    filler.put(0, &[1; LEN])
                },
            )
            .expect("it came");
        assert_eq!(received.stalls, 1, "{engine}");
    });
}

#[test]
fn parts_come_in_any_order_and_length() {
    for (seed, len) in [(1, 0), (2, 1), (3, 4097), (4, 50_001)] {
        each_input::<[u8; 3]>(len, &Awaiting::default(), |mut input| {
            let engine = input.engine();
            let mut random = seeded(seed);
            let value = |index: usize| [index as u8, (index >> 8) as u8, 7];
            let elements: Vec<_> = (0..len).map(value).collect();
            let mut cuts: Vec<usize> =
                (0..20).map(|_| random.below(len as u64 + 1) as usize).chain([0, len]).collect();
            cuts.sort_unstable();
            let mut parts: Vec<_> = cuts.windows(2).map(|cut| cut[0]..cut[1]).collect();
            let read = |read: &[[u8; 3]], _: &Arrivals<'_>| read.to_vec();
            let fill = |filler: &mut Filler<'_, [u8; 3]>| {
                while !parts.is_empty() {
                    let part = parts.swap_remove(random.below(parts.len() as u64) as usize);
                    filler.put(part.start, &elements[part])?;
                }
                Ok::<_, AccessError>(())
            };
            let (read, _) = input.track(read, fill).expect("all came");
            assert!(read == elements, "{engine}, seed {seed}");
        });
    }
}

#[test]
fn a_wait_returns_an_error_where_a_read_cannot() {
    let settings = Awaiting::default().with_missing(Missing::Unfilled);
    each_input::<u64>(LEN, &settings, |mut input| {
        let engine = input.engine();
        let mut waits = Vec::new();
        let read = |elements: &[u64], arrivals: &Arrivals<'_>| {
            arrivals.wait(0..1_024).expect("it comes");
            assert_eq!(elements[1_023], 4);
            assert!(arrivals.have_come(0..0) && arrivals.have_come(3..1_000));
            waits = vec![arrivals.wait(0..LEN), arrivals.wait(0..LEN + 1)];
        };
        let error = input.track(read, |filler| filler.put(0, &[4; 1_500])).map(|_| ());
        assert!(matches!(error, Err(AccessError::Ended)), "{engine}: {error:?}");
        assert!(matches!(waits[0], Err(AccessError::Ended)), "{engine}: {waits:?}");
        assert!(matches!(waits[1], Err(AccessError::Range { .. })), "{engine}: {waits:?}");
    });
}

#[test]
fn a_read_whose_sender_ended_goes_on_where_that_is_asked_for() {
    let settings = Awaiting::default().with_missing(Missing::Unfilled);
    each_input::<u64>(LEN, &settings, |mut input| {
        let engine = input.engine();
        let mut last = 9;
        let error =
            input.track(|elements, _| last = elements[LEN - 1], |_| Ok::<_, AccessError>(()));
        assert!(matches!(error, Err(AccessError::Ended)), "{engine}: {error:?}");
        assert_eq!(last, 0, "{engine}");
        let (first, _) = input
            .track(|elements, _| elements[LEN - 1], |filler| filler.put(0, &[6; LEN]))
            .expect("the buffer stays usable");
        assert_eq!(first, 6, "{engine}");
    });
}

#[test]
fn a_late_read_goes_on_where_that_is_asked_for_and_stops_the_filler() {
    let settings = Awaiting::default().with_missing(Missing::Unfilled);
    let settings = settings.with_deadline(Duration::from_millis(30));
    each_input::<u64>(LEN, &settings, |mut input| {
        let engine = input.engine();
        let mut refused = None;
        let error = input.track(
            |elements, _| elements[5] + elements[LEN - 1],
            |filler| {
                stopped(filler);
                let put = filler.put(0, &[6; LEN]);
                refused = Some(put.is_err());
                put
            },
        );
        assert!(matches!(error, Err(AccessError::Late { .. })), "{engine}: {error:?}");
        assert_eq!(refused, Some(true), "{engine}: the page was given");
    });
}

#[test]
fn a_panic_of_the_reader_stops_the_filler() {
    each_input::<u64>(LEN, &Awaiting::default(), |mut input| {
        let engine = input.engine();
        let run = AssertUnwindSafe(|| {
            let fill = |filler: &mut Filler<'_, u64>| {
                stopped(filler);
                Ok::<_, AccessError>(())
            };
            input.track(|_, _| panic!("in the middle"), fill)
        });
        let panic = catch_unwind(run).expect_err("it goes on");
        assert_eq!(panic.downcast_ref(), Some(&"in the middle"), "{engine}");
        let (sum, _) = input
            .track(|elements, _| elements.iter().sum::<u64>(), |filler| filler.put(0, &[1; LEN]))
            .expect("the buffer stays usable");
        assert_eq!(sum, LEN as u64, "{engine}");
    });
}
