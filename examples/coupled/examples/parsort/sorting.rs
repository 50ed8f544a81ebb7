//! Sorting, and the work of the computations on a virtual host, in nanoseconds.
//!
//! Measured once: 100,000 random numbers take 1.2 ms to sort, and 0.4 ms to merge from two lists, as
//! loops of these calls alone.

use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::process::Failure;
use chunkcomm_examples::program::on_a_thread;
use chunkcomm_examples::thread::Thread;

/// Work of taking a number from the streams of the workers and finding the next: assumed.
pub(crate) const MERGED_NANOS: u64 = 20;

/// Returns the work of sorting this number of numbers.
fn sort_nanos(count: usize) -> u64 {
    (0.7 * count as f64 * (count.max(1) as f64).log2()) as u64
}

/// Returns the work of merging these lists in pairs, and the results in pairs.
pub(crate) fn merge_nanos(lists: &[Vec<i64>]) -> u64 {
    let rounds = lists.len().next_power_of_two().ilog2();
    let numbers: usize = lists.iter().map(Vec::len).sum();
    4 * numbers as u64 * u64::from(rounds)
}

/// Sorts on the thread of a worker.
pub(crate) async fn sort(numbers: &mut [i64], thread: &Thread) {
    thread.work(|| sort_nanos(numbers.len())).await;
    numbers.sort_unstable();
}

/// Sorts on a thread of its own, for the comparison.
///
/// # Errors
/// The thread could not be started.
pub(crate) async fn sorted(mut numbers: Vec<i64>) -> Result<Vec<i64>, Failure> {
    let sorting = on_a_thread(move || {
        host::spend(Duration::from_nanos(sort_nanos(numbers.len())));
        numbers.sort_unstable();
        numbers
    });
    sorting.await.map_err(|error| Failure::new(error.to_string()))
}
