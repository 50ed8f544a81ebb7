//! The writing half of the codec: a serde `Serializer` over bincode's encoder.
//!
//! bincode's own serializer allows any depth. This one counts the levels that the
//! [`Decoder`](super::decoder) counts: options, sequences, maps and enums. The number of levels
//! that may still follow is handed down by value. It is a constant for a type that does not
//! contain itself, so that nothing is left of it in optimised code.

use bincode::enc::{Encode, Encoder};
use bincode::error::EncodeError;
use serde::Serialize;
use serde::ser::{self, Serializer};

use super::DEPTH_MAX;

/// Text of the error of a value that is too deep.
pub(super) const TOO_DEEP: &str = "more than 128 values lie within each other";

/// Encoder of a value or its parts, with the number of levels that may follow within it.
pub(super) struct Levels<'a, E> {
    encoder: &'a mut E,
    left: u32,
}

impl<'a, E: Encoder> Levels<'a, E> {
    /// Creates the encoder of a whole message.
    #[inline(always)]
    pub(super) fn new(encoder: &'a mut E) -> Self {
        Levels { encoder, left: DEPTH_MAX }
    }

    /// Goes one level further down.
    #[inline(always)]
    fn nested(self) -> Result<Self, EncodeError> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Levels { left, ..self }),
            None => Err(too_deep()),
        }
    }

    /// Goes one level further down, into the variant of this index.
    #[inline(always)]
    fn variant(self, index: u32) -> Result<Self, EncodeError> {
        let variant = self.nested()?;
        index.encode(variant.encoder)?;
        Ok(variant)
    }

    /// Goes one level further down, to `len` elements.
    #[inline(always)]
    fn counted(self, len: Option<usize>) -> Result<Self, EncodeError> {
        let counted = self.nested()?;
        let Some(len) = len else { return Err(uncounted()) };
        len.encode(counted.encoder)?;
        Ok(counted)
    }

    #[inline(always)]
    fn part<T: Serialize + ?Sized>(&mut self, part: &T) -> Result<(), EncodeError> {
        part.serialize(Levels { encoder: &mut *self.encoder, left: self.left })
    }
}

#[cold]
#[inline(never)]
fn too_deep() -> EncodeError {
    EncodeError::Other(TOO_DEEP)
}

#[cold]
#[inline(never)]
fn uncounted() -> EncodeError {
    bincode::serde::EncodeError::SequenceMustHaveLength.into()
}

/// Defines the methods that write a value without parts.
macro_rules! plain {
    ($($serialize:ident $value:ty;)*) => {$(
        #[inline(always)]
        fn $serialize(self, value: $value) -> Result<(), EncodeError> {
            value.encode(self.encoder)
        }
    )*};
}

impl<E: Encoder> Serializer for Levels<'_, E> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    plain! {
        serialize_bool bool;
        serialize_i8 i8;
        serialize_i16 i16;
        serialize_i32 i32;
        serialize_i64 i64;
        serialize_i128 i128;
        serialize_u8 u8;
        serialize_u16 u16;
        serialize_u32 u32;
        serialize_u64 u64;
        serialize_u128 u128;
        serialize_f32 f32;
        serialize_f64 f64;
        serialize_char char;
        serialize_str &str;
        serialize_bytes &[u8];
    }

    #[inline(always)]
    fn serialize_none(self) -> Result<(), EncodeError> {
        0u8.encode(self.encoder)
    }

    #[inline(always)]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        let some = self.nested()?;
        1u8.encode(some.encoder)?;
        value.serialize(some)
    }

    #[inline(always)]
    fn serialize_unit(self) -> Result<(), EncodeError> {
        Ok(())
    }

    #[inline(always)]
    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), EncodeError> {
        Ok(())
    }

    #[inline(always)]
    fn serialize_unit_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
    ) -> Result<(), EncodeError> {
        self.variant(index).map(|_| ())
    }

    #[inline(always)]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    #[inline(always)]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        value.serialize(self.variant(index)?)
    }

    #[inline(always)]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self, EncodeError> {
        self.counted(len)
    }

    #[inline(always)]
    fn serialize_tuple(self, _len: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    #[inline(always)]
    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    #[inline(always)]
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<Self, EncodeError> {
        self.variant(index)
    }

    #[inline(always)]
    fn serialize_map(self, len: Option<usize>) -> Result<Self, EncodeError> {
        self.counted(len)
    }

    #[inline(always)]
    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Self, EncodeError> {
        Ok(self)
    }

    #[inline(always)]
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<Self, EncodeError> {
        self.variant(index)
    }

    #[inline(always)]
    fn is_human_readable(&self) -> bool {
        false
    }
}

#[cold]
#[inline(never)]
fn skipped(field: &'static str) -> EncodeError {
    EncodeError::OtherString(format!("field `{field}` is skipped, which its reader cannot know"))
}

/// Implements the traits that write the parts of a value.
macro_rules! parts {
    ($($parts:ident: $($part:ident($($key:ty)?))+ $(, $skip:ident)?;)*) => {$(
        impl<E: Encoder> ser::$parts for Levels<'_, E> {
            type Ok = ();
            type Error = EncodeError;

            $(#[inline(always)]
            fn $part<T: Serialize + ?Sized>(
                &mut self,
                $(_key: $key,)?
                value: &T,
            ) -> Result<(), EncodeError> {
                self.part(value)
            })+

            $(#[inline(always)]
            fn $skip(&mut self, key: &'static str) -> Result<(), EncodeError> {
                Err(skipped(key))
            })?

            #[inline(always)]
            fn end(self) -> Result<(), EncodeError> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key() serialize_value();
    SerializeStruct: serialize_field(&'static str), skip_field;
    SerializeStructVariant: serialize_field(&'static str), skip_field;
}
