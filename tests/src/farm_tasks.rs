//! The functions that the farm tests run, registered alike in the tests and in the program
//! `farm-program`, the tests' worker process.

use std::io::Read as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm::host;
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::Function;
use chunkcomm_farm::{DivideAndConquer, Divided, MapReduce, RegistryExt as _, Shared};
use serde::{Deserialize, Serialize};

/// Makes `farm-program` register [`OtherJob`] in place of [`Job`].
pub const OTHER_TYPES: &str = "FARM_TEST_OTHER_TYPES";
/// Makes `farm-program` leave a function out.
pub const FEWER: &str = "FARM_TEST_FEWER";
/// Makes `farm-program` forget to serve the farm that started it, or the farm of its cluster.
pub const FORGETS: &str = "FARM_TEST_FORGETS";
/// Number of worker processes, from index 1 on, that `farm-program` ends before they are ready.
pub const STILLBORN: &str = "FARM_TEST_STILLBORN";
/// Makes `farm-program` speak as a worker of another version in a cluster.
pub const OTHER_VERSION: &str = "FARM_TEST_OTHER_VERSION";

/// A task of more than one field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// A number that goes into the result.
    pub number: u64,
    /// A text of any length.
    pub text: String,
}

/// Returns the job that `farm-program` sends over a channel of jobs.
#[must_use]
pub fn sample_job() -> Job {
    Job { number: 7, text: "seven".into() }
}

/// A [`Job`] with one field changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename = "Job")]
pub struct OtherJob {
    /// A number of fewer bits than the other's.
    pub number: u32,
    /// A text of any length.
    pub text: String,
}

/// The typed handles of all functions.
#[derive(Clone, Debug)]
pub struct Functions {
    /// Returns twice the number; takes no time.
    pub double: Function<u64, u64>,
    /// Returns the text, repeated `number` times.
    pub repeat: Function<Job, String>,
    /// Panics at the number 13.
    pub unlucky: Function<u64, u64>,
    /// Computes for this number of microseconds; returns the process id.
    pub spin: Function<u64, u32>,
    /// Computes for 2 ms; returns the square of the number.
    pub square: Function<u64, u64>,
    /// Sleeps for this number of milliseconds; returns the process id.
    pub sleep: Function<u64, u32>,
    /// Waits until it is cancelled; returns its index and its attempt.
    pub patient: Function<(), (u64, u32)>,
    /// Waits until it is cancelled if it is told to.
    pub waits: Function<bool, ()>,
    /// Waits for this number of milliseconds, or for ever, while its thread runs others; returns the
    /// process id.
    pub rest: Function<Option<u64>, u32>,
    /// Waits for 20 ms while its thread runs others; returns the square of the number.
    pub square_later: Function<u64, u64>,
    /// The same, whose thread is blocked for that time.
    pub square_blocking: Function<u64, u64>,
    /// Needs a value that is computed for all workers, the id of the process that does it. The first ends
    /// its process: it makes this file.
    pub common: Function<String, u32>,
    /// As `common`, by a function that is not async.
    pub common_blocking: Function<String, u32>,
    /// Stops its process at the number 13, as `SIGSTOP` does.
    pub stops: Function<u64, u64>,
    /// Ends its process with this status.
    pub exit: Function<i32, ()>,
    /// Returns the arguments of its process.
    pub arguments: Function<(), Vec<String>>,
    /// Runs a program with arguments; returns what it prints.
    pub program: Function<Vec<String>, String>,
    /// Reads standard input to its end; returns the bytes.
    pub input: Function<(), Vec<u8>>,
    /// Returns this number of bytes.
    pub bytes: Function<usize, Vec<u8>>,
    /// Returns the same bytes.
    pub echo: Function<Vec<u8>, Vec<u8>>,
    /// Returns the number at a place of a shared list.
    pub pick: Function<(Shared<Vec<u64>>, u64), u64>,
    /// Joins the numbers, each with a blank after it, in their order; fails at a million.
    pub words: MapReduce<u32, String>,
    /// Sorts by merging.
    pub sort: DivideAndConquer<Vec<u32>, Vec<u32>>,
    /// Returns the number, and its two halves as further tasks while they are more than 0.
    pub halves: Function<u64, (u64, Vec<u64>)>,
}

/// Returns a registry of all functions, and their handles.
#[must_use]
pub fn registry() -> (Registry, Functions) {
    let mut registry = Registry::new();
    let functions = Functions {
        double: registry.register("double", |number: u64| number * 2),
        repeat: registry.register("repeat", |job: Job| {
            job.text.repeat(usize::try_from(job.number).unwrap_or(0))
        }),
        unlucky: registry.register("unlucky", |number: u64| {
            assert!(number != 13, "{number} is unlucky");
            number
        }),
        spin: registry.register("spin", |us: u64| {
            let until = Instant::now() + Duration::from_micros(us);
            while Instant::now() < until {}
            std::process::id()
        }),
        square: registry.register("square", |number: u64| {
            let until = Instant::now() + Duration::from_millis(2);
            while Instant::now() < until {}
            number * number
        }),
        sleep: registry.register("sleep", |ms: u64| {
            thread::sleep(Duration::from_millis(ms));
            std::process::id()
        }),
        patient: registry.register_task("patient", |task, ()| {
            while !task.is_cancelled() {
                thread::sleep(Duration::from_millis(1));
            }
            (task.index(), task.attempt())
        }),
        waits: registry.register_task("waits", |task, waits: bool| {
            while waits && !task.is_cancelled() {
                thread::sleep(Duration::from_millis(1));
            }
        }),
        rest: registry.register_async("rest", |ms: Option<u64>| async move {
            match ms {
                Some(ms) => host::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
            std::process::id()
        }),
        square_later: registry.register_async("square_later", |number: u64| async move {
            host::sleep(Duration::from_millis(20)).await;
            number * number
        }),
        square_blocking: registry.register_task("square_blocking", |task, number: u64| {
            task.blocking(|| thread::sleep(Duration::from_millis(20)));
            number * number
        }),
        common: registry.register_async_task("common", |task, file: String| async move {
            let compute = async || {
                if std::fs::File::create_new(&file).is_ok() {
                    std::process::exit(3);
                }
                std::process::id()
            };
            *task.once_for_all(&file, compute).await
        }),
        common_blocking: registry.register_task("common_blocking", |task, file: String| {
            let compute = || {
                if std::fs::File::create_new(&file).is_ok() {
                    std::process::exit(3);
                }
                std::process::id()
            };
            *task.once_for_all_blocking(&file, compute)
        }),
        stops: registry.register("stops", |number: u64| {
            #[cfg(unix)]
            if number == 13 {
                let stop = rustix::process::Signal::STOP;
                rustix::process::kill_process(rustix::process::getpid(), stop).expect("it is ours");
                // The other threads run on for a moment.
                thread::sleep(Duration::from_secs(1));
            }
            number
        }),
        exit: registry.register("exit", |status: i32| std::process::exit(status)),
        arguments: registry.register("arguments", |()| std::env::args().skip(1).collect()),
        program: registry.register("program", |words: Vec<String>| printed(&words)),
        input: registry.register("input", |()| {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).expect("it can be read");
            bytes
        }),
        bytes: registry.register("bytes", |count: usize| vec![7; count]),
        echo: registry.register("echo", |bytes: Vec<u8>| bytes),
        pick: registry.register("pick", |(list, at): (Shared<Vec<u64>>, u64)| {
            list.get()[usize::try_from(at).unwrap_or(usize::MAX)]
        }),
        words: registry.register_map_reduce(
            "words",
            |number: u32| {
                assert!(number != 1_000_000, "{number} is too large");
                format!("{number} ")
            },
            |one, next| one + &next,
        ),
        sort: registry.register_divide_and_conquer(
            "sort",
            |mut numbers: Vec<u32>| {
                if numbers.len() > 100 {
                    let thirds = numbers.chunks(numbers.len().div_ceil(3));
                    return Divided::Parts(thirds.map(<[u32]>::to_vec).collect());
                }
                numbers.sort_unstable();
                Divided::Solved(numbers)
            },
            |parts| parts.into_iter().fold(Vec::new(), |one, next| merged(&one, &next)),
        ),
        halves: registry.register("halves", |number: u64| {
            let halves =
                if number > 1 { vec![number / 2, number - number / 2] } else { Vec::new() };
            (number, halves)
        }),
    };
    (registry, functions)
}

/// Runs a program with arguments; returns its standard output and standard error.
#[must_use]
pub fn printed(words: &[String]) -> String {
    let output = Command::new(&words[0]).args(&words[1..]).output().expect("it can be started");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Merges two sorted lists.
fn merged<'a>(mut one: &'a [u32], mut next: &'a [u32]) -> Vec<u32> {
    let mut all = Vec::with_capacity(one.len() + next.len());
    while let (Some(a), Some(b)) = (one.first(), next.first()) {
        let from = if a <= b { &mut one } else { &mut next };
        all.push(from[0]);
        *from = &from[1..];
    }
    [&all, one, next].concat()
}

/// Returns the registry of `farm-program`: all functions, or others if a variable says so.
#[must_use]
pub fn worker_registry() -> Registry {
    let told = |name| std::env::var_os(name).is_some();
    if !told(OTHER_TYPES) && !told(FEWER) {
        return registry().0;
    }
    let mut other = Registry::new();
    other.register("double", |number: u64| number * 2);
    if told(OTHER_TYPES) {
        other.register("repeat", |job: OtherJob| job.text);
    }
    other
}
