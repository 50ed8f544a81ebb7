//! Notices of a transfer, one message on a channel of their own: from the receiver when all has
//! landed or when it refuses, from the sender when it stops before the end.
//!
//! The data never waits for a notice: it is the last message of a transfer, not the first.

use std::time::Duration;

use chunkcomm::host::{self, timeout};
use chunkcomm::{Node, Peer};

use crate::proto::notice::Notice;

/// Time that a side waits for the other's notice after the channel has ended. A notice is sent
/// before the end, on the same link, so it is there or about to be. An end without a notice (a
/// dropped receiver) is reported this much later.
const NOTICE_WAIT: Duration = Duration::from_millis(300);

/// Side that a notice goes to. Both sides may be one node.
#[derive(Clone, Copy)]
pub(crate) enum To {
    Sender,
    Receiver,
}

/// Returns a number that tells this transfer's notices from those of others.
///
/// # Panics
///
/// The system gives no random numbers.
pub(crate) fn fresh_id() -> u64 {
    host::random().expect("the system gives random numbers")
}

fn channel_name(to: To, id: u64) -> String {
    let to = match to {
        To::Sender => "sender",
        To::Receiver => "receiver",
    };
    format!("chunkcomm-pipeline.{to}.{id:016x}")
}

/// Sends a notice to `peer`; when the link is gone, the notice is lost.
pub(crate) async fn tell(node: &Node, peer: &Peer, to: To, id: u64, notice: &Notice) {
    if let Ok(mut channel) = node.open_bytes(peer, &channel_name(to, id)).await {
        // The user sees the transfer's own outcome; that of its notice adds nothing.
        let _ = channel.send_slice_now(&notice.encode()).await;
    }
}

/// Waits for the other side's notice of transfer `id`. `None` when it is not readable, or the node
/// is closed.
pub(crate) async fn hear(node: &Node, to: To, id: u64) -> Option<Notice> {
    let (_, mut channel) = node.accept_bytes(&channel_name(to, id)).await.ok()?;
    let bytes = channel.recv().await.ok()??;
    Notice::decode(&bytes).ok()
}

/// Returns the notice of `hearing` if it comes soon: after the other side has ended the transfer.
pub(crate) async fn soon(hearing: impl Future<Output = Option<Notice>>) -> Option<Notice> {
    timeout(NOTICE_WAIT, hearing).await.ok()?
}
