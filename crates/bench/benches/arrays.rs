//! Plans of a rank in a transfer of a distributed array, without any node. `chunkperf redistribute` measures the
//! transfers, whose ranks are processes.

use std::hint::black_box;
use std::time::Duration;

use chunkcomm_array::{Layout, plan_of};
use criterion::{Criterion, criterion_group, criterion_main};

/// Rows and columns of the array.
const SHAPE: [usize; 2] = [16_384; 2];

/// Layouts of the senders and of the receivers.
const CASES: [[&str; 2]; 3] = [
    ["(block,*)@4x1", "(*,block)@1x4"],
    ["(cyclic(3),cyclic(3))@64x64", "(cyclic(5),cyclic(5))@64x64"],
    ["(cyclic(1000),cyclic(1000))@7x7", "(cyclic(1024),cyclic(1024))@5x5"],
];

fn plans(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan of a rank");
    for case in CASES {
        let [from, to] = case.map(|text| Layout::parse(text, &SHAPE).expect("a layout"));
        for (end, is_sender) in [("sender", true), ("receiver", false)] {
            group.bench_function(format!("{from} to {to}, {end}"), |b| {
                b.iter(|| plan_of(black_box(&from), black_box(&to), is_sender, 0));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = arrays;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = plans
}
criterion_main!(arrays);
