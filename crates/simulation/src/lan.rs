//! The network as the programs of one runtime see it, with the tasks that wait for it.
//!
//! The time comes from the `clock` that it is made with; no timer is used. A task above moves the
//! network on ([`Lan::poll_move`]) when its next event is due.

mod seats;

pub(crate) use seats::Seat;

use crate::network::{EndId, Event, HostId, JobId, Network, NetworkError, Random};
use chunkcomm::Address;
use chunkcomm::layer::world;
use chunkcomm_proto::Time;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Number that separates the entropy of a simulation from its network's chance.
const ENTROPY: u64 = 0x656e_7472_6f70_7921;

/// A network with the tasks that wait for its events.
#[derive(Debug)]
pub(crate) struct Lan {
    clock: fn() -> Time,
    pub(crate) doings: Arc<Doings>,
    state: Mutex<State>,
}

/// Virtual time and the program that runs, for the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Doings {
    /// Virtual time in nanoseconds.
    now: AtomicU64,
    /// The host whose program runs, counted from 1; 0 is the main program.
    host: AtomicU32,
}

impl Doings {
    /// Returns the virtual time in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn moved(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    pub(crate) fn runs(&self, host: Option<u32>) {
        self.host.store(host.map_or(0, |host| host + 1), Ordering::Relaxed);
    }

    /// Returns the host whose program runs.
    pub(crate) fn host(&self) -> Option<u32> {
        self.host.load(Ordering::Relaxed).checked_sub(1)
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) network: Network,
    pub(crate) entropy: Random,
    dialling: BTreeMap<EndId, Dialling>,
    waiting: BTreeMap<EndId, Waiting>,
    listening: BTreeMap<(HostId, u16), Listening>,
    /// Number of listeners so far.
    listeners: u64,
    computing: BTreeMap<JobId, Computing>,
    /// The processes whose ends these are.
    owners: BTreeMap<EndId, Seat>,
    /// The environment variables of processes.
    pub(crate) variables: BTreeMap<Seat, Vec<(String, String)>>,
    /// The places of the ranks of the latest launch.
    pub(crate) ranks: Vec<Seat>,
    mover: Option<Waker>,
    /// Time at which the mover comes by itself.
    moves_at: Option<Time>,
}

#[derive(Debug, Default)]
struct Dialling {
    waker: Option<Waker>,
    connected: Option<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Listening {
    /// Number of the listener: another one may have the port later.
    number: u64,
    seat: Seat,
    incoming: VecDeque<EndId>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Computing {
    seat: Seat,
    waker: Option<Waker>,
    done: bool,
}

/// A job on a host's cores. Dropped early, the rest of it is not done.
struct Job {
    lan: Arc<Lan>,
    id: JobId,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.lan.act(|state, now| {
            if state.computing.remove(&self.id).is_some_and(|job| !job.done) {
                state.network.cancel(now, self.id);
            }
        });
    }
}

impl Lan {
    /// Makes a LAN of `network`, at the time that `clock` returns.
    pub(crate) fn new(network: Network, clock: fn() -> Time) -> Arc<Lan> {
        let state = State {
            entropy: Random::new(network.seed() ^ ENTROPY),
            network,
            dialling: BTreeMap::new(),
            waiting: BTreeMap::new(),
            listening: BTreeMap::new(),
            listeners: 0,
            computing: BTreeMap::new(),
            owners: BTreeMap::new(),
            variables: BTreeMap::new(),
            ranks: Vec::new(),
            mover: None,
            moves_at: None,
        };
        Arc::new(Lan { clock, doings: Arc::default(), state: Mutex::new(state) })
    }

    /// Acts on the network at the present time, and wakes the tasks concerned.
    pub(crate) fn act<R>(&self, act: impl FnOnce(&mut State, Time) -> R) -> R {
        // Asked without the lock: it may panic, and names the host then.
        let now = (self.clock)();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // After the runtime's end its clock may have gone back.
        let now = now.max(state.network.now());
        self.doings.moved(now.0);
        let mut woken = Vec::new();
        state.pump(now, &mut woken);
        let done = act(&mut state, now);
        state.pump(now, &mut woken);
        if state.is_due_before_the_mover_comes() {
            woken.extend(state.mover.take());
        }
        drop(state);
        for waker in woken {
            waker.wake();
        }
        done
    }

    /// Runs `act` on the network, to change it or ask it.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Network, Time) -> R) -> R {
        self.act(|state, now| act(&mut state.network, now))
    }

    /// Lets due events happen; returns when to come again. The task is woken when an earlier event
    /// is added meanwhile.
    pub(crate) fn poll_move(&self, context: &mut Context<'_>) -> Option<Time> {
        self.act(|state, _| {
            state.moves_at = state.network.next_time();
            state.mover = Some(context.waker().clone());
            state.moves_at
        })
    }

    pub(crate) fn dial(&self, from: Seat, to: &str, port: u16) -> io::Result<EndId> {
        self.act(|state, now| {
            let to = state.network.host(to).ok_or(io::ErrorKind::NotFound)?;
            let end = state.network.dial(now, from.host, to, port).map_err(error)?;
            state.dialling.insert(end, Dialling::default());
            state.owners.insert(end, from);
            Ok(end)
        })
    }

    pub(crate) fn poll_connected(
        &self,
        end: EndId,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.act(|state, _| {
            let Some(dialling) = state.dialling.get_mut(&end) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let Some(connected) = dialling.connected else {
                dialling.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            state.dialling.remove(&end);
            Poll::Ready(if connected {
                Ok(())
            } else {
                Err(io::ErrorKind::ConnectionRefused.into())
            })
        })
    }

    /// Listens at a port of the seat's host; returns the port, and the listener's number.
    pub(crate) fn listen(&self, seat: Seat, port: u16) -> io::Result<(u16, u64)> {
        self.act(|state, _| {
            let port = state.network.listen(seat.host, port).map_err(error)?;
            state.listeners += 1;
            let number = state.listeners;
            let listening = Listening { number, seat, incoming: VecDeque::new(), waker: None };
            state.listening.insert((seat.host, port), listening);
            Ok((port, number))
        })
    }

    pub(crate) fn poll_accept(
        &self,
        at: (HostId, u16),
        number: u64,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<EndId>> {
        self.act(|state, _| {
            let listening = state.listening.get_mut(&at).filter(|it| it.number == number);
            let Some(listening) = listening else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            match listening.incoming.pop_front() {
                Some(end) => Poll::Ready(Ok(end)),
                None => {
                    listening.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    pub(crate) fn unlisten(&self, at: (HostId, u16), number: u64) {
        self.act(|state, now| {
            if state.listening.get(&at).is_none_or(|it| it.number != number) {
                return;
            }
            state.network.unlisten(at.0, at.1);
            for end in state.listening.remove(&at).into_iter().flat_map(|left| left.incoming) {
                state.leave(now, end);
            }
        });
    }

    /// Occupies a core of the seat's host until `work` is done.
    pub(crate) async fn compute(self: Arc<Self>, seat: Seat, work: Duration) {
        let id = self.act(|state, now| {
            let id = state.network.compute(now, seat.host, work);
            state.computing.insert(id, Computing { seat, waker: None, done: false });
            id
        });
        let job = Job { lan: self, id };
        poll_fn(|context| {
            job.lan.act(|state, _| match state.computing.get_mut(&id) {
                Some(computing) if !computing.done => {
                    note(&mut computing.waker, context);
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            })
        })
        .await;
    }

    pub(crate) fn leave(&self, end: EndId) {
        self.act(|state, now| {
            state.dialling.remove(&end);
            state.waiting.remove(&end);
            state.leave(now, end);
        });
    }

    /// Returns the name of a host, unless the network is in use.
    pub(crate) fn try_name(&self, host: HostId) -> Option<String> {
        let state = self.state.try_lock().ok()?;
        Some(state.network.host_name(host).to_owned())
    }

    /// Returns the address of a port of `host`.
    pub(crate) fn address(&self, host: HostId, port: u16) -> Address {
        self.with(|network, _| Address::Simulated {
            host: network.host_name(host).to_owned(),
            port,
        })
    }
}

impl State {
    /// Handles the events up to `now`.
    fn pump(&mut self, now: Time, woken: &mut Vec<Waker>) {
        while let Some((_, event)) = self.network.poll_event(now) {
            world::moves();
            match event {
                Event::Incoming { host, port, end } => {
                    match self.listening.get_mut(&(host, port)) {
                        Some(listening) => {
                            self.owners.insert(end, listening.seat);
                            listening.incoming.push_back(end);
                            woken.extend(listening.waker.take());
                        }
                        None => self.network.leave(now, end),
                    }
                }
                Event::Connected(end) => self.dialled(end, true, woken),
                Event::Refused(end) => self.dialled(end, false, woken),
                Event::Readable(end) => {
                    woken.extend(self.waiting.get_mut(&end).and_then(|it| it.reader.take()));
                }
                Event::Writable(end) => {
                    woken.extend(self.waiting.get_mut(&end).and_then(|it| it.writer.take()));
                }
                Event::Broken(end) => {
                    self.dialled(end, false, woken);
                    let waiting = self.waiting.remove(&end).unwrap_or_default();
                    woken.extend(waiting.reader.into_iter().chain(waiting.writer));
                }
                Event::Computed(job) => {
                    if let Some(computing) = self.computing.get_mut(&job) {
                        computing.done = true;
                        woken.extend(computing.waker.take());
                    }
                }
            }
        }
    }

    fn dialled(&mut self, end: EndId, connected: bool, woken: &mut Vec<Waker>) {
        if let Some(dialling) = self.dialling.get_mut(&end) {
            dialling.connected = Some(connected);
            woken.extend(dialling.waker.take());
        }
    }

    pub(crate) fn reader_waits(&mut self, end: EndId, context: &Context<'_>) {
        note(&mut self.waiting.entry(end).or_default().reader, context);
    }

    pub(crate) fn writer_waits(&mut self, end: EndId, context: &Context<'_>) {
        note(&mut self.waiting.entry(end).or_default().writer, context);
    }

    fn is_due_before_the_mover_comes(&self) -> bool {
        match (self.network.next_time(), self.moves_at) {
            (Some(next), Some(moves)) => next < moves,
            (next, _) => next.is_some(),
        }
    }
}

/// Keeps the task's waker, cloned only when it is another than last time.
fn note(place: &mut Option<Waker>, context: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(context.waker()),
        None => *place = Some(context.waker().clone()),
    }
}

/// Returns the system's error of the same meaning.
pub(crate) fn error(error: NetworkError) -> io::Error {
    let kind = match error {
        NetworkError::NoWay => io::ErrorKind::HostUnreachable,
        NetworkError::PortTaken => io::ErrorKind::AddrInUse,
        NetworkError::Broken => io::ErrorKind::ConnectionReset,
        NetworkError::Finished => io::ErrorKind::BrokenPipe,
    };
    io::Error::new(kind, error)
}
