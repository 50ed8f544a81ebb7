//! The reading half of the codec: a serde `Deserializer` over a slice.
//!
//! Two things keep a stranger's bytes cheap. A length is checked against the bytes that are
//! left before it is used. And values that may contain themselves (options, sequences, maps,
//! enums) count their depth.

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::{DEPTH_MAX, DecodeError};

/// The bytes and levels that are left.
pub(super) struct Decoder<'de> {
    rest: &'de [u8],
    levels_left: u32,
}

impl<'de> Decoder<'de> {
    #[inline]
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Decoder { rest: bytes, levels_left: DEPTH_MAX }
    }

    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn slice(&mut self, bytes: usize) -> Result<&'de [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(bytes).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a declared number of bytes, then the bytes.
    #[inline]
    fn counted(&mut self) -> Result<&'de [u8], DecodeError> {
        let bytes = u64::from_le_bytes(self.array()?);
        self.slice(usize::try_from(bytes).map_err(|_| DecodeError::Short)?)
    }

    /// Reads a declared number of elements. Several elements take at least a byte each, so a
    /// number above the bytes left is a lie.
    #[inline]
    fn count(&mut self) -> Result<usize, DecodeError> {
        let count = u64::from_le_bytes(self.array()?);
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len().max(1) => Ok(count),
            _ => Err(DecodeError::Short),
        }
    }

    /// Reads with `inner` one level further down.
    #[inline]
    fn nested<R>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<R, DecodeError>,
    ) -> Result<R, DecodeError> {
        self.levels_left = self.levels_left.checked_sub(1).ok_or(DecodeError::TooDeep)?;
        let result = inner(self)?;
        self.levels_left += 1;
        Ok(result)
    }

    fn char(&mut self) -> Result<char, DecodeError> {
        let width = match self.rest.first().ok_or(DecodeError::Short)? {
            0x00..=0x7f => 1,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return Err(DecodeError::Char),
        };
        let text = str::from_utf8(self.slice(width)?).map_err(|_| DecodeError::Char)?;
        text.chars().next().ok_or(DecodeError::Char)
    }
}

/// Defines the methods that read a number.
macro_rules! numbers {
    ($($deserialize:ident $visit:ident $number:ty;)*) => {$(
        #[inline]
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(<$number>::from_le_bytes(self.array()?))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    numbers! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.byte()? {
            0 => visitor.visit_bool(false),
            1 => visitor.visit_bool(true),
            _ => Err(DecodeError::Bool),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_char(self.char()?)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let text = str::from_utf8(self.counted()?).map_err(|_| DecodeError::Text)?;
        visitor.visit_borrowed_str(text)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_bytes(self.counted()?)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.byte()? {
            0 => visitor.visit_none(),
            1 => self.nested(|decoder| visitor.visit_some(decoder)),
            _ => Err(DecodeError::Optional),
        }
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let left = self.count()?;
        self.nested(|decoder| visitor.visit_seq(Elements { decoder, left }))
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(Fields { decoder: self, left: len })
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let left = self.count()?;
        self.nested(|decoder| {
            let rest_before = decoder.rest.len();
            visitor.visit_map(Entries { decoder, left, rest_before })
        })
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.nested(|decoder| visitor.visit_enum(decoder))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::NotSelfDescribing)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, DecodeError> {
        Err(DecodeError::NotSelfDescribing)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(
        self,
        _visitor: V,
    ) -> Result<V::Value, DecodeError> {
        Err(DecodeError::NotSelfDescribing)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The parts of a tuple, an array or a struct: the type determines their number.
struct Fields<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Fields<'_, 'de> {
    type Error = DecodeError;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.decoder).map(Some)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The elements of a sequence: their number came with the bytes.
struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = DecodeError;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let rest_before = self.decoder.rest.len();
        let element = seed.deserialize(&mut *self.decoder)?;
        if left > 0 && self.decoder.rest.len() == rest_before {
            return Err(DecodeError::ZeroSized);
        }
        Ok(Some(element))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The entries of a map: their number came with the bytes.
struct Entries<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
    /// Bytes left before the present entry.
    rest_before: usize,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = DecodeError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        self.rest_before = self.decoder.rest.len();
        seed.deserialize(&mut *self.decoder).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let value = seed.deserialize(&mut *self.decoder)?;
        if self.left > 0 && self.decoder.rest.len() == self.rest_before {
            return Err(DecodeError::ZeroSized);
        }
        Ok(value)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut Decoder<'de> {
    type Error = DecodeError;
    type Variant = Self;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self), DecodeError> {
        let index = u32::from_le_bytes(self.array()?);
        let index: U32Deserializer<DecodeError> = index.into_deserializer();
        // An enum refuses nothing but an index that it does not have.
        let variant = seed.deserialize(index).map_err(|_| DecodeError::Variant)?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    #[inline]
    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, DecodeError> {
        seed.deserialize(self)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
