//! [`Landing`]: where the driver puts the bytes of a channel that has memory of its own.

use crate::error::RecvError;

/// The caller's memory where the bytes of a channel land.
///
/// See [`BytesReceiver::land`](crate::BytesReceiver::land). The link's driver calls the
/// methods, in order, never two at a time; they must not block.
pub trait Landing: Send + 'static {
    /// Returns the memory for the next bytes. An empty slice means that nothing more is
    /// expected. If more comes all the same, the landing ends with
    /// [`RecvError::LandingFull`], and the sender learns that its receiver is gone.
    fn room(&mut self) -> &mut [u8];

    /// Reports that the first `bytes` bytes of the slice that `room` returned last are filled.
    fn advance(&mut self, bytes: usize);

    /// Reports that nothing more comes: `Ok` when the sender is done, else the reason.
    fn end(self: Box<Self>, outcome: Result<(), RecvError>);
}
