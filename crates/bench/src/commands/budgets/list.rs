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

impl Budget {
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

/// All budgets.
pub(super) static BUDGETS: &[Budget] = &[
    Budget {
        name: "stream-one",
        command: "stream --size 16 --api one --against hand-batched",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.5),
        aim: 0.9,
    },
    Budget {
        name: "redeliver",
        command: "stream --size 16 --api one --delivery redelivered --against plain",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "redeliver-log",
        command: "stream --size 16 --api one --delivery logged --against append-or-plain",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.7),
        aim: 1.0,
    },
    Budget {
        name: "stream-many",
        command: "stream --size 16 --api many --against hand-batched",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.7),
        aim: 1.1,
    },
    Budget {
        name: "stream-1024",
        command: "stream --size 1024 --api one --against hand-batched",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.6),
        aim: 0.9,
    },
    Budget {
        name: "stream-unbuffered",
        command: "stream --size 16 --policy unbuffered --against unbatched",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.7),
        aim: 1.0,
    },
    Budget {
        name: "delivery",
        command: "stream --size 16 --rate 10000 --against latency",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtMost(1.5),
        aim: 1.1,
    },
    Budget {
        name: "bandwidth",
        command: "bandwidth --size 64MiB --against raw",
        quick: "--size 1MiB --repeat 10",
        key: "ratio",
        bound: Bound::AtLeast(0.85),
        aim: 1.0,
    },
    Budget {
        name: "stream-1MiB",
        command: "stream --size 1MiB --against bandwidth",
        quick: "--messages 20",
        key: "ratio",
        bound: Bound::AtLeast(0.5),
        aim: 0.8,
    },
    Budget {
        name: "stream-64MiB",
        command: "stream --size 64MiB --against bandwidth",
        quick: "--size 1MiB --messages 20",
        key: "ratio",
        bound: Bound::AtLeast(0.5),
        aim: 0.8,
    },
    Budget {
        name: "latency",
        command: "latency --size 16 --against raw",
        quick: "--iterations 200",
        key: "ratio",
        bound: Bound::AtMost(1.2),
        aim: 1.02,
    },
    Budget {
        name: "latency-busy-poll",
        command: "latency --size 16 --runtime busy-poll --against raw",
        quick: "--iterations 200",
        key: "ratio",
        bound: Bound::AtMost(1.3),
        aim: 0.9,
    },
    Budget {
        name: "latency-awake",
        command: "latency --size 16 --load spinner --against raw",
        quick: "--iterations 200",
        key: "ratio",
        bound: Bound::AtMost(1.15),
        aim: 1.05,
    },
    Budget {
        name: "latency-mpich",
        command: "latency --size 16 --runtime busy-poll --against mpich",
        quick: "--iterations 20",
        key: "ratio",
        bound: Bound::AtMost(1.1),
        aim: 1.0,
    },
    Budget {
        name: "calls-one",
        command: "calls --size 16 --in-flight 1 --against latency",
        quick: "--calls 200",
        key: "ratio",
        bound: Bound::AtMost(1.3),
        aim: 1.1,
    },
    #[cfg(feature = "peers")]
    Budget {
        name: "calls-many",
        command: "calls --size 16 --in-flight 256 --against tarpc",
        quick: "--calls 2000",
        key: "ratio",
        bound: Bound::AtLeast(2.0),
        aim: 4.0,
    },
    Budget {
        name: "farm",
        command: "farm --tasks 500000 --work 0us --task-bytes 16 --workers 1 \
            --workers-as process --prefetch 64 --grain 1 --against hand-farm",
        quick: FEW_TASKS,
        key: "ratio",
        bound: Bound::AtLeast(0.4),
        aim: 0.8,
    },
    Budget {
        name: "farm-rate",
        command: "farm --tasks 5000000 --work 0us --task-bytes 16 --workers 1 \
            --workers-as process",
        quick: FEW_TASKS,
        key: "tasks_per_second",
        bound: Bound::Printed,
        aim: 2_000_000.0,
    },
    Budget {
        name: "farm-rate-64",
        command: "farm --tasks 500000 --work 0us --task-bytes 16 --workers 1 \
            --workers-as process --prefetch 64 --grain 1",
        quick: FEW_TASKS,
        key: "tasks_per_second",
        bound: Bound::Printed,
        aim: 2_000_000.0,
    },
    Budget {
        name: "farm-mpich",
        command: "farm --tasks 200000 --work 0us --task-bytes 16 --workers 1 \
            --workers-as process --prefetch 8 --grain 1 --runtime busy-poll --against mpich",
        quick: "--tasks 200",
        key: "ratio",
        bound: Bound::AtLeast(1.0),
        aim: 2.0,
    },
    Budget {
        name: "farm-journal",
        command: "farm --tasks 5000000 --work 0us --task-bytes 16 --workers 1 \
            --journal batched --against plain",
        quick: FEW_TASKS,
        key: "ratio",
        bound: Bound::AtLeast(0.4),
        aim: 0.7,
    },
    Budget {
        name: "farm-10us",
        command: "farm --tasks 120000 --work 10us --workers 2",
        quick: "--tasks 1000",
        key: "efficiency",
        bound: Bound::AtLeast(0.8),
        aim: 0.9,
    },
    Budget {
        name: "farm-100us",
        command: "farm --tasks 20000 --work 100us --workers 2",
        quick: "--tasks 200",
        key: "efficiency",
        bound: Bound::AtLeast(0.95),
        aim: 0.97,
    },
    Budget {
        name: "farm-1ms",
        command: "farm --tasks 10000 --work 1ms --workers 2",
        quick: "--tasks 20",
        key: "efficiency",
        bound: Bound::AtLeast(0.98),
        aim: 0.99,
    },
    Budget {
        name: "farm-auto-1us",
        command: "farm-sweep --works 1us",
        quick: "--quick",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "farm-auto-10us",
        command: "farm-sweep --works 10us",
        quick: "--quick",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "farm-auto-100us",
        command: "farm-sweep --works 100us",
        quick: "--quick",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "farm-auto-1ms",
        command: "farm-sweep --works 1ms",
        quick: "--quick",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "farm-auto-10ms",
        command: "farm-sweep --works 10ms",
        quick: "--quick",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "farm-auto-mix",
        command: "farm-sweep --works mix:1ms",
        quick: "--quick",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "farm-queue-held",
        command: "farm-queue --tasks 1000000 --task-bytes 16 --queue held --grain 1",
        quick: FEW_TASKS,
        key: "bytes_per_task",
        bound: Bound::AtMost(200.0),
        aim: 64.0,
    },
    Budget {
        name: "farm-queue-pool",
        command: "farm-queue --tasks 1000000 --task-bytes 16 --queue pool",
        quick: FEW_TASKS,
        key: "bytes_per_task",
        bound: Bound::AtMost(200.0),
        aim: 64.0,
    },
    Budget {
        name: "delta-pair",
        command: "delta --pattern pair --nodes 2 --bytes 4MiB --delta auto \
            --compute trig --lan real",
        quick: ONE_EACH,
        key: "speedup",
        bound: Bound::AtLeast(1.7),
        aim: 1.9,
    },
    Budget {
        name: "delta-empty",
        command: "delta --pattern pair --compute empty",
        quick: ONE_EACH,
        key: "speedup",
        bound: Bound::AtLeast(0.97),
        aim: 1.0,
    },
    Budget {
        name: "delta-cascade-29",
        command: "delta --pattern cascade --nodes 29 --compute wait:21ms --delta 20KiB --repeat 10",
        quick: "--nodes 3 --compute wait:1ms --bytes 64KiB",
        key: "ideal_ratio",
        bound: Bound::AtMost(2.0),
        aim: 1.4,
    },
    Budget {
        name: "delta-increment",
        command: "delta --pattern pair --compute trig --delta 4KiB --repeat 100",
        quick: ONE_EACH,
        key: "increment_cpu_us",
        bound: Bound::AtMost(3.0),
        aim: 1.5,
    },
    Budget {
        name: "delta-bandwidth",
        command: "delta --pattern pair --bytes 64MiB --compute empty --against bandwidth",
        quick: "--bytes 1MiB --repeat 10",
        key: "ratio",
        bound: Bound::AtLeast(0.7),
        aim: 0.95,
    },
    Budget {
        name: "tracked",
        command: "tracked --compute trig --bytes 4MiB --rounds 31 --against explicit",
        quick: "--bytes 100KiB --rounds 1",
        key: "ratio",
        bound: Bound::AtMost(1.3),
        aim: 1.1,
    },
    Budget {
        name: "idle",
        command: "idle --links 1000",
        quick: "--links 20",
        key: "bytes_per_link",
        bound: Bound::AtMost(32.0 * 1024.0),
        aim: 8.0 * 1024.0,
    },
    Budget {
        name: "idle-channels",
        command: "stream --size 16 --api one --idle-channels 10000 --against alone",
        quick: "--messages 2000 --idle-channels 500 --slices 10",
        key: "ratio",
        bound: Bound::AtLeast(0.97),
        aim: 1.0,
    },
    Budget {
        name: "cluster-16",
        command: "cluster --nodes 16",
        quick: "--nodes 3 --repeat 1",
        key: "seconds",
        bound: Bound::AtMost(0.5),
        aim: 0.25,
    },
    Budget {
        name: "cluster-64",
        command: "cluster --nodes 64 --repeat 5",
        quick: "--nodes 4 --repeat 1",
        key: "seconds",
        bound: Bound::AtMost(2.0),
        aim: 1.0,
    },
    Budget {
        name: "messages-per-packet",
        command: "stream --size 16 --threads 1",
        quick: FEW_MESSAGES,
        key: "messages_per_packet",
        bound: Bound::AtLeast(1_000.0),
        aim: FULL_PACKET_MESSAGES,
    },
    Budget {
        name: "messages-per-packet-threads",
        command: "stream --size 16 --threads 2",
        quick: FEW_MESSAGES,
        key: "messages_per_packet",
        bound: Bound::AtLeast(1_000.0),
        aim: FULL_PACKET_MESSAGES,
    },
    Budget {
        name: "session-stream-one",
        command: "stream --size 16 --api one --against session-off",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "session-stream-many",
        command: "stream --size 16 --api many --against session-off",
        quick: FEW_MESSAGES,
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "session-bandwidth",
        command: "bandwidth --size 64MiB --against session-off",
        quick: "--size 1MiB --repeat 10",
        key: "ratio",
        bound: Bound::AtLeast(0.95),
        aim: 1.0,
    },
    Budget {
        name: "load-express",
        command: "latency --size 16 --load bulk --lane express --against load-idle",
        quick: "--iterations 200 --load-bytes 1MiB",
        key: "p99_ratio",
        bound: Bound::AtMost(5.0),
        aim: 2.0,
    },
    Budget {
        name: "load-bulk",
        command: "latency --size 16 --load bulk --against load-idle",
        quick: "--iterations 200 --load-bytes 1MiB",
        key: "p99_ratio",
        bound: Bound::AtMost(5.0),
        aim: 2.0,
    },
    Budget {
        name: "starve",
        command: "starve --size 16 --threads 4 --computing 3 --work 1s --against eventfd",
        quick: "--messages 20 --work 1ms",
        key: "p99_ratio",
        bound: Bound::AtMost(2.0),
        aim: 1.2,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-farm-300",
        command: "farm --tasks 10000 --work 10ms --workers 300 --lan virtual:lan-1g",
        quick: "--tasks 200 --workers 20",
        key: "real_seconds",
        bound: Bound::AtMost(40.0),
        aim: 10.0,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-farm-1000",
        command: "farm --tasks 500000 --work 10ms --workers 1000 --lan virtual:lan-1g",
        quick: "--tasks 200 --workers 20",
        key: "efficiency",
        bound: Bound::AtLeast(0.95),
        aim: 0.98,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-farm-1000-short",
        command: "farm --tasks 300000 --work 500us --workers 1000 --lan virtual:lan-1g",
        quick: "--tasks 2000 --workers 20",
        key: "efficiency",
        bound: Bound::AtLeast(0.90),
        aim: 0.95,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-cluster-1000",
        command: "cluster --nodes 1000 --lan virtual:lan-1g",
        quick: "--nodes 20",
        key: "real_seconds",
        bound: Bound::AtMost(60.0),
        aim: 10.0,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-cascade-29",
        command: "delta --pattern cascade --nodes 29 --delta 20KiB --lan virtual:default",
        quick: "--nodes 4 --bytes 256KiB",
        key: "real_seconds",
        bound: Bound::AtMost(40.0),
        aim: 10.0,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-cascade-regatta",
        command: "delta --pattern cascade --nodes 29 --delta 20KiB --lan virtual:regatta",
        quick: "--nodes 4 --bytes 256KiB",
        key: "speedup",
        bound: Bound::AtLeast(23.0),
        aim: 25.0,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-delta-auto",
        command: "delta-study --only increments",
        quick: "--nodes-max 3 --bytes 64KiB",
        key: "auto_ratio",
        bound: Bound::AtMost(1.03),
        aim: 1.0,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-delta-shapes",
        command: "delta-study --summary",
        quick: "--nodes-max 8 --bytes 64KiB",
        key: "share_held",
        bound: Bound::AtLeast(1.0),
        aim: 1.0,
    },
    #[cfg(feature = "virtual")]
    Budget {
        name: "virtual-cut-through",
        command: "delta --pattern cascade --nodes 4 --bytes 64MiB --compute empty --against hop \
            --lan virtual:lan-1g",
        quick: "--bytes 256KiB",
        key: "ratio",
        bound: Bound::AtMost(1.15),
        aim: 1.05,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_aims_lie_beyond_their_budgets() {
        for (index, budget) in BUDGETS.iter().enumerate() {
            assert!(BUDGETS[..index].iter().all(|other| other.name != budget.name));
            assert!(budget.is_met(budget.aim), "{}", budget.name);
            assert!(budget.aim_is_met(budget.aim), "{}", budget.name);
        }
    }
}
