//! Random calls of a group against a sequential program.

use crate::virtual_cluster::on_each;
use chunkcomm_group::{Algorithm, Call, Exchanged, Group, Op, Parts};
use chunkcomm_simulation::{Random, each_seed};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

const SEEDS: u64 = 18;
const CALLS: usize = 12;

/// Lengths on both sides of 4 KiB, where a block no longer travels with its length, and of 64 KiB,
/// where calls begin to flow.
const LENGTHS: [usize; 11] = [0, 1, 2, 17, 511, 512, 513, 8191, 8192, 8193, 20_000];

/// The settings that all ranks share in one call.
#[derive(Clone, Copy, Debug)]
struct Turn {
    kind: u64,
    length: usize,
    root: usize,
    op: u64,
    algorithm: Algorithm,
    reproducible: bool,
    salt: u64,
    size: usize,
}

/// Results of one call by rank, where those of all must have the same bits.
type Bits = Arc<Mutex<Vec<Vec<Vec<u64>>>>>;

fn turn(random: &mut Random, size: usize) -> Turn {
    Turn {
        kind: random.below(10),
        length: random.pick(&LENGTHS),
        root: random.below(size as u64) as usize,
        op: random.below(5),
        algorithm: random.pick(&Algorithm::all().collect::<Vec<_>>()),
        reproducible: random.one_in(3),
        salt: random.next_u64(),
        size,
    }
}

impl Turn {
    fn op(&self) -> Op<f64> {
        match self.op {
            0 => Op::sum(),
            1 => Op::min(),
            2 => Op::max(),
            3 => Op::product(),
            // The first that is not zero: associative, and of no other order.
            _ => Op::named("first", |a: &f64, b: &f64| if *a == 0.0 { *b } else { *a }),
        }
    }

    fn combine(&self, a: f64, b: f64) -> f64 {
        match self.op {
            0 => a + b,
            1 => a.minimum_of(b),
            2 => -(-a).minimum_of(-b),
            3 => a * b,
            _ if a == 0.0 => b,
            _ => a,
        }
    }

    /// Whether the fold is the same in every order and bracket.
    fn is_exact(&self) -> bool {
        !matches!(self.op, 0 | 3)
    }

    /// Number of elements of a rank, where they differ.
    fn count(&self, rank: usize) -> usize {
        match (self.salt >> rank) % 4 {
            0 => 0,
            1 => self.length,
            _ => self.length + rank,
        }
    }

    /// Returns memory of a rank for the data of all: none, too little, enough, or more.
    fn memory(&self, rank: usize) -> Parts<f64> {
        let rows = [0, 1, self.size + 1, 3 * self.size][(self.salt >> (32 + rank)) as usize % 4];
        Parts { data: vec![f64::NAN; rows * (self.length + rank)], counts: Vec::new() }
    }

    /// The elements that a rank gives. Their sums depend on the order.
    fn data(&self, rank: usize, length: usize) -> Vec<f64> {
        let mut random = Random::fork(self.salt, rank as u64);
        let mut element = || match random.below(8) {
            0 => 0.0,
            1 => -1.5,
            _ => (random.below(1 << 50) as f64 + 1.0) / (1_u64 << 40) as f64,
        };
        (0..length).map(|_| element()).collect()
    }

    fn fold(&self, ranks: std::ops::Range<usize>) -> Vec<f64> {
        let each = ranks.map(|rank| self.data(rank, self.length));
        let both =
            |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| self.combine(*a, b)).collect();
        each.reduce(both).unwrap()
    }

    /// Compares a combined result with the sequential fold: bit for bit where it must be that one, and up to
    /// rounding elsewhere.
    fn folded(&self, is: &[f64], of: std::ops::Range<usize>, what: &str) {
        let expected = self.fold(of);
        assert_eq!(is.len(), expected.len(), "{what}");
        for (index, (is, expected)) in is.iter().zip(&expected).enumerate() {
            let same = if self.reproducible || self.is_exact() {
                is.to_bits() == expected.to_bits()
            } else {
                (is - expected).abs() <= 1e-9 * expected.abs().max(1e6)
            };
            assert!(same, "{what}: element {index} is {is:e}, not {expected:e}");
        }
    }
}

trait Minimum {
    fn minimum_of(self, other: f64) -> f64;
}

impl Minimum for f64 {
    fn minimum_of(self, other: f64) -> f64 {
        if self == other && self.is_sign_negative() || self < other { self } else { other }
    }
}

fn same(is: &[f64], expected: &[f64], what: &str) {
    let bits = |of: &[f64]| of.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
    assert!(bits(is) == bits(expected), "{what}");
}

type Check = Pin<Box<dyn Future<Output = Option<Vec<f64>>> + Send>>;

fn check<R: Send + 'static>(
    call: Call<R>,
    look: impl FnOnce(R) -> Option<Vec<f64>> + Send + 'static,
) -> Check {
    Box::pin(async move { look(call.await.unwrap()) })
}

/// Makes the call; the future checks its result, and returns it where all ranks must have the same.
fn make(group: &mut Group, turn: Turn, what: String) -> Check {
    let (rank, root, size) = (group.rank(), turn.root, turn.size);
    let mine = turn.data(rank, turn.length);
    let own = turn.data(rank, turn.count(rank));
    match turn.kind {
        0 => {
            let given = if rank == root { mine } else { vec![0.0; turn.length] };
            check(group.broadcast(root, given), move |data| {
                same(&data, &turn.data(root, turn.length), &what);
                Some(data)
            })
        }
        1 => check(group.reduce(root, mine.clone(), turn.op()), move |data| {
            match rank == root {
                true => turn.folded(&data, 0..size, &what),
                false => same(&data, &mine, &what),
            }
            None
        }),
        2 | 3 => check(group.all_reduce(mine, turn.op()), move |data| {
            turn.folded(&data, 0..size, &what);
            Some(data)
        }),
        4 => check(group.scan(mine, turn.op()), move |data| {
            turn.folded(&data, 0..rank + 1, &what);
            None
        }),
        5 => check(group.exclusive_scan(mine, turn.op()), move |data| {
            if rank > 0 {
                turn.folded(&data, 0..rank, &what);
            }
            None
        }),
        6 => check(group.gather(root, own.clone()), move |Exchanged { input, result }| {
            same(&input, &own, &what);
            assert_eq!(result.is_some(), rank == root);
            result.into_iter().for_each(|all| gathered(&all, turn, &what));
            None
        }),
        7 => {
            let call = group.all_gather_into(own.clone(), turn.memory(rank));
            check(call, move |Exchanged { input, result }| {
                same(&input, &own, &what);
                gathered(&result, turn, &what);
                Some(result.data)
            })
        }
        8 => {
            let part = move |from: usize, to: usize| turn.data(from * 16 + to, turn.count(to));
            let data = (0..size).flat_map(|to| part(rank, to)).collect();
            let counts = (0..size).map(|to| turn.count(to)).collect();
            let call = group.all_to_all_into(Parts { data, counts }, turn.memory(rank));
            check(call, move |exchanged| {
                for from in 0..size {
                    same(exchanged.result.part(from), &part(from, rank), &what);
                }
                None
            })
        }
        _ => check(group.reduce_scatter(Parts::even(mine, size), turn.op()), move |exchanged| {
            let own = exchanged.result;
            let all = Parts::even(turn.fold(0..size), size);
            if turn.reproducible || turn.is_exact() {
                same(&own, all.part(rank), &what);
            } else {
                assert_eq!(own.len(), all.counts[rank], "{what}");
            }
            None
        }),
    }
}

fn gathered(all: &Parts<f64>, turn: Turn, what: &str) {
    assert_eq!(all.counts.len(), turn.size, "{what}");
    for from in 0..turn.size {
        same(all.part(from), &turn.data(from, turn.count(from)), what);
    }
}

async fn calls(mut group: Group, seed: u64, bits: Bits) {
    let mut random = Random::new(seed);
    let mut under_way = Vec::new();
    for number in 0..CALLS {
        let turn = turn(&mut random, group.size());
        group.set_algorithm(turn.algorithm);
        group.set_reproducible(turn.reproducible);
        let what = format!("seed {seed}, call {number}, rank {}: {turn:?}", group.rank());
        under_way.push((number, make(&mut group, turn, what)));
        // Some calls begin before those before them are over.
        if random.one_in(2) {
            continue;
        }
        for (number, made) in under_way.drain(..) {
            let Some(data) = made.await else { continue };
            let data = data.iter().map(|it| it.to_bits()).collect();
            bits.lock().unwrap()[number].push(data);
        }
    }
    for (_, made) in under_way {
        made.await;
    }
}

#[test]
fn random_calls_are_what_a_sequential_program_computes() {
    each_seed(0..SEEDS, |seed| {
        let size = 1 + seed % 9;
        let bits: Bits = Arc::new(Mutex::new(vec![Vec::new(); CALLS]));
        let all = Arc::clone(&bits);
        on_each(seed, size as usize, &[], move |_, cluster| {
            let all = Arc::clone(&all);
            async move { calls(Group::world(&cluster).await.unwrap(), seed, all).await }
        });
        for (number, results) in bits.lock().unwrap().iter().enumerate() {
            let alike = results.windows(2).all(|two| two[0] == two[1]);
            assert!(alike, "seed {seed}: the bits of call {number} differ among the ranks");
        }
    });
}
