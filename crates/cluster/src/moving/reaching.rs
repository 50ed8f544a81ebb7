//! The way of a node to the home of a channel end that came in a message.

use super::ends::HomeAddress;
use super::error::TravelError;
use crate::moving::moving;
use chunkcomm::layer::Link;
use chunkcomm::{Address, ConnectError, Node, Peer};
use std::sync::Arc;

/// Returns the incarnation, name and addresses by which other nodes find this one.
pub(super) fn home_address(node: &Node) -> HomeAddress {
    let moving = moving(node);
    let addresses = match moving.advertised() {
        Some(addresses) => addresses.to_vec(),
        None => node.addresses().iter().map(Address::to_string).collect(),
    };
    HomeAddress { incarnation: node.incarnation(), name: moving.name.clone(), addresses }
}

/// Returns the node with this address, by an existing link of either direction or by dialling.
pub(super) async fn peer_of(node: &Node, home: &HomeAddress) -> Result<Peer, TravelError> {
    let unreachable = |cause: Option<ConnectError>| TravelError::Unreachable {
        home: home.name.clone(),
        cause: cause.map(Arc::new),
    };
    if home.incarnation == node.incarnation() {
        return node.local().await.map_err(|cause| unreachable(Some(cause)));
    }
    if let Some(link) = Link::with(node, home.incarnation) {
        return Ok(link.peer(node));
    }
    let mut failed = None;
    for address in &home.addresses {
        let Ok(address) = address.parse::<Address>() else { continue };
        match Link::meet(node, home.incarnation, &address).await {
            Ok(Some(link)) => return Ok(link.peer(node)),
            // Another node has the address, or it is another machine's loopback.
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
    }
    Err(unreachable(failed))
}
