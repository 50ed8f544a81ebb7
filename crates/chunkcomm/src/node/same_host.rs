//! A Unix socket in the place of TCP, between nodes of one host that met at a TCP address:
//!
//! ```text
//!     dialler                                   acceptor
//!     TCP:   hellos, proofs, TLS   ◀─────────▶  its hello has a number of its host
//!     connects to @chunkcomm-<incarnation>, if that is its own host
//!     Unix:  hellos, proofs        ◀─────────▶
//!     drops TCP, and names its session here ─▶  takes a hang-up before the first word as nothing
//! ```
//!
//! The hello that has the number is proved. So nobody can lead the dialler to a socket of that name in
//! another network namespace, which a stranger could have made, to relay what is not encrypted there. Each end
//! refuses connections of other users. Any fault before the proofs are done leaves the session with TCP. A
//! connection that is dialled again comes by TCP, too, and moves as the first did.

use super::admission::Admission;
use super::hello::{self, OwnHello, Side};
use crate::Address;
use crate::driver::clock;
use crate::explain::Way;
use crate::portable::portable_only;
use crate::proto::causes::with_causes;
use crate::proto::hello::Hello;
use crate::transport::{Listener, Transport, same_host};
use std::io;
use std::time::Duration;
use tokio::runtime::Handle;

/// Most time for a Unix socket to be connected and both ends proved: 500 ms. Meanwhile the acceptor waits
/// at the TCP connection, for 5 s, and an attempt to resume a session has 3 s in all.
const LIMIT: Duration = Duration::from_millis(500);

/// A fact for people, as the reason why a connection stays with TCP.
type Why = &'static str;

/// Whether a node uses Unix sockets in the place of TCP.
#[derive(Debug, Clone, Copy)]
pub(super) struct SameHost {
    dials: Result<(), Why>,
    /// The number of the host that its hello has.
    listens: Result<u32, Why>,
}

impl SameHost {
    /// Decides for a node with these settings. It does not listen yet.
    pub(super) fn of(is_allowed: bool, admission: &Admission, has_own_tls: bool) -> SameHost {
        let dials = if cfg!(not(target_os = "linux")) {
            Err("this is not Linux")
        } else if !is_allowed {
            Err("this node forbids a Unix socket")
        } else if portable_only() {
            Err("CHUNKCOMM_PORTABLE is set")
        } else if has_own_tls {
            Err("TLS of the user's")
        } else if !admission.proves() {
            Err("no credential")
        } else {
            Ok(())
        };
        SameHost { dials, listens: dials.and(Err("no TCP address to listen at")) }
    }

    /// Listens at the socket of the node `incarnation`, if it may and has a TCP address.
    pub(super) fn listen(
        &mut self,
        incarnation: u128,
        at: &[Address],
    ) -> Option<Box<dyn Listener>> {
        let has_tcp = at.iter().any(|it| matches!(it, Address::Tcp { .. }));
        if self.dials.is_err() || !has_tcp {
            return None;
        }
        match same_host::listen(incarnation) {
            Ok(listener) => {
                self.listens = Ok(same_host::number(incarnation));
                Some(listener)
            }
            Err(error) => {
                tracing::warn!(%error, "no Unix socket for nodes of this host");
                self.listens = Err("its Unix socket could not be made");
                None
            }
        }
    }

    /// Returns the hello for connections that come to `address`.
    pub(super) fn offered(&self, own: OwnHello, address: &Address) -> OwnHello {
        let is_tcp = matches!(address, Address::Tcp { .. });
        let host = self.listens.ok().filter(|_| is_tcp).unwrap_or_default();
        OwnHello { hello: Hello { host, ..own.hello }, ..own }
    }

    /// Returns the way of connections that come to `address` and name a session there.
    pub(super) fn way_to(&self, address: &Address) -> Way {
        match address {
            Address::Tcp { .. } => {
                Way::Tcp { why: self.listens.err().unwrap_or("as the peer dialled") }
            }
            _ if same_host::is_it(address) => Way::SameHost,
            _ => Way::Other,
        }
    }

    /// Returns the connection to use after `transport` to `address` was admitted: a Unix socket, if the
    /// node that said `theirs` is on this host, else `transport`.
    pub(super) async fn shorter(
        self,
        address: &Address,
        transport: Box<dyn Transport>,
        theirs: &Hello,
        own: &OwnHello,
        admission: &Admission,
    ) -> (Box<dyn Transport>, Way) {
        if !matches!(address, Address::Tcp { .. }) {
            return (transport, Way::Other);
        }
        let connected = match self.dials {
            Ok(()) if theirs.host == 0 => Err("the peer has no Unix socket"),
            Ok(()) if theirs.host != same_host::number(theirs.incarnation) => {
                Err("the peer is on another host")
            }
            Ok(()) => {
                let connecting = Box::pin(connect(theirs.incarnation, own, admission));
                let connected = clock::within(&Handle::current(), LIMIT, connecting).await;
                connected.unwrap_or(Err("the Unix socket does not answer"))
            }
            Err(why) => Err(why),
        };
        match connected {
            Ok(shorter) => (shorter, Way::SameHost),
            Err(why) => (transport, Way::Tcp { why }),
        }
    }
}

/// Connects to the socket of the node `incarnation`; both ends prove themselves.
async fn connect(
    incarnation: u128,
    own: &OwnHello,
    admission: &Admission,
) -> Result<Box<dyn Transport>, Why> {
    let transport = same_host::connect(incarnation).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => "its Unix socket is gone",
        io::ErrorKind::PermissionDenied => "its Unix socket is another user's",
        _ => failed(&error),
    })?;
    let admission = admission.at(&same_host::address(incarnation));
    let admitted = hello::admit(transport, own, &admission, Side::Dialler).await;
    let (transport, theirs, _) = admitted.map_err(|cause| failed(&cause))?;
    if theirs.incarnation != incarnation {
        return Err("another node answers at the Unix socket");
    }
    Ok(transport)
}

fn failed(cause: &dyn std::error::Error) -> Why {
    tracing::info!(cause = %with_causes(cause), "a Unix socket of this host failed");
    "the Unix socket failed"
}

#[cfg(all(target_os = "linux", feature = "tls"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::memory;
    use crate::{Credential, Node};
    use std::path::PathBuf;
    use tokio::net::{UnixListener, UnixStream};

    /// Returns the number of a node that is not there, and that no other test has.
    fn absent() -> u128 {
        u128::from(std::process::id()) << 64 | 0xb0b
    }

    async fn member(credential: &Credential) -> Node {
        let builder = Node::builder().credential(credential.clone());
        builder.listen("127.0.0.1:0".parse().unwrap()).build().await.unwrap()
    }

    fn path(incarnation: u128) -> PathBuf {
        let Address::Unix(path) = same_host::address(incarnation) else { panic!("no path") };
        path
    }

    /// Returns the way that `node` takes after a TCP connection to [`absent`].
    async fn way(node: &Node) -> Way {
        way_to(node, same_host::number(absent())).await
    }

    async fn way_to(node: &Node, host: u32) -> Way {
        let shared = &node.shared;
        let theirs = Hello { incarnation: absent(), host, ..shared.own.hello };
        let (tcp, _other) = memory::pipe();
        let (address, admission) =
            (&node.addresses()[0], shared.admission.at(&node.addresses()[0]));
        shared.same_host.shorter(address, tcp, &theirs, &shared.own, &admission).await.1
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_is_not_the_nodes_leaves_the_session_with_tcp() {
        let credential = Credential::generate().unwrap();
        let node = member(&credential).await;
        assert_eq!(way(&node).await, Way::Tcp { why: "its Unix socket is gone" });
        let squatted = UnixListener::bind(path(absent())).unwrap();
        // In another namespace anybody could have made it.
        let elsewhere = same_host::number(absent()) ^ 1;
        assert_eq!(way_to(&node, elsewhere).await, Way::Tcp { why: "the peer is on another host" });
        let begun = clock::now();
        assert_eq!(way(&node).await, Way::Tcp { why: "the Unix socket does not answer" });
        assert!(clock::now().micros_since(begun) < 2_000_000);
        squatted.accept().await.unwrap();
        let hangs_up = async { drop(squatted.accept().await.unwrap()) };
        let (went, ()) = tokio::join!(way(&node), hangs_up);
        assert_eq!(went, Way::Tcp { why: "the Unix socket failed" });
        let strange = member(&Credential::generate().unwrap()).await;
        let other = member(&credential).await;
        for (behind, why) in [
            (strange, "the Unix socket failed"),
            (other, "another node answers at the Unix socket"),
        ] {
            let relays = async {
                let (mut near, _) = squatted.accept().await.unwrap();
                let mut far = UnixStream::connect(path(behind.incarnation())).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            };
            let (went, ()) = tokio::join!(way(&node), relays);
            assert_eq!(went, Way::Tcp { why });
        }
    }
}
