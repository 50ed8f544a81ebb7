//! Encoded values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use chunkcomm::codec::{DecodeError, EncodeError, decode, encode_into_slice, encode_into_vec};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Values of every kind that the format knows; some contain other values.
#[derive(Serialize, Deserialize)]
enum Value {
    Nothing,
    Numbers(u8, i16, u32, i64, u128, f32, f64),
    Text { letter: char, words: Vec<String>, flag: bool },
    List(Vec<Value>),
    Maybe(Option<Box<Value>>),
    Array([(u16, Option<i8>); 3]),
}

/// Encodes what was decoded, by either encoder; the bytes must be the same. Decoding other
/// bytes neither panics nor allocates more than they hold.
pub fn run(data: &[u8]) {
    exactly::<Value>(data);
    exactly::<Vec<(u8, Value)>>(data);
    exactly::<(String, Vec<u64>, Option<[u8; 4]>)>(data);
    // These are not written as they were read: keys may come twice, and some elements take no bytes.
    let _ = decode::<BTreeMap<u16, Value>>(data);
    let _ = decode::<(Vec<()>, BTreeMap<(), ()>)>(data);
    let _ = decode::<Vec<(Duration, IpAddr, Option<NonZeroU16>)>>(data);
}

fn exactly<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(value) = decode::<T>(data) else { return };
    let mut written = Vec::new();
    assert_eq!(encode_into_vec(&value, &mut written), Ok(data.len()));
    assert_eq!(written, data);
    assert_eq!(encode_into_slice(&value, &mut written), Ok(data.len()));
    assert_eq!(written, data);
    // No byte of it can be missing, and none after it is read.
    let end = data.iter().fold(0, |sum: usize, byte| sum + usize::from(*byte)) % data.len().max(1);
    if end < data.len() {
        assert_eq!(encode_into_slice(&value, &mut written[..end]), Err(EncodeError::NoRoom));
        assert!(decode::<T>(&data[..end]).is_err());
    }
    written.clear();
    written.extend_from_slice(data);
    written.push(0);
    assert_eq!(decode::<T>(&written).err(), Some(DecodeError::Trailing));
}

/// Returns one value of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let text = || Value::Text { letter: '\u{20ac}', words: vec!["ab".into()], flag: true };
    let values = [
        Value::Nothing,
        Value::Numbers(1, -2, 3, -4, 5, 0.5, -0.25),
        Value::Maybe(Some(Box::new(Value::Maybe(None)))),
        Value::Array([(1, None), (2, Some(3)), (4, None)]),
        Value::List(vec![text(), Value::Nothing, Value::List(vec![text()])]),
    ];
    let encoded = |value: &Value| {
        let mut bytes = Vec::new();
        encode_into_vec(value, &mut bytes).expect("a plain value is encoded");
        bytes
    };
    values.iter().map(encoded).collect()
}
