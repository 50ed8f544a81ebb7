//! The service as a trait. Its macros are asked for by the feature `peers` alone: programs compile none of them.

use chunkcomm::{Node, Peer};
use chunkcomm_cluster::Service;

use super::{CallsKind, Near, TRAIT_BYTES};
use crate::failure::{Doing, Failure};
use crate::flight::{Answering, Caller};
use crate::harness::near::Bench;
use crate::harness::slices::Contender;
use crate::message::Record;

#[chunkcomm_cluster::service]
trait Echo {
    async fn echo(&self, message: Record) -> Record;
}

struct Echoing(Answering);

impl Echo for Echoing {
    async fn echo(&self, message: Record) -> Record {
        // The caller gets the panic's text.
        self.0.answer(message).unwrap_or_else(|failure| panic!("{failure}"))
    }
}

impl Caller<Record> for EchoClient {
    async fn call(&self, message: &Record) -> Result<Record, Failure> {
        self.echo(message.clone()).await.doing("calling")
    }
}

/// Connects near and far end.
pub(super) fn near(bench: &mut Bench, kind: CallsKind) -> Result<Box<dyn Contender>, Failure> {
    let client = |node: &Node, peer: &Peer| EchoClient::at(node, peer);
    Ok(Box::new(Near::<Record, _>::open(bench, kind, client)?))
}

/// Serves messages of the trait's size.
pub(super) fn serve(
    node: &Node,
    bytes: usize,
    answering: &Answering,
) -> Result<Option<Service>, Failure> {
    let serves = bytes == TRAIT_BYTES;
    let service = serves.then(|| EchoServer::new(Echoing(answering.clone())).serve(node));
    service.transpose().doing("serving")
}
