//! serde's attributes: a value arrives as it was, or its type or the value is refused by name.

use std::fmt::Debug;

use super::*;
use crate::codec::{decode, encode_into_vec};

/// The fate of a type's values.
#[derive(Debug, PartialEq)]
enum Fate {
    /// They arrive as they were.
    Same,
    /// The type cannot travel.
    Type(String),
    /// The value is not written.
    Value(String),
}
use Fate::Same;

/// Tells what becomes of a value on a channel of its type.
fn fate<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: T) -> Fate {
    if let Some(refusal) = describe::<T>().refusal() {
        return Fate::Type(refusal.to_owned());
    }
    let mut bytes = Vec::new();
    if let Err(error) = encode_into_vec(&value, &mut bytes) {
        return Fate::Value(error.to_string());
    }
    assert_eq!(decode::<T>(&bytes), Ok(value), "it arrives as another value");
    Same
}

#[track_caller]
fn refused<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: T, words: &str) {
    match fate(value) {
        Fate::Type(reason) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn not_written<T: Serialize + DeserializeOwned + Debug + PartialEq>(value: T, words: &str) {
    match fate(value) {
        Fate::Value(reason) => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    }
}

macro_rules! plain {
    ($($item:item)+) => { $(#[derive(Debug, PartialEq, Serialize, Deserialize)] $item)+ };
}

plain! {
    enum Skip { Stop, #[serde(skip)] _Local(Duration), Open(u32), Close(u32) }
    enum SkipLast { Open(u32), Close(u32), #[serde(skip)] Local }
    enum SkipReading { #[serde(skip_deserializing)] _Local, Open { at: u32 }, Close { at: u32 } }
    enum SkipWriting { #[serde(skip_serializing)] Local, Open(u32), Close(u32) }
    enum SkipWithin { Deep(Vec<Option<Skip>>), Flat }
    enum Renamed {
        #[serde(rename(serialize = "on", deserialize = "off"))] Open(u32),
        #[serde(rename = "Open")] Close(u32),
    }
    enum Alias { #[serde(alias = "Ouvert", alias = "Auf")] Open(u32), Close(u32), Last }
    enum AliasAndSkip { #[serde(skip)] _Local, #[serde(alias = "Auf")] Open(u32), Close }
    enum Other { First, Second, #[serde(other)] Unknown }
    enum OtherAndSkip { First, #[serde(skip)] _Local, Second, #[serde(other)] Unknown }
}

#[test]
fn attributes_of_variants() {
    for order in [Skip::Stop, Skip::Open(7), Skip::Close(8)] {
        refused(order, "of enum `Skip` is written with index");
    }
    for order in [SkipLast::Open(7), SkipLast::Close(8)] {
        assert_eq!(fate(order), Same);
    }
    not_written(SkipLast::Local, "SkipLast::Local cannot be serialized");
    refused(SkipReading::Open { at: 7 }, "of enum `SkipReading` is written with index");
    refused(SkipReading::Close { at: 7 }, "which is read as");
    not_written(SkipWriting::Local, "SkipWriting::Local cannot be serialized");
    assert_eq!([SkipWriting::Open(7), SkipWriting::Close(8)].map(fate), [Same, Same]);
    refused(SkipWithin::Deep(vec![None]), "of enum `Skip` is written");
    refused(SkipWithin::Flat, "of enum `Skip` is written");
    assert_eq!([Renamed::Open(7), Renamed::Close(8)].map(fate), [Same, Same]);
    assert_eq!([Alias::Open(7), Alias::Close(8), Alias::Last].map(fate), [Same, Same, Same]);
    refused(AliasAndSkip::Open(7), "it writes u32 behind the last part");
    refused(AliasAndSkip::Close, "it writes u32 behind the last part");
    assert_eq!([Other::First, Other::Second, Other::Unknown].map(fate), [Same, Same, Same]);
    refused(OtherAndSkip::Second, "of enum `OtherAndSkip` is written with index");
}

fn is_small(number: &u32) -> bool {
    *number < 5
}

fn seven() -> u32 {
    7
}

plain! {
    struct SkipField { a: u32, #[serde(skip)] b: u32, c: u32 }
    struct WriteOnly { a: u32, #[serde(skip_deserializing)] b: u32, c: u32 }
    struct ReadOnly { a: u32, #[serde(skip_serializing)] b: u32, c: u32 }
    struct ReadOnlyLast { a: u32, #[serde(skip_serializing)] b: u32 }
    struct Crossed { #[serde(skip_serializing)] a: u32, #[serde(skip_deserializing)] b: u32 }
    struct SkipNone {
        #[serde(default, skip_serializing_if = "Option::is_none")] a: Option<u32>,
        b: u32,
    }
    struct SkipSmall { #[serde(skip_serializing_if = "is_small")] a: u32, b: u32 }
    enum SkipInVariant {
        Open { #[serde(skip_serializing_if = "Vec::is_empty")] a: Vec<u8>, b: Vec<u8> },
        Close,
    }
    struct SkipInTuple(#[serde(skip_serializing_if = "Option::is_none")] Option<u32>, u32);
    enum SkipInTupleVariant {
        Flat,
        Open(u32, #[serde(skip_serializing_if = "Vec::is_empty")] Vec<u8>),
    }
    struct TupleWriteOnly(u32, #[serde(skip_deserializing)] u32);
    struct TupleSkip(u32, #[serde(skip)] u32, u32);
    struct Defaults { #[serde(default)] a: u32, #[serde(default = "seven")] b: u32 }
    struct RenamedFields {
        #[serde(rename(serialize = "x", deserialize = "y"))] a: u32,
        #[serde(rename = "a")] b: Option<u32>,
    }
    struct AliasFields { #[serde(alias = "first", alias = "0")] a: u32, #[serde(alias = "z")] b: u64 }
    enum AliasInVariant { Open { #[serde(alias = "first")] a: u32, b: u64 } }
}

#[test]
fn attributes_of_fields() {
    assert_eq!(fate(SkipField { a: 1, b: 0, c: 3 }), Same);
    refused(WriteOnly { a: 1, b: 2, c: 3 }, "field `b` of `WriteOnly` is written and not read");
    refused(ReadOnly { a: 1, b: 2, c: 3 }, "`ReadOnly` is written with 2 fields and read with 3");
    refused(ReadOnlyLast { a: 1, b: 2 }, "`ReadOnlyLast` is written with 1 fields and read with 2");
    refused(Crossed { a: 1, b: 2 }, "field `b` of `Crossed` is written and not read");
    assert_eq!(fate(SkipNone { a: Some(1), b: 2 }), Same);
    not_written(SkipNone { a: None, b: 2 }, "field `a`");
    assert_eq!(fate(SkipSmall { a: 5, b: 2 }), Same);
    not_written(SkipSmall { a: 4, b: 2 }, "field `a`");
    assert_eq!(fate(SkipInVariant::Open { a: vec![1], b: vec![] }), Same);
    not_written(SkipInVariant::Open { a: vec![], b: vec![] }, "field `a`");
    assert_eq!(fate(SkipInVariant::Close), Same);
    refused(SkipInTuple(Some(1), 2), "it writes u32 where it reads an optional value");
    refused(SkipInTupleVariant::Open(1, vec![1]), "it reads a sequence behind the last part");
    refused(SkipInTupleVariant::Flat, "it reads a sequence behind the last part");
    refused(TupleWriteOnly(1, 2), "it writes u32 behind the last part that it reads");
    assert_eq!(fate(TupleSkip(1, 0, 3)), Same);
    assert_eq!(fate(Defaults { a: 0, b: 7 }), Same);
    assert_eq!(fate(RenamedFields { a: 1, b: None }), Same);
    assert_eq!(fate(AliasFields { a: 1, b: 2 }), Same);
    assert_eq!(fate(AliasInVariant::Open { a: 1, b: 2 }), Same);
}

/// Reads any release and writes the newest; at least four numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Releases", into = "Releases")]
struct Newest {
    name: Option<String>,
    numbers: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
enum Releases {
    One(Vec<u32>),
    Two {
        name: Option<String>,
        #[serde(alias = "counts")]
        numbers: Vec<u32>,
    },
}

impl From<Releases> for Newest {
    fn from(raw: Releases) -> Newest {
        let (name, mut numbers) = match raw {
            Releases::One(numbers) => (None, numbers),
            Releases::Two { name, numbers } => (name, numbers),
        };
        numbers.resize(numbers.len().max(4), 0);
        Newest { name: name.filter(|name| name.len() > 1), numbers }
    }
}

impl From<Newest> for Releases {
    fn from(it: Newest) -> Releases {
        Releases::Two { name: it.name, numbers: it.numbers }
    }
}

/// Reads a time and writes the age of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "Duration", into = "Duration")]
struct Doubled(Duration);

impl From<Duration> for Doubled {
    fn from(half: Duration) -> Doubled {
        Doubled(half * 2)
    }
}

impl From<Doubled> for Duration {
    fn from(it: Doubled) -> Duration {
        it.0
    }
}

#[test]
fn types_that_change_what_they_read_may_travel() {
    assert_eq!(fate(Newest { name: Some("name".to_owned()), numbers: vec![1; 5] }), Same);
    assert_eq!(describe::<Doubled>().refusal(), None);
    assert_eq!(describe::<HashMap<u8, Vec<(Newest, Doubled)>>>().refusal(), None);
}

plain! {
    #[serde(rename_all(serialize = "UPPERCASE", deserialize = "lowercase"))]
    struct AllRenamed { a: u32, b: Option<Doubled> }
    enum Turned {
        #[serde(rename(serialize = "on", deserialize = "off"))] Open(Doubled),
        #[serde(rename(serialize = "left", deserialize = "right"))] Way,
        #[serde(
            rename(serialize = "go", deserialize = "come"),
            rename_all(serialize = "UPPERCASE", deserialize = "lowercase"),
        )]
        Both { a: u32, b: Doubled },
    }
    struct RenamedBesideDoubled { fields: AllRenamed, variant: Turned, doubled: Doubled }
    struct RenamedBesideSkip { fields: AllRenamed, skip: Skip }
    struct CrossedBesideDoubled { crossed: Crossed, doubled: Doubled }
    enum RenamedForm {
        #[serde(rename(serialize = "on", deserialize = "off"))] Open(Doubled),
        #[serde(skip_deserializing)] _Local,
    }
}

#[test]
fn names_that_differ_in_both_directions_may_stand_beside_a_type_that_changes_what_it_reads() {
    let doubled = Doubled(Duration::ZERO);
    let fields = AllRenamed { a: 1, b: Some(doubled) };
    let both = Turned::Both { a: 1, b: doubled };
    assert_eq!(fate(fields), Same);
    assert_eq!([Turned::Open(doubled), Turned::Way, both].map(fate), [Same, Same, Same]);
    let fields = AllRenamed { a: 1, b: None };
    assert_eq!(fate(RenamedBesideDoubled { fields, variant: Turned::Way, doubled }), Same);
    let fields = AllRenamed { a: 1, b: None };
    refused(RenamedBesideSkip { fields, skip: Skip::Open(1) }, "of enum `Skip` is written");
    let crossed = Crossed { a: 1, b: 2 };
    refused(CrossedBesideDoubled { crossed, doubled }, "field `b` of `Crossed` is written");
    assert_eq!(fate(RenamedForm::Open(doubled)), Same);
}

mod half {
    use super::*;

    pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(*number as u32)
    }
}

plain! {
    struct Narrowed { #[serde(serialize_with = "half::serialize")] a: u64, b: u8 }
}

#[test]
fn a_part_that_is_written_with_another_width_is_refused() {
    refused(Narrowed { a: 1, b: 2 }, "it writes u32 where it reads u64");
}
