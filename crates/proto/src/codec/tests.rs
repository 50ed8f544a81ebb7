use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::{Deserialize, Serialize, Serializer};

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Plain {
    sequence: u64,
    wide: i128,
    small: (u8, i8, u16, i16),
    flag: bool,
    letter: char,
    ratio: f32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Empty,
    One(f64),
    Two(u32, Option<String>),
    Named { entries: BTreeMap<u16, Vec<i32>>, inner: Box<Shape> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct List {
    value: u8,
    next: Option<Box<List>>,
}

fn reference<T: Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, FORMAT).unwrap()
}

/// Compares both encoders and the decoder with bincode's own.
fn agrees<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: &T) {
    let expected = reference(value);
    let mut slice = vec![0xaa; expected.len() + 3];
    assert_eq!(encode_into_slice(value, &mut slice), Ok(expected.len()));
    assert_eq!(slice[..expected.len()], expected);
    let mut appended = vec![1, 2];
    assert_eq!(encode_into_vec(value, &mut appended), Ok(expected.len()));
    assert_eq!(appended[2..], expected);

    assert_eq!(&decode::<T>(&expected).unwrap(), value);
    for end in 0..expected.len() {
        assert_eq!(encode_into_slice(value, &mut slice[..end]), Err(EncodeError::NoRoom));
        assert!(decode::<T>(&expected[..end]).is_err(), "{end} of {} bytes", expected.len());
    }
    let longer = [expected, vec![0]].concat();
    assert_eq!(decode::<T>(&longer), Err(DecodeError::Trailing));
}

fn plain() -> impl Strategy<Value = Plain> {
    (any::<u64>(), any::<i128>(), any::<(u8, i8, u16, i16)>(), any::<bool>(), any::<char>())
        .prop_map(|(sequence, wide, small, flag, letter)| {
            let ratio = f32::from(small.2) / 3.0;
            Plain { sequence, wide, small, flag, letter, ratio }
        })
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Empty),
        any::<i32>().prop_map(|x| Shape::One(f64::from(x) / 7.0)),
        (any::<u32>(), any::<Option<String>>()).prop_map(|(a, b)| Shape::Two(a, b)),
    ];
    leaf.prop_recursive(4, 16, 1, |inner| {
        (btree_map(any::<u16>(), vec(any::<i32>(), 0..4), 0..4), inner)
            .prop_map(|(entries, inner)| Shape::Named { entries, inner: Box::new(inner) })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_format_is_bincodes(a in plain(), b in shape(), c in vec(shape(), 0..4)) {
        agrees(&a);
        agrees(&b);
        agrees(&c);
    }
}

proptest! {
    #[test]
    fn random_bytes_are_decoded_as_bincode_does_or_refused(bytes in vec(0u8..4, 0..64)) {
        let ours = decode::<Shape>(&bytes);
        let limited = FORMAT.with_limit::<4096>();
        let theirs = bincode::serde::decode_from_slice::<Shape, _>(&bytes, limited);
        match (ours, theirs) {
            (Ok(ours), Ok((theirs, used))) => {
                prop_assert_eq!(ours, theirs);
                prop_assert_eq!(used, bytes.len());
            }
            (Ok(ours), Err(error)) => prop_assert!(false, "{ours:?} but {error}"),
            (Err(DecodeError::Trailing), Ok((_, used))) => prop_assert!(used < bytes.len()),
            (Err(error), Ok((theirs, _))) => prop_assert!(false, "{error} but {theirs:?}"),
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn any_bytes_are_harmless(bytes in vec(any::<u8>(), 0..256)) {
        let _ = decode::<Shape>(&bytes);
        let _ = decode::<Vec<Shape>>(&bytes);
        let _ = decode::<HashMap<String, Plain>>(&bytes);
        let _ = decode::<(char, IpAddr, PathBuf, Duration)>(&bytes);
    }
}

#[test]
fn library_types_agree() {
    agrees(&"a text".to_string());
    agrees(&'\u{10ffff}');
    agrees(&Some(NonZeroU16::MIN));
    agrees(&IpAddr::from([127, 0, 0, 1]));
    agrees(&SocketAddr::from(([0; 16], 7000)));
    agrees(&PathBuf::from("/srv/x"));
    agrees(&Duration::from_micros(3));
    agrees(&[7u8; 32]);
    agrees(&HashMap::from([(1u8, [1.5f64; 3])]));
    agrees(&(1u8, (2i64, "x".to_string()), Ok::<u8, String>(3)));
    agrees(&Bytes(b"abc".to_vec()));
}

/// Bytes that are written and read as bytes, in the manner of `serde_bytes`.
#[derive(Debug, PartialEq)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

/// A vector of numbers with a `Deserialize` of its own.
#[derive(Debug, PartialEq, Serialize)]
struct Ascending(Vec<u32>);

impl<'de> Deserialize<'de> for Ascending {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::deserialize(deserializer)?;
        if !numbers.is_sorted() {
            return Err(serde::de::Error::custom("they descend"));
        }
        Ok(Ascending(numbers))
    }
}

#[test]
fn vectors_of_numbers_go_the_short_way_and_no_others() {
    fn is_short<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: &T) -> bool {
        agrees(value);
        let short = numbers::decode::<T>(&reference(value)).is_some();
        assert_eq!(numbers::encoded_bytes(value), short.then(|| reference(value).len()));
        short
    }
    for count in [0, 1, 2, 3, 300] {
        let numbers = || (0..count).map(|number| number * 0x0102_0304 - 7);
        assert!(is_short(&numbers().map(|number| number as u8).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as u16).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as u32).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as u64).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as u128).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as i8).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as i16).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as i32).collect::<Vec<_>>()));
        assert!(is_short(&numbers().collect::<Vec<i64>>()));
        assert!(is_short(&numbers().map(i128::from).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as f32 / 3.0).collect::<Vec<_>>()));
        assert!(is_short(&numbers().map(|number| number as f64 / 3.0).collect::<Vec<_>>()));

        assert!(!is_short(&numbers().map(|number| number > 9).collect::<Vec<_>>()));
        assert!(!is_short(&(numbers().collect::<Vec<_>>(), 7u8)));
        assert!(!is_short(&Ascending((0..count as u32).collect())));
    }
    assert!(!is_short(&"a text".to_string()));
    assert_eq!(decode::<Ascending>(&reference(&vec![2u32, 1])), Err(DecodeError::Refused));
}

#[test]
fn long_vectors_are_appended_part_by_part() {
    for count in [511u32, 512, 513, 1024, 1300] {
        let numbers: Vec<u32> = (0..count).map(|number| number.wrapping_mul(0x0102_0304)).collect();
        let mut appended = vec![1, 2];
        let expected = reference(&numbers);
        assert_eq!(encode_into_vec(&numbers, &mut appended), Ok(expected.len()));
        assert_eq!(appended[2..], expected);
    }
}

proptest! {
    #[test]
    fn the_short_way_fails_as_the_long_one(
        count in 0u64..12,
        bytes in prop_oneof![vec(any::<u8>(), 0..8), vec(any::<u8>(), 8..48)],
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_chunk_mut() {
            *first = count.to_le_bytes();
        }
        let long = decode::<(Vec<u8>,)>(&bytes);
        prop_assert_eq!(decode::<Vec<u8>>(&bytes), long.map(|(numbers,)| numbers));
        let long = decode::<(Vec<u32>,)>(&bytes);
        prop_assert_eq!(decode::<Vec<u32>>(&bytes), long.map(|(numbers,)| numbers));
        let long = decode::<(Vec<i128>,)>(&bytes);
        prop_assert_eq!(decode::<Vec<i128>>(&bytes), long.map(|(numbers,)| numbers));
    }
}

/// Returns a declared length with nothing behind it.
fn claim(length: u64) -> [u8; 8] {
    length.to_le_bytes()
}

#[test]
fn a_hostile_length_is_refused_before_anything_is_allocated() {
    for length in [1, 9, 1 << 20, 1 << 32, 1 << 60, u64::MAX] {
        assert_eq!(decode::<String>(&claim(length)), Err(DecodeError::Short));
        assert_eq!(decode::<Bytes>(&claim(length)), Err(DecodeError::Short));
        assert_eq!(decode::<Vec<u64>>(&claim(length)), Err(DecodeError::Short));
        assert_eq!(decode::<(Vec<u64>,)>(&claim(length)), Err(DecodeError::Short));
        assert_eq!(decode::<HashMap<u64, u64>>(&claim(length)), Err(DecodeError::Short));
    }
}

/// Notes the number of elements in the size hint.
struct Hint(Option<usize>);

impl<'de> Deserialize<'de> for Hint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Hint;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Hint, A::Error> {
                let hint = seq.size_hint();
                while seq.next_element::<u8>()?.is_some() {}
                Ok(Hint(hint))
            }
        }
        deserializer.deserialize_seq(Visitor)
    }
}

#[test]
fn a_size_hint_is_never_above_the_bytes_that_are_left() {
    let bytes = [&claim(3)[..], &[1, 2, 3]].concat();
    assert_eq!(decode::<Hint>(&bytes).unwrap().0, Some(3));
    let lie = [&claim(4)[..], &[1, 2, 3]].concat();
    assert_eq!(decode::<Hint>(&lie).err(), Some(DecodeError::Short));
}

#[test]
fn elements_that_take_no_bytes_cannot_be_many() {
    assert_eq!(decode::<Vec<()>>(&claim(0)), Ok(vec![]));
    assert_eq!(decode::<Vec<()>>(&claim(1)), Ok(vec![()]));
    assert_eq!(decode::<Vec<()>>(&claim(2)), Err(DecodeError::Short));
    assert_eq!(decode::<Vec<()>>(&claim(1 << 60)), Err(DecodeError::Short));
    let followed = [&claim(40)[..], &[0; 64]].concat();
    assert_eq!(decode::<(Vec<()>, [u64; 8])>(&followed), Err(DecodeError::ZeroSized));
    assert_eq!(decode::<(HashMap<(), ()>, [u64; 8])>(&followed), Err(DecodeError::ZeroSized));
}

#[test]
fn depth_is_bounded() {
    // Each level is its value and the mark of the next; the depth itself is in the marks.
    let nested = |levels: usize| [[7, 1].repeat(levels), vec![7, 0]].concat();
    let deepest = DEPTH_MAX as usize;
    let list = decode::<List>(&nested(deepest)).unwrap();
    assert_eq!(reference(&list), nested(deepest));
    assert_eq!(decode::<List>(&nested(deepest + 1)), Err(DecodeError::TooDeep));
    assert_eq!(decode::<List>(&nested(1 << 20)), Err(DecodeError::TooDeep));
    // Values side by side are not deep.
    let many = vec![List { value: 1, next: None }; 4 * deepest];
    assert_eq!(decode::<Vec<List>>(&reference(&many)), Ok(many));
}

/// One of each kind of value that counts towards the depth, as the container of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Deep {
    Leaf,
    Newtype(Box<Deep>),
    Tuple(u8, Box<Deep>),
    Named { inner: Box<Deep> },
    Some(Option<Box<Deep>>),
    Many(Vec<Deep>),
    Map(BTreeMap<u8, Deep>),
}

impl Deep {
    /// Puts this value in another, of the kind with this number.
    fn within(self, kind: usize) -> Deep {
        let inner = Box::new(self);
        match kind % 6 {
            0 => Deep::Newtype(inner),
            1 => Deep::Tuple(1, inner),
            2 => Deep::Named { inner },
            3 => Deep::Some(Some(inner)),
            4 => Deep::Many(vec![*inner]),
            _ => Deep::Map(BTreeMap::from([(1, *inner)])),
        }
    }
}

#[test]
fn who_encodes_refuses_as_too_deep_what_who_decodes_would() {
    for first in 0..6 {
        let (mut value, mut refused) = (Deep::Leaf, 0);
        for kind in first..first + 140 {
            let decoded = decode::<Deep>(&reference(&value));
            let (mut slice, mut appended) = ([0; 4096], vec![7]);
            let in_slice = encode_into_slice(&value, &mut slice);
            let in_vec = encode_into_vec(&value, &mut appended);
            if decoded == Err(DecodeError::TooDeep) {
                let too_deep = EncodeError::Refused(TOO_DEEP.into());
                assert_eq!(in_slice, Err(too_deep.clone()));
                assert_eq!((in_vec, &appended[..]), (Err(too_deep), &[7][..]));
                refused += 1;
            } else {
                assert_eq!(decoded.as_ref(), Ok(&value));
                assert_eq!(in_slice, Ok(reference(&value).len()));
                assert_eq!(appended[1..], reference(&value));
            }
            value = value.within(kind);
        }
        assert!((12..100).contains(&refused), "{refused} from {first}");
    }
    // A list that would use up the stack is refused before it has.
    let mut list = List { value: 0, next: None };
    for _ in 0..DEPTH_MAX {
        list = List { value: 1, next: Some(Box::new(list)) };
    }
    assert!(encode_into_vec(&list, &mut Vec::new()).is_ok());
    let longer = List { value: 1, next: Some(Box::new(list)) };
    let too_deep = EncodeError::Refused(TOO_DEEP.into());
    assert_eq!(encode_into_vec(&longer, &mut Vec::new()), Err(too_deep));
}

#[test]
fn wrong_bytes_are_named() {
    assert_eq!(decode::<u8>(&[]), Err(DecodeError::Short));
    assert_eq!(decode::<bool>(&[2]), Err(DecodeError::Bool));
    assert_eq!(decode::<Option<u8>>(&[2, 0]), Err(DecodeError::Optional));
    assert_eq!(decode::<char>(&[0xff]), Err(DecodeError::Char));
    assert_eq!(decode::<char>(&[0xed, 0xa0, 0x80]), Err(DecodeError::Char));
    assert_eq!(decode::<char>(&[0xe2, 0x82]), Err(DecodeError::Short));
    assert_eq!(decode::<String>(&[1, 0, 0, 0, 0, 0, 0, 0, 0xff]), Err(DecodeError::Text));
    assert_eq!(decode::<Shape>(&[9, 0, 0, 0]), Err(DecodeError::Variant));
    assert_eq!(decode::<NonZeroU16>(&[0, 0]), Err(DecodeError::Refused));
    assert_eq!(decode::<Loose>(&[0; 16]), Err(DecodeError::NotSelfDescribing));
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(u64),
    Text(String),
}

#[derive(Serialize)]
struct Flat {
    #[serde(flatten)]
    inner: HashMap<String, u8>,
}

struct Stubborn;

impl Serialize for Stubborn {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not today"))
    }
}

#[test]
fn a_value_that_refuses_says_why_and_leaves_the_vector_alone() {
    let mut out = vec![1, 2, 3];
    let refused = Err(EncodeError::Refused("not today".into()));
    assert_eq!(encode_into_vec(&(7u64, Stubborn), &mut out), refused);
    assert_eq!(out, [1, 2, 3]);
    assert_eq!(encode_into_slice(&(7u64, Stubborn), &mut [0; 64]), refused);
    assert_eq!(encode_into_slice(&(7u64, Stubborn), &mut [0; 4]), Err(EncodeError::NoRoom));

    let flat = Flat { inner: HashMap::from([("a".into(), 1)]) };
    let Err(EncodeError::Refused(cause)) = encode_into_vec(&flat, &mut out) else {
        panic!("a flattened map has no length");
    };
    assert!(cause.contains("length"), "{cause}");
}

#[test]
fn unsized_values_are_encoded_by_reference() {
    let mut out = Vec::new();
    assert_eq!(encode_into_vec(&"ab", &mut out), Ok(10));
    assert_eq!(encode_into_vec(&&[1u8, 2][..], &mut out), Ok(10));
    assert_eq!(decode::<(String, Vec<u8>)>(&out), Ok(("ab".into(), vec![1, 2])));
}

#[test]
fn the_message_about_depth_states_the_limit() {
    assert!(DecodeError::TooDeep.to_string().contains(&DEPTH_MAX.to_string()));
}
