//! The limits of a node's memory and sessions.

use crate::proto::limits::{
    CUT_OFF_BYTES_DEFAULT, MESSAGE_BYTES_DEFAULT, RESEND_BYTES_DEFAULT, SESSIONS_MAX_DEFAULT,
    WINDOW_BYTES_LINK_DEFAULT,
};

/// Limits of a node's memory and sessions, set by [`NodeBuilder::limits`](super::NodeBuilder::limits).
///
/// ```
/// use chunkcomm::{Limits, Node};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits { message_bytes_max: 128 << 20, ..Limits::default() };
/// let node = Node::builder().limits(limits).build().await?;
/// assert_eq!(node.local().await?.message_bytes_max(), 128 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest message that the node takes, in encoded bytes: 32 MiB by default, at least 8 KiB. A
    /// link may spend as much memory on one large message beside its windows.
    pub message_bytes_max: usize,
    /// Memory in bytes that the receivers of one link may hold together: 16 MiB by default, at least
    /// 32 KiB. Half of it is set aside for the first 16 KiB of each channel.
    pub window_bytes_max: usize,
    /// Bytes that a link keeps for sending again after a lost connection: 4 MiB by default, at least
    /// 1.25 MiB. While about this many bytes are unacknowledged, `send` waits.
    pub resend_bytes_max: usize,
    /// Live sessions that peers have begun with this node: 16,384 by default, at least one.
    ///
    /// Sessions that this node dialled do not count. At the limit a newcomer gets the place of the
    /// session that has been cut off for longest, which would be dead next. While all sessions
    /// are connected, the newcomer is refused. A session at rest costs about 6 KiB, a connected
    /// one also a file descriptor.
    pub sessions_max: usize,
    /// Memory in bytes that sessions without a connection hold, of those that peers have begun: 512
    /// MiB by default. Large messages count that came in part, with 6 KiB a session and 1
    /// KiB a channel. Packets that this node keeps do not count, nor messages that lie unread in
    /// channels that nobody has accepted: those are bounded by number.
    ///
    /// Beyond the limit the session that has been cut off for longest ends, before it is dead. A node
    /// with many peers that send messages of tens of megabytes needs more.
    pub cut_off_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: MESSAGE_BYTES_DEFAULT as usize,
            window_bytes_max: WINDOW_BYTES_LINK_DEFAULT as usize,
            resend_bytes_max: RESEND_BYTES_DEFAULT,
            sessions_max: SESSIONS_MAX_DEFAULT,
            cut_off_bytes_max: CUT_OFF_BYTES_DEFAULT as usize,
        }
    }
}
