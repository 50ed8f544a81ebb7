//! Groups of processes, one a rank, that repeat a collective call when they are told to.
//!
//! All ranks of a side, ours or a baseline's, sleep in a read of their control connection while the
//! other side is measured. Words of 64 bits in the machine's order:
//!
//! ```text
//!     rank                    this process
//!     rank, pid, port   ──▶                    once; port 0: the ranks find each other
//!                       ◀──   a port a rank    once, if they have ports
//!                       ◀──   runs, calls      0 runs: the rank ends
//!     start, end        ──▶                    nanoseconds of the host's clock, for each run
//!     steps, or traffic ──▶                    instead, if it was asked for 0 calls in 1 run, or in 2
//! ```
//!
//! A run is `calls` calls one after the other. It begins when all ranks have met, and takes the time
//! from the earliest start to the latest end.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::machine;
use crate::failure::{Doing, Failure};

/// Longest time until all ranks are there: 30 s.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Longest time of a slice: 30 s. Ranks of an MPI may wait for each other for ever.
const SLICE_DEADLINE: Duration = Duration::from_secs(30);

/// Time after which processes that have not ended by themselves are killed: 3 s.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// Time that a launcher has to end its processes: 500 ms.
const LAUNCHER_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between two looks whether a process has come or ended: 2 ms.
const LOOK: Duration = Duration::from_millis(2);

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Nanoseconds of the steps of calls, in an order that the rank's side knows.
pub type Steps = [u64; 6];

/// Traffic of a rank so far: packets sent, those of them with messages, their bytes, system calls that wrote,
/// and that read, waits for credit.
pub type Traffic = [u64; 6];

/// Socket at which ranks report.
pub struct Meeting(TcpListener);

impl Meeting {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn open() -> Result<Self, Failure> {
        let doing = "opening a control socket";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(doing)?;
        listener.set_nonblocking(true).doing(doing)?;
        Ok(Self(listener))
    }

    /// Returns the port.
    ///
    /// # Errors
    /// If the system does not report it.
    pub fn port(&self) -> Result<u16, Failure> {
        Ok(self.0.local_addr().doing("asking for the control port")?.port())
    }

    /// Waits for `count` ranks; `children` are they, or their launcher.
    ///
    /// # Errors
    /// If a child ends or 30 s pass before they are there.
    pub fn gather(self, count: usize, children: Vec<Child>) -> Result<Ranks, Failure> {
        let mut ranks = Ranks { seats: Vec::new(), children };
        let mut seats = Vec::new();
        let deadline = Instant::now() + START_DEADLINE;
        while seats.len() < count {
            match self.0.accept() {
                Ok((stream, _)) => seats.push(Seat::meet(stream).doing("greeting a rank")?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ranks.all_run()?;
                    if Instant::now() > deadline {
                        let cause = format!("{} of {count} came", seats.len());
                        return Err(Failure::broken("waiting for the ranks", cause));
                    }
                    thread::sleep(LOOK);
                }
                Err(error) => return Err(Failure::caused("waiting for the ranks", &error)),
            }
        }
        seats.sort_by_key(|seat| seat.rank);
        let ports: Vec<u64> = seats.iter().map(|seat| seat.port).collect();
        ranks.seats = seats;
        if ports.iter().any(|port| *port != 0) {
            for seat in &mut ranks.seats {
                seat.send(&ports).doing("introducing the ranks")?;
            }
        }
        Ok(ranks)
    }
}

/// The processes of one side.
pub struct Ranks {
    seats: Vec<Seat>,
    children: Vec<Child>,
}

/// The control connection of one rank.
struct Seat {
    stream: TcpStream,
    rank: u64,
    pid: u32,
    port: u64,
}

impl Seat {
    fn meet(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE_DEADLINE))?;
        let mut seat = Self { stream, rank: 0, pid: 0, port: 0 };
        let [rank, pid, port] = seat.receive()?;
        Ok(Self { rank, pid: pid as u32, port, ..seat })
    }

    fn send(&mut self, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.stream.write_all(&bytes)
    }

    fn receive<const COUNT: usize>(&mut self) -> io::Result<[u64; COUNT]> {
        let mut words = [0; COUNT];
        for word in &mut words {
            let mut bytes = [0; WORD];
            self.stream.read_exact(&mut bytes)?;
            *word = u64::from_ne_bytes(bytes);
        }
        Ok(words)
    }
}

impl Ranks {
    /// Lets all ranks do `runs` runs of `calls` calls; returns the seconds of all runs.
    ///
    /// # Errors
    /// If a rank ends, has a wrong result, or does not answer within 30 s.
    pub fn run(&mut self, runs: u64, calls: u64) -> Result<f64, Failure> {
        for seat in &mut self.seats {
            seat.send(&[runs, calls]).doing("ordering calls")?;
        }
        let mut total_ns = 0;
        for _ in 0..runs {
            let (mut earliest_ns, mut latest_ns) = (u64::MAX, 0);
            for seat in &mut self.seats {
                let doing = format!("waiting for rank {}", seat.rank);
                let [start_ns, end_ns] = seat.receive().doing(&doing)?;
                earliest_ns = earliest_ns.min(start_ns);
                latest_ns = latest_ns.max(end_ns);
            }
            total_ns += latest_ns.saturating_sub(earliest_ns);
        }
        Ok(total_ns as f64 / 1e9)
    }

    /// Asks all ranks for the nanoseconds of each step; returns the largest.
    ///
    /// # Errors
    /// If a rank does not answer.
    pub fn steps_ns(&mut self) -> Result<Steps, Failure> {
        for seat in &mut self.seats {
            seat.send(&[1, 0]).doing("asking for steps")?;
        }
        let mut largest = Steps::default();
        for seat in &mut self.seats {
            let steps: Steps = seat.receive().doing("waiting for steps")?;
            largest = std::array::from_fn(|step| largest[step].max(steps[step]));
        }
        Ok(largest)
    }

    /// Asks all ranks for their traffic; returns the sums.
    ///
    /// # Errors
    /// If a rank does not answer.
    pub fn traffic(&mut self) -> Result<Traffic, Failure> {
        for seat in &mut self.seats {
            seat.send(&[2, 0]).doing("asking for traffic")?;
        }
        let mut sum = Traffic::default();
        for seat in &mut self.seats {
            let more: Traffic = seat.receive().doing("waiting for traffic")?;
            sum = std::array::from_fn(|at| sum[at] + more[at]);
        }
        Ok(sum)
    }

    /// Returns what all ranks have [taken](machine::taken) of the machine.
    pub fn taken(&self) -> [u64; 3] {
        let each = self.seats.iter().map(|seat| machine::taken(seat.pid));
        each.fold([0; 3], |sum, more| std::array::from_fn(|at| sum[at] + more[at]))
    }

    /// Stops the ranks, or lets them continue: those that poll busily would take the cores of the
    /// other side.
    pub fn hold(&self, held: bool) {
        for seat in &self.seats {
            machine::hold(seat.pid, held);
        }
    }

    /// Waits for the end of all children, at most this long; returns whether they have ended.
    fn all_ended_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            if self.children.iter_mut().all(|it| !matches!(it.try_wait(), Ok(None))) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(LOOK);
        }
    }

    /// Fails if a child has ended.
    fn all_run(&mut self) -> Result<(), Failure> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait().doing("looking after a process")? {
                return Err(Failure::broken("starting the ranks", status));
            }
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.hold(false);
        for seat in &mut self.seats {
            // A rank that is gone has ended already.
            let _ = seat.send(&[0, 0]);
        }
        if !self.all_ended_within(END_TIMEOUT) {
            self.seats.iter().for_each(|seat| machine::kill(seat.pid));
            // A launcher ends its other processes.
            self.children.iter().for_each(|child| machine::terminate(child.id()));
            self.all_ended_within(LAUNCHER_TIMEOUT);
        }
        for child in &mut self.children {
            // It may have ended; either way no process is left behind.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One rank of a side.
pub(crate) trait Player {
    /// Writes the rank's elements for a call.
    async fn fill(&mut self, call: u64) -> Result<(), Failure>;

    /// Waits until all ranks are there.
    async fn meet(&mut self) -> Result<(), Failure>;

    /// Takes part in a call.
    async fn call(&mut self) -> Result<(), Failure>;

    /// Whether the result is that of the call.
    async fn is_right(&mut self, call: u64) -> Result<bool, Failure>;

    /// Returns the nanoseconds that the calls have spent in each of their steps, if it knows them. All
    /// ranks are asked together.
    async fn steps_ns(&mut self) -> Result<Steps, Failure> {
        Ok(Steps::default())
    }

    /// Returns its traffic so far, if it knows that.
    async fn traffic(&mut self) -> Result<Traffic, Failure> {
        Ok(Traffic::default())
    }
}

/// The control connection at the rank's end.
pub(crate) struct Control(tokio::net::TcpStream);

impl Control {
    /// Reports a rank; with a port of its own it learns those of all ranks.
    pub(crate) async fn report(
        port: u16,
        rank: usize,
        own_port: u16,
        ranks: usize,
    ) -> Result<(Self, Vec<u16>), Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = tokio::net::TcpStream::connect(address).await.doing("reporting a rank")?;
        stream.set_nodelay(true).doing("reporting a rank")?;
        let mut control = Self(stream);
        control.send(&[rank as u64, u64::from(std::process::id()), own_port.into()]).await?;
        let mut ports = Vec::new();
        for _ in 0..if own_port == 0 { 0 } else { ranks } {
            ports.push(control.receive().await? as u16);
        }
        Ok((control, ports))
    }

    async fn send(&mut self, words: &[u64]) -> Result<(), Failure> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.0.write_all(&bytes).await.doing("answering on the control connection")
    }

    async fn receive(&mut self) -> Result<u64, Failure> {
        let mut bytes = [0; WORD];
        self.0.read_exact(&mut bytes).await.doing("waiting for orders")?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Does what is ordered, until the end is.
    pub(crate) async fn serve(&mut self, player: &mut impl Player) -> Result<(), Failure> {
        let mut next = 0;
        loop {
            let (runs, calls) = (self.receive().await?, self.receive().await?);
            if runs == 0 {
                return Ok(());
            }
            if calls == 0 {
                let told =
                    if runs == 1 { player.steps_ns().await? } else { player.traffic().await? };
                self.send(&told).await?;
                continue;
            }
            for _ in 0..runs {
                let times_ns = run(player, next, calls).await?;
                next += calls;
                self.send(&times_ns).await?;
            }
        }
    }
}

/// Does one run; returns its start and its end. A single call is timed without the writing and the
/// looking.
async fn run(player: &mut impl Player, first: u64, calls: u64) -> Result<[u64; 2], Failure> {
    let wrong =
        |call| Failure::broken("verifying a result", format!("that of call {call} is wrong"));
    if calls == 1 {
        player.fill(first).await?;
        player.meet().await?;
        let start_ns = machine::now_ns();
        player.call().await?;
        let end_ns = machine::now_ns();
        let right = player.is_right(first).await?;
        return if right { Ok([start_ns, end_ns]) } else { Err(wrong(first)) };
    }
    player.meet().await?;
    let start_ns = machine::now_ns();
    for call in first..first + calls {
        player.fill(call).await?;
        player.call().await?;
        if !player.is_right(call).await? {
            return Err(wrong(call));
        }
    }
    Ok([start_ns, machine::now_ns()])
}
