//! Errors of `chunkcomm-group`, those of deltas among them.

use super::chunkcomm::{connect, link, lost};
use super::cluster::{death, refused_agreement};
use super::{Texts, errors, label, said};
use crate::virtual_cluster::on_each;
use chunkcomm::error::LinkCause;
use chunkcomm::{AcceptError, Loss, LossKind, OpenError, RecvError};
use chunkcomm_cluster::cluster::End;
use chunkcomm_group::{
    Algorithm, CollectiveError, DeltaFault, DeltaRecvError, DeltaSendError, Group, GroupError,
    Increment, Op, PartError,
};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender};
use chunkcomm_testkit::{limited, memory, pair_of};
use std::sync::{Arc, Mutex};

pub(super) async fn all(texts: &mut Texts) {
    mismatch(texts).await;
    deltas(texts);
    faults(texts);
    groups(texts);
}

/// Sends zeroes to a receiver of another length.
async fn mismatch(texts: &mut Texts) {
    let builder = ::chunkcomm::Node::builder;
    let two = pair_of(memory(), builder(), builder()).await;
    let send = async {
        let (buffer, increment) = (vec![0_f32; 100], Increment::Fixed(4096));
        let mut sender = DeltaSender::open(&two.b, &two.peer, "odd", buffer, increment).await?;
        while let Some(chunk) = sender.next(100)? {
            chunk.commit().await?;
        }
        sender.finish().await
    };
    let receive = DeltaReceiver::accept(&two.a, "odd", vec![0_f32; 99]);
    let (sent, received) = limited(async { tokio::join!(send, receive) }).await;
    texts.error("DeltaSendError::Mismatch", &sent.unwrap_err());
    texts.error("DeltaRecvError::Mismatch", &received.err().unwrap());
}

fn deltas(texts: &mut Texts) {
    let (peer, channel) = (|| "pe\"er".to_owned(), || "rows".to_owned());
    let cause = || Loss::new(LossKind::Refused, "it\nstopped");
    let ended = |cause| DeltaRecvError::Ended {
        peer: peer(),
        channel: channel(),
        landed_bytes: 3,
        length_bytes: 9,
        cause,
    };
    errors!(
        texts,
        DeltaSendError::Open(OpenError::Connect(connect())),
        DeltaSendError::Channel(lost("lines")),
        DeltaSendError::Unfinished { peer: peer(), channel: channel(), committed: 3, length: 9 },
        DeltaSendError::Part(PartError::Range { asked: 3..12, length: 9 }),
        DeltaSendError::Source { peer: peer(), channel: channel(), source: Box::new(ended(None)) },
        DeltaSendError::Gone { peer: peer(), channel: channel() },
        DeltaSendError::Over { peer: peer(), channel: channel() },
        DeltaSendError::Refused { peer: peer(), channel: channel(), loss: cause() },
        DeltaSendError::Stopped { peer: peer(), channel: channel() },
        DeltaSendError::NoRoom { peer: peer(), channel: channel() },
        DeltaSendError::Collective(GroupError::Lost { rank: 1, loss: cause() }.into()),
        DeltaRecvError::Accept(late()),
        DeltaRecvError::Channel(received()),
        DeltaRecvError::Opening { peer: peer(), channel: channel(), fault: DeltaFault::Magic },
        DeltaRecvError::Frame { peer: peer(), channel: channel(), fault: DeltaFault::Cause },
        ended(None) => DeltaRecvError::Ended,
        ended(Some(cause())) => DeltaRecvError::Ended,
        DeltaRecvError::Range { channel: channel(), start: 3, end: 12, length: 9 },
        DeltaRecvError::Late { channel: channel(), start: 3, end: 5 },
        DeltaRecvError::Combine { peer: peer(), channel: channel(), loss: cause() },
        DeltaRecvError::Collective(GroupError::Lost { rank: 1, loss: cause() }.into()),
    );
}

fn faults(texts: &mut Texts) {
    let (asked, taken) = (|| 3..12, || 5..7);
    errors!(
        texts,
        PartError::Range { asked: asked(), length: 9 },
        PartError::Out { asked: asked(), taken: taken() },
        PartError::Committed { asked: asked(), taken: taken() },
        DeltaFault::Length { bytes: 3 },
        DeltaFault::Magic,
        DeltaFault::Version { theirs: 77 },
        DeltaFault::Element,
        DeltaFault::Late,
        DeltaFault::Kind { kind: 9 },
        DeltaFault::Round { theirs: 3, ours: 2 },
        DeltaFault::Outside { offset: 7, bytes: 9 },
        DeltaFault::Twice { start: 3, end: 5 },
        DeltaFault::End { end: 9, landed: 3 },
        DeltaFault::Cause,
    );
}

fn groups(texts: &mut Texts) {
    let differs = differing_calls();
    let GroupError::Differs(difference) = &differs.cause else { panic!("{differs}") };
    texts.words("CallDifference", difference);
    texts.error("CollectiveError", &differs);
    errors!(
        texts,
        "rn\nig".parse::<Algorithm>().unwrap_err() => ParseAlgorithmError,
        GroupError::Lost { rank: 1, loss: death().into() },
        GroupError::Lost { rank: 1, loss: Loss::new(LossKind::Left, "it\nstopped") },
        GroupError::Lost { rank: 1, loss: Loss::new(LossKind::Refused, "it\nstopped") },
        differs.cause.clone() => GroupError::Differs,
        GroupError::Input { why: "there is no rank 9 in a group of 4".into() },
        GroupError::TooManyCalls { bound: 65_536, rank: 1 },
        GroupError::Agree(refused_agreement()),
        GroupError::Ended(End::Left),
        GroupError::Closed,
    );
}

/// The error of a rank that adds where another one waits at a barrier.
fn differing_calls() -> CollectiveError<Vec<u64>> {
    let error = Arc::new(Mutex::new(None));
    let told = Arc::clone(&error);
    // A simulation runs within no other runtime.
    let simulated = std::thread::spawn(move || {
        on_each(1, 2, &[], move |rank, cluster| {
            let told = Arc::clone(&told);
            async move {
                let mut group = Group::world(&cluster).await.unwrap();
                if rank == 0 {
                    let sums = group.all_reduce(vec![1_u64; 3], Op::sum()).await;
                    *told.lock().unwrap() = sums.err();
                } else {
                    group.barrier().await.unwrap_err();
                }
            }
        });
    });
    simulated.join().unwrap();
    error.lock().unwrap().take().unwrap()
}

pub(super) fn late() -> AcceptError {
    AcceptError::Lost { channel: "lines".into(), error: link(LinkCause::Io(said())) }
}

pub(super) fn received() -> RecvError {
    RecvError::Lost { channel: "lines".into(), link: link(LinkCause::Io(said())), arrived: 3 }
}
