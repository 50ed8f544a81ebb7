//! What ours is measured against, in the same program: plain sockets, used as well as one can by
//! hand.

pub mod append;
pub mod eventfd;
pub mod framed;
pub mod hand_farm;
pub mod mpich;
pub mod raw;
pub mod raw_calls;
#[cfg(feature = "peers")]
pub mod tarpc;
mod wait;
pub mod wire;

/// What is said where the other systems are not in the build.
#[cfg(not(feature = "peers"))]
pub(crate) fn no_tarpc() -> crate::failure::Failure {
    crate::failure::Failure::broken("using tarpc", "this build is without the feature peers")
}
