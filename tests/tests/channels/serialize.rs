//! Values whose `Serialize` misbehaves.

use chunkcomm::codec::{DEPTH_MAX, EncodeError};
use chunkcomm::{Peer, SendError, Sender, TrySendError};
use chunkcomm_testkit::{all, limited, on_both, pair};
use serde::ser::{Error as _, SerializeStruct};
use serde::{Deserialize, Serialize, Serializer};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Behaviour of a value half-way through its encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Habit {
    #[default]
    Good,
    Panics,
    Errs,
    /// Sends on the senders in [`INNER`].
    Sends,
}

#[derive(Deserialize, Debug, PartialEq)]
struct Odd {
    number: u64,
    padding: String,
    #[serde(skip)]
    habit: Habit,
}

impl Odd {
    fn new(number: u64, bytes: usize, habit: Habit) -> Odd {
        Odd { number, padding: "5".repeat(bytes), habit }
    }
}

thread_local! {
    /// Senders that are used while another message is being encoded.
    static INNER: RefCell<Vec<Sender<Odd>>> = const { RefCell::new(Vec::new()) };
}

impl Serialize for Odd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Odd", 2)?;
        fields.serialize_field("number", &self.number)?;
        match self.habit {
            Habit::Good => {}
            Habit::Panics => panic!("half-way"),
            Habit::Errs => return Err(S::Error::custom("not this one")),
            Habit::Sends => INNER.with_borrow_mut(|inner| {
                for sender in inner {
                    let value = Odd::new(self.number + 1000, self.padding.len(), Habit::Good);
                    sender.try_send(&value).unwrap();
                }
            }),
        }
        fields.serialize_field("padding", &self.padding)?;
        fields.end()
    }
}

/// Padding of messages that lie in the ring, that fill it, and that do not fit.
const SIZES: [usize; 3] = [3, 5000, 50_000];

#[test]
fn one_that_panics_leaves_nothing_behind() {
    for cloned in [false, true] {
        on_both(move || async move {
            let pair = pair().await;
            for size in SIZES {
                let (mut sender, mut receiver) = pair.channel::<Odd>("panics").await;
                let _clone = cloned.then(|| sender.clone());
                let mut expected = Vec::new();
                for number in 0..20 {
                    sender.send(&Odd::new(number, size, Habit::Good)).await.unwrap();
                    expected.push(number);
                    let bad = Odd::new(number, size, Habit::Panics);
                    let sending = AssertUnwindSafe(|| sender.try_send(&bad));
                    assert!(catch_unwind(sending).is_err());
                    let got = limited(receiver.recv()).await.unwrap().unwrap();
                    assert!(got == Odd::new(number, size, Habit::Good));
                }
                assert_eq!(sender.stats().accepted, 20);
                let other = Odd::new(99, 1, Habit::Good);
                sender.send(&other).await.unwrap();
                assert_eq!(limited(receiver.recv()).await.unwrap(), Some(other));
            }
            pair.is_well("others").await;
        });
    }
}

#[test]
fn one_that_errs_concerns_itself_only() {
    for cloned in [false, true] {
        on_both(move || async move {
            let pair = pair().await;
            for size in SIZES {
                let (mut sender, mut receiver) = pair.channel::<Odd>("errs").await;
                let _clone = cloned.then(|| sender.clone());
                for number in 0..20 {
                    let error =
                        sender.send(&Odd::new(number, size, Habit::Errs)).await.unwrap_err();
                    assert!(matches!(error, SendError::Encode(_)));
                    let cause = std::error::Error::source(&error).unwrap().to_string();
                    assert!(cause.contains("not this one"), "{cause}");
                    let error = sender.try_send(&Odd::new(number, size, Habit::Errs)).unwrap_err();
                    assert!(matches!(error, TrySendError::Failed(SendError::Encode(_))));
                    sender.send(&Odd::new(number, size, Habit::Good)).await.unwrap();
                    let got = limited(receiver.recv()).await.unwrap().unwrap();
                    assert!(
                        got == Odd::new(number, size, Habit::Good),
                        "message {number} of {size}"
                    );
                }
                assert_eq!(sender.stats().accepted, 20);
            }
        });
    }
}

/// Sends values that send on `inner` meanwhile; the futures stay on one thread.
async fn send_nested(mut outer: Sender<Odd>, inner: Sender<Odd>, sizes: [usize; 3]) {
    let mut number = 0;
    for size in sizes {
        for _ in 0..10 {
            let value = Odd::new(number, size, Habit::Sends);
            INNER.with_borrow_mut(|senders| senders.push(inner.clone()));
            outer.try_send(&value).unwrap();
            INNER.with_borrow_mut(Vec::clear);
            outer.flush().await.unwrap();
            number += 1;
        }
    }
}

#[test]
fn one_that_sends_on_a_clone_of_its_own_sender_waits_for_nobody() {
    on_both(|| async {
        let pair = pair().await;
        let (sender, mut receiver) = pair.channel::<Odd>("nested").await;
        let inner = sender.clone();
        let sending = tokio::spawn(send_nested(sender, inner, SIZES));
        // The inner message is complete first.
        for number in 0..30 {
            let size = SIZES[number as usize / 10];
            for number in [number + 1000, number] {
                let got = limited(receiver.recv()).await.unwrap().unwrap();
                assert!(got == Odd::new(number, size, Habit::Good), "message {number} of {size}");
            }
        }
        limited(sending).await.unwrap();
        assert_eq!(all(&mut receiver).await, []);
    });
}

#[test]
fn one_that_sends_on_another_channel_of_the_link_harms_neither() {
    on_both(|| async {
        let pair = pair().await;
        let (sender, mut receiver) = pair.channel::<Odd>("outer").await;
        let (inner, mut from_inner) = pair.channel::<Odd>("inner").await;
        let sending = tokio::spawn(send_nested(sender, inner, SIZES));
        for number in 0..30 {
            let size = SIZES[number as usize / 10];
            let got = limited(receiver.recv()).await.unwrap().unwrap();
            assert!(got == Odd::new(number, size, Habit::Good), "message {number} of {size}");
            // A value may be encoded twice; then it sends twice.
            let (mut got, mut again) = (0, 0);
            while got < number + 1000 {
                assert!(again < 2, "{got} for the third time");
                let inner = limited(from_inner.recv()).await.unwrap().unwrap();
                again = if inner.number == got { again + 1 } else { 0 };
                assert!(inner.number + 1 >= number + 1000 && inner.padding.len() == size);
                got = inner.number;
            }
        }
        limited(sending).await.unwrap();
    });
}

#[test]
fn one_of_ten_megabytes_passes_and_what_follows_too() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<Odd>("ten").await;
        let sending = tokio::spawn(async move {
            for number in 0..3 {
                sender.send(&Odd::new(number, 10_000_000, Habit::Good)).await.unwrap();
                sender.send(&Odd::new(number, 1, Habit::Good)).await.unwrap();
            }
        });
        for number in 0..3 {
            for size in [10_000_000, 1] {
                let got = limited(receiver.recv()).await.unwrap().unwrap();
                assert!(got.number == number && got.padding.len() == size);
            }
        }
        limited(sending).await.unwrap();
        let _: &Peer = receiver.peer();
        pair.is_well("others").await;
    });
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct List {
    value: u8,
    next: Option<Box<List>>,
}

impl List {
    /// Returns a list with `others` further lists within each other.
    fn of(others: u32) -> List {
        let first = List { value: 0, next: None };
        (0..others).fold(first, |list, _| List { value: 1, next: Some(Box::new(list)) })
    }
}

#[test]
fn a_value_that_nobody_would_decode_is_refused_where_it_is_sent() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<List>("deep").await;
        for cloned in [false, true] {
            let _clone = cloned.then(|| sender.clone());
            let error = limited(sender.send(&List::of(DEPTH_MAX + 1))).await.unwrap_err();
            let SendError::Encode(cause) = &error else { panic!("{error}") };
            assert!(matches!(**cause, EncodeError::Refused(_)), "{cause}");
            assert!(format!("{error:?}").contains("128 values"), "{error:?}");
            let none = limited(sender.send_all([List::of(DEPTH_MAX + 1)])).await.unwrap_err();
            assert!(matches!(none.error, SendError::Encode(_)), "{none}");
            // The channel is well.
            limited(sender.send(&List::of(DEPTH_MAX))).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(List::of(DEPTH_MAX)));
        }
    });
}
