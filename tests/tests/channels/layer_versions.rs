//! Versions of layers: each layer agrees on its own, and names itself where it cannot.

use chunkcomm::error::HelloCause;
use chunkcomm::layer::{Answer, Hooks, Layer, Link, Opened, Site};
use chunkcomm::proto::hello::{Disagreement, Hello, LayerRange, layer_hash};
use chunkcomm::{ConnectError, Node, NodeBuilder, NodeError, Peer};
use chunkcomm_testkit::raw::{RawPeer, good_hello, socket_address};
use chunkcomm_testkit::{Pair, limited, memory, on_both, on_one_thread, pair_of, tcp, until};
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A layer that only has versions; layers of other numbers are others.
struct Numbered<const NUMBER: usize>;

const NAMES: [&str; 5] = ["test.none", "test.one", "test.two", "test.three", "test.four"];

impl<const NUMBER: usize> Layer for Numbered<NUMBER> {
    type Settings = ();

    const NAME: &'static str = NAMES[NUMBER];

    const VERSIONS: (u16, u16) = (2, 7);

    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _site: Site) -> Self {
        Numbered
    }
}

impl<const NUMBER: usize> Hooks for Numbered<NUMBER> {
    fn opened(&self, opened: Opened) -> Answer {
        Answer::Refused(Box::new(opened))
    }
}

type One = Numbered<1>;
type Two = Numbered<2>;

/// Returns settings of a node that speaks these versions of layer one.
fn speaking(versions: RangeInclusive<u16>) -> NodeBuilder {
    let mut builder = Node::builder();
    One::set_versions(&mut builder, versions);
    builder
}

/// Returns `node`'s view of the peer that dialled it.
async fn dialler(node: &Node) -> Peer {
    until(|| !Link::all_of(node).is_empty()).await;
    Link::all_of(node).remove(0).peer(node)
}

#[test]
fn nodes_use_the_newest_common_version_of_each_layer() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            let (mut older, mut newer) = (speaking(2..=5), speaking(4..=7));
            // The order of the layers does not count.
            let mut both = Node::builder();
            Two::settings(&mut both);
            One::set_versions(&mut both, 3..=3);
            Two::settings(&mut older);
            Two::set_versions(&mut newer, 2..=3);
            let older = older.listen(address).build().await.unwrap();
            let at = &older.addresses()[0];
            let newer = newer.build().await.unwrap();
            let peer = newer.connect(at).await.unwrap();
            let back = dialler(&older).await;
            for peer in [&peer, &back] {
                assert_eq!(One::version(&Link::of(peer)), 5);
                assert_eq!(Two::version(&Link::of(peer)), 3);
            }
            let both = both.build().await.unwrap();
            let peer = both.connect(at).await.unwrap();
            assert_eq!((One::version(&Link::of(&peer)), Two::version(&Link::of(&peer))), (3, 7));
            // A node is its own peer by its newest version.
            let own = newer.local().await.unwrap();
            assert_eq!((One::version(&Link::of(&own)), Two::version(&Link::of(&own))), (7, 3));
        }
    });
}

#[test]
fn without_a_common_version_both_nodes_name_the_layer() {
    on_both(|| async {
        let pair = pair_of(tcp(), speaking(2..=4), speaking(3..=3)).await;
        let other = speaking(5..=7).build().await.unwrap();
        let address = &pair.a.addresses()[0];
        let error = limited(other.connect_within(address, Duration::from_secs(5))).await;
        let error = error.unwrap_err();
        let text = error.to_string();
        let ConnectError::Hello { cause, .. } = error else { panic!("{text}") };
        let named = Disagreement::Layer {
            hash: layer_hash("test.one"),
            name: Some("test.one"),
            ours: (5, 7),
            theirs: (2, 4),
        };
        assert!(matches!(cause, HelloCause::Disagreement(why) if why == named), "{cause}");
        let why = "no common version of test.one: we speak 5 to 7, the peer 2 to 4";
        assert!(chunkcomm::with_causes(&cause).contains(why), "{cause}");
        until(|| !pair.a.refusals().is_empty()).await;
        let why = "no common version of test.one: we speak 2 to 4, the peer 5 to 7";
        assert!(pair.a.refusals()[0].contains(why), "{:?}", pair.a.refusals());
        pair.is_well("others").await;
    });
}

#[test]
fn a_layer_that_starts_late_speaks_its_oldest_version() {
    on_both(|| async {
        let pair = pair_of(tcp(), speaking(2..=7), Node::builder()).await;
        let back = dialler(&pair.a).await;
        One::of(&pair.b);
        assert_eq!(One::version(&Link::of(&pair.peer)), 2);
        assert_eq!(One::version(&Link::of(&back)), 2);
        // The hello stays as it was, and with it later agreements.
        let late = speaking(2..=7).build().await.unwrap();
        let peer = late.connect(&pair.a.addresses()[0]).await.unwrap();
        assert_eq!(One::version(&Link::of(&peer)), 7);
        let own = pair.b.local().await.unwrap();
        assert_eq!(One::version(&Link::of(&own)), 2);
        // Both start it late.
        Two::of(&pair.a);
        Two::of(&pair.b);
        for peer in [&pair.peer, &back] {
            assert_eq!(Two::version(&Link::of(peer)), 2);
        }
    });
}

/// As another release that speaks no version below 4, a node uses the oldest that it speaks.
#[test]
fn without_an_agreement_the_oldest_version_is_that_of_the_settings() {
    on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder(), speaking(4..=6)).await;
        assert_eq!(One::version(&Link::of(&pair.peer)), 4);
    });
}

#[test]
fn the_hello_has_the_layers_that_start_with_the_node() {
    on_one_thread(async {
        let mut settings = speaking(3..=6).listen(tcp());
        Two::settings(&mut settings);
        let node = settings.build().await.unwrap();
        Numbered::<3>::of(&node);
        let raw = RawPeer::connect(&node).await;
        let empty = LayerRange::default();
        let (one, two) = (LayerRange::new("test.one", (3, 6)), LayerRange::new("test.two", (2, 7)));
        assert_eq!(raw.theirs.layers, [one, two, empty, empty]);
        // A layer that this node does not have is no reason to refuse its node.
        let mut layers = [empty; 4];
        layers[3] = LayerRange::new("test.unknown", (40, 41));
        let unknown = Hello { layers, ..good_hello() };
        let mut stream = TcpStream::connect(socket_address(&node)).await.unwrap();
        stream.write_all(&unknown.encode()).await.unwrap();
        layers[0] = LayerRange::new("test.two", (8, 9));
        let newer = Hello { layers, ..good_hello() };
        let mut other = TcpStream::connect(socket_address(&node)).await.unwrap();
        other.write_all(&newer.encode()).await.unwrap();
        until(|| !node.refusals().is_empty()).await;
        let refusals = node.refusals();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert!(refusals[0].contains("test.two: we speak 2 to 7, the peer 8 to 9"), "{refusals:?}");
        let b = Node::builder().build().await.unwrap();
        let peer = b.connect(&node.addresses()[0]).await.unwrap();
        Pair { a: node, b, peer }.is_well("others").await;
    });
}

#[test]
fn layers_that_a_hello_cannot_name_are_an_error() {
    on_one_thread(async {
        let mut many = Node::builder();
        Numbered::<0>::settings(&mut many);
        Numbered::<1>::settings(&mut many);
        Numbered::<2>::settings(&mut many);
        Numbered::<3>::settings(&mut many);
        many.clone().build().await.unwrap();
        Numbered::<4>::settings(&mut many);
        let error = many.build().await.unwrap_err();
        assert!(matches!(error, NodeError::Setting { name: "layers", .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&NAMES.join(", ")) && text.contains("at most 4"), "{text}");
        // Two layers of one name would be one for a peer.
        let mut twins = speaking(2..=7);
        Twin::settings(&mut twins);
        let text = twins.build().await.unwrap_err().to_string();
        assert!(text.contains("test.one, test.one"), "{text}");
    });
}

/// Another layer with the name of layer one.
struct Twin;

impl Layer for Twin {
    type Settings = ();

    const NAME: &'static str = NAMES[1];

    const VERSIONS: (u16, u16) = (1, 1);

    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _site: Site) -> Twin {
        Twin
    }
}

impl Hooks for Twin {
    fn opened(&self, opened: Opened) -> Answer {
        Answer::Refused(Box::new(opened))
    }
}
