//! Map and reduce, divide and conquer.

use chunkcomm_farm::settings::WorkersAs;
use chunkcomm_farm::{Farm, FarmBuilder, RunError, TaskError};

use crate::farm::{DEADLINE, builder, kill, pids};

fn threads() -> (FarmBuilder, chunkcomm_tests::farm_tasks::Functions) {
    let (builder, functions) = builder();
    (builder.workers_as(WorkersAs::Thread), functions)
}

async fn finish(farm: Farm) {
    farm.finish(DEADLINE).await.unwrap();
}

/// Reducing joins words, which has an order.
#[tokio::test]
async fn results_are_reduced_in_the_order_of_the_inputs() {
    let (builder, functions) = threads();
    let mut farm = builder.start().await.unwrap();
    for count in [0, 1, 2, 17, 1000, 3000] {
        let words: Vec<String> = (0..count).map(|number: u32| format!("{number} ")).collect();
        let expected = (count > 0).then(|| words.concat());
        let known = farm.map_reduce(&functions.words, 0..count).await.unwrap();
        assert_eq!(known.value, expected);
        let unknown = farm.map_reduce(&functions.words, (0..count).filter(|_| true)).await.unwrap();
        assert_eq!(unknown.value, expected);
        assert_eq!(unknown.stats.tasks, u64::from(count.div_ceil(16)));
        assert_eq!(known.stats.tasks, u64::from(count), "few inputs go one by one");
    }
    let error = farm.map_reduce(&functions.words, 0..=u32::MAX).await.unwrap_err();
    let RunError::Task(TaskError::Failed { index, text, .. }) = &error else { panic!("{error}") };
    // The word of a million fails; groups have 1024 inputs.
    assert_eq!((*index, text.contains("too large")), (1_000_000 / 1024 * 1024, true), "{error}");
    finish(farm).await;
}

#[tokio::test]
async fn parts_are_solved_apart_and_put_together_in_their_order() {
    let (builder, functions) = threads();
    let mut farm = builder.start().await.unwrap();
    for count in [0, 1, 7, 10_000_u32] {
        let numbers: Vec<u32> =
            (0..count).map(|number| number.wrapping_mul(2_654_435_761)).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        let solved = farm.divide_and_conquer(&functions.sort, numbers).await.unwrap();
        assert_eq!(solved.value, Some(sorted));
    }
    finish(farm).await;
}

#[tokio::test]
async fn the_death_of_a_worker_changes_no_solution() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(3).start().await.unwrap();
    for victim in pids(&farm) {
        let numbers: Vec<u32> =
            (0..50_000_u32).map(|number| number.wrapping_mul(2_654_435_761)).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        kill(victim);
        let solved = farm.divide_and_conquer(&functions.sort, numbers).await.unwrap();
        assert_eq!(solved.value, Some(sorted));
    }
    finish(farm).await;
}
