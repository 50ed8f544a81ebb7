use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::marker::PhantomData;
use std::num::{NonZeroI8, NonZeroU64};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::*;

mod attributes;
mod bounds;

/// Describes a type; checks that everything was found out.
fn text<T: Serialize + DeserializeOwned>() -> String {
    let description = describe::<T>();
    assert!(description.complete, "{}", description.text);
    assert_eq!(description.refusal(), None, "{}", description.text);
    assert_eq!(description, describe::<T>(), "not the same twice");
    description.text
}

macro_rules! shape {
    ($item:item) => {
        #[derive(Serialize, Deserialize)]
        $item
    };
}

#[test]
fn values_without_parts() {
    assert_eq!(text::<u8>(), "u8");
    assert_eq!(text::<(i16, i32, i64, i128)>(), "(i16, i32, i64, i128)");
    assert_eq!(text::<(u16, u32, u64, u128)>(), "(u16, u32, u64, u128)");
    assert_eq!(text::<(usize, isize)>(), "(u64, i64)");
    assert_eq!(text::<(bool, char, f32, f64, i8)>(), "(bool, char, f32, f64, i8)");
    assert_eq!(text::<((), String)>(), "((), str)");
    assert_eq!(text::<bytes_like::Bytes>(), "bytes");
}

#[test]
fn containers() {
    assert_eq!(text::<Vec<u32>>(), "[u32]");
    assert_eq!(text::<Option<Option<u8>>>(), "option<option<u8>>");
    assert_eq!(text::<[u8; 32]>(), "[u8; 32]");
    assert_eq!(text::<[[f32; 3]; 2]>(), "[[f32; 3]; 2]");
    assert_eq!(text::<HashMap<String, Vec<u8>>>(), "map<str, [u8]>");
    assert_eq!(text::<BTreeMap<u8, u8>>(), "map<u8, u8>");
    assert_eq!(text::<(HashSet<u8>, VecDeque<u8>)>(), "[[u8]; 2]");
    assert_eq!(text::<Box<(u8, u16)>>(), "(u8, u16)");
}

#[test]
fn library_types() {
    assert_eq!(text::<NonZeroU64>(), "u64");
    assert_eq!(text::<NonZeroI8>(), "i8");
    assert_eq!(text::<Duration>(), "Duration{secs: u64, nanos: u32}");
    assert_eq!(text::<Range<u16>>(), "Range{start: u16, end: u16}");
    assert_eq!(text::<PathBuf>(), "str");
    assert_eq!(text::<Ipv4Addr>(), "[u8; 4]");
    assert_eq!(text::<IpAddr>(), "enum IpAddr{V4([u8; 4]) | V6([u8; 16])}");
    assert_eq!(text::<SocketAddr>(), "enum SocketAddr{V4(([u8; 4], u16)) | V6(([u8; 16], u16))}");
    assert_eq!(text::<Result<u8, String>>(), "enum Result{Ok(u8) | Err(str)}");
}

shape! { struct Nothing; }
shape! { struct Meters(f64); }
shape! { struct Pair(u8, String); }
shape! { struct Empty {} }
shape! { struct Wrap<T> { inner: T } }
shape! { struct Both { a: Wrap<u8>, b: Wrap<u16>, c: Wrap<u8> } }
shape! { #[serde(transparent)] struct Seen { hidden: u8 } }
shape! { struct Point { x: f64, y: f64, tag: PhantomData<String> } }
shape! {
    enum Figure {
        Empty,
        Circle(Point, f64),
        Line { from: Point, to: Point },
        Label(String),
    }
}

#[test]
fn structs_and_enums() {
    assert_eq!(text::<Nothing>(), "Nothing");
    assert_eq!(text::<Meters>(), "Meters(f64)");
    assert_eq!(text::<Pair>(), "Pair(u8, str)");
    assert_eq!(text::<Empty>(), "Empty{}");
    assert_eq!(text::<Seen>(), "u8");
    assert_eq!(text::<Wrap<Wrap<u8>>>(), "Wrap{inner: Wrap#2{inner: u8}}");
    assert_eq!(text::<Both>(), "Both{a: Wrap{inner: u8}, b: Wrap#2{inner: u16}, c: ^Wrap}");
    assert_eq!(
        text::<Figure>(),
        "enum Figure{Empty | Circle(Point{x: f64, y: f64, tag: PhantomData}, f64) \
         | Line{from: ^Point, to: ^Point} | Label(str)}"
    );
}

shape! { struct List { value: u8, next: Option<Box<List>>, last: bool } }
shape! { struct Tree { children: Vec<Tree>, weight: f32 } }
shape! { #[serde(transparent)] struct Bare { children: Vec<Bare> } }
shape! { struct Dir { entries: HashMap<String, Entry> } }
shape! { enum Entry { Dir(Dir), File { bytes: u64, owner: Option<Box<Entry>> } } }
shape! {
    enum Expr {
        Add(Box<Expr>, Box<Expr>),
        Neg { of: Box<Expr>, twice: bool },
        Call(Vec<Expr>, String),
        Many([Box<Expr>; 3], u16),
        Literal(i64),
    }
}
shape! { struct Odd { even: Option<Box<Even>>, mark: u8 } }
shape! { struct Even { odd: (u16, Box<Odd>), mark: u32 } }

#[test]
fn types_that_contain_themselves() {
    assert_eq!(text::<List>(), "List{value: u8, next: option<^List>, last: bool}");
    assert_eq!(text::<Tree>(), "Tree{children: [^Tree], weight: f32}");
    assert_eq!(text::<Bare>(), "[^seq:0]");
    assert_eq!(
        text::<Dir>(),
        "Dir{entries: map<str, enum Entry{Dir(^Dir) | File{bytes: u64, owner: option<^Entry>}}>}"
    );
    assert_eq!(
        text::<Expr>(),
        "enum Expr{Add[^Expr; 2] | Neg{of: ^Expr, twice: bool} | Call([^Expr], str) \
         | Many([^Expr; 3], u16) | Literal(i64)}"
    );
    assert_eq!(text::<Odd>(), "Odd{even: option<Even{odd: (u16, ^Odd), mark: u32}>, mark: u8}");
    assert_eq!(text::<Vec<Expr>>(), format!("[{}]", text::<Expr>()));
}

shape! { enum Endless { More(Box<Endless>), Most { of: Box<Endless> } } }
shape! { enum Never {} }

#[test]
fn types_without_values_come_to_an_end() {
    assert_eq!(text::<Never>(), "enum Never{}");
    assert_eq!(describe::<Endless>().text, "enum Endless{More(^Endless) | Most{of: ^Endless}}");
    assert_eq!(text::<Result<u8, Never>>(), "enum Result{Ok(u8) | Err(enum Never{})}");
}

/// The same types and names in another module, unless said otherwise.
mod elsewhere {
    use super::*;

    shape! { pub(crate) struct List { value: u8, next: Option<Box<List>>, last: bool } }
    shape! { pub(crate) struct Both { a: Wrap<u8>, b: Wrap<u16>, c: Again<u8> } }
    shape! { #[serde(rename = "Wrap")] pub(crate) struct Again<T> { inner: T } }
    // Unrolled once, which makes no difference to its look.
    shape! { #[serde(rename = "Tree")] pub(crate) struct Outer { children: Vec<Tree>, weight: f32 } }

    pub(super) mod renamed {
        use super::*;
        shape! { pub(crate) struct List { number: u8, next: Option<Box<List>>, last: bool } }
    }
    pub(super) mod retyped {
        use super::*;
        shape! { pub(crate) struct List { value: i8, next: Option<Box<List>>, last: bool } }
    }
    pub(super) mod reordered {
        use super::*;
        shape! { pub(crate) struct List { next: Option<Box<List>>, value: u8, last: bool } }
    }
    pub(super) mod longer {
        use super::*;
        shape! { pub(crate) struct List { value: u8, next: Option<Box<List>>, last: bool, more: () } }
    }
    pub(super) mod variants {
        use super::*;
        shape! { pub(crate) enum One { A, B(u8) } }
        pub(in super::super) mod added {
            use super::*;
            shape! { pub(crate) enum One { A, B(u8), C } }
        }
        pub(in super::super) mod changed {
            use super::*;
            shape! { pub(crate) enum One { A, B(u8, u8) } }
        }
        pub(in super::super) mod swapped {
            use super::*;
            shape! { pub(crate) enum One { B(u8), A } }
        }
    }
}

#[test]
fn equal_shapes_are_equal_wherever_they_are_declared() {
    assert_eq!(describe::<List>(), describe::<elsewhere::List>());
    assert_eq!(describe::<Both>(), describe::<elsewhere::Both>());
    assert_eq!(describe::<Tree>(), describe::<elsewhere::Outer>());
}

#[test]
fn any_difference_in_names_types_order_or_variants_shows() {
    use elsewhere::{longer, renamed, reordered, retyped, variants};
    let all = [
        describe::<List>(),
        describe::<renamed::List>(),
        describe::<retyped::List>(),
        describe::<reordered::List>(),
        describe::<longer::List>(),
        describe::<variants::One>(),
        describe::<variants::added::One>(),
        describe::<variants::changed::One>(),
        describe::<variants::swapped::One>(),
        describe::<Vec<List>>(),
        describe::<Option<List>>(),
        describe::<(List,)>(),
    ];
    let hashes: HashSet<u64> = all.iter().map(|one| one.hash).collect();
    assert_eq!(hashes.len(), all.len());
    assert!(all.iter().all(|one| one.complete));
}

#[test]
fn the_hash_is_that_of_the_text() {
    // Known values of FNV-1a, so that two builds agree.
    assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    assert_eq!(describe::<u8>().hash, fnv1a(b"u8"));
}

/// A number that must have no bit set.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Parity(u32);

impl From<Parity> for u32 {
    fn from(parity: Parity) -> u32 {
        parity.0
    }
}

impl TryFrom<u32> for Parity {
    type Error = String;
    fn try_from(number: u32) -> Result<Self, String> {
        if number.count_ones() == 0 {
            Ok(Parity(number))
        } else {
            Err(format!("{number} has bits"))
        }
    }
}

/// A text that no probe guesses.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "String")]
struct Date(String);

impl TryFrom<String> for Date {
    type Error = &'static str;
    fn try_from(_: String) -> Result<Self, &'static str> {
        Err("not a date")
    }
}

#[derive(Serialize, Deserialize)]
struct Diary {
    owner: String,
    day: Date,
    page: Option<u32>,
}

#[derive(Serialize, Deserialize)]
enum Event {
    At(Date, u8),
    Soon { page: Parity, then: Box<Event> },
    Never,
}

/// A number that its own visitor turns down unless it is 0.
struct Zero;

impl Serialize for Zero {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(0)
    }
}

impl<'de> Deserialize<'de> for Zero {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyZero;
        impl Visitor<'_> for OnlyZero {
            type Value = Zero;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("zero")
            }
            fn visit_u16<E: Error>(self, number: u16) -> Result<Zero, E> {
                if number == 0 { Ok(Zero) } else { Err(E::custom("not zero")) }
            }
        }
        deserializer.deserialize_u16(OnlyZero)
    }
}

#[test]
fn types_that_turn_values_down_are_asked_again() {
    assert_eq!(text::<(Parity, NonZeroU64, bool)>(), "(u32, u64, bool)");
    assert_eq!(text::<(Zero, NonZeroU64, Zero, bool)>(), "(u16, u64, u16, bool)");
}

#[test]
fn types_that_turn_everything_down_are_described_up_to_there() {
    let diary = describe::<Diary>();
    assert_eq!(diary.text, "Diary{owner: str, day: str, page: ?}");
    assert!(!diary.complete);
    let event = describe::<Event>();
    assert_eq!(event.text, "enum Event{At(str, ?) | Soon{page: u32, then: ^Event} | Never}");
    assert!(!event.complete);
    assert_eq!(describe::<Vec<Diary>>().text, format!("[{}]", diary.text));
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(u64),
    Text(String),
}

#[derive(Serialize, Deserialize)]
struct Ignored {
    #[serde(skip_serializing)]
    _any: serde::de::IgnoredAny,
}

#[test]
fn types_that_ask_the_bytes_are_refused() {
    for one in [describe::<Loose>(), describe::<Vec<(u8, Loose)>>(), describe::<Ignored>()] {
        assert!(!one.complete);
        assert!(one.refusal().unwrap().contains("asks the bytes"), "{}", one.text);
    }
}

shape! { struct Hollow { nothing: (), unit: Nothing, marker: PhantomData<u8>, none: [u8; 0] } }
shape! { struct Full { hollow: Hollow, byte: u8 } }

#[test]
fn sequences_of_what_takes_no_bytes_are_refused() {
    let refused = [
        describe::<Vec<()>>(),
        describe::<HashMap<(), ()>>(),
        describe::<Option<Vec<Hollow>>>(),
        describe::<(u8, BTreeMap<u8, Vec<[(); 4]>>)>(),
    ];
    for one in refused {
        assert!(one.refusal().unwrap().contains("take no bytes"), "{}", one.text);
    }
    text::<Hollow>();
    text::<Vec<Full>>();
    text::<Vec<Option<()>>>();
    text::<HashMap<u8, ()>>();
    text::<Vec<Vec<u8>>>();
}

/// Ignores errors of its parts, and asks for different things each time.
#[derive(Serialize)]
struct Lenient;

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Lenient;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("parts")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Lenient, A::Error> {
                let _ = seq.next_element::<Date>();
                let _ = seq.next_element::<Loose>();
                while let Ok(Some(_)) = seq.next_element::<Lenient>() {}
                Ok(Lenient)
            }
        }
        deserializer.deserialize_tuple(usize::MAX, Parts)
    }
}

#[test]
fn types_that_ignore_errors_come_to_an_end() {
    assert!(!describe::<(Lenient, u8)>().complete);
}

#[test]
fn names_cannot_forge_structure() {
    shape! {
        struct Plain {
            #[serde(rename = "a: u8, b")]
            a: u8,
        }
    }
    assert_eq!(text::<Plain>(), "Plain{\"a: u8, b\": u8}");
}

#[test]
fn a_short_text_is_cut_between_characters() {
    shape! {
        struct Wide {
            #[serde(rename = "\u{4f60}\u{4f60}\u{4f60}")]
            a: [[[[u8; 2]; 2]; 2]; 2],
        }
    }
    let short = describe::<Wide>();
    assert_eq!(short.short(), short.text);
    for pad in 0..3 {
        let text = "x".repeat(pad) + &"\u{4f60}".repeat(TEXT_BYTES_MAX);
        let long = Description { text, ..short.clone() };
        assert!(long.short().len() <= TEXT_BYTES_MAX && long.short().ends_with("\u{4f60}.."));
        assert!(long.short().len() > TEXT_BYTES_MAX - 4);
    }
}

/// Each type is written out twice as long as the one before it, and has no name to be known by.
macro_rules! doubling {
    ($first:ident $($next:ident)*) => { doubling! { @ $first of u8; $($next)* } };
    (@ $name:ident of $inner:ty;) => { shape! { #[serde(transparent)] struct $name(($inner, Vec<$inner>)); } };
    (@ $name:ident of $inner:ty; $next:ident $($rest:ident)*) => {
        doubling! { @ $name of $inner; }
        doubling! { @ $next of $name; $($rest)* }
    };
}

doubling! { A B C D E F G H I J K L M N O P Q R S U }

#[test]
fn a_type_of_any_size_is_described_in_bounded_space() {
    let large = describe::<I>();
    assert!(large.complete);
    let huge = describe::<U>();
    assert!(huge.text.len() < 128 * 1024, "{} bytes", huge.text.len());
    assert!(!huge.complete);
}

mod bytes_like {
    use super::*;

    pub(super) struct Bytes;

    impl Serialize for Bytes {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(b"1")
        }
    }

    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Any;
            impl Visitor<'_> for Any {
                type Value = Bytes;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("bytes")
                }
                fn visit_bytes<E>(self, _: &[u8]) -> Result<Bytes, E> {
                    Ok(Bytes)
                }
            }
            deserializer.deserialize_byte_buf(Any)
        }
    }
}
