//! Values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use chunkcomm::codec::{DecodeError, EncodeError, decode, encode_into_slice, encode_into_vec};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Something of everything that the format knows, and that contains itself.
#[derive(Serialize, Deserialize)]
enum Value {
    Nothing,
    Numbers(u8, i16, u32, i64, u128, f32, f64),
    Text { letter: char, words: Vec<String>, flag: bool },
    List(Vec<Value>),
    Maybe(Option<Box<Value>>),
    Array([(u16, Option<i8>); 3]),
}

/// What is decoded is encoded as the same bytes, by either encoder; nothing else panics or
/// allocates what the bytes do not hold.
pub fn run(data: &[u8]) {
    exactly::<Value>(data);
    exactly::<Vec<(u8, Value)>>(data);
    exactly::<(String, Vec<u64>, Option<[u8; 4]>)>(data);
    // Neither is written as it was read: keys may come twice, and no element takes bytes.
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
    // Nothing of it can be spared, and nothing more of it is read.
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

/// One value of each kind.
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
