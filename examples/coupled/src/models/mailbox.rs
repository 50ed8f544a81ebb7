//! The messages of several channels in order of arrival, of which the first that fits is taken.

use std::collections::VecDeque;

use chunkcomm::layer::Wait;
use chunkcomm::{AcceptError, Node, host};
use chunkcomm_cluster::process::Failure;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::mpsc;

/// Messages that nobody has looked at yet. Further ones wait in their channels, and then at their senders.
const UNSEEN_MAX: usize = 64;

/// Messages that a report shows of those behind which a receive waits.
const SHOWN_MAX: usize = 8;

/// Receives the messages that peers send on channels of one name, until it is dropped. A later channel of that name
/// ends at once, for which the node keeps a task of about 1 KiB.
///
/// A look that finds nothing passes over all messages, which stay. So the mailbox grows only where its owner would
/// wait for a message behind others.
pub struct Mailbox<M> {
    node: Node,
    name: String,
    letters: mpsc::Sender<M>,
    unseen: mpsc::Receiver<M>,
    /// Messages that did not fit, in order of arrival.
    passed: VecDeque<M>,
}

impl<M: Serialize + DeserializeOwned + Send + 'static> Mailbox<M> {
    /// Accepts the channels of this name from now on.
    pub fn new(node: &Node, name: String) -> Mailbox<M> {
        let (letters, unseen) = mpsc::channel(UNSEEN_MAX);
        host::spawn(accept(node.clone(), name.clone(), letters.clone()));
        Mailbox { node: node.clone(), name, letters, unseen, passed: VecDeque::new() }
    }

    /// Returns the way by which the owner's own helpers send.
    pub fn letters(&self) -> mpsc::Sender<M> {
        self.letters.clone()
    }

    /// Runs `work` until it ends, or the mailbox is dropped.
    pub fn beside(&self, work: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        while_open(&self.letters, work);
    }

    /// Returns the first message that fits.
    pub fn look(&mut self, fits: impl Fn(&M) -> bool) -> Option<&M> {
        let at = self.find(fits)?;
        self.passed.get(at)
    }

    /// Takes the first message that fits.
    pub fn try_take(&mut self, fits: impl Fn(&M) -> bool) -> Option<M> {
        let at = self.find(fits)?;
        self.passed.remove(at)
    }

    /// Waits for the first message that fits, and takes it. `Node::explain` lists the wait for `what` since it began,
    /// and the number of others in the mailbox, the first as `shown`.
    ///
    /// # Cancel safety
    /// Dropped, it takes none.
    pub async fn take(
        &mut self,
        fits: impl Fn(&M) -> bool,
        what: impl FnOnce() -> String,
        shown: impl Fn(&M) -> String,
    ) -> M {
        if let Some(message) = self.try_take(&fits) {
            return message;
        }
        let _since = Wait::begin(&self.node, what());
        let mut others = None;
        loop {
            if !self.passed.is_empty() {
                let some = self.passed.iter().take(SHOWN_MAX).map(&shown).collect::<Vec<_>>();
                let (count, some) = (self.passed.len(), some.join(", "));
                let begin = || Wait::begin(&self.node, String::new());
                others
                    .get_or_insert_with(begin)
                    .goes_on_for(format!("{} to receive {count} others: {some}", self.name));
            }
            // Its own sender is there as long as it is.
            let Some(message) = self.unseen.recv().await else { continue };
            if fits(&message) {
                return message;
            }
            self.passed.push_back(message);
        }
    }

    fn find(&mut self, fits: impl Fn(&M) -> bool) -> Option<usize> {
        let mut at = self.passed.iter().position(&fits);
        while at.is_none()
            && let Ok(message) = self.unseen.try_recv()
        {
            at = fits(&message).then_some(self.passed.len());
            self.passed.push_back(message);
        }
        at
    }
}

/// Accepts channels until the node is closed.
async fn accept<M>(node: Node, name: String, letters: mpsc::Sender<M>)
where
    M: Serialize + DeserializeOwned + Send + 'static,
{
    loop {
        let mut channel = match node.accept::<M>(&*name).await {
            Ok((_, channel)) => channel,
            Err(AcceptError::Mismatch { .. }) => continue,
            Err(_) => return,
        };
        let to = letters.clone();
        while_open(&letters, async move {
            while let Some(message) = channel.recv().await? {
                to.send(message).await?;
            }
            Ok(())
        });
    }
}

/// Runs `work` until it ends, or the mailbox of these letters is dropped.
fn while_open<M: Send + 'static>(
    letters: &mpsc::Sender<M>,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) {
    let letters = letters.clone();
    host::spawn(async move {
        tokio::select! {
            biased;
            () = letters.closed() => {}
            _ = work => {}
        }
    });
}
