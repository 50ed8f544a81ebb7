//! Pure machines of this crate: [`call`] (requests and their answers), [`cluster`] (membership) and
//! [`custody`] (ends that travel). They speak over channels as programs do. [`signature`]: what nodes
//! compare before they run functions for each other. [`roster`]: who of some members is gone. No stability is promised.

pub mod call;
pub mod cluster;
pub mod custody;
pub mod roster;
pub mod signature;
