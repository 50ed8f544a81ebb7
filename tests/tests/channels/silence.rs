//! Peers that say little or nothing: a peer by hand, and a clock that moves only by command.

use bytes::Bytes;
use chunkcomm::proto::packet::{AppendRecords, Header};
use chunkcomm::{BytesReceiver, BytesSender, Node, NodeBuilder, Silence};
use chunkcomm_testkit::raw::{RawPeer, run_of};
use chunkcomm_testkit::still::StandsStill;
use chunkcomm_testkit::{limited, messages_of, on_one_thread, tcp};
use std::time::Duration;

const DEAD: Duration = Duration::from_millis(400);

/// Step of the clock, short against [`DEAD`] and against the lateness that is noticed.
const STEP: Duration = Duration::from_millis(40);

/// A node that waits for the acknowledgement of a message by a peer by hand.
struct Waiting {
    node: Node,
    raw: RawPeer,
    sender: BytesSender,
    _receiver: BytesReceiver,
    still: StandsStill,
}

impl Waiting {
    async fn new() -> Waiting {
        Waiting::of(Node::builder()).await
    }

    async fn of(builder: NodeBuilder) -> Waiting {
        let ms = Duration::from_millis;
        let hasty = builder.silence(Silence { probe: ms(20), suspect: ms(100), dead: DEAD });
        let node = hasty.listen(tcp()).build().await.unwrap();
        let mut raw = RawPeer::connect(&node).await;
        raw.open(1, "by hand").await;
        raw.packet(|body| body.open_credit(1 << 20)).await;
        let (peer, receiver) = limited(node.accept_bytes("by hand")).await.unwrap();
        let mut sender = limited(node.open_bytes(&peer, "answers")).await.unwrap();
        limited(sender.send(Bytes::from_static(b"waits"))).await.unwrap();
        let came = raw.find(|item| match item {
            chunkcomm::proto::packet::Item::Open(_) => Some(()),
            _ => None,
        });
        limited(came).await.unwrap();
        Waiting { node, raw, sender, _receiver: receiver, still: StandsStill::begin() }
    }

    fn lives(&self) -> bool {
        self.sender.peer().is_alive()
    }

    /// Passes `steps` steps without a word of the peer; none of them is late.
    async fn silent(&mut self, steps: u32) {
        for _ in 0..steps {
            self.still.passes(STEP).await;
        }
    }
}

/// Returns the number of steps until a silent peer's session is dead, and as many again.
fn steps_to_death() -> u32 {
    (2 * DEAD.as_millis()).div_ceil(STEP.as_millis()) as u32
}

#[test]
fn whoever_says_nothing_is_dead_after_its_time() {
    on_one_thread(async {
        let mut waiting = Waiting::new().await;
        waiting.silent(5).await;
        assert!(waiting.lives());
        waiting.silent(steps_to_death()).await;
        assert!(!waiting.lives());
    });
}

/// Checks the extra time of a peer that decodes a message of gigabytes on the thread of its driver,
/// and says nothing for long.
#[test]
fn whoever_may_take_larger_messages_is_given_the_time_to_decode_them() {
    on_one_thread(async {
        // Two seconds for the bytes above the default.
        let builder = Node::builder().limits(messages_of(3 * 32 * 1024 * 1024));
        let mut waiting = Waiting::of(builder).await;
        waiting.silent(steps_to_death()).await;
        assert!(waiting.lives());
        waiting.silent(2 * 1_000 / STEP.as_millis() as u32).await;
        assert!(!waiting.lives());
    });
}

#[test]
fn any_byte_is_a_sign_of_life() {
    on_one_thread(async {
        let mut waiting = Waiting::new().await;
        // A packet that takes five times the time that a silent peer has.
        let body = run_of(&[&[7; 100]]);
        let header =
            Header { body_bytes: body.len() as u32 + 16, sequence: 3, ..Header::default() };
        let mut packet = header.encode().to_vec();
        packet.run(1, body.len() as u32, 1);
        packet.extend_from_slice(&body);
        for part in packet.chunks(3) {
            waiting.raw.bytes(part).await;
            waiting.still.passes(STEP).await;
            assert!(waiting.lives());
        }
        assert!(STEP * (packet.len() / 3) as u32 > 4 * DEAD);
        waiting.silent(steps_to_death()).await;
        assert!(!waiting.lives());
    });
}

#[test]
fn who_looks_late_gives_its_peer_more_time() {
    on_one_thread(async {
        let mut waiting = Waiting::new().await;
        // The node seems to have been stopped: its look at the clock comes ten times too late.
        waiting.still.passes(10 * DEAD).await;
        waiting.silent(2).await;
        assert!(waiting.lives(), "{}", waiting.node.explain().await);
        waiting.silent(steps_to_death()).await;
        assert!(!waiting.lives());
    });
}
