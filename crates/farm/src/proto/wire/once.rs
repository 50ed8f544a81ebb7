//! Words about values that one worker computes for all.

use bytes::{Buf, Bytes};

use super::{Malformed, ONCE, ONCE_ORDER, Order, about};

/// Digest of a value's key and type.
pub(crate) type Key = u128;

/// Reply to a worker that needs a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The worker is to compute the value.
    Compute,
    /// The encoded value.
    Value(Bytes),
}

/// The word of a worker about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Need,
    /// The worker has computed the value, encoded here.
    Value(Bytes),
    /// The worker was to compute the value, and does not.
    GivenUp,
}

/// Most bytes of a word beside its value.
pub(crate) const ONCE_HEAD_MAX: u64 = 64;

const NEED: u32 = 0;
const COMPUTED: u32 = 1;
const GIVEN_UP: u32 = 2;

/// Encodes the reply to a worker that needs a value.
pub(crate) fn once_order(run: u32, key: Key, reply: &Told) -> Bytes {
    let (is_known, value): (bool, &[u8]) = match reply {
        Told::Compute => (false, &[]),
        Told::Value(value) => (true, value),
    };
    let head = [ONCE_ORDER];
    let parts = [&head[..], &run.to_le_bytes(), &key.to_le_bytes(), &[is_known.into()], value];
    Bytes::from(parts.concat())
}

/// Reads the reply after its kind and its run.
pub(super) fn read_once_order<'a>(run: u32, mut rest: &'a [u8]) -> Result<Order<'a>, Malformed> {
    let key = rest.try_get_u128_le()?;
    let reply = match rest.try_get_u8()? {
        0 if rest.is_empty() => Told::Compute,
        1 => Told::Value(Bytes::copy_from_slice(rest)),
        _ => return Err(Malformed),
    };
    Ok(Order::Once { run, key, reply })
}

/// Encodes the word of a worker.
pub(crate) fn once_answer(run: u32, key: Key, ask: &Ask) -> Vec<u8> {
    let (kind, value): (u32, &[u8]) = match ask {
        Ask::Need => (NEED, &[]),
        Ask::Value(value) => (COMPUTED, value),
        Ask::GivenUp => (GIVEN_UP, &[]),
    };
    let head = about(ONCE, run, 0, kind);
    [&head[..], &key.to_le_bytes(), value].concat()
}

/// Reads the word of a worker after its kind, its run and its number.
pub(super) fn read_once_answer(kind: u32, mut rest: &[u8]) -> Result<(Key, Ask), Malformed> {
    let key = rest.try_get_u128_le()?;
    let ask = match kind {
        NEED if rest.is_empty() => Ask::Need,
        COMPUTED => Ask::Value(Bytes::copy_from_slice(rest)),
        GIVEN_UP if rest.is_empty() => Ask::GivenUp,
        _ => return Err(Malformed),
    };
    Ok((key, ask))
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, read_answer, read_order};
    use super::*;

    #[test]
    fn words_about_values_survive_their_bytes() {
        let value = Bytes::from_static(b"a value");
        for said in [Told::Compute, Told::Value(value.clone()), Told::Value(Bytes::new())] {
            let bytes = once_order(7, Key::MAX - 1, &said);
            let Ok(Order::Once { run: 7, key, reply }) = read_order(&bytes) else { panic!() };
            assert_eq!((key, reply), (Key::MAX - 1, said));
            assert!(read_order(&bytes[..21]).is_err());
        }
        assert!(read_order(&[&once_order(7, 1, &Told::Compute)[..], &[0]].concat()).is_err());
        for said in [Ask::Need, Ask::Value(value), Ask::GivenUp] {
            let bytes = once_answer(7, Key::MAX - 1, &said);
            let Ok(Answer::Once { run: 7, key, ask }) = read_answer(&bytes) else { panic!() };
            assert_eq!((key, ask), (Key::MAX - 1, said));
            assert!(read_answer(&bytes[..32]).is_err());
        }
        assert!(read_answer(&[&once_answer(7, 1, &Ask::Need)[..], &[0]].concat()).is_err());
    }
}
