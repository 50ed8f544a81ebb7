//! The header of an `.npy` file.
//!
//! ```text
//! offset  0           6      7      8               10 or 12
//!         \x93NUMPY   major  minor  bytes of text   text: a dict of Python, up to a line feed     elements
//!         6           1      1      u16, from version 2 on u32
//! ```
//!
//! Version 2 has room for a longer text, version 3 is in UTF-8. The elements begin at a multiple of 64 bytes.
//! Source: NumPy, `numpy/lib/format.py`.

use std::fmt::Write as _;

use super::element::{NpyElement, NpyType};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Bytes of the versions and of what stands before them.
const FIXED_BYTES: usize = 8;

/// Most bytes of a header, text and all. Dicts of plain types have about a hundred.
pub(crate) const HEADER_BYTES_MAX: usize = 1 << 16;

/// The elements of a file begin at a multiple of this number of bytes.
const ALIGNMENT_BYTES: usize = 64;

/// Digits of an extent that NumPy leaves room for, so that a file can grow in place.
const EXTENT_DIGITS: usize = 21;

/// Header of an `.npy` file: shape, order and type of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NpyHeader {
    /// Number of indices in each dimension; without one where the array is a single number.
    pub shape: Vec<usize>,
    /// Whether the first index runs fastest (Fortran's order), not the last one (C's).
    pub fortran_order: bool,
    /// Type of the elements as NumPy describes it, such as `<f8`; a record's list of fields as it stands.
    pub descr: String,
}

/// Fault of bytes that are no header of an `.npy` file.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyHeaderError {
    /// The first bytes are not those of an `.npy` file.
    #[error("it is no .npy file: the first bytes are not \\x93NUMPY")]
    Magic,
    /// The format has a version that nobody here knows.
    #[error("version {major}.{minor} of the format is not known; known are 1.0, 2.0 and 3.0")]
    Version {
        /// First number of the version.
        major: u8,
        /// Second number of the version.
        minor: u8,
    },
    /// The bytes end within the header.
    #[error("the header ends after {found} of {needed} bytes")]
    Short {
        /// Number of bytes that the header has, as far as it can be told.
        needed: usize,
        /// Number of bytes that are there.
        found: usize,
    },
    /// The header is longer than any that is allowed here.
    #[error("a header of {bytes} bytes is not allowed; at most {max} are")]
    Long {
        /// Number of bytes that the header has.
        bytes: usize,
        /// Most bytes.
        max: usize,
    },
    /// The text is not the dict of Python that it must be.
    #[error("the header is not the dict of an array: expected {expected} at byte {at} of its text")]
    Dict {
        /// Index of the byte of the text.
        at: usize,
        /// The text that had to stand there.
        expected: &'static str,
    },
    /// The dict has a key twice.
    #[error("the header has the key '{key}' twice")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// The dict lacks a key.
    #[error("the header has no key '{key}'")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The number of elements does not fit a number of this machine.
    #[error("the shape has more elements than can be counted")]
    Elements,
}

chunkcomm::debug_with_causes!(NpyHeaderError);

impl NpyHeader {
    /// Makes the header of a file of this machine with elements of `T` in C's order.
    #[must_use]
    pub fn new<T: NpyElement>(shape: &[usize]) -> NpyHeader {
        NpyHeader { shape: shape.to_vec(), fortran_order: false, descr: T::TYPE.descr() }
    }

    /// Parses the start of a file; returns the header and the offset of the elements.
    ///
    /// # Errors
    /// See [`NpyHeaderError`]. After [`NpyHeaderError::Short`] as many bytes as that says may do.
    pub fn parse(bytes: &[u8]) -> Result<(NpyHeader, usize), NpyHeaderError> {
        let common = bytes.len().min(MAGIC.len());
        if bytes.get(..common) != MAGIC.get(..common) {
            return Err(NpyHeaderError::Magic);
        }
        let short = |needed| NpyHeaderError::Short { needed, found: bytes.len() };
        let &[_, _, _, _, _, _, major, minor] =
            bytes.first_chunk::<FIXED_BYTES>().ok_or(short(FIXED_BYTES))?;
        let length_bytes = match (major, minor) {
            (1, 0) => 2,
            (2 | 3, 0) => 4,
            _ => return Err(NpyHeaderError::Version { major, minor }),
        };
        let text_at = FIXED_BYTES + length_bytes;
        let length = bytes.get(FIXED_BYTES..text_at).ok_or(short(text_at))?;
        let length = length.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let end = text_at.saturating_add(length);
        if end > HEADER_BYTES_MAX {
            return Err(NpyHeaderError::Long { bytes: end, max: HEADER_BYTES_MAX });
        }
        let text = bytes.get(text_at..end).ok_or(short(end))?;
        let header = match major {
            3 => {
                let utf8 = |error: std::str::Utf8Error| NpyHeaderError::Dict {
                    at: error.valid_up_to(),
                    expected: "UTF-8",
                };
                Dict::of(str::from_utf8(text).map_err(utf8)?)
            }
            // Latin-1.
            _ => Dict::of(&text.iter().map(|byte| char::from(*byte)).collect::<String>()),
        }?;
        Ok((header, end))
    }

    /// Returns the header as the start of a file, byte for byte as NumPy writes it, in the lowest version that
    /// can hold it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let text = self.text();
        let is_ascii = text.is_ascii();
        let framed = |length_bytes: usize| {
            (FIXED_BYTES + length_bytes + text.len() + 1).next_multiple_of(ALIGNMENT_BYTES)
        };
        let is_short = is_ascii && framed(2) - FIXED_BYTES - 2 <= usize::from(u16::MAX);
        let (version, length_bytes) = match (is_short, is_ascii) {
            (true, _) => (1, 2),
            (false, true) => (2, 4),
            (false, false) => (3, 4),
        };
        let end = framed(length_bytes);
        let length = (end - FIXED_BYTES - length_bytes) as u64;
        let mut bytes = [&MAGIC[..], &[version, 0], &length.to_le_bytes()[..length_bytes]].concat();
        bytes.extend(text.as_bytes());
        bytes.resize(end - 1, b' ');
        bytes.push(b'\n');
        bytes
    }

    /// Returns the type of the elements; `None` where it is none of [`NpyType`].
    #[must_use]
    pub fn element(&self) -> Option<NpyType> {
        NpyType::of_descr(&self.descr).map(|(element, _)| element)
    }

    /// Returns the number of elements.
    ///
    /// # Panics
    /// The number does not fit a `usize`. It does for a header that was parsed.
    #[must_use]
    pub fn elements(&self) -> usize {
        elements(&self.shape).expect("the shape has as many elements as can be counted")
    }

    /// The dict, and the spaces of NumPy for an array that grows.
    fn text(&self) -> String {
        let is_record = is_list(&self.descr);
        let quote = match is_record {
            true => "",
            false if self.descr.contains('\'') => "\"",
            false => "'",
        };
        let order = if self.fortran_order { "True" } else { "False" };
        let mut text = format!(
            "{{'descr': {quote}{}{quote}, 'fortran_order': {order}, 'shape': (",
            self.descr
        );
        for (dim, extent) in self.shape.iter().enumerate() {
            let comma = if dim == 0 { "" } else { ", " };
            let _ = write!(text, "{comma}{extent}"); // a string takes it
        }
        text.push_str(if self.shape.len() == 1 { ",), }" } else { "), }" });
        let grows = if self.fortran_order { self.shape.last() } else { self.shape.first() };
        if let Some(extent) = grows {
            let digits = extent.to_string().len();
            text.extend(std::iter::repeat_n(' ', EXTENT_DIGITS.saturating_sub(digits)));
        }
        text
    }
}

fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))
}

/// Whether a description is a list or tuple of Python, not a string.
fn is_list(descr: &str) -> bool {
    descr.starts_with(['[', '('])
}

/// Reader of the dict: Python's words for strings, tuples of numbers, and booleans.
struct Dict<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Dict<'a> {
    fn of(text: &'a str) -> Result<NpyHeader, NpyHeaderError> {
        let mut dict = Dict { text, at: 0 };
        let (mut descr, mut order, mut shape) = (None, None, None);
        dict.needs("{", "'{'")?;
        while !dict.takes("}") {
            let key = dict.key()?;
            dict.needs(":", "':'")?;
            let twice = match key {
                "descr" => descr.replace(dict.descr()?).is_some(),
                "fortran_order" => order.replace(dict.boolean()?).is_some(),
                _ => shape.replace(dict.shape()?).is_some(),
            };
            if twice {
                return Err(NpyHeaderError::Twice { key });
            }
            if !dict.takes(",") {
                dict.needs("}", "',' or '}'")?;
                break;
            }
        }
        dict.spaces();
        if dict.at < text.len() {
            return Err(dict.expected("the end"));
        }
        let missing = |key| NpyHeaderError::Missing { key };
        let shape: Vec<usize> = shape.ok_or(missing("shape"))?;
        elements(&shape).ok_or(NpyHeaderError::Elements)?;
        Ok(NpyHeader {
            shape,
            fortran_order: order.ok_or(missing("fortran_order"))?,
            descr: descr.ok_or(missing("descr"))?,
        })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn expected(&self, expected: &'static str) -> NpyHeaderError {
        NpyHeaderError::Dict { at: self.at, expected }
    }

    fn spaces(&mut self) {
        let is_space = |letter: char| letter.is_ascii_whitespace();
        self.at = self.text.len() - self.rest().trim_start_matches(is_space).len();
    }

    /// Takes a word behind spaces, if it is next.
    fn takes(&mut self, word: &str) -> bool {
        self.spaces();
        let is_next = self.rest().starts_with(word);
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    fn needs(&mut self, word: &str, expected: &'static str) -> Result<(), NpyHeaderError> {
        if self.takes(word) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// Takes a string in quotes of either kind, if it is next; returns what stands between them. Escapes are
    /// left as they are: no description that is known has one.
    fn string(&mut self) -> Result<Option<&'a str>, NpyHeaderError> {
        for quote in ["'", "\""] {
            if self.takes(quote) {
                let length = self.rest().find(quote).ok_or_else(|| self.expected("a quote"))?;
                let string = self.rest().get(..length).unwrap_or_default();
                self.at += length + quote.len();
                return Ok(Some(string));
            }
        }
        Ok(None)
    }

    fn key(&mut self) -> Result<&'static str, NpyHeaderError> {
        const KEYS: [&str; 3] = ["descr", "fortran_order", "shape"];
        self.spaces();
        let at = self.at;
        let found = self.string()?;
        let known = KEYS.into_iter().find(|key| found == Some(key));
        let expected = "'descr', 'fortran_order' or 'shape'";
        known.ok_or(NpyHeaderError::Dict { at, expected })
    }

    /// Takes the description of a type; that of a record, which is a list or tuple, as it stands.
    fn descr(&mut self) -> Result<String, NpyHeaderError> {
        self.spaces();
        let start = self.at;
        if let Some(string) = self.string()? {
            // Only a list itself begins so, not a string.
            let is_type = !is_list(string);
            let wrong = NpyHeaderError::Dict { at: start, expected: "a type" };
            return is_type.then(|| string.to_owned()).ok_or(wrong);
        }
        let mut depth = 0_usize;
        loop {
            if self.takes("[") || self.takes("(") {
                depth += 1;
            } else if depth == 0 {
                return Err(self.expected("a type"));
            } else if self.takes("]") || self.takes(")") {
                depth -= 1;
                if depth == 0 {
                    return Ok(self.text.get(start..self.at).unwrap_or_default().to_owned());
                }
            } else if self.string()?.is_none() {
                let letter = self.rest().chars().next();
                self.at += letter.ok_or_else(|| self.expected("']' or ')'"))?.len_utf8();
            }
        }
    }

    fn boolean(&mut self) -> Result<bool, NpyHeaderError> {
        let is_true = self.takes("True");
        if is_true || self.takes("False") {
            return Ok(is_true);
        }
        Err(self.expected("True or False"))
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyHeaderError> {
        let mut shape = Vec::new();
        self.needs("(", "'('")?;
        while !self.takes(")") {
            shape.push(self.extent()?);
            let is_last = !self.takes(",");
            // One number in parentheses is no tuple.
            if is_last && shape.len() == 1 {
                return Err(self.expected("','"));
            }
            if is_last {
                self.needs(")", "',' or ')'")?;
                break;
            }
        }
        Ok(shape)
    }

    fn extent(&mut self) -> Result<usize, NpyHeaderError> {
        self.spaces();
        let rest = self.rest();
        let digits = rest.len() - rest.trim_start_matches(|it: char| it.is_ascii_digit()).len();
        let number = rest.get(..digits).unwrap_or_default();
        if number.is_empty() {
            return Err(self.expected("a whole number"));
        }
        let extent = number.parse().map_err(|_| NpyHeaderError::Elements)?;
        self.at += digits;
        // Python 2 wrote long numbers so.
        if self.rest().starts_with('L') {
            self.at += 1;
        }
        Ok(extent)
    }
}

#[cfg(test)]
mod tests;
