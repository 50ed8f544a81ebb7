//! Descriptions of types, which both ends compare.
//!
//! Bytes without names and tags decode just as well into the wrong type. So an open carries the
//! [hash](Description::hash) of the sender's type. When the receiver's differs, both ends get
//! the other's [text](Description::text). It names structs, fields, variants, widths and
//! containers:
//!
//! ```text
//! Order{id: u64, item: enum Item{Book(str) | Pen{colour: u8}}, notes: [str], next: option<^Order>}
//! ```
//!
//! A type is written out where it first occurs; `^Order` is the `Order` from before. Two
//! different types of one name are `Wrap` and `Wrap#2`. `?` is a part that could not be found
//! out.
//!
//! # How it is found
//!
//! There is no value to look at, only `T: Deserialize`. So `T` is deserialized from a *probe*
//! that notes the calls and makes up the answers (`probe.rs`). One such pass sees one variant
//! of each enum, and a type that contains itself must come to an end. The notes so far decide
//! the answers of the next pass, until nothing is left to find out (`explore.rs`). The result
//! is a graph (`graph.rs`), since types contain themselves. Equal parts are merged and written
//! down (`text.rs`).
//!
//! # What it does not see
//!
//! - Renaming a struct, field or variant changes the description, moving it to another module
//!   does not. `usize` is `u64`; `String`, `&str` and `PathBuf` are all `str`. For
//!   `#[serde(with)]` or `#[serde(from)]` the type that is read is described, not the one made
//!   of it.
//! - A type whose `Deserialize` refuses every answer of the probe (a date in a string, say) is
//!   described up to there, and [`Description::complete`] is false: the rest of the same struct
//!   is `?`. Equality then means less. Numbers are answered by 1 or 0, texts by `1`, `a` or
//!   nothing, so that `NonZero` and the like pass.
//! - A type may write its values in another form than it reads them. Each made-up value is encoded,
//!   and a form that would be misread is a [`refusal`](Description::refusal): another index of a
//!   variant, number of fields or width. A form that does not come up is not seen: of values that
//!   the type refuses to make or to write, and of numbers and texts other than those above. So a
//!   tuple struct that skips its field `if` a number is 5 is misread.
//!   Where all names of a struct's fields differ between the two directions, only their number
//!   and widths are compared.
//! - A `Deserialize` written by hand may read on depending on a value that it has read. It is
//!   described as for the probe's answer.

mod explore;
mod graph;
mod probe;
mod text;
mod written;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::limits::TEXT_BYTES_MAX;
use super::plain::cut;
use explore::Explorer;
use probe::Probe;

/// The parts of a type that the decoder needs, as both ends compare them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The whole description. Its form may change with the version of the protocol.
    pub text: String,
    /// Hash of the text (FNV-1a, 64 bits): the same in every process, on every machine.
    pub hash: u64,
    /// Whether everything could be found out.
    pub complete: bool,
    refusal: Option<Cow<'static, str>>,
}

impl Description {
    /// Returns the reason why values of this type cannot travel, if there is one:
    ///
    /// - The type holds a sequence or map of elements that take no bytes. Its length could be
    ///   anything at no cost to the sender, and the receiver would count to it.
    /// - The type asks the bytes for their type (`deserialize_any`), and these bytes cannot
    ///   answer.
    /// - A value of the type is written with another index of a variant, another number of
    ///   fields or another width than it is read with.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns the text, or as much of it as fits into [`TEXT_BYTES_MAX`] bytes with `..` at
    /// its end.
    #[must_use]
    pub fn short(&self) -> String {
        const MORE: &str = "..";
        if self.text.len() <= TEXT_BYTES_MAX {
            return self.text.clone();
        }
        format!("{}{MORE}", cut(&self.text, TEXT_BYTES_MAX - MORE.len()))
    }
}

/// Describes `T`. Costs some microseconds for a small struct and grows with the number of
/// fields times the number of variants. So it is done once per channel opened, not per message.
///
/// `T`'s `Deserialize` and `Serialize` run several times on made-up values, which are dropped.
/// A panic in one of them is caught: the value counts as refused. When the writing of a value
/// panics, no further value is written. The panic's message is printed all the same, and with
/// `panic = "abort"` the program ends.
#[must_use]
pub fn describe<T: Serialize + DeserializeOwned>() -> Description {
    let mut explorer = Explorer::default();
    while explorer.begin_pass() {
        // A panic of the type is a refusal; the explorer begins each pass anew.
        let make = || T::deserialize(Probe::of_root(&mut explorer)).ok();
        let made_up = catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| {
            explorer.panicked();
            None
        });
        let is_made_up = made_up.is_some();
        if let Some(value) = made_up {
            if catch_unwind(AssertUnwindSafe(|| explorer.compare(&value))).is_err() {
                explorer.ends_comparing();
            }
            let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
        }
        explorer.end_pass(is_made_up);
    }
    let graph = explorer.into_graph();
    let (text, fits) = text::write(&graph);
    Description {
        hash: fnv1a(text.as_bytes()),
        complete: fits && graph.is_complete(),
        refusal: graph.refusal(),
        text,
    }
}

/// Returns the hash of Fowler, Noll and Vo in its variant 1a: stable, and good enough against
/// accidents.
#[must_use]
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
