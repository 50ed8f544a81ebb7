//! Idle connections of another system: each end holds as many as were opened, and they carry nothing.

use std::any::Any;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::{framed, tarpc};
use crate::failure::Failure;
use crate::harness::far::{FarEnd, Opening};
use crate::harness::near::Bench;
use crate::harness::protocol::{End, HeldKind, Order};

/// The near end's connections.
pub struct Held {
    kind: HeldKind,
    address: String,
    connections: Vec<Box<dyn Any + Send>>,
}

impl Held {
    /// Opens the far end, without connections.
    ///
    /// # Errors
    /// If it does not listen.
    pub fn open(bench: &mut Bench, kind: HeldKind) -> Result<Self, Failure> {
        let (_, address) = bench.open(End::Held(kind), |_, _, address| Ok(address.to_owned()))?;
        Ok(Self { kind, address, connections: Vec::new() })
    }

    /// Opens `count` further connections.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn add(&mut self, bench: &Bench, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            let connection = bench.runtime.block_on(async {
                match self.kind {
                    HeldKind::Framed => framed::idle_connection(&self.address).await,
                    HeldKind::Tarpc => tarpc::idle_connection(&self.address).await,
                }
            })?;
            self.connections.push(connection);
        }
        Ok(())
    }
}

struct Far;

/// Opens the far end of [`Held`].
///
/// # Errors
/// If it cannot listen.
pub fn far(kind: HeldKind, mut opening: Opening<'_>) -> Result<Box<dyn FarEnd>, Failure> {
    let listener = framed::listen(&mut opening)?;
    opening.runtime.spawn(accept(kind, listener));
    Ok(Box::new(Far))
}

async fn accept(kind: HeldKind, listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        match kind {
            HeldKind::Framed => drop(tokio::spawn(framed::hold(stream))),
            HeldKind::Tarpc => drop(tokio::spawn(tarpc::hold(stream))),
        }
    }
}

impl FarEnd for Far {
    fn slice(&mut self, _runtime: &Runtime, _order: &Order) -> Result<Vec<u64>, Failure> {
        Err(Failure::broken("running a slice", "idle connections carry none"))
    }
}
