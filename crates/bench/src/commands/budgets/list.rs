//! The budgets: a command, the key of its row that counts, and its limits.

/// Limit of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    /// Larger is better.
    AtLeast(f64),
    /// Smaller is better.
    AtMost(f64),
    /// Larger is better, without a limit.
    Printed,
}

impl Bound {
    pub(super) fn figure(self) -> Option<f64> {
        match self {
            Self::AtLeast(limit) | Self::AtMost(limit) => Some(limit),
            Self::Printed => None,
        }
    }

    /// Returns the bound with another limit in the same direction, if one is given.
    pub(super) fn at(self, limit: Option<f64>) -> Self {
        match (self, limit) {
            (_, None) => self,
            (Self::AtLeast(_) | Self::Printed, Some(limit)) => Self::AtLeast(limit),
            (Self::AtMost(_), Some(limit)) => Self::AtMost(limit),
        }
    }

    pub(super) fn direction(self) -> &'static str {
        match self {
            Self::AtLeast(_) | Self::Printed => "at least",
            Self::AtMost(_) => "at most",
        }
    }
}

/// One budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) name: &'static str,
    /// The command and its options, a blank between two words.
    pub(super) command: &'static str,
    /// Further options for tiny sizes.
    pub(super) quick: &'static str,
    /// The key whose value counts.
    pub(super) key: &'static str,
    pub(super) bound: Bound,
    /// Aim of the figure, in the direction of the bound.
    pub(super) aim: f64,
}

const fn budget(name: &'static str, command: &'static str) -> Budget {
    Budget { name, command, quick: "", key: "", bound: Bound::Printed, aim: f64::NAN }
}

impl Budget {
    const fn quick(self, quick: &'static str) -> Self {
        Self { quick, ..self }
    }

    const fn at_least(self, key: &'static str, limit: f64, aim: f64) -> Self {
        Self { key, bound: Bound::AtLeast(limit), aim, ..self }
    }

    const fn at_most(self, key: &'static str, limit: f64, aim: f64) -> Self {
        Self { key, bound: Bound::AtMost(limit), aim, ..self }
    }

    const fn printed(self, key: &'static str, aim: f64) -> Self {
        Self { key, aim, ..self }
    }

    pub(super) fn is_met(&self, figure: f64) -> bool {
        match self.bound {
            Bound::AtLeast(limit) => figure >= limit,
            Bound::AtMost(limit) => figure <= limit,
            Bound::Printed => true,
        }
    }

    pub(super) fn aim_is_met(&self, figure: f64) -> bool {
        match self.bound {
            Bound::AtLeast(_) | Bound::Printed => figure >= self.aim,
            Bound::AtMost(_) => figure <= self.aim,
        }
    }
}

/// Messages of 16 bytes, each with a byte of length, in a packet of 64 KiB, less a little for
/// headers.
const FULL_PACKET_MESSAGES: f64 = 3_800.0;

const FEW_MESSAGES: &str = "--messages 2000";
const FEW_TASKS: &str = "--tasks 2000";
const ONE_EACH: &str = "--repeat 10";
const FEW_CALLS: &str = "--repeat 24";
const FEW_CALLS_MPI: &str = "--repeat 24 --against mpich";
#[cfg(feature = "virtual")]
const FEW_NODES: &str = "--nodes 3 --bytes 64KiB";
const SMALL_ARRAYS: &str = "--repeat 12 --shape 256x256";
const SMALL_PACKING: &str = "--shape 64x64";
const SMALL_STREAM: &str = "--shape 64x64 --arrays 8";
const SMALL_CALLS: &str = "--repeat 12 --size 64KiB";
const SMALL_CALLS_MPI: &str = "--repeat 12 --size 64KiB --against mpich";

/// All budgets.
pub(super) static BUDGETS: &[Budget] = &[
    budget("stream-one", "stream --size 16 --api one --against hand-batched")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.5, 0.9),
    budget("redeliver", "stream --size 16 --api one --delivery redelivered --against plain")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.95, 1.0),
    budget(
        "redeliver-log",
        "stream --size 16 --api one --delivery logged --against append-or-plain",
    )
    .quick(FEW_MESSAGES)
    .at_least("ratio", 0.7, 1.0),
    budget("stream-many", "stream --size 16 --api many --against hand-batched")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.7, 1.1),
    budget("stream-1024", "stream --size 1024 --api one --against hand-batched")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.6, 0.9),
    budget("stream-unbuffered", "stream --size 16 --policy unbuffered --against unbatched")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.7, 1.0),
    budget("delivery", "stream --size 16 --rate 10000 --against latency")
        .quick(FEW_MESSAGES)
        .at_most("ratio", 1.5, 1.1),
    budget("bandwidth", "bandwidth --size 64MiB --against raw")
        .quick("--size 1MiB --repeat 10")
        .at_least("ratio", 0.85, 1.0),
    budget("stream-1MiB", "stream --size 1MiB --against bandwidth")
        .quick("--messages 20")
        .at_least("ratio", 0.5, 0.8),
    budget("stream-64MiB", "stream --size 64MiB --against bandwidth")
        .quick("--size 1MiB --messages 20")
        .at_least("ratio", 0.5, 0.8),
    budget("latency", "latency --size 16 --against raw")
        .quick("--iterations 200")
        .at_most("ratio", 1.2, 1.02),
    budget("latency-busy-poll", "latency --size 16 --runtime busy-poll --against raw")
        .quick("--iterations 200")
        .at_most("ratio", 1.3, 0.9),
    budget("latency-awake", "latency --size 16 --load spinner --against raw")
        .quick("--iterations 200")
        .at_most("ratio", 1.15, 1.05),
    budget("latency-mpich", "latency --size 16 --runtime busy-poll --against mpich")
        .quick("--iterations 20")
        .at_most("ratio", 1.1, 1.0),
    budget("calls-one", "calls --size 16 --in-flight 1 --against latency")
        .quick("--calls 200")
        .at_most("ratio", 1.3, 1.1),
    #[cfg(feature = "peers")]
    budget("calls-many", "calls --size 16 --in-flight 256 --against tarpc")
        .quick("--calls 2000")
        .at_least("ratio", 2.0, 4.0),
    #[cfg(feature = "peers")]
    budget("peers-one-way-timely", "stream --size 16 --api one --against timely")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 1.0, 2.0),
    #[cfg(feature = "peers")]
    budget("peers-one-way", "stream --size 16 --api one --against best")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 2.5, 4.0),
    #[cfg(feature = "peers")]
    budget("peers-one-way-1k", "stream --size 1024 --api one --against framed")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 1.2, 1.5),
    #[cfg(feature = "peers")]
    budget("peers-round-trip", "latency --size 16 --against best")
        .quick("--iterations 200")
        .at_most("ratio", 1.15, 1.02),
    #[cfg(feature = "peers")]
    budget("peers-calls", "calls --size 16 --in-flight 256 --against tarpc")
        .quick("--calls 2000")
        .at_least("ratio", 2.7, 3.5),
    #[cfg(feature = "peers")]
    budget("peers-bandwidth", "bandwidth --size 64MiB --against best")
        .quick("--size 1MiB --repeat 10")
        .at_least("ratio", 0.9, 1.0),
    budget(
        "farm",
        "farm --tasks 500000 --work 0us --task-bytes 16 --workers 1 --workers-as process \
            --prefetch 64 --grain 1 --against hand-farm",
    )
    .quick(FEW_TASKS)
    .at_least("ratio", 0.4, 0.8),
    budget(
        "farm-rate",
        "farm --tasks 5000000 --work 0us --task-bytes 16 --workers 1 --workers-as process",
    )
    .quick(FEW_TASKS)
    .printed("tasks_per_second", 2_000_000.0),
    budget(
        "farm-rate-64",
        "farm --tasks 500000 --work 0us --task-bytes 16 --workers 1 --workers-as process \
            --prefetch 64 --grain 1",
    )
    .quick(FEW_TASKS)
    .printed("tasks_per_second", 2_000_000.0),
    budget(
        "farm-mpich",
        "farm --tasks 200000 --work 0us --task-bytes 16 --workers 1 --workers-as process \
            --prefetch 8 --grain 1 --runtime busy-poll --against mpich",
    )
    .quick("--tasks 200")
    .at_least("ratio", 1.0, 2.0),
    budget(
        "farm-journal",
        "farm --tasks 5000000 --work 0us --task-bytes 16 --workers 1 --journal batched \
            --against plain",
    )
    .quick(FEW_TASKS)
    .at_least("ratio", 0.4, 0.7),
    budget("farm-10us", "farm --tasks 120000 --work 10us --workers 2")
        .quick("--tasks 1000")
        .at_least("efficiency", 0.8, 0.9),
    budget("farm-100us", "farm --tasks 20000 --work 100us --workers 2")
        .quick("--tasks 200")
        .at_least("efficiency", 0.95, 0.97),
    budget("farm-1ms", "farm --tasks 10000 --work 1ms --workers 2").quick("--tasks 20").at_least(
        "efficiency",
        0.98,
        0.99,
    ),
    budget("farm-auto-1us", "farm-sweep --works 1us").quick("--quick").at_least("ratio", 0.95, 1.0),
    budget("farm-auto-10us", "farm-sweep --works 10us")
        .quick("--quick")
        .at_least("ratio", 0.95, 1.0),
    budget("farm-auto-100us", "farm-sweep --works 100us")
        .quick("--quick")
        .at_least("ratio", 0.95, 1.0),
    budget("farm-auto-1ms", "farm-sweep --works 1ms").quick("--quick").at_least("ratio", 0.95, 1.0),
    budget("farm-auto-10ms", "farm-sweep --works 10ms")
        .quick("--quick")
        .at_least("ratio", 0.95, 1.0),
    budget("farm-auto-mix", "farm-sweep --works mix:1ms")
        .quick("--quick")
        .at_least("ratio", 0.95, 1.0),
    budget("farm-queue-held", "farm-queue --tasks 1000000 --task-bytes 16 --queue held --grain 1")
        .quick(FEW_TASKS)
        .at_most("bytes_per_task", 200.0, 64.0),
    budget("farm-queue-pool", "farm-queue --tasks 1000000 --task-bytes 16 --queue pool")
        .quick(FEW_TASKS)
        .at_most("bytes_per_task", 200.0, 64.0),
    budget(
        "delta-pair",
        "delta --pattern pair --nodes 2 --bytes 4MiB --delta auto --compute trig --lan real",
    )
    .quick(ONE_EACH)
    .at_least("speedup", 1.7, 1.9),
    budget("delta-empty", "delta --pattern pair --compute empty")
        .quick(ONE_EACH)
        .at_least("speedup", 0.97, 1.0),
    budget(
        "delta-cascade-29",
        "delta --pattern cascade --nodes 29 --compute wait:21ms --delta 20KiB --repeat 10",
    )
    .quick("--nodes 3 --compute wait:1ms --bytes 64KiB")
    .at_most("ideal_ratio", 2.0, 1.4),
    budget("delta-increment", "delta --pattern pair --compute trig --delta 4KiB --repeat 100")
        .quick(ONE_EACH)
        .at_most("increment_cpu_us", 3.0, 1.5),
    budget(
        "delta-bandwidth",
        "delta --pattern pair --bytes 64MiB --compute empty --against bandwidth",
    )
    .quick("--bytes 1MiB --repeat 10")
    .at_least("ratio", 0.7, 0.95),
    budget(
        "delta-reduce",
        "delta --pattern reduce --nodes 4 --bytes 16MiB --compute wait:10ms --against calls",
    )
    .quick("--bytes 256KiB --compute wait:1ms --repeat 10")
    .at_least("ratio", 1.3, 1.6),
    budget("tracked", "tracked --compute trig --bytes 4MiB --rounds 31 --against explicit")
        .quick("--bytes 100KiB --rounds 1")
        .at_most("ratio", 1.3, 1.1),
    budget("idle", "idle --links 1000").quick("--links 20").at_most(
        "bytes_per_link",
        32.0 * 1024.0,
        8.0 * 1024.0,
    ),
    budget("idle-channels", "stream --size 16 --api one --idle-channels 10000 --against alone")
        .quick("--messages 2000 --idle-channels 500 --slices 10")
        .at_least("ratio", 0.97, 1.0),
    budget("cluster-16", "cluster --nodes 16")
        .quick("--nodes 3 --repeat 1")
        .at_most("seconds", 0.5, 0.25),
    budget("cluster-64", "cluster --nodes 64 --repeat 5")
        .quick("--nodes 4 --repeat 1")
        .at_most("seconds", 2.0, 1.0),
    budget("collective-broadcast", "collective --op broadcast --size 16MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.75, 0.95),
    budget("collective-broadcast-64MiB", "collective --op broadcast --size 64MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.75, 0.95),
    budget("collective-reduce", "collective --op reduce --size 16MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.75, 0.95),
    budget("collective-reduce-64MiB", "collective --op reduce --size 64MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.75, 0.95),
    budget("collective-all-reduce", "collective --op all-reduce --size 16MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.75, 0.95),
    budget(
        "collective-all-reduce-64MiB",
        "collective --op all-reduce --size 64MiB --against relay",
    )
    .quick(SMALL_CALLS)
    .at_least("ratio", 0.75, 0.95),
    budget("collective-broadcast-mpi", "collective --op broadcast --size 16MiB --against mpi")
        .quick(SMALL_CALLS_MPI)
        .at_least("ratio", 0.75, 1.0),
    budget(
        "collective-broadcast-mpi-64MiB",
        "collective --op broadcast --size 64MiB --against mpi",
    )
    .quick(SMALL_CALLS_MPI)
    .at_least("ratio", 0.75, 1.0),
    budget("collective-reduce-mpi", "collective --op reduce --size 16MiB --against mpi")
        .quick(SMALL_CALLS_MPI)
        .at_least("ratio", 0.85, 1.15),
    budget("collective-reduce-mpi-64MiB", "collective --op reduce --size 64MiB --against mpi")
        .quick(SMALL_CALLS_MPI)
        .at_least("ratio", 0.85, 1.15),
    budget("collective-all-reduce-mpi", "collective --op all-reduce --size 16MiB --against mpi")
        .quick(SMALL_CALLS_MPI)
        .at_least("ratio", 0.85, 1.15),
    budget(
        "collective-all-reduce-mpi-64MiB",
        "collective --op all-reduce --size 64MiB --against mpi",
    )
    .quick(SMALL_CALLS_MPI)
    .at_least("ratio", 0.85, 1.15),
    budget("collective-all-gather", "collective --op all-gather --size 1MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.7, 0.9),
    budget(
        "collective-all-gather-16MiB",
        "collective --op all-gather --size 16MiB --against relay",
    )
    .quick(SMALL_CALLS)
    .at_least("ratio", 0.7, 0.9),
    budget("collective-all-to-all", "collective --op all-to-all --size 1MiB --against relay")
        .quick(SMALL_CALLS)
        .at_least("ratio", 0.7, 0.9),
    budget(
        "collective-all-to-all-16MiB",
        "collective --op all-to-all --size 16MiB --against relay",
    )
    .quick(SMALL_CALLS)
    .at_least("ratio", 0.7, 0.9),
    budget(
        "collective-small-spinning",
        "collective --op all-reduce --size 8 --ranks 2 --runtime busy-poll --against mpi",
    )
    .quick(FEW_CALLS_MPI)
    .at_most("time_ratio", 1.3, 1.0),
    budget(
        "collective-small",
        "collective --op all-reduce --size 8 --ranks 4 --against dissemination",
    )
    .quick(FEW_CALLS)
    .at_most("time_ratio", 1.4, 1.15),
    budget(
        "collective-barrier-spinning",
        "collective --op barrier --ranks 2 --runtime busy-poll --against mpi",
    )
    .quick(FEW_CALLS_MPI)
    .at_most("time_ratio", 1.3, 1.0),
    budget("collective-barrier", "collective --op barrier --ranks 4 --against dissemination")
        .quick(FEW_CALLS)
        .at_most("time_ratio", 1.4, 1.15),
    budget("array-rows", "redistribute --against hand")
        .quick(SMALL_ARRAYS)
        .at_least("ratio", 0.9, 1.0),
    budget(
        "array-rows-within",
        "redistribute --from (block,*)@4x1 --to (*,block)@1x4 --within --against hand",
    )
    .quick(SMALL_ARRAYS)
    .at_least("ratio", 0.8, 1.0),
    budget("array-rows-raw", "redistribute --against raw")
        .quick(SMALL_ARRAYS)
        .at_least("ratio", 0.65, 0.85),
    budget(
        "array-rows-within-raw",
        "redistribute --from (block,*)@4x1 --to (*,block)@1x4 --within --against raw",
    )
    .quick(SMALL_ARRAYS)
    .at_least("ratio", 0.65, 0.85),
    budget("array-cyclic", "redistribute --from (*,cyclic)@1x2 --to (*,block)@1x2 --against hand")
        .quick(SMALL_ARRAYS)
        .at_least("ratio", 0.9, 1.0),
    budget(
        "array-transposed",
        "redistribute --from (*,cyclic)@1x2 --to (*,block)@1x2 --transposed --against hand",
    )
    .quick(SMALL_ARRAYS)
    .at_least("ratio", 0.85, 1.0),
    budget(
        "array-rows-openmpi",
        "redistribute --from (block,*)@4x1 --to (*,block)@1x4 --within --against openmpi",
    )
    .quick(SMALL_ARRAYS)
    .at_least("ratio", 0.9, 1.15),
    budget(
        "array-rows-within-scalapack",
        "redistribute --from (block,*)@4x1 --to (*,block)@1x4 --within --against scalapack",
    )
    .quick(SMALL_ARRAYS)
    .at_least("ratio", 3.0, 5.0),
    budget("array-rows-scalapack", "redistribute --against scalapack")
        .quick(SMALL_ARRAYS)
        .at_least("ratio", 2.5, 3.0),
    budget("array-fresh", "redistribute --shape 256x256 --plan fresh --against kept")
        .quick("--repeat 12 --shape 16x16")
        .at_most("extra_barriers", 3.0, 1.0),
    // 64 MiB in runs of 8 bytes.
    budget(
        "array-npy",
        "redistribute --npy --shape 2048x4096 --from (*,cyclic)@1x2 --to (*,cyclic)@1x2 --within \
            --repeat 24 --against blocks",
    )
    .quick(SMALL_ARRAYS)
    .at_most("seconds", 2.0, 1.0),
    budget("array-packing", "redistribute --pack-only --shape 2048x4096")
        .quick(SMALL_PACKING)
        .at_least("ratio", 0.95, 1.0),
    budget(
        "array-packing-even",
        "redistribute --pack-only --shape 2048x4096 --from (*,cyclic)@1x2 --to (*,block)@1x2",
    )
    .quick(SMALL_PACKING)
    .at_least("ratio", 0.95, 1.0),
    budget(
        "array-packing-pieces",
        "redistribute --pack-only --shape 2048x4096 --from (*,block)@1x2 --to (*,cyclic(3))@1x2",
    )
    .quick(SMALL_PACKING)
    .at_least("ratio", 0.95, 1.0),
    budget(
        "array-packing-transposed",
        "redistribute --pack-only --shape 2048x4096 --transposed",
    )
    .quick(SMALL_PACKING)
    .at_least("ratio", 0.95, 1.0),
    budget(
        "array-plan-cyclic",
        "redistribute --plan-only --shape 16384x16384 --from (cyclic(3),cyclic(3))@64x64 --to \
            (cyclic(5),cyclic(5))@64x64",
    )
    .quick("--shape 256x256")
    .at_most("plan_us", 50.0, 10.0),
    budget(
        "array-plan-blocks",
        "redistribute --plan-only --shape 16384x16384 --from (cyclic(1000),cyclic(1000))@7x7 --to \
            (cyclic(1024),cyclic(1024))@5x5",
    )
    .quick("--shape 256x256")
    .at_most("plan_us", 500.0, 100.0),
    budget("fft2d-slabs", "coupled --shape 1024x1024 --ranks 1,1 --against no-slabs")
        .quick(SMALL_STREAM)
        .at_least("ratio", 1.1, 1.3),
    budget("messages-per-packet", "stream --size 16 --threads 1").quick(FEW_MESSAGES).at_least(
        "messages_per_packet",
        1_000.0,
        FULL_PACKET_MESSAGES,
    ),
    budget("messages-per-packet-threads", "stream --size 16 --threads 2")
        .quick(FEW_MESSAGES)
        .at_least("messages_per_packet", 1_000.0, FULL_PACKET_MESSAGES),
    budget("session-stream-one", "stream --size 16 --api one --against session-off")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.95, 1.0),
    budget("session-stream-many", "stream --size 16 --api many --against session-off")
        .quick(FEW_MESSAGES)
        .at_least("ratio", 0.95, 1.0),
    budget("session-bandwidth", "bandwidth --size 64MiB --against session-off")
        .quick("--size 1MiB --repeat 10")
        .at_least("ratio", 0.95, 1.0),
    budget("load-express", "latency --size 16 --load bulk --lane express --against load-idle")
        .quick("--iterations 200 --load-bytes 1MiB")
        .at_most("p99_ratio", 5.0, 2.0),
    budget("load-bulk", "latency --size 16 --load bulk --against load-idle")
        .quick("--iterations 200 --load-bytes 1MiB")
        .at_most("p99_ratio", 5.0, 2.0),
    budget("starve", "starve --size 16 --threads 4 --computing 3 --work 1s --against eventfd")
        .quick("--messages 20 --work 1ms")
        .at_most("p99_ratio", 2.0, 1.2),
    #[cfg(feature = "virtual")]
    budget("virtual-farm-300", "farm --tasks 10000 --work 10ms --workers 300 --lan virtual:lan-1g")
        .quick("--tasks 200 --workers 20")
        .at_most("real_seconds", 40.0, 10.0),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-farm-1000",
        "farm --tasks 500000 --work 10ms --workers 1000 --lan virtual:lan-1g",
    )
    .quick("--tasks 200 --workers 20")
    .at_least("efficiency", 0.95, 0.98),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-farm-1000-short",
        "farm --tasks 300000 --work 500us --workers 1000 --lan virtual:lan-1g",
    )
    .quick("--tasks 2000 --workers 20")
    .at_least("efficiency", 0.90, 0.95),
    #[cfg(feature = "virtual")]
    budget("virtual-cluster-1000", "cluster --nodes 1000 --lan virtual:lan-1g")
        .quick("--nodes 20")
        .at_most("real_seconds", 60.0, 10.0),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-cascade-29",
        "delta --pattern cascade --nodes 29 --delta 20KiB --lan virtual:default",
    )
    .quick("--nodes 4 --bytes 256KiB")
    .at_most("real_seconds", 40.0, 10.0),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-cascade-regatta",
        "delta --pattern cascade --nodes 29 --delta 20KiB --lan virtual:regatta",
    )
    .quick("--nodes 4 --bytes 256KiB")
    .at_least("speedup", 23.0, 25.0),
    #[cfg(feature = "virtual")]
    budget("virtual-delta-auto", "delta-study --only increments")
        .quick("--nodes-max 3 --bytes 64KiB")
        .at_most("auto_ratio", 1.03, 1.0),
    #[cfg(feature = "virtual")]
    budget("virtual-delta-shapes", "delta-study --summary")
        .quick("--nodes-max 8 --bytes 64KiB")
        .at_least("share_held", 1.0, 1.0),
    #[cfg(feature = "virtual")]
    budget("virtual-collective-forms", "collective-study --only forms --summary")
        .quick("--size-max 64KiB --ranks-max 16")
        .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget("virtual-collective-auto", "collective-study --only auto --summary")
        .quick("--size-max 1KiB --ranks-max 4")
        .at_least("auto_ratio", 0.97, 1.0),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-array-overlap",
        "redistribute --lan virtual:lan-1g --packing 2 --against overlap-off",
    )
    .quick(SMALL_ARRAYS)
    .at_least("ratio", 1.2, 1.35),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-fft2d-overlap-off",
        "coupled --shape 1024x1024 --ranks 4,4 --arrays 20 --overlap off --depth 1 --lan virtual:sp2",
    )
    .quick(SMALL_STREAM)
    .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-fft2d-overlap-on",
        "coupled --shape 1024x1024 --ranks 4,4 --arrays 20 --lan virtual:sp2",
    )
    .quick(SMALL_STREAM)
    .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-multiblock",
        "coupled --program multiblock --ranks 4,1,4 --arrays 100 --against data-parallel --lan \
            virtual:sp2",
    )
    .quick("--shape 16x16 --arrays 8")
    .at_least("ratio", 1.0, 1.2),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-reduce-binary-16",
        "delta --pattern reduce --nodes 16 --bytes 4MiB --delta 20KiB --compute 5ns --gamma 0.25 \
            --algorithm binary --lan virtual:lan-1g-one-core",
    )
    .quick(FEW_NODES)
    .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-reduce-binary-64",
        "delta --pattern reduce --nodes 64 --bytes 4MiB --delta 20KiB --compute 5ns --gamma 0.25 \
            --algorithm binary --lan virtual:lan-1g-one-core",
    )
    .quick(FEW_NODES)
    .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-reduce-chain-16",
        "delta --pattern reduce --nodes 16 --bytes 4MiB --delta 20KiB --compute 5ns --gamma 0.25 \
            --algorithm chain --lan virtual:lan-1g-one-core",
    )
    .quick(FEW_NODES)
    .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-reduce-chain-64",
        "delta --pattern reduce --nodes 64 --bytes 4MiB --delta 20KiB --compute 5ns --gamma 0.25 \
            --algorithm chain --lan virtual:lan-1g-one-core",
    )
    .quick(FEW_NODES)
    .at_most("form_error", 0.05, 0.02),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-all-reduce",
        "delta --pattern all-reduce --nodes 4 --bytes 64MiB --compute 17ns --against calls --lan \
            virtual:lan-1g",
    )
    .quick("--bytes 256KiB")
    .at_least("ratio", 1.6, 1.9),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-all-reduce-empty",
        "delta --pattern all-reduce --nodes 4 --bytes 64MiB --compute empty --against calls --lan \
            virtual:lan-1g",
    )
    .quick("--bytes 256KiB")
    .at_least("ratio", 0.95, 1.0),
    #[cfg(feature = "virtual")]
    budget(
        "virtual-cut-through",
        "delta --pattern cascade --nodes 4 --bytes 64MiB --compute empty --against hop --lan \
            virtual:lan-1g",
    )
    .quick("--bytes 256KiB")
    .at_most("ratio", 1.15, 1.05),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_aims_lie_beyond_their_budgets() {
        for (index, budget) in BUDGETS.iter().enumerate() {
            assert!(BUDGETS[..index].iter().all(|other| other.name != budget.name));
            assert!(!budget.key.is_empty() && !budget.quick.is_empty(), "{}", budget.name);
            assert!(budget.is_met(budget.aim), "{}", budget.name);
            assert!(budget.aim_is_met(budget.aim), "{}", budget.name);
        }
    }
}
