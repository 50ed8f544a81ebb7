//! Types that panic at made-up values, and types of many parts.

use std::cell::Cell;

use super::*;

#[derive(Serialize, Deserialize)]
struct Raw {
    data: Vec<f32>,
}

/// A type with an invariant: its `From` asserts what every sender keeps.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Raw", into = "Raw")]
struct Rotation([f32; 9]);

impl From<Raw> for Rotation {
    fn from(raw: Raw) -> Self {
        Rotation(raw.data.try_into().expect("nine elements"))
    }
}

impl From<Rotation> for Raw {
    fn from(it: Rotation) -> Self {
        Raw { data: it.0.to_vec() }
    }
}

#[derive(Serialize, Deserialize)]
struct Turned {
    by: Rotation,
    times: Option<u32>,
}

/// A type that asserts something of a value that it has just read, and when it is written or
/// dropped.
#[derive(Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
struct Touchy(u8);

impl From<u8> for Touchy {
    fn from(number: u8) -> Self {
        Touchy(number)
    }
}

impl Clone for Touchy {
    fn clone(&self) -> Self {
        panic!("{} is not to be written", self.0)
    }
}

impl From<Touchy> for u8 {
    fn from(_: Touchy) -> u8 {
        unreachable!("the clone panics")
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        panic!("{} is not to be dropped", self.0);
    }
}

#[test]
fn a_type_that_panics_is_described_as_one_that_refuses() {
    let rotation = describe::<Rotation>();
    assert_eq!((&*rotation.text, rotation.refusal()), ("Raw{data: [f32]}", None));
    let turned = describe::<Turned>();
    assert_eq!((&*turned.text, turned.refusal()), ("Turned{by: Raw{data: [f32]}, times: ?}", None));
    assert!(!turned.complete);
    assert_eq!(describe::<Touchy>().text, "u8");
    assert_eq!(describe::<Vec<Rotation>>().text, "[Raw{data: [f32]}]");
}

thread_local! {
    static WRITTEN: Cell<u32> = const { Cell::new(0) };
}

/// A type that panics whenever it is written.
#[derive(Deserialize)]
enum Unwritable {
    Open(Option<bool>, Vec<u8>),
    Close,
}

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        WRITTEN.set(WRITTEN.get() + 1);
        match self {
            Unwritable::Open(flag, bytes) => panic!("{flag:?} {bytes:?} is not to be written"),
            Unwritable::Close => panic!("the end is not to be written"),
        }
    }
}

#[test]
fn a_type_that_panics_when_it_is_written_is_written_once() {
    let unwritable = describe::<Unwritable>();
    assert_eq!(unwritable.text, "enum Unwritable{Open(option<bool>, [u8]) | Close}");
    assert_eq!((unwritable.refusal(), unwritable.complete), (None, true));
    assert_eq!(WRITTEN.get(), 1);
}

macro_rules! wide {
    ($($variant:ident $number:literal)+) => {
        /// A type of 40 enums of 40 variants, each of which contains the whole again.
        #[derive(Serialize, Deserialize)]
        enum Wide {
            $($variant(Inner<[u8; $number]>),)+
        }

        #[derive(Serialize, Deserialize)]
        enum Inner<T> {
            $($variant { number: u32, next: Option<Box<Wide>>, of: PhantomData<T> },)+
        }
    };
}

wide! {
    V0 0 V1 1 V2 2 V3 3 V4 4 V5 5 V6 6 V7 7 V8 8 V9 9 V10 10 V11 11 V12 12 V13 13 V14 14 V15 15
    V16 16 V17 17 V18 18 V19 19 V20 20 V21 21 V22 22 V23 23 V24 24 V25 25 V26 26 V27 27 V28 28
    V29 29 V30 30 V31 31 V32 32 V33 33 V34 34 V35 35 V36 36 V37 37 V38 38 V39 39
}

#[test]
fn a_wide_type_is_described_by_few_steps() {
    let wide = describe::<Wide>();
    assert!(wide.complete && wide.refusal().is_none());
    let (mut explorer, mut passes) = (Explorer::default(), 0);
    while explorer.begin_pass() {
        let value = Wide::deserialize(Probe::of_root(&mut explorer)).ok();
        if let Some(value) = &value {
            explorer.compare(value);
        }
        explorer.end_pass(value.is_some());
        passes += 1;
    }
    // A pass sees one variant of each enum.
    assert!((1600..1700).contains(&passes), "{passes} passes");
}
