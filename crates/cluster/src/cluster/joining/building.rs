//! Node of a member: where it listens, and the addresses at which others reach it.

use super::{JoinError, Joining};
use crate::cluster::launch::{Launcher, PORTS_DEFAULT, hostname};
use crate::cluster::layer::ClusterLayer;
use crate::moving::MovingLayer;
use chunkcomm::layer::{Layer as _, given_name};
use chunkcomm::{Address, Credential, Node, NodeBuilder, NodeError, host};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Returns the address of this machine from which packets to `there` would leave; sends none.
pub(super) fn source_address(there: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = match there {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(there)?;
    Ok(socket.local_addr()?.ip())
}

/// Returns the address of this machine towards others, if it has a route to them. Looks up the
/// route to an address reserved for documents (RFC 5737), and sends nothing there.
fn towards_others() -> Option<IpAddr> {
    source_address((Ipv4Addr::new(192, 0, 2, 1), 9).into()).ok().filter(|ip| !ip.is_loopback())
}

/// Returns the address to listen at so that others reach this node by `host`. That is `host` itself
/// if it is an IP address, else all addresses of this machine. A name may stand for its loopback
/// here.
pub(super) fn listen_for(host: &str, port: u16) -> Address {
    let host = match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_string(),
        Err(_) if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST.to_string(),
        Err(_) => Ipv4Addr::UNSPECIFIED.to_string(),
    };
    Address::Tcp { host, port }
}

/// A node, its credential, and the addresses at which others reach it.
pub(super) struct Built {
    pub(super) node: Node,
    pub(super) credential: Option<Credential>,
    pub(super) addresses: Vec<Address>,
}

impl Joining {
    /// Builds a node at the first free one of these addresses. Others reach it by `host`, if that
    /// is not the address itself.
    pub(super) async fn build(
        &self,
        candidates: &[Address],
        credential: Option<&Credential>,
        host: Option<&str>,
    ) -> Result<Built, JoinError> {
        let credential = credential.or(self.credential.as_ref());
        let builder = self.builder(credential);
        for address in candidates {
            match builder.clone().listen(address.clone()).build().await {
                Ok(node) => {
                    let addresses = advertised(&node, host);
                    return Ok(Built { node, credential: credential.cloned(), addresses });
                }
                Err(error) if candidates.len() > 1 && is_taken(&error) => {}
                Err(error) => return Err(self.fault(error)),
            }
        }
        let port = |address: Option<&Address>| match address {
            Some(Address::Tcp { port, .. }) => *port,
            _ => 0,
        };
        let ports = candidates.iter().map(|address| port(Some(address)));
        let (first, last) = (ports.clone().min(), ports.max());
        Err(JoinError::Ports { first: first.unwrap_or(0), last: last.unwrap_or(0) })
    }

    fn builder(&self, credential: Option<&Credential>) -> NodeBuilder {
        let mut builder = self.config.node.clone();
        let moving = MovingLayer::settings(&mut builder);
        moving.of_cluster = true;
        if moving.registry.is_none() {
            moving.registry.clone_from(&self.config.registry);
        }
        ClusterLayer::settings(&mut builder);
        if let Some(versions) = self.config.versions.clone() {
            ClusterLayer::set_versions(&mut builder, versions);
        }
        if given_name(&builder).is_none() {
            builder = match self.place.rank() {
                Some(rank) => builder.name(format!("rank-{rank}")).sole_name(),
                None => builder.name(format!("node-{}", host::process_id())),
            };
        }
        if let Some(cluster) = self.place.cluster() {
            builder = builder.cluster(cluster);
        }
        match credential {
            Some(credential) => builder.credential(credential.clone()),
            None => builder,
        }
    }

    fn fault(&self, error: NodeError) -> JoinError {
        match error {
            NodeError::BeyondLoopback { .. } => {
                JoinError::NeedsCredential { by: self.place.launcher().to_string() }
            }
            error => JoinError::Node(error),
        }
    }

    /// Returns the ports to listen at if no other node must know them. Nodes over ssh keep to one
    /// range, which a firewall can leave open.
    pub(super) fn own_ports(&self) -> Vec<u16> {
        let over_ssh = (self.place.launcher() == Launcher::Ssh).then_some(PORTS_DEFAULT);
        self.place.ports().or(over_ssh).map_or_else(|| vec![0], Iterator::collect)
    }

    /// Returns the name or address that the place gives this machine.
    pub(super) fn own_host(&self) -> Option<String> {
        self.place.host().map(str::to_owned)
    }
}

fn is_taken(error: &NodeError) -> bool {
    matches!(error, NodeError::Listen { error, .. } if error.kind() == io::ErrorKind::AddrInUse)
}

/// Returns the addresses at which others reach a node. The unspecified address is replaced, since
/// it cannot be dialled.
fn advertised(node: &Node, host: Option<&str>) -> Vec<Address> {
    let mut addresses = Vec::new();
    for address in node.addresses() {
        match &address {
            Address::Tcp { host: bound, port } if is_unspecified(bound) => {
                let names = match host {
                    Some(host) => vec![host.to_owned()],
                    None => {
                        let ip = towards_others().map(|ip| ip.to_string());
                        ip.into_iter().chain([hostname()]).collect()
                    }
                };
                let at = names.into_iter().map(|host| Address::Tcp { host, port: *port });
                addresses.extend(at);
            }
            _ => addresses.push(address),
        }
    }
    addresses
}

fn is_unspecified(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}
