//! Programs on a simulated network, in virtual time. The real time of a simulated second
//! is that of its events alone, and a seed makes a run repeatable.
//!
//! [`Network`] is the model, and pure. [`run`] runs whole programs on it, on tokio's paused
//! clock: nodes listen at and connect to addresses of the form `sim:host/port`.
//!
//! ```
//! use chunkcomm::Node;
//! use chunkcomm_simulation::{LinkSpec, Network, run};
//! use std::time::Duration;
//!
//! let mut network = Network::new(7);
//! let (office, lab) = (network.add_host("office"), network.add_host("lab"));
//! network.link(office, lab, LinkSpec { latency: Duration::from_millis(20), ..LinkSpec::default() });
//!
//! let received = run(network, async |simulation| {
//!     let server = Node::builder().listen("sim:lab/80".parse().unwrap()).build().await.unwrap();
//!     let client = simulation.on(office, Node::builder().build()).await.unwrap();
//!     let peer = client.connect(&server.addresses()[0]).await.unwrap();
//!     let mut sender = client.open::<u32>(&peer, "numbers").await.unwrap();
//!     sender.send(&7).await.unwrap();
//!     let (_, mut receiver) = server.accept::<u32>("numbers").await.unwrap();
//!     let number = receiver.recv().await.unwrap();
//!     // Dialling takes two latencies, the hellos one, the message another.
//!     assert!(simulation.now() >= Duration::from_millis(80));
//!     number
//! });
//! assert_eq!(received, Some(7));
//! ```
//!
//! # Time of the model
//!
//! Tokio's timers step one millisecond, so a microsecond of the model is a millisecond of tokio's
//! clock. The waits of this crate convert by themselves. A program waits by [`Simulation::sleep`]
//! and [`Simulation::within`], not by `tokio::time`. Times within the network are exact to the
//! nanosecond; a program learns of an event at the next microsecond.
//!
//! Everything runs on the thread that called [`run`]; other threads have no part in it. A computation
//! takes the time that it declares ([`chunkcomm::host`]), on the cores of its host. A task that wakes
//! itself for ever would stop time: it ends the run with a panic. A task that blocks the thread ends
//! the process after [`STUCK_DEFAULT`]. Nodes with `io_thread` or `busy_poll` cannot be built here.
//!
//! Anything that asks the system makes a run differ from the one before: the clock, randomness, an
//! unbiased `tokio::select!`, the order of a `HashMap`. [`chunkcomm::host`] has what to use in their
//! place, and [`check`] finds the first delivery that differs.
//!
//! # What is where
//!
//! | to | names |
//! |---|---|
//! | describe hosts and networks | [`Network`], [`HostSpec`], [`LinkSpec`], [`BridgeSpec`], [`ForeignLoad`] |
//! | take a world by its name or file | [`load`], [`WorldSpec`], [`calibrate`] |
//! | run programs | [`run`], [`run_within`], [`Simulation`] |
//! | run many seeds, or one twice | [`each_seed`], [`check`] |
//! | see what happened | [`Report`], [`Timeline`], [`Delivery`] |

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod lan;
mod network;
mod programs;
mod repeat;
mod system;
mod watchdog;
mod worlds;

pub use network::{
    Activity, Arrival, BridgeBetween, BridgeSpec, Busy, Delivery, EndId, Event, ForeignLoad,
    HostGroup, HostId, HostSpec, JobId, Lane, LinkSpec, Network, NetworkError, Random, Read,
    SegmentId, SegmentKind, SegmentSpec, Span, Station, Timeline, WorldError, WorldSpec,
};

pub use programs::{RUN_LIMIT, Report, Simulation, run, run_within};
pub use repeat::{Differs, SEED_VARIABLE, check, each_seed};
pub use watchdog::{STUCK_DEFAULT, STUCK_VARIABLE};
pub use worlds::{LoadError, calibrate, load};
