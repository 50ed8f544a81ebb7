//! A trace of deliveries, by which to compare two runs.

use super::{EndId, HostId};
use chunkcomm_proto::Time;
use chunkcomm_proto::random::mix;

/// An arrival at an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Time of the arrival.
    pub at: Time,
    /// The host that sent it.
    pub from: HostId,
    /// The end of a connection where it arrived.
    pub end: EndId,
    /// The arrived thing.
    pub what: Arrival,
    /// Digest of the arrived bytes; 0 without any.
    pub content: u64,
}

/// The kinds of arrivals at an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Arrival {
    /// A dialler opened the connection.
    Opened,
    /// The dialler learns that the connection is open.
    Agreed,
    /// The dialler learns that the port has no listener.
    Refused,
    /// This many bytes.
    Bytes(u32),
    /// The peer writes nothing more.
    End,
    /// The connection is broken.
    Broken,
}

/// A running digest of all deliveries, and the deliveries if wanted.
#[derive(Debug, Default)]
pub(super) struct Trace {
    digest: u64,
    kept: Option<Vec<Delivery>>,
}

impl Trace {
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn keep(&mut self) {
        self.kept.get_or_insert_default();
    }

    pub(super) fn kept(&self) -> &[Delivery] {
        self.kept.as_deref().unwrap_or_default()
    }

    pub(super) fn add(&mut self, delivery: Delivery) {
        let what = match delivery.what {
            Arrival::Opened => 1 << 32,
            Arrival::Agreed => 2 << 32,
            Arrival::Refused => 3 << 32,
            Arrival::Bytes(bytes) => u64::from(bytes),
            Arrival::End => 4 << 32,
            Arrival::Broken => 5 << 32,
        };
        let end = u64::from(delivery.end.connection) << 1 | u64::from(delivery.end.accepted);
        let from = u64::from(delivery.from.0) << 33;
        for word in [delivery.at.0, what, end ^ from, delivery.content] {
            self.digest = mix(self.digest ^ word);
        }
        if let Some(kept) = &mut self.kept {
            kept.push(delivery);
        }
    }
}
