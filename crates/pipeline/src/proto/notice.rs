//! Message from one side of a delta to the other beside the bytes: once a transfer, at its end.

use super::opening::{Opening, OpeningFault};

/// Most bytes of a cause that are sent.
pub(crate) const CAUSE_BYTES_MAX: usize = 512;

const REFUSED: u8 = 1;
const BROKEN: u8 = 2;
const LANDED: u8 = 3;

/// End of a transfer, as one side reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// From the receiver: the shapes differ; the receiver has room for this one.
    Refused(Opening),
    /// From the sender: it stopped, for this reason.
    Broken(String),
    /// From the receiver: every byte is in its buffer.
    Landed,
}

/// Fault of bytes that are no notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeFault {
    /// The first byte names no kind of notice, or there is no byte.
    Kind,
    /// The receiver's statement is not readable.
    Opening(OpeningFault),
    /// The cause is too long or not UTF-8.
    Cause,
}

impl Notice {
    /// Returns a notice of why the sender stopped, cut to [`CAUSE_BYTES_MAX`].
    pub(crate) fn broken(cause: &str) -> Self {
        let mut end = cause.len().min(CAUSE_BYTES_MAX);
        while !cause.is_char_boundary(end) {
            end -= 1;
        }
        Self::Broken(cause[..end].to_owned())
    }

    /// Returns the bytes of the notice.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Refused(opening) => (REFUSED, opening.encode()),
            Self::Broken(cause) => (BROKEN, cause.clone().into_bytes()),
            Self::Landed => (LANDED, Vec::new()),
        };
        let mut bytes = Vec::with_capacity(1 + body.len());
        bytes.push(kind);
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Reads the notice in `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, NoticeFault> {
        match bytes.split_first() {
            Some((&REFUSED, body)) => {
                Opening::decode(body).map(Self::Refused).map_err(NoticeFault::Opening)
            }
            Some((&BROKEN, body)) if body.len() <= CAUSE_BYTES_MAX => std::str::from_utf8(body)
                .map(|cause| Self::Broken(cause.to_owned()))
                .map_err(|_| NoticeFault::Cause),
            Some((&BROKEN, _)) => Err(NoticeFault::Cause),
            Some((&LANDED, [])) => Ok(Self::Landed),
            _ => Err(NoticeFault::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::opening::Shape;
    use super::*;

    #[test]
    fn faults_are_told_apart() {
        assert_eq!(Notice::decode(&[]), Err(NoticeFault::Kind));
        assert_eq!(Notice::decode(&[77, 1, 2]), Err(NoticeFault::Kind));
        assert_eq!(Notice::decode(&[LANDED, 0]), Err(NoticeFault::Kind));
        assert_eq!(Notice::decode(&Notice::Landed.encode()), Ok(Notice::Landed));
        let short = OpeningFault::Length { bytes: 0 };
        assert_eq!(Notice::decode(&[REFUSED]), Err(NoticeFault::Opening(short)));
        assert_eq!(Notice::decode(&[BROKEN, 0xff]), Err(NoticeFault::Cause));
        let long = [vec![BROKEN], vec![b'x'; CAUSE_BYTES_MAX + 1]].concat();
        assert_eq!(Notice::decode(&long), Err(NoticeFault::Cause));
    }

    proptest! {
        #[test]
        fn goes_there_and_back(cause in "\\PC{0,600}", length in 0_usize..1000, id: u64) {
            let broken = Notice::broken(&cause);
            prop_assert_eq!(Notice::decode(&broken.encode()), Ok(broken));
            let opening = Opening { shape: Shape::of::<u16>(length), increment_bytes: 2, id };
            let refused = Notice::Refused(opening);
            prop_assert_eq!(Notice::decode(&refused.encode()), Ok(refused));
        }
    }
}
