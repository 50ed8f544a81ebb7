//! Proofs and TLS that a node asks of a peer before it talks to it, by the kind of connection:
//!
//! | connection | with a credential | with TLS of the user's |
//! |---|---|---|
//! | TCP | proofs, then TLS by the credential's identity | the user's TLS, after proofs if there is a credential |
//! | Unix socket | proofs; the system protects the bytes | nothing: the socket's file is for one user |
//! | memory | nothing: both ends are one process | nothing |

#[cfg(not(feature = "tls"))]
mod without;

#[cfg(not(feature = "tls"))]
pub(super) use without::Admission;

#[cfg(feature = "tls")]
pub(super) use with::{Admission, UserTls};

#[cfg(feature = "tls")]
mod with;
