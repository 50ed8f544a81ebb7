//! The name of a cluster or node, as it stands in a hello.

use crate::plain::Plain;
use std::fmt;

/// Longest name of a cluster or node, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 32;

/// A name of at most [`NAME_BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    pub(super) bytes: [u8; NAME_BYTES_MAX],
    pub(super) len: u8,
}

impl Name {
    /// Returns `text` as a name; `None` when it is longer than [`NAME_BYTES_MAX`].
    #[must_use]
    pub fn new(text: &str) -> Option<Name> {
        (text.len() <= NAME_BYTES_MAX).then(|| Name::truncated(text))
    }

    /// Returns as much of `text` as fits, cut between characters. For names that people read;
    /// names that are compared would become equal.
    #[must_use]
    pub fn truncated(text: &str) -> Name {
        let mut name = Name { bytes: [0; NAME_BYTES_MAX], len: 0 };
        let ends = text.char_indices().map(|(start, char)| start + char.len_utf8());
        let end = ends.take_while(|&end| end <= NAME_BYTES_MAX).last().unwrap_or(0);
        for (to, from) in name.bytes.iter_mut().zip(text.bytes().take(end)) {
            *to = from;
            name.len += 1;
        }
        name
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }

    pub(super) fn decode(len: u8, field: [u8; NAME_BYTES_MAX]) -> Option<Name> {
        let text = str::from_utf8(field.get(..usize::from(len))?).ok()?;
        Name::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Plain(self.as_str()).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
