//! Creating a process, and its handle.

use super::error::ProcessError;
use super::hosting::Outcome;
use super::words::{Create, Encoded, ProcessWord};
use crate::moving::crossing::Leaving;
use crate::moving::{LineWord, Saying, ends, moving};
use crate::registry::Signature;
use crate::registry::processes::{End, Process};
use chunkcomm::layer::Link;
use chunkcomm::{Node, Peer, SendError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// Upper bound of the bytes of a process's message beside its name, its input and the input's hops.
const CREATE_BYTES: u64 = 128;

/// Handle of a process that was asked for, and a future of its end.
///
/// Dropping the handle ends the process; [`ProcessHandle::detach`] lets the process go on.
#[must_use = "a process is ended when its handle is dropped"]
pub struct ProcessHandle {
    id: u64,
    line: Saying,
    peer: Peer,
    signature: Signature,
    ended: oneshot::Receiver<Outcome>,
    /// Whether nothing is to be sent any more.
    over: bool,
}

impl fmt::Debug for ProcessHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHandle")
            .field("process", &self.signature.name)
            .field("node", &self.peer.name())
            .finish_non_exhaustive()
    }
}

impl ProcessHandle {
    /// Returns the node that runs the process.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Lets the process go on without this handle, even after the session with its creator has
    /// ended.
    ///
    /// The end of the process is not reported.
    pub fn detach(mut self) {
        self.say(ProcessWord::Detach(self.id));
        self.over = true;
        self.forget();
    }

    fn say(&self, word: ProcessWord) {
        self.line.say(LineWord::Process(word));
    }

    fn forget(&self) {
        moving(&self.peer.node()).processes.forget(self.id);
    }

    fn error(&self, outcome: Outcome) -> Result<(), ProcessError> {
        let (process, node) = (self.signature.name.clone(), self.peer.name().to_owned());
        let end = match outcome {
            Ok(end) => end,
            Err(link) => return Err(ProcessError::Lost { process, link }),
        };
        Err(match end {
            End::Done => return Ok(()),
            End::Failed(message) => ProcessError::Failed { process, node, message },
            End::Panicked { message, place } => {
                ProcessError::Panicked { process, node, message, place }
            }
            End::Stopped => ProcessError::Stopped { process, node },
            End::Differs(there) => {
                let here = Box::new(self.signature.clone());
                ProcessError::Differs { node, here, there: there.map(Box::new) }
            }
            End::Input(why) => ProcessError::Input { process, node, why },
            End::Full(processes) => ProcessError::Full { process, node, processes },
        })
    }
}

/// The end of the process. A handle that was awaited by reference, and not to the end, can be
/// awaited again. The errors are all [`ProcessError`]s but `Unsent` and `Unreachable`.
impl Future for ProcessHandle {
    type Output = Result<(), ProcessError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.ended).poll(context));
        self.over = true;
        // The sender is gone when this node has ended.
        let outcome = outcome.unwrap_or(Ok(End::Stopped));
        Poll::Ready(self.error(outcome))
    }
}

impl Drop for ProcessHandle {
    fn drop(&mut self) {
        if !self.over {
            self.say(ProcessWord::Stop(self.id));
            self.forget();
        }
    }
}

/// See [`NodeExt::instantiate`](crate::NodeExt::instantiate).
pub(crate) async fn instantiate<I>(
    node: &Node,
    peer: &Peer,
    process: &Process<I>,
    input: I,
) -> Result<ProcessHandle, ProcessError>
where
    I: Serialize + DeserializeOwned,
{
    let peer = match (peer.is_alive(), peer.dialled()) {
        (true, _) => peer.clone(),
        (false, Some(address)) => {
            let peer = node.connect(address).await;
            peer.map_err(|error| ProcessError::Unreachable(error.into()))?
        }
        (false, None) => return Err(ProcessError::Unreachable(peer.closed().await.into())),
    };
    let moving = moving(node);
    let line = moving.line(&Link::of(&peer));
    line.wait_for_room().await;
    // The number 0 is no channel: a line does not fail alone.
    let leaving = Leaving::new(&moving, &line, 0);
    let (encoded, leaving) = ends::pack(&input, leaving).map_err(ProcessError::Unsent)?;
    let hops = leaving.hops();
    let bytes = CREATE_BYTES + (process.name().len() + encoded.len() + 8 * hops.len()) as u64;
    if bytes > peer.message_bytes_max() {
        let bytes_max = peer.message_bytes_max();
        return Err(ProcessError::Unsent(SendError::TooLarge { bytes, bytes_max }));
    }
    let (id, ended) = moving.processes.created(&line);
    let create = Create {
        id,
        name: process.name().to_owned(),
        print: process.hash(),
        hops,
        input: Encoded(encoded.into()),
    };
    line.say(LineWord::Process(ProcessWord::Create(create)));
    leaving.accepted();
    Ok(ProcessHandle { id, line, peer, signature: process.signature(), ended, over: false })
}
