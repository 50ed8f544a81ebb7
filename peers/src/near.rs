//! The near end: starts the far end, and runs the slices that stdin asks for.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{self, Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Bench, Doing, ENDING, Failure, Setting, System, fail};

/// Time for which connections are idle before memory is read: 1.5 s.
const REST: Duration = Duration::from_millis(1500);

/// Connections made before memory is first read, so that one-time setup is not counted.
const LINKS_BEFORE: u64 = 2;

/// Messages of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// Number of the first.
    pub first: u64,
    /// How many there are.
    pub count: u64,
}

impl Order {
    pub(crate) fn of(line: &str) -> Option<Self> {
        let (first, count) = line.split_once(' ')?;
        Some(Self { first: first.parse().ok()?, count: count.parse().ok()? })
    }

    /// Returns the numbers of the messages.
    pub fn numbers(self) -> std::ops::Range<u64> {
        self.first..self.first + self.count
    }
}

/// A system's near end.
pub trait Side {
    /// Sends the messages of an order; returns the nanoseconds of each round trip or call, or
    /// nothing of a movement one way. The far end tells on its own when the last one was right.
    ///
    /// # Errors
    /// If the system fails, or an answer is wrong.
    fn slice(&mut self, order: Order) -> Result<Vec<u64>, Failure>;

    /// Opens `count` further connections and keeps them.
    ///
    /// # Errors
    /// If the system fails.
    fn open_links(&mut self, count: u64) -> Result<(), Failure> {
        Err(Failure::new(format!("{count} links: not a bench of this system")))
    }
}

/// The near end's own words with the far end and with stdin and stdout.
pub struct Near {
    system: &'static System,
    setting: Setting,
    far: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    /// Processes beside the two ends, ended with them.
    others: Vec<Child>,
    next: u64,
}

impl Near {
    /// Starts the far end with these further arguments; returns also the address that it tells.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(
        system: &'static System,
        setting: &Setting,
        arguments: &[String],
    ) -> Result<(Self, String), Failure> {
        let mut far = this_program()?
            .arg("--far")
            .args(&setting.words)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing("starting the far end")?;
        let (Some(orders), Some(words)) = (far.stdin.take(), far.stdout.take()) else {
            return Err(Failure::new("the far end has no pipes"));
        };
        let (sender, answers) = mpsc::channel();
        // On a thread of its own: the near end may wait for a far end that is gone.
        thread::spawn(move || {
            for line in BufReader::new(words).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
            fail("the far end has ended");
        });
        let (setting, others) = (setting.clone(), Vec::new());
        let near = Self { system, setting, far, orders, answers, others, next: 0 };
        let address = near.answer()?;
        Ok((near, address))
    }

    /// Counts the memory of a further process, and ends it with this one.
    pub fn keep(&mut self, process: Child) {
        self.others.push(process);
    }

    /// Lets the two ends meet, then runs the slices of stdin and ends the process.
    ///
    /// # Errors
    /// If a slice fails.
    pub fn run(mut self, side: &mut dyn Side) -> Result<(), Failure> {
        if self.setting.bench == Bench::Idle {
            self.open_links(side, LINKS_BEFORE)?;
        } else {
            self.slice(side, 1)?;
        }
        println!("{} {}", self.system.name, (self.system.version)()?);
        for line in std::io::stdin().lock().lines() {
            let line = line.doing("reading stdin")?;
            let count = line.trim().parse().ok().filter(|count| *count > 0);
            let count = count.ok_or_else(|| {
                Failure::new(format!("not a number of messages: {}", line.trim()))
            })?;
            let row = if self.setting.bench == Bench::Idle {
                self.open_links(side, count)?
            } else {
                self.slice(side, count)?
            };
            println!("{row}");
        }
        self.end()
    }

    /// Returns the row of a slice.
    fn slice(&mut self, side: &mut dyn Side, count: u64) -> Result<String, Failure> {
        let order = Order { first: self.next, count };
        self.next += count;
        writeln!(self.orders, "{} {}", order.first, order.count).doing("ordering")?;
        self.answer()?;
        let started = Instant::now();
        let mut samples_ns = side.slice(order)?;
        self.answer()?;
        let seconds = started.elapsed().as_secs_f64();
        samples_ns.sort_unstable();
        let percentile = |percent: usize| match samples_ns.get(samples_ns.len() * percent / 100) {
            Some(&ns) => format!("{:.3}", ns as f64 / 1e3),
            None => "null".to_owned(),
        };
        let (p50, p99) = (percentile(50), percentile(99));
        Ok(format!(
            "{{\"seconds\":{seconds:.9},\"count\":{count},\"p50_us\":{p50},\"p99_us\":{p99}}}"
        ))
    }

    /// Returns the row of further connections.
    fn open_links(&mut self, side: &mut dyn Side, count: u64) -> Result<String, Failure> {
        let before = self.resident_bytes()?;
        side.open_links(count)?;
        thread::sleep(REST);
        let bytes = self.resident_bytes()? - before;
        Ok(format!("{{\"count\":{count},\"bytes\":{bytes}}}"))
    }

    fn answer(&self) -> Result<String, Failure> {
        self.answers.recv().doing("waiting for the far end")
    }

    fn resident_bytes(&self) -> Result<i64, Failure> {
        let others = self.others.iter().map(Child::id);
        [process::id(), self.far.id()].into_iter().chain(others).map(resident_bytes_of).sum()
    }

    fn end(mut self) -> Result<(), Failure> {
        ENDING.store(true, Ordering::Release);
        drop(self.orders);
        let status = self.far.wait().doing("ending the far end")?;
        for mut other in self.others {
            // One that has ended on its own needs no signal.
            let _ = other.kill().and_then(|()| other.wait());
        }
        process::exit(i32::from(!status.success()))
    }
}

/// Returns a command that runs this program.
///
/// # Errors
/// If its file is not known.
pub fn this_program() -> Result<Command, Failure> {
    std::env::current_exe().doing("finding this program's file").map(Command::new)
}

fn resident_bytes_of(process: u32) -> Result<i64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .doing("reading the memory of a process")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| Failure::new("the memory of a process is not known"))
}
