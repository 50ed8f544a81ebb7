//! Layers that stand on a node.

use chunkcomm::layer::{self, Answer, Expected, Hooks, Layer, Link, Next, Opened, Site};
use chunkcomm::{Node, SendError};
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair, pair_of, tcp};
use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use std::future::poll_fn;
use std::sync::Mutex;

const WORDS: &str = "\0test.words";
const EXPECTED: &str = "\0test.expected/";
const FORM: &str = "numbers/1";

/// Settings of the layer that this file is about.
#[derive(Debug, Clone, Default)]
struct Greeting(String);

/// A layer that keeps the channels that peers open to it.
struct Greeter {
    greeting: String,
    site: Site,
    opened: Mutex<Vec<Opened>>,
}

impl Layer for Greeter {
    type Settings = Greeting;

    const NAME: &'static str = "test.greeter";
    const VERSIONS: (u16, u16) = (1, 1);
    const NAMES: &'static [&'static str] = &[WORDS, EXPECTED];

    fn start(Greeting(greeting): Greeting, site: Site) -> Greeter {
        Greeter { greeting, site, opened: Mutex::default() }
    }
}

impl Hooks for Greeter {
    fn opened(&self, opened: Opened) -> Answer {
        if opened.name().starts_with(EXPECTED) {
            return Answer::Expected(Box::new(opened));
        }
        if !opened.is_words(FORM) {
            return Answer::Refused(Box::new(opened));
        }
        self.opened.lock().unwrap().push(opened);
        Answer::Taken
    }

    fn explain(&self) -> Vec<String> {
        vec![format!("greets by {:?}", self.greeting)]
    }
}

/// Two nodes of which the first has the layer from its start.
async fn greeting_pair() -> Pair {
    let mut a = Node::builder();
    Greeter::settings(&mut a).0 = "hello".to_owned();
    pair_of(tcp(), a, Node::builder()).await
}

/// Takes a word from the first channel that a peer opened to the layer.
async fn word(greeter: &Greeter) -> u64 {
    chunkcomm_testkit::until(|| !greeter.opened.lock().unwrap().is_empty()).await;
    let mut words = greeter.opened.lock().unwrap().remove(0).into_receiver();
    loop {
        if let Some(word) = words.take_with(chunkcomm::codec::decode::<u64>) {
            return word.unwrap();
        }
        let next = limited(poll_fn(|context| words.poll_next(context))).await;
        assert!(matches!(next, Next::Message), "{next:?}");
    }
}

#[test]
fn a_layer_gets_the_channels_with_its_names() {
    on_both(|| async {
        let pair = greeting_pair().await;
        let link = Link::of(&pair.peer);
        let mut sender = link.open_words(WORDS, FORM).unwrap();
        sender.send(&42_u64).await.unwrap();
        sender.urgent();
        assert_eq!(word(&Greeter::of(&pair.a)).await, 42);
        // Words of another form are refused by the layer.
        let mut other = link.open_words(WORDS, "numbers/2").unwrap();
        assert!(matches!(limited(other.failed()).await, SendError::Refused(_)));
    });
}

#[test]
fn a_node_without_the_layer_refuses_its_names_at_once() {
    on_one_thread(async {
        let pair = pair().await;
        let link = Link::of(&pair.peer);
        for name in [WORDS, "\0test.expected/1"] {
            let mut sender = link.open_words(name, FORM).unwrap();
            assert!(matches!(limited(sender.failed()).await, SendError::Refused(_)), "{name:?}");
        }
        // The layer that is started by its first use takes what comes from then on.
        let greeter = Greeter::of(&pair.a);
        assert_eq!(greeter.greeting, "");
        let mut sender = link.open_words(WORDS, FORM).unwrap();
        sender.send(&7_u64).await.unwrap();
        sender.urgent();
        assert_eq!(word(&greeter).await, 7);
    });
}

#[test]
fn expected_names_are_held_until_they_are_taken() {
    on_one_thread(async {
        let pair = greeting_pair().await;
        let link = Link::of(&pair.peer);
        let name = format!("{EXPECTED}1");
        let mut early = link.open_words(&name, FORM).unwrap();
        assert!(matches!(limited(early.failed()).await, SendError::Refused(_)));
        let expected = Expected::begin(&pair.a, name.clone()).unwrap();
        assert!(Expected::begin(&pair.a, name.clone()).is_none(), "it is expected already");
        let _taken = link.open_words(&name, FORM).unwrap();
        assert_eq!(limited(expected.take()).await.unwrap().name(), name);
        let mut held = link.open_words(&name, FORM).unwrap();
        held.send(&1_u64).await.unwrap();
        expected.end();
        let failed = limited(held.failed()).await;
        assert!(matches!(failed, SendError::Refused(_) | SendError::Terminated(_)), "{failed}");
        assert!(Expected::begin(&pair.a, name).is_some(), "its name is free");
    });
}

#[test]
fn a_layer_has_settings_a_report_and_a_node_that_may_end() {
    on_one_thread(async {
        let pair = greeting_pair().await;
        let report = limited(pair.a.explain()).await;
        assert_eq!(report.layers, ["greets by \"hello\""]);
        assert!(report.to_string().contains("\n  greets by \"hello\""), "{report}");
        let greeter = Greeter::of(&pair.a);
        assert_eq!(greeter.site.name, "a");
        assert_eq!(greeter.site.node.upgrade().unwrap().incarnation(), pair.a.incarnation());
        let node = pair.a.downgrade();
        drop(pair);
        chunkcomm_testkit::until(|| node.upgrade().is_none()).await;
        assert!(greeter.site.node.upgrade().is_none());
    });
}

/// A value that knows the link by which it came.
struct Stamped(Option<Link>);

impl Serialize for Stamped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Stamped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stamped, D::Error> {
        layer::needs_link();
        <()>::deserialize(deserializer)?;
        Ok(Stamped(layer::arriving().map(|(_, link)| link)))
    }
}

#[test]
fn values_may_learn_the_link_by_which_they_came() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<Stamped>("stamped").await;
        sender.send(&Stamped(None)).await.unwrap();
        let Stamped(link) = limited(receiver.recv()).await.unwrap().unwrap();
        assert_eq!(link, Some(Link::of(receiver.peer())));
        assert!(layer::arriving().is_none(), "nothing is decoded now");
    });
}

/// A layer that uses another one while it starts.
struct Upper;

impl Layer for Upper {
    type Settings = ();

    const NAME: &'static str = "test.upper";
    const VERSIONS: (u16, u16) = (1, 1);
    const NAMES: &'static [&'static str] = &[];

    fn start((): (), site: Site) -> Upper {
        let node = site.node.upgrade().unwrap();
        assert!(Greeter::started(&node).is_none());
        let _lower = Greeter::of(&node);
        assert_eq!(Link::all_of(&node).len(), 1);
        Upper
    }
}

impl Hooks for Upper {}

#[test]
fn a_layer_may_use_the_node_and_another_layer_while_it_starts() {
    on_one_thread(async {
        let pair = pair().await;
        let _upper = Upper::of(&pair.a);
        assert!(Greeter::started(&pair.a).is_some());
    });
}
