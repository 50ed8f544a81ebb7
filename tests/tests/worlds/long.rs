//! Times of any length, in virtual time.

use chunkcomm::host::{self, Alarm, Instant};
use chunkcomm_simulation::{LinkSpec, Network, run_within};
use std::future::{pending, poll_fn};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// Runs `program` on one of two hosts, for as long as the clock of a simulation goes.
fn at_length<T: Send + 'static>(program: impl Future<Output = T> + Send + 'static) -> T {
    let mut network = Network::new(1);
    let (a, b) = (network.add_host("a"), network.add_host("b"));
    network.link(a, b, LinkSpec::default());
    let ran = run_within(network, 500 * 365 * DAY, async |simulation| {
        simulation.spawn_on(a, program).await.unwrap()
    });
    ran.expect("the limit of the run is later")
}

#[test]
fn sleeps_and_limits_of_any_length_last_as_long_as_they_say() {
    for days in [1, 10, 11, 20, 21, 30, 365, 100 * 365] {
        let asked = days * DAY + Duration::from_micros(7);
        let lasted = at_length(async move {
            let begun = Instant::now();
            host::sleep(asked).await;
            let slept = begun.elapsed();
            host::sleep_until(begun + 2 * asked).await;
            let until = begun.elapsed();
            host::timeout(asked, pending::<()>()).await.unwrap_err();
            let timed = begun.elapsed();
            host::timeout_at(begun + 4 * asked, pending::<()>()).await.unwrap_err();
            [slept, until, timed, begun.elapsed()]
        });
        assert_eq!(lasted, [1, 2, 3, 4].map(|times| times * asked), "{days} days");
    }
}

#[test]
fn what_is_done_before_a_long_limit_is_not_late() {
    let done = at_length(async {
        let work = async {
            host::sleep(300 * DAY).await;
            7
        };
        host::timeout(365 * DAY, work).await
    });
    assert_eq!(done, Ok(7));
}

#[test]
fn a_sleep_for_ever_outlasts_the_run() {
    let outlasted = at_length(async {
        host::timeout(400 * 365 * DAY, host::sleep(Duration::MAX)).await.is_err()
    });
    assert!(outlasted);
}

#[test]
fn the_limit_of_a_run_may_be_long() {
    let day_by_day = at_length(async {
        let mut ticks = host::interval(DAY);
        let first = ticks.tick().await;
        for _ in 0..40 {
            ticks.tick().await;
        }
        first.elapsed()
    });
    assert_eq!(day_by_day, 40 * DAY);
}

#[test]
fn the_timer_of_a_driver_goes_off_at_a_distant_deadline() {
    let passed = at_length(async {
        let (mut alarm, begun) = (Alarm::default(), Instant::now());
        let due = (begun + 365 * DAY).time();
        poll_fn(|context| alarm.poll(context, Some(due), Instant::now().time())).await;
        begun.elapsed()
    });
    assert_eq!(passed, 365 * DAY);
}
