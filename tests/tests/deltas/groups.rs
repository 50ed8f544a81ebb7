//! Calls of a group from threads outside the runtime.

use std::sync::{Arc, Barrier};
use std::thread;

use chunkcomm_group::{Group, Op, Parts};
use chunkcomm_testkit::on_both;

use crate::clusters::{end_all, join_all};

#[test]
fn threads_wait_for_calls_of_all_sizes() {
    on_both(|| async {
        let clusters = join_all(3).await;
        let through = Arc::new(Barrier::new(3));
        let mut threads = Vec::new();
        for cluster in &clusters {
            let mut group = Group::world(cluster).await.unwrap();
            let through = Arc::clone(&through);
            threads.push(thread::spawn(move || {
                let rank = group.rank() as u64;
                for length in [0, 1, 1000, 20_000] {
                    let sums = group.all_reduce(vec![rank; length], Op::sum());
                    let told = group.broadcast_value(1, (rank == 1).then_some(length));
                    // The second is waited for first.
                    assert_eq!(told.wait().unwrap(), length);
                    assert!(sums.wait().unwrap() == vec![3_u64; length]);
                }
                // It breaks the group, and so the calls of slower ranks.
                through.wait();
                // A call that is refused gives its own data back.
                let error = group.broadcast(7, vec![rank]).wait().unwrap_err();
                assert!(error.data == [rank]);
                let parts = Parts { data: vec![rank; 5], counts: vec![2, 2] };
                let error = group.reduce_scatter(parts.clone(), Op::sum()).wait().unwrap_err();
                assert!(error.data.input == parts);
            }));
        }
        let joined = tokio::task::spawn_blocking(|| {
            threads.into_iter().for_each(|it| it.join().unwrap());
        });
        joined.await.unwrap();
        end_all(&clusters).await;
    });
}
