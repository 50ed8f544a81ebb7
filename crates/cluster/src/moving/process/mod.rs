//! Processes: "run this there, with these streams".
//!
//! A *process* is a registered function that another node runs. Its input is any value that can be
//! sent. Most inputs have channel ends in them: [`TravellingSender`](crate::TravellingSender) for
//! results, [`TravellingReceiver`](crate::TravellingReceiver) for streams that the process takes.
//! So a process has any number of inputs and outputs, each of its own type and pace. The idea is
//! that of the processes of Eden (J. Berthold, "Dynamic Chunking in Eden", sections 2 and 3.1).
//!
//! Every copy of a program registers the same processes and gives them to its node
//! ([`NodeBuilderExt::processes`](crate::NodeBuilderExt::processes)).
//! [`NodeExt::instantiate`](crate::NodeExt::instantiate) sends one message, which leaves at once.
//! No answer comes before the process ends, and data on its ends takes the shortest way. The node
//! compares name and input type when the message comes, for this process alone. So programs of
//! different versions may have other processes.
//!
//! ```
//! use chunkcomm::Node;
//! use chunkcomm_cluster::{NodeBuilderExt, NodeExt, Registry, TravellingSender};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut registry = Registry::new();
//! let squares = registry.process("squares", |_, (count, out): (u64, TravellingSender<u64>)| async move {
//!     let mut out = out.connect().await?;
//!     for number in 0..count {
//!         out.send(&(number * number)).await?; // element by element, gathered in packets
//!     }
//!     Ok(())
//! });
//! let there = Node::builder()
//!     .processes(&registry)
//!     .listen("127.0.0.1:0".parse()?)
//!     .build()
//!     .await?;
//! let here = Node::builder().build().await?;
//! let peer = here.connect(&there.addresses()[0]).await?;
//!
//! let (out, mut numbers) = here.travelling_sender()?;
//! let process = here.instantiate(&peer, &squares, (4, out)).await?;
//! let mut sum = 0;
//! while let Some(number) = numbers.recv().await? {
//!     sum += number;
//! }
//! assert_eq!(sum, 0 + 1 + 4 + 9);
//! process.await?; // how it ended
//! # Ok(())
//! # }
//! ```
//!
//! A process is ended when its creator is gone, or when its [`ProcessHandle`] is dropped without
//! being [detached](ProcessHandle::detach). Its future is dropped where it waits. When a receiver
//! is dropped, the next `send` to it fails, and with `?` the process ends.

mod creating;
mod error;
mod hosting;
pub(crate) mod words;

pub use crate::registry::processes::{Failure, Process, ProcessContext};
pub use creating::ProcessHandle;
pub(crate) use creating::instantiate;
pub use error::ProcessError;

pub(crate) use hosting::{Processes, heard};
