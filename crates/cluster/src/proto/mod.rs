//! Pure machines of this crate: [`call`] (requests and their answers), [`cluster`] (membership) and
//! [`custody`] (ends that travel). They speak over channels as programs do. No stability is
//! promised.

pub mod call;
pub mod cluster;
pub mod custody;
