//! One word beside the bytes, on a channel of its own: from the receiver when all has landed or
//! when it refuses, from the sender when it stops before the end.
//!
//! The data never waits for it: it is the last thing of a transfer, not the first.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use chunkcomm::{Node, Peer};
use tokio::time::timeout;

use crate::proto::notice::Notice;

/// How long a side that saw the channel end looks whether the other said why. The word is sent
/// before the end, on the same link, so it is there or about to be; an end without a word (a
/// dropped receiver) is reported this much later.
const NOTICE_WAIT: Duration = Duration::from_millis(300);

/// To whom a notice goes. Both may be one node.
#[derive(Clone, Copy)]
pub(crate) enum To {
    Sender,
    Receiver,
}

/// A number that tells this transfer's notices from those of others.
pub(crate) fn fresh_id() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn channel_name(to: To, id: u64) -> String {
    let to = match to {
        To::Sender => "sender",
        To::Receiver => "receiver",
    };
    format!("chunkcomm-pipeline.{to}.{id:016x}")
}

/// Tells `peer`; a link that is gone takes the word with it.
pub(crate) async fn tell(node: &Node, peer: &Peer, to: To, id: u64, notice: &Notice) {
    if let Ok(mut channel) = node.open_bytes(peer, &channel_name(to, id)).await {
        // The transfer's own outcome is what the user sees; that of its notice adds nothing.
        let _ = channel.send_slice_now(&notice.encode()).await;
    }
}

/// Waits for what the other side of transfer `id` says. `None` when that is not readable, or the
/// node is closed.
pub(crate) async fn hear(node: &Node, to: To, id: u64) -> Option<Notice> {
    let (_, mut channel) = node.accept_bytes(&channel_name(to, id)).await.ok()?;
    let bytes = channel.recv().await.ok()??;
    Notice::decode(&bytes).ok()
}

/// What `hearing` hears, when the other side has ended the transfer: something soon or never.
pub(crate) async fn soon(hearing: impl Future<Output = Option<Notice>>) -> Option<Notice> {
    timeout(NOTICE_WAIT, hearing).await.ok()?
}
