//! The time of a collective call, and the algorithm that takes least.
//!
//! `m` bytes go among `p` ranks. A message costs `alpha` and arrives `l` later; a byte costs `beta` on its way,
//! and `gamma` to be combined. `B = beta + gamma` where operands are combined, else `beta`; `A = alpha + l`;
//! `L = ceil(log2 p)`, `odd` is 1 unless `p` is a power of two, then 0:
//!
//! | algorithm | time |
//! |---|---|
//! | pipeline of `h` hops in `k` segments | `(h-1 + k)(a + b m/k) + h l`, least at `m/k = sqrt(a m / ((h-1) b))` |
//! | chain | pipeline: `h = p-1`, `a = alpha`, `b = B` |
//! | chains | pipeline: `h = p-1`, `a = 2 alpha`, `b = B + beta`, and `h l` more: both share each link |
//! | binary tree | pipeline: `h = floor(log2 p)`, `a = 2 alpha`, `b = 2 B`: a node has two children |
//! | binomial tree, scan by doubling, dissemination | `L (A + B m)` |
//! | all-reduce by doubling | `(L + odd)(A + B m)` |
//! | barrier, all-gather by doubling | `(L + odd) A + ((p-1)/p + odd) beta m` |
//! | ring all-reduce | `2 (p-1) A + (p-1)/p (B + beta) m` |
//! | other rings, pairs, direct | `(p-1)(A + B m/p)` |
//!
//! Formulas: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH"
//! (2005), section 4; the pipeline as in `increment`.

use super::increment::{AUTO_INCREMENT_BYTES_MAX, AUTO_INCREMENT_BYTES_MIN};
use super::schedule::Kind;
use super::schedule::algorithm::Algorithm;
use super::schedule::world::World;

/// Costs of a message and of a byte, measured and agreed among the ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// Cost of a message or a segment, which delays the next one, in nanoseconds.
    pub(crate) alpha_ns: f64,
    /// Time of a message on its way, which delays no other one, in nanoseconds.
    pub(crate) latency_ns: f64,
    /// Time of a byte on its way, in nanoseconds.
    pub(crate) beta_ns_per_byte: f64,
    /// Time to combine a byte with another, in nanoseconds.
    pub(crate) gamma_ns_per_byte: f64,
}

/// All that decides the algorithm of a call of all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) kind: Kind,
    pub(crate) commutative: bool,
    /// Bytes of the data.
    pub(crate) bytes: usize,
    /// The algorithm that was set.
    pub(crate) algorithm: Algorithm,
    pub(crate) reproducible: bool,
    pub(crate) costs: Costs,
}

/// Returns the algorithm of the least modelled time, and its largest message: a segment of a pipeline, a block
/// of a ring or of pairs, else all bytes.
///
/// `bytes` are those of all blocks of a rank: of a gather, scatter or all-gather the whole at the root. A
/// `reproducible` call combines by a chain, whose result is the sequential fold from rank 0, bit for bit; it
/// must ask for the steps of an operator that is not commutative.
pub(crate) fn choose(
    kind: Kind,
    bytes: usize,
    world: &World,
    commutative: bool,
    reproducible: bool,
    costs: &Costs,
) -> (Algorithm, usize) {
    choose_among(|_| true, kind, bytes, world, commutative, reproducible, costs)
}

/// Returns what [`choose`] returns, among the algorithms of which `may` is true.
pub(crate) fn choose_among(
    may: impl Fn(Algorithm) -> bool,
    kind: Kind,
    bytes: usize,
    world: &World,
    commutative: bool,
    reproducible: bool,
    costs: &Costs,
) -> (Algorithm, usize) {
    let commutative = commutative && !reproducible;
    let folds = |by| matches!(by, Algorithm::Chain | Algorithm::Chains);
    let has = |by: &Algorithm| {
        kind.takes(*by, commutative) && (folds(*by) || !reproducible || !kind.combines())
    };
    let candidates = kind.algorithms().iter().copied().filter(|by| has(by) && may(*by));
    let timed = candidates.map(|by| (by, costs.of(kind, by, bytes, world.size())));
    let least = timed.min_by(|(_, a), (_, b)| a.ns.total_cmp(&b.ns));
    let (by, time) = least.expect("each call has an algorithm for every operator");
    (by, time.segment_bytes)
}

/// Modelled time of a call, with its largest message.
#[derive(Clone, Copy, Debug)]
struct Time {
    ns: f64,
    segment_bytes: usize,
}

impl Costs {
    /// Returns the time of a call by one of its algorithms.
    fn of(&self, kind: Kind, by: Algorithm, bytes: usize, size: usize) -> Time {
        let (alpha, beta, latency) = (self.alpha_ns, self.beta_ns_per_byte, self.latency_ns);
        let both = beta + if kind.combines() { self.gamma_ns_per_byte } else { 0.0 };
        let (m, p, message) = (bytes as f64, size as f64, alpha + latency);
        let rounds = f64::from(size.next_power_of_two().ilog2());
        let odd = f64::from(u8::from(!size.is_power_of_two()));
        let (hops, share) = (p - 1.0, (p - 1.0) / p);
        let whole = |ns| Time { ns, segment_bytes: bytes };
        let blocks = |ns| Time { ns, segment_bytes: bytes.div_ceil(size) };
        let pipe = |hops, a, b, latency| pipeline(hops, a, b, bytes).later(hops * latency);
        match (by, kind) {
            (Algorithm::Chain, _) => pipe(hops, alpha, both, latency),
            (Algorithm::Chains, _) => pipe(hops, 2.0 * alpha, both + beta, 2.0 * latency),
            (Algorithm::Binary, _) => {
                pipe(f64::from(size.ilog2()), 2.0 * alpha, 2.0 * both, latency)
            }
            (Algorithm::Doubling, Kind::AllReduce) => whole((rounds + odd) * (message + both * m)),
            (Algorithm::Doubling, Kind::Barrier | Kind::AllGather) => {
                whole((rounds + odd) * message + (share + odd) * beta * m)
            }
            (Algorithm::Ring, Kind::AllReduce) => {
                blocks(2.0 * hops * message + share * (both + beta) * m)
            }
            (Algorithm::Ring | Algorithm::Pairwise | Algorithm::Direct, _) => {
                blocks(hops * message + share * both * m)
            }
            _ => whole(rounds * (message + both * m)),
        }
    }
}

impl Time {
    fn later(self, ns: f64) -> Self {
        Self { ns: self.ns + ns, ..self }
    }
}

/// Times `bytes` over `hops`, each of which takes `a + b s` for a segment of `s` bytes.
fn pipeline(hops: f64, a: f64, b: f64, bytes: usize) -> Time {
    let (m, fill) = (bytes as f64, (hops - 1.0).max(0.0));
    // The cast saturates: one hop, or bytes that cost nothing, go in the largest segments.
    let best = (a * m / (fill * b)).sqrt() as usize;
    let segment = best.clamp(AUTO_INCREMENT_BYTES_MIN, AUTO_INCREMENT_BYTES_MAX).min(bytes);
    let time = |count: usize, segment_bytes| {
        let count = count.max(1) as f64;
        Time { ns: (fill + count) * (a + b * m / count), segment_bytes }
    };
    let count = bytes.div_ceil(segment.max(1));
    let (time_of_best, fewer) = (time(count, segment), count.saturating_sub(1).max(1));
    // The least is between two whole numbers: a byte less in a segment may cost one segment more.
    let longer = bytes.div_ceil(fewer);
    let time_of_fewer = time(fewer, longer);
    if longer <= AUTO_INCREMENT_BYTES_MAX && time_of_fewer.ns < time_of_best.ns {
        return time_of_fewer;
    }
    time_of_best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAN: Costs = Costs {
        alpha_ns: 10_000.0,
        latency_ns: 50_000.0,
        beta_ns_per_byte: 8.0,
        gamma_ns_per_byte: 0.5,
    };

    fn kinds() -> impl Strategy<Value = Kind> {
        prop::sample::select(vec![
            Kind::Barrier,
            Kind::Broadcast { root: 0 },
            Kind::Reduce { root: 0 },
            Kind::AllReduce,
            Kind::ReduceScatter,
            Kind::Gather { root: 0 },
            Kind::Scatter { root: 0 },
            Kind::AllGather,
            Kind::AllToAll,
            Kind::Scan,
            Kind::ExclusiveScan,
        ])
    }

    fn costs() -> impl Strategy<Value = Costs> {
        (0.0..1e5, 0.0..1e6, 0.01..10.0, 0.0..2.0).prop_map(
            |(alpha_ns, latency_ns, beta_ns_per_byte, gamma_ns_per_byte)| Costs {
                alpha_ns,
                latency_ns,
                beta_ns_per_byte,
                gamma_ns_per_byte,
            },
        )
    }

    fn chosen(kind: Kind, bytes: usize, size: usize) -> Algorithm {
        choose(kind, bytes, &World::new(&vec![0; size]), true, false, &LAN).0
    }

    #[test]
    fn small_calls_go_in_few_rounds_and_large_ones_in_pieces() {
        let broadcast = Kind::Broadcast { root: 0 };
        assert_eq!(chosen(broadcast, 8, 16), Algorithm::Binomial);
        assert_eq!(chosen(broadcast, 16 << 20, 16), Algorithm::Chain);
        assert_eq!(chosen(broadcast, 16 << 10, 1024), Algorithm::Binary);
        assert_eq!(chosen(Kind::AllReduce, 8, 16), Algorithm::Doubling);
        assert_eq!(chosen(Kind::AllReduce, 16 << 20, 16), Algorithm::Ring);
        assert_eq!(chosen(Kind::AllGather, 64, 16), Algorithm::Doubling);
        assert_eq!(chosen(Kind::AllGather, 16 << 20, 17), Algorithm::Ring);
        assert_eq!(chosen(Kind::Scan, 8, 16), Algorithm::Doubling);
        assert_eq!(chosen(Kind::Scan, 16 << 20, 16), Algorithm::Chain);
        assert_eq!(chosen(Kind::Barrier, 0, 13), Algorithm::Dissemination);
    }

    #[test]
    fn known_values_of_the_formulas() {
        // Segments of sqrt(10 us * 16 MiB / (14 * 8 ns)) = 38,703 B, of which there are 433.5: 433 are faster than 434.
        let time = LAN.of(Kind::Broadcast { root: 0 }, Algorithm::Chain, 16 << 20, 16);
        assert_eq!(time.segment_bytes, 38_747);
        let wanted = 447.0 * (10_000.0 + 8.0 * 16_777_216.0 / 433.0) + 15.0 * 50_000.0;
        assert!((time.ns - wanted).abs() < 1.0, "{time:?}");
        // 2 * 3 * 60 us + 3/4 * (8.5 + 8) ns * 1 MiB
        let time = LAN.of(Kind::AllReduce, Algorithm::Ring, 1 << 20, 4);
        assert!((time.ns - (360_000.0 + 12.375 * 1_048_576.0)).abs() < 1.0, "{time:?}");
        assert_eq!(time.segment_bytes, 1 << 18);
        // 5 ranks by doubling: 2 rounds among 4, one before and one after.
        let time = LAN.of(Kind::AllReduce, Algorithm::Doubling, 1000, 5);
        assert!((time.ns - 4.0 * (60_000.0 + 8_500.0)).abs() < 1.0, "{time:?}");
    }

    proptest! {
        #[test]
        fn the_choice_is_the_least_that_the_operator_allows(
            kind in kinds(), bytes in 0..64_usize << 20, size in 1..=64_usize, costs in costs(),
            commutative: bool, reproducible: bool,
        ) {
            let world = World::new(&vec![0; size]);
            let (by, segment) = choose(kind, bytes, &world, commutative, reproducible, &costs);
            prop_assert!(kind.takes(by, commutative) && segment <= bytes);
            let time = costs.of(kind, by, bytes, size);
            prop_assert_eq!(segment, time.segment_bytes);
            if reproducible && kind.combines() {
                prop_assert!(matches!(by, Algorithm::Chain | Algorithm::Chains), "{}", by);
            } else {
                for other in kind.algorithms() {
                    let least = costs.of(kind, *other, bytes, size).ns >= time.ns;
                    prop_assert!(least || !kind.takes(*other, commutative), "{} after {}", by, other);
                }
            }
        }

        #[test]
        fn no_other_number_of_segments_is_faster(
            hops in 1..64_u8, a in 0.0..1e5, b in 0.01..10.0, bytes in 1..16_usize << 20,
        ) {
            let hops = f64::from(hops);
            let time = pipeline(hops, a, b, bytes);
            let counts = bytes.div_ceil(AUTO_INCREMENT_BYTES_MAX)..=bytes.div_ceil(AUTO_INCREMENT_BYTES_MIN);
            let of = |count| (hops - 1.0 + count) * (a + b * bytes as f64 / count);
            let least = counts.map(|count| of(count as f64)).min_by(f64::total_cmp).unwrap();
            prop_assert!((0.999..1.001).contains(&(time.ns / least)), "{} {}", time.ns, least);
        }
    }
}
