//! The pure machines of this crate, which speak over channels as programs do: [`call`] (requests and
//! their answers), [`cluster`] (membership) and [`custody`] (ends that travel). No stability is
//! promised.

pub mod call;
pub mod cluster;
pub mod custody;
