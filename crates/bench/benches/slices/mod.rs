//! Slices between two processes, timed by criterion.

use std::time::Duration;

use chunkcomm_bench::harness::near::{Bench, Setting};
use chunkcomm_bench::harness::protocol::{RuntimeKind, Transport};
use chunkcomm_bench::harness::slices::Contender;
use criterion::{BenchmarkGroup, Criterion};

/// Functions that criterion compares.
type Group<'a> = BenchmarkGroup<'a, criterion::measurement::WallTime>;

/// Returns criterion with a second a function, and what the command line says.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args()
}

/// Returns the setting of the two processes: the defaults of `chunkperf`.
pub(crate) fn setting() -> Setting {
    Setting {
        transport: Transport::Tcp,
        runtime: RuntimeKind::Ambient,
        threads: 1,
        session: true,
        connect: None,
    }
}

/// Measures slices: one has as many messages as criterion asks for.
pub(crate) fn bench_slices(
    group: &mut Group<'_>,
    name: &str,
    bench: &mut Bench,
    contender: &mut dyn Contender,
) {
    group.bench_function(name, |b| {
        b.iter_custom(|count| {
            let slice = contender.slice(bench, count).expect("both ends are alive");
            Duration::from_secs_f64(slice.seconds)
        });
    });
}
