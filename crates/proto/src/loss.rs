//! The way in which a node, or something of it, was lost.

use crate::causes::with_causes;
use crate::plain::{Plain, cut};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Longest words of a loss that travel to another node: 1 KiB.
pub const LOSS_BYTES_MAX: usize = 1024;

/// Kind of a [`Loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LossKind {
    /// Its process, thread or machine ended, or the link with it broke, without an announcement.
    Died,
    /// It left in order, or dropped what it had a part in.
    Left,
    /// Another one, or another incarnation, has its place.
    Replaced,
    /// It was silent for too long.
    Silent,
    /// It said what makes no sense, or could not or was not allowed to do its part.
    Refused,
    /// Its operator or function panicked.
    Panicked,
}

impl LossKind {
    const ALL: [LossKind; 6] = [
        LossKind::Died,
        LossKind::Left,
        LossKind::Replaced,
        LossKind::Silent,
        LossKind::Refused,
        LossKind::Panicked,
    ];

    fn words(self) -> &'static str {
        match self {
            LossKind::Died => "it died",
            LossKind::Left => "it left",
            LossKind::Replaced => "another one has its place",
            LossKind::Silent => "it was silent for too long",
            LossKind::Refused => "it could not go on",
            LossKind::Panicked => "it panicked",
        }
    }
}

/// The way in which a node, the peer of a channel, a member of a cluster, a rank of a group, a worker of a farm
/// or an end of an array was lost.
///
/// Programs decide by its [`kind`](Self::kind), people read its text. The cause is an error of a link or a
/// channel, of a layer above, or words; [`cause`](Self::cause) returns an error by its type. To another node
/// travel the kind and the text with all causes, up to 1 KiB.
#[derive(Clone)]
pub struct Loss(Arc<Inner>);

struct Inner {
    kind: LossKind,
    cause: Cause,
}

#[derive(Clone)]
enum Cause {
    Words(String),
    Typed(Arc<dyn Error + Send + Sync>),
}

impl Loss {
    /// Makes a loss that words explain; empty ones are those of the kind.
    #[must_use]
    pub fn new(kind: LossKind, words: impl Into<String>) -> Loss {
        Loss(Arc::new(Inner { kind, cause: Cause::Words(words.into()) }))
    }

    /// Makes a loss whose cause is an error.
    #[must_use]
    pub fn of(kind: LossKind, cause: impl Error + Send + Sync + 'static) -> Loss {
        Loss(Arc::new(Inner { kind, cause: Cause::Typed(Arc::new(cause)) }))
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> LossKind {
        self.0.kind
    }

    /// Whether it ended without an announcement, as far as is known: it died, was silent, or another one has its
    /// place.
    #[must_use]
    pub fn is_death(&self) -> bool {
        matches!(self.kind(), LossKind::Died | LossKind::Silent | LossKind::Replaced)
    }

    /// Returns the cause, or a [`source`](Error::source) of it, if that is an error of this type. An error that only
    /// passes another one on hides that one. A loss that another node has told has none.
    #[must_use]
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        let Cause::Typed(cause) = &self.0.cause else { return None };
        let mut cause: &(dyn Error + 'static) = &**cause;
        loop {
            match cause.downcast_ref() {
                Some(found) => return Some(found),
                None => cause = cause.source()?,
            }
        }
    }

    /// Whether it is there no more: dead, or left in order.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_death() || self.kind() == LossKind::Left
    }

    /// Returns the bytes of the loss in a word for another node: those of its kind and its text, at most
    /// [`LOSS_BYTES_MAX`] and one.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind() as u8];
        bytes.extend_from_slice(self.words().as_bytes());
        bytes
    }

    /// Reads the bytes of a loss; `None` when they are none. A kind of a newer version counts as a death.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Loss> {
        let (kind, words) = bytes.split_first().filter(|it| it.1.len() <= LOSS_BYTES_MAX)?;
        let kind = LossKind::ALL.get(usize::from(*kind)).copied().unwrap_or(LossKind::Died);
        Some(Loss::new(kind, String::from_utf8_lossy(words)))
    }

    /// Returns the same as a death, where it has another kind.
    #[must_use]
    pub fn into_death(self) -> Loss {
        if self.is_death() {
            return self;
        }
        Loss(Arc::new(Inner { kind: LossKind::Died, cause: self.0.cause.clone() }))
    }

    /// Returns the text that travels to other nodes.
    #[must_use]
    pub fn words(&self) -> String {
        cut(&with_causes(self), LOSS_BYTES_MAX).to_owned()
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.cause {
            Cause::Words(words) if words.is_empty() => f.write_str(self.kind().words()),
            Cause::Words(words) => Plain(words).fmt(f),
            Cause::Typed(cause) => cause.fmt(f),
        }
    }
}

crate::debug_with_causes!(Loss);

impl Error for Loss {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0.cause {
            Cause::Typed(cause) => cause.source(),
            Cause::Words(_) => None,
        }
    }
}

/// Equal are those of one kind that read the same.
impl PartialEq for Loss {
    fn eq(&self, other: &Loss) -> bool {
        self.kind() == other.kind() && with_causes(self) == with_causes(other)
    }
}

impl Eq for Loss {}

/// The words of a death.
impl From<String> for Loss {
    fn from(words: String) -> Loss {
        Loss::new(LossKind::Died, words)
    }
}

/// The words of a death.
impl From<&str> for Loss {
    fn from(words: &str) -> Loss {
        words.to_owned().into()
    }
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.kind(), self.words()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Loss, D::Error> {
        let (kind, words) = <(LossKind, String)>::deserialize(deserializer)?;
        Ok(Loss::new(kind, cut(&words, LOSS_BYTES_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode, encode_into_vec};

    #[derive(Debug)]
    struct Far(Option<Box<Far>>);

    impl fmt::Display for Far {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(if self.0.is_some() { "the link broke" } else { "a mouse\nbit it" })
        }
    }

    impl Error for Far {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_deref().map(|it| it as _)
        }
    }

    /// An error that another one has caused.
    #[derive(Debug)]
    struct Near(fmt::Error);

    impl fmt::Display for Near {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("near")
        }
    }

    impl Error for Near {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_loss_that_travels_keeps_its_kind_and_its_words() {
        let here = Loss::of(LossKind::Silent, Far(Some(Box::new(Far(None)))));
        assert!(here.cause::<Far>().is_some() && here.cause::<fmt::Error>().is_none());
        let around = Loss::of(LossKind::Died, Near(fmt::Error));
        assert!(around.cause::<fmt::Error>().is_some());
        assert_eq!(
            format!("{here} / {here:?}"),
            "the link broke / the link broke: a mouse\nbit it"
        );
        let mut bytes = Vec::new();
        encode_into_vec(&here, &mut bytes).unwrap();
        let there: Loss = decode(&bytes).unwrap();
        assert_eq!((there.kind(), there.is_death()), (LossKind::Silent, true));
        assert_eq!(there.to_string(), r"the link broke: a mouse\nbit it");
        assert!(there.cause::<Far>().is_none());
        let long = Loss::new(LossKind::Refused, "é".repeat(LOSS_BYTES_MAX));
        assert_eq!(long.words().len(), LOSS_BYTES_MAX);
        assert_eq!(Loss::new(LossKind::Left, "").to_string(), "it left");
    }

    #[test]
    fn bytes_that_are_no_loss_are_told() {
        for kind in LossKind::ALL {
            let loss = Loss::new(kind, "so it was");
            assert_eq!(Loss::from_bytes(&loss.to_bytes()), Some(loss));
        }
        let newer = Loss::from_bytes(&[77, b'x']).unwrap();
        assert_eq!((newer.kind(), newer.to_string()), (LossKind::Died, "x".to_owned()));
        for wrong in [&[][..], &[0; LOSS_BYTES_MAX + 2]] {
            assert_eq!(Loss::from_bytes(wrong), None, "{wrong:?}");
        }
    }
}
