//! Errors of `chunkcomm-pipeline`, and of the crates at its sides.

use super::chunkcomm::{connect, lost};
use super::cluster::death;
use super::group::{late, received};
use super::{Texts, errors, label, said};
use chunkcomm::OpenError;
use chunkcomm_coupled::patterns::{Compute, PatternError};
use chunkcomm_pipeline::tracked::{
    AccessError, SendEngine, SetupError, TrackedError, UnknownEngine,
};
use chunkcomm_pipeline::{DeltaRecvError, DeltaSendError, PartError};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn all(texts: &mut Texts) {
    tracked(texts);
    patterns(texts);
}

/// Errors of `chunkcomm-pages`.
pub(super) fn pages(texts: &mut Texts) {
    let engine = || "mprotect".to_owned();
    let unknown: UnknownEngine = "none".parse::<SendEngine>().unwrap_err();
    texts.error("UnknownEngine", &unknown);
    errors!(
        texts,
        SetupError::NotSupportedHere,
        SetupError::Memory { bytes: 9, source: said() },
        SetupError::Engine { engine: engine(), source: said() },
        AccessError::Rewritten { elements: 3..5 },
        AccessError::System { engine: engine(), source: said() },
        AccessError::Late { deadline: Duration::from_millis(1500) },
        AccessError::Ended,
        AccessError::Range { start: 3, end: 12, length: 9 },
    );
}

fn tracked(texts: &mut Texts) {
    let range = PartError::Range { asked: 3..12, length: 9 };
    let delta = DeltaRecvError::Channel(received());
    errors!(
        texts,
        TrackedError::Buffer(AccessError::Rewritten { elements: 3..5 }),
        TrackedError::Length { tracked: 9, delta: 8 },
        TrackedError::Part(range),
        TrackedError::Send(Arc::new(DeltaSendError::Channel(lost("lines")))),
        TrackedError::Buffer(AccessError::Ended),
        TrackedError::Corrected { elements: 3..5 },
        TrackedError::Short { landed: 3, length: 9 },
        TrackedError::Recv(Arc::new(delta)),
    );
}

fn patterns(texts: &mut Texts) {
    let (peer, cause) = (|| "pe\"er".to_owned(), "it stopped".to_owned());
    texts.error("UnknownCompute", &"none".parse::<Compute>().unwrap_err());
    errors!(
        texts,
        PatternError::DeltaSend(DeltaSendError::Channel(lost("lines"))),
        PatternError::DeltaRecv(DeltaRecvError::Channel(received())),
        PatternError::Open(OpenError::Connect(connect())),
        PatternError::Accept(late()),
        PatternError::Connect(connect()),
        PatternError::Peer(death().into()),
        PatternError::Send(lost("lines")),
        PatternError::Recv(received()),
        PatternError::Address { address: "no\"where".into() },
        PatternError::Failed { peer: peer(), cause },
        PatternError::OutOfStep { peer: peer() },
        PatternError::Left { peer: peer() },
    );
}
