//! The sender's statement before the first byte of its buffer, and its comparison with the
//! receiver's.
//!
//! ```text
//! offset  0      4        6           7         8              12      20         28
//!         magic  version  byte order  name len  element bytes  length  increment  name ...
//!         4      u16      u8          u8        u32            u64     u64
//! ```
//!
//! All numbers are little-endian. The elements themselves travel in the sender's own byte order,
//! which is why the opening states it: the byte is 1 for big-endian, else 0.

use std::fmt;

use bytes::Buf;
use chunkcomm_proto::describe::fnv1a;
use chunkcomm_proto::plain::cut;

use super::fault::DeltaFault;

const MAGIC: [u8; 4] = *b"DLTA";
pub(super) const VERSION: u16 = 1;
const FIXED_BYTES: usize = 28;
const NAME_BYTES_MAX: usize = 255;
const BIG_ENDIAN: u8 = 1;

/// Number and type of a buffer's elements, which both sides of a delta must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// Number of elements.
    pub length: u64,
    /// The element type's name without the paths of modules, such as `f32` or `Complex<f64>`.
    pub element: String,
    /// Size of an element in bytes.
    pub element_bytes: u32,
    /// Whether the bytes of an element are those of a big-endian machine.
    pub big_endian: bool,
}

impl Shape {
    /// Returns the shape of `length` elements of type `T` on this machine.
    #[must_use]
    pub fn of<T>(length: usize) -> Self {
        Self {
            length: length as u64,
            element: element_name(std::any::type_name::<T>()),
            element_bytes: u32::try_from(size_of::<T>()).unwrap_or(u32::MAX),
            big_endian: cfg!(target_endian = "big"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.big_endian { ", big-endian" } else { "" };
        write!(
            f,
            "{} elements of {} ({} bytes each{order})",
            self.length, self.element, self.element_bytes
        )
    }
}

/// Returns the compiler's name of a type without the paths of its modules: `my_app::grid::Cell<f32>`
/// becomes `Cell<f32>`, so that the name survives a move to another module or program. A name that is
/// too long keeps its start and ends with a hash of the whole.
fn element_name(path: &str) -> String {
    let mut name = String::with_capacity(path.len());
    let mut word_start = 0;
    let mut previous = ' ';
    for letter in path.chars() {
        if letter == ':' {
            if previous == ':' {
                name.truncate(word_start);
            }
        } else {
            name.push(letter);
            if !letter.is_alphanumeric() && letter != '_' {
                word_start = name.len();
            }
        }
        previous = letter;
    }
    shorten(name)
}

fn shorten(mut name: String) -> String {
    const HASH_LETTERS: usize = 17;
    if name.len() > NAME_BYTES_MAX {
        let hash = fnv1a(name.as_bytes());
        name.truncate(cut(&name, NAME_BYTES_MAX - HASH_LETTERS).len());
        name.push_str(&format!("~{hash:016x}"));
    }
    name
}

/// The first message of a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// Length and element type.
    pub shape: Shape,
    /// Number of bytes that leave together.
    pub increment_bytes: u64,
}

impl Opening {
    /// Returns the bytes of the opening.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let name = self.shape.element.as_bytes();
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let mut bytes = Vec::with_capacity(FIXED_BYTES + name.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(if self.shape.big_endian { BIG_ENDIAN } else { 0 });
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(&self.shape.element_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.shape.length.to_le_bytes());
        bytes.extend_from_slice(&self.increment_bytes.to_le_bytes());
        bytes.extend_from_slice(name);
        bytes
    }

    /// Reads the opening in `bytes`.
    ///
    /// # Errors
    /// [`DeltaFault`] when the bytes are not exactly one opening of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DeltaFault> {
        let wrong_length = DeltaFault::Length { bytes: bytes.len() };
        let (fixed, name) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(wrong_length)?;
        let (magic, mut fields) = fixed.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(DeltaFault::Magic);
        }
        let theirs = fields.get_u16_le();
        if theirs != VERSION {
            return Err(DeltaFault::Version { theirs });
        }
        let (order, name_bytes) = (fields.get_u8(), fields.get_u8());
        let (element_bytes, length) = (fields.get_u32_le(), fields.get_u64_le());
        let increment_bytes = fields.get_u64_le();
        if name.len() != usize::from(name_bytes) {
            return Err(wrong_length);
        }
        if order & !BIG_ENDIAN != 0 {
            return Err(DeltaFault::Element);
        }
        let element = std::str::from_utf8(name).map_err(|_| DeltaFault::Element)?;
        Ok(Self {
            shape: Shape {
                length,
                element: element.to_owned(),
                element_bytes,
                big_endian: order & BIG_ENDIAN != 0,
            },
            increment_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_lose_their_modules_and_keep_their_arguments() {
        assert_eq!(element_name("f32"), "f32");
        assert_eq!(element_name("my_app::grid::Cell"), "Cell");
        assert_eq!(element_name("a::Cell<b::c::Wide<f32>, [u8; 4]>"), "Cell<Wide<f32>, [u8; 4]>");
        assert_eq!(element_name("(a::B, c::D)"), "(B, D)");
        assert_eq!(element_name("[a::b::C; 3]"), "[C; 3]");
        let long = |last: char| element_name(&format!("{}{last}", "x".repeat(400)));
        assert_eq!(long('a').len(), NAME_BYTES_MAX);
        assert_ne!(long('a'), long('b'));
    }

    #[test]
    fn a_shape_says_what_it_is() {
        assert_eq!(Shape::of::<f32>(10).to_string(), "10 elements of f32 (4 bytes each)");
        assert_ne!(Shape::of::<f32>(10), Shape::of::<u32>(10));
        assert_ne!(Shape::of::<f32>(10), Shape::of::<f32>(11));
        let swapped = Shape { big_endian: true, ..Shape::of::<f32>(10) };
        assert!(swapped.to_string().contains("big-endian"));
    }

    #[test]
    fn wrong_openings_are_told_apart() {
        let shape = Shape::of::<f64>(3);
        let good = Opening { shape, increment_bytes: 8 }.encode();
        assert!(good.len() <= FIXED_BYTES + NAME_BYTES_MAX);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Opening::decode(&bytes).expect_err("a changed byte must be noticed")
        };
        assert_eq!(with(0, b'X'), DeltaFault::Magic);
        assert_eq!(with(4, 9), DeltaFault::Version { theirs: 9 });
        assert_eq!(with(6, 2), DeltaFault::Element);
        assert_eq!(with(7, 200), DeltaFault::Length { bytes: good.len() });
        assert_eq!(with(good.len() - 1, 0xff), DeltaFault::Element);
        assert_eq!(Opening::decode(&[]), Err(DeltaFault::Length { bytes: 0 }));
    }

    proptest! {
        #[test]
        fn goes_there_and_back(
            length: u64, element in "\\PC{0,60}", element_bytes: u32, big_endian: bool,
            increment_bytes: u64,
        ) {
            let shape = Shape { length, element, element_bytes, big_endian };
            let opening = Opening { shape, increment_bytes };
            prop_assert_eq!(Opening::decode(&opening.encode()), Ok(opening));
        }

        #[test]
        fn any_bytes_are_an_opening_or_a_fault(
            bytes in prop::collection::vec(any::<u8>(), 0..400), start: bool,
        ) {
            let mut input = bytes;
            if start {
                input.splice(..0, [b'D', b'L', b'T', b'A', 2, 0]);
            }
            if let Ok(opening) = Opening::decode(&input) {
                prop_assert_eq!(opening.encode(), input);
            }
        }
    }
}
