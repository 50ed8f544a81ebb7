//! Those who connect to a node, until they are peers.

use super::admission::Admission;
use super::hello::{self, Side};
use super::slots::{Slot, Slots};
use super::{NodeShared, resume};
use crate::driver::clock;
use crate::error::HelloCause;
use crate::proto::hello::Hello;
use crate::transport::{Listener, Transport};
use std::io;
use std::sync::Weak;
use std::time::Duration;

/// Connections that may be on their way to a session at the same time, at each
/// address.
const HELLOS_MAX: usize = 64;

/// After an error the accept loop rests so long: the causes, such as no more file
/// descriptors, pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until the node is gone; no error ends it.
pub(super) async fn accept_loop(listener: Box<dyn Listener>, node: Weak<NodeShared>) {
    let address = listener.address();
    let slots = Slots::new(HELLOS_MAX);
    loop {
        let connection = match listener.accept().await {
            Ok(connection) => connection,
            Err(error) => {
                rest_after(&error).await;
                continue;
            }
        };
        let (slot, mut loss) = slots.take().await;
        let Some(shared) = node.upgrade() else { return };
        let (ours, admission) = (shared.hello, shared.admission.at(&address));
        drop(shared);
        let node = node.clone();
        tokio::spawn(async move {
            let welcomed = tokio::select! {
                biased;
                () = loss.happens() => Err(HelloCause::GaveWay),
                welcomed = welcome(connection, &ours, &admission, &slot, &node) => welcomed,
            };
            if let (Err(cause), Some(shared)) = (welcomed, node.upgrade()) {
                shared.table.refuse(cause.to_string());
            }
            drop(slot);
        });
    }
}

/// A connection that was gone before it was accepted is no reason to let the
/// next one wait.
async fn rest_after(error: &io::Error) {
    match error.kind() {
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {
            tokio::task::yield_now().await;
        }
        _ => clock::pause(ACCEPT_PAUSE).await,
    }
}

/// Hellos and what the node asks for, then the session that the peer means.
async fn welcome(
    connection: Box<dyn Transport>,
    ours: &Hello,
    admission: &Admission,
    slot: &Slot,
    node: &Weak<NodeShared>,
) -> Result<(), HelloCause> {
    let admitted = hello::admit(connection, ours, admission, Side::Acceptor(slot)).await?;
    let (mut connection, theirs, agreement) = admitted;
    let Some(word) = resume::first_word(&mut *connection).await? else { return Ok(()) };
    slot.proved();
    match node.upgrade() {
        // In a box, as all that is for peers only.
        Some(shared) => Box::pin(shared.answer(connection, &(theirs, agreement), word)).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::hello::Name;
    use crate::transport::memory;

    /// Beside its place, its socket and what the runtime keeps of a task, some
    /// hundred bytes.
    const STRANGER_BYTES_MAX: usize = 4096 - 1024;

    #[tokio::test]
    async fn a_stranger_costs_what_was_promised() {
        let (connection, _other) = memory::pipe();
        let ours = Hello::new(Name::truncated("a cluster"), Name::truncated("a node"), 1);
        let admission = Admission::default();
        let (slot, _loss) = Slots::new(HELLOS_MAX).take().await;
        let node = Weak::new();
        let welcome = welcome(connection, &ours, &admission, &slot, &node);
        let bytes = size_of_val(&welcome) + size_of_val(&admission);
        assert!(bytes <= STRANGER_BYTES_MAX, "{bytes}");
    }
}
