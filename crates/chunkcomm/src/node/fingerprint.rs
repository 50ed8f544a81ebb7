//! The fingerprint of a channel's type, which its two ends compare.

use crate::channel::context::finds_needs;
use crate::error::TypeRefused;
use crate::proto::describe::{Description, describe, fnv1a};
use crate::proto::limits::TEXT_BYTES_MAX;
use crate::proto::plain::cut;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest text of each of the two types of a duplex, so that both fit in a refusal.
const HALF_BYTES_MAX: usize = (TEXT_BYTES_MAX - "duplex<, >".len()) / 2;

/// A channel's type as its two ends compare it.
#[derive(Debug, Clone)]
pub struct Fingerprint {
    /// The hash that the ends compare.
    pub hash: u64,
    /// The type for people, at most 1 KiB.
    pub text: String,
    /// Whether values of the type need their link ([`needs_link`](crate::layer::needs_link)).
    pub carries: bool,
}

impl Fingerprint {
    /// Returns the fingerprint of a type, or of the schema that stands for it.
    ///
    /// # Errors
    ///
    /// Values of the type cannot be sent; the error has the reason.
    pub fn of<T: Serialize + DeserializeOwned>(
        schema: Option<&str>,
    ) -> Result<Fingerprint, TypeRefused> {
        let (description, carries): (Description, bool) = finds_needs(describe::<T>);
        if let Some(reason) = description.refusal() {
            return Err(TypeRefused { type_name: description.short(), reason: reason.to_owned() });
        }
        Ok(match schema {
            Some(schema) => Fingerprint { carries, ..Fingerprint::of_name(schema) },
            None => Fingerprint { hash: description.hash, text: description.short(), carries },
        })
    }

    pub(super) fn of_bytes(schema: Option<&str>) -> Fingerprint {
        Fingerprint::of_name(schema.unwrap_or("bytes"))
    }

    /// Returns the fingerprint of a channel whose messages contain a value of this type;
    /// `role` names the form of the messages.
    #[must_use]
    pub fn in_role(self, role: &str) -> Fingerprint {
        let hash = fnv1a(&[&self.hash.to_le_bytes(), role.as_bytes()].concat());
        Fingerprint { hash, ..self }
    }

    /// Returns the fingerprint of a duplex whose opener sends this type and receives `back`.
    #[must_use]
    pub fn duplex(&self, back: &Fingerprint) -> Fingerprint {
        let hashes = [self.hash.to_le_bytes(), back.hash.to_le_bytes()].concat();
        let [there, back] = [cut(&self.text, HALF_BYTES_MAX), cut(&back.text, HALF_BYTES_MAX)];
        let text = format!("duplex<{there}, {back}>");
        Fingerprint { hash: fnv1a(&hashes), text, carries: false }.in_role("duplex")
    }

    fn of_name(name: &str) -> Fingerprint {
        let hash = fnv1a(name.as_bytes());
        Fingerprint { hash, text: name.to_owned(), carries: false }
    }
}
