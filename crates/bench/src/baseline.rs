//! What ours is measured against, in the same program: plain sockets, used as well as one can by
//! hand.

pub mod framed;
pub mod hand_farm;
pub mod raw;
mod wait;
pub mod wire;
