//! The way of a node to the home of a channel end that came in a message.

use super::hello::display_name;
use super::{Node, NodeShared, Peer};
use crate::Address;
use crate::channel::ports::HomeAddress;
use crate::error::{ConnectError, PortError};
use crate::moving::Moving;
use std::sync::Arc;
use std::time::Duration;

impl Node {
    pub(crate) fn moving(&self) -> &Arc<Moving> {
        &self.shared.moving
    }

    /// Returns the incarnation, name and addresses by which other nodes find this one.
    pub(crate) fn home_address(&self) -> HomeAddress {
        let addresses = match self.moving().advertised() {
            Some(addresses) => addresses.to_vec(),
            None => self.shared.addresses.iter().map(Address::to_string).collect(),
        };
        let NodeShared { hello, .. } = &*self.shared;
        HomeAddress { incarnation: hello.incarnation, name: display_name(hello), addresses }
    }

    /// Returns the node with this address, by an existing link of either direction or by dialling.
    pub(crate) async fn peer_of(&self, home: &HomeAddress) -> Result<Peer, PortError> {
        let unreachable = |cause: Option<ConnectError>| PortError::Unreachable {
            home: home.name.clone(),
            cause: cause.map(Arc::new),
        };
        if home.incarnation == self.incarnation() {
            return self.local().await.map_err(|cause| unreachable(Some(cause)));
        }
        let there = |link: &Arc<_>| is_there(link, home.incarnation);
        if let Some(link) = self.shared.table.links().into_iter().find(there) {
            return Ok(self.peer(link));
        }
        let mut failed = None;
        for address in &home.addresses {
            let Ok(address) = address.parse::<Address>() else { continue };
            match self.connect_within(&address, Duration::ZERO).await {
                Ok(peer) if peer.incarnation() == home.incarnation => return Ok(peer),
                // Another node has the address now, or it is another machine's loopback.
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        Err(unreachable(failed))
    }
}

fn is_there(link: &crate::driver::mail::LinkShared, incarnation: u128) -> bool {
    link.peer.incarnation == incarnation && link.ended().is_none()
}
