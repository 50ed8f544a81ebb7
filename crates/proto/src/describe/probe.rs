//! A deserializer without bytes: it notes the calls and makes up the answers.

use std::fmt;

use serde::Serialize;
use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use super::explore::{Explorer, Key, Slot};
use super::graph::{Form, Id, Kind};

/// End of a pass. The [`Explorer`] notes the reason, because a type may replace an error by its
/// own.
#[derive(Debug)]
pub(super) struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the probe has no answer")
    }
}

impl std::error::Error for Stop {}

impl Error for Stop {
    fn custom<T: fmt::Display>(_cause: T) -> Self {
        Stop
    }
}

/// Answers one call, whose node fills a slot.
pub(super) struct Probe<'a> {
    explorer: &'a mut Explorer,
    slot: Slot,
}

impl<'a> Probe<'a> {
    pub(super) fn of_root(explorer: &'a mut Explorer) -> Self {
        Probe { explorer, slot: Slot::Root }
    }

    /// Answers a call for a value without parts by one of several answers.
    fn leaf<'de, V: Visitor<'de>, const N: usize, A: Copy + Serialize>(
        self,
        name: &'static str,
        answers: [A; N],
        visitor: V,
        visit: impl FnOnce(V, A) -> Result<V::Value, Stop>,
    ) -> Result<V::Value, Stop> {
        let key = Key::of::<V, V::Value>(Kind::Leaf(name));
        let (id, answer) = self.explorer.begin_leaf(self.slot, key, N as u32).ok_or(Stop)?;
        self.explorer.answered(&answers[answer as usize]);
        let result = visit(visitor, answers[answer as usize]);
        if result.is_err() {
            self.explorer.turned_down(id, answer);
        }
        result
    }

    /// Answers a call for anything else by one of its alternatives.
    fn parts<'de, V: Visitor<'de>>(
        mut self,
        kind: Kind,
        visitor: V,
        visit: impl FnOnce(V, Parts<'_>) -> Result<V::Value, Stop>,
    ) -> Result<V::Value, Stop> {
        let parts = self.begin_parts(Key::of::<V, V::Value>(kind))?;
        let result = visit(visitor, parts);
        self.explorer.leave(result.is_ok());
        result
    }

    fn begin_parts(&mut self, key: Key) -> Result<Parts<'_>, Stop> {
        if self.explorer.is_stopped() {
            return Err(Stop);
        }
        let id = self.explorer.enter(self.slot, key, 0);
        let alternative = self.explorer.pick(id).ok_or(Stop)?;
        Ok(Parts { explorer: &mut *self.explorer, id, alternative, given: 0, count: 0 })
    }

    fn any<'de, V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stop> {
        let id = self.explorer.enter(self.slot, Key::of::<V, V::Value>(Kind::Any), 0);
        self.explorer.answer(id);
        Err(Stop)
    }
}

/// Defines the methods that ask for a value without parts, with its name and the possible
/// answers.
macro_rules! leaves {
    ($($deserialize:ident $visit:ident $name:literal $answers:expr;)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
            self.leaf($name, $answers, visitor, |visitor, answer| visitor.$visit(answer))
        }
    )*};
}

/// Answers for bytes, of the lengths that identifiers, addresses and digests have.
const BYTES: [&[u8]; 5] = [&[], &[1; 16], &[1; 4], &[1; 32], &[1; 8]];

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Stop;

    leaves! {
        deserialize_bool visit_bool "bool" [true, false];
        deserialize_u8 visit_u8 "u8" [1, 0];
        deserialize_u16 visit_u16 "u16" [1, 0];
        deserialize_u32 visit_u32 "u32" [1, 0];
        deserialize_u64 visit_u64 "u64" [1, 0];
        deserialize_u128 visit_u128 "u128" [1, 0];
        deserialize_i8 visit_i8 "i8" [1, 0];
        deserialize_i16 visit_i16 "i16" [1, 0];
        deserialize_i32 visit_i32 "i32" [1, 0];
        deserialize_i64 visit_i64 "i64" [1, 0];
        deserialize_i128 visit_i128 "i128" [1, 0];
        deserialize_f32 visit_f32 "f32" [1.0, 0.0];
        deserialize_f64 visit_f64 "f64" [1.0, 0.0];
        deserialize_char visit_char "char" ['1', 'a'];
        deserialize_str visit_borrowed_str "str" ["1", "a", ""];
        deserialize_string visit_borrowed_str "str" ["1", "a", ""];
        deserialize_bytes visit_borrowed_bytes "bytes" BYTES;
        deserialize_byte_buf visit_borrowed_bytes "bytes" BYTES;
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.parts(Kind::Option, visitor, |visitor, parts| {
            if parts.alternative == 0 {
                visitor.visit_some(parts.only())
            } else {
                visitor.visit_none()
            }
        })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.parts(Kind::Unit, visitor, |visitor, _| visitor.visit_unit())
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.parts(Kind::UnitStruct(name), visitor, |visitor, _| visitor.visit_unit())
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.parts(Kind::Newtype(name), visitor, |visitor, parts| {
            visitor.visit_newtype_struct(parts.only())
        })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.parts(Kind::Seq, visitor, |visitor, parts| {
            let count = usize::from(parts.alternative == 0);
            visitor.visit_seq(parts.of_count(count))
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        self.parts(Kind::Tuple(len), visitor, |visitor, parts| {
            visitor.visit_seq(parts.of_count(len))
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.parts(Kind::TupleStruct(name, len), visitor, |visitor, parts| {
            visitor.visit_seq(parts.of_count(len))
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.parts(Kind::Map, visitor, |visitor, parts| {
            let count = if parts.alternative == 0 { 2 } else { 0 };
            visitor.visit_map(parts.of_count(count))
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.parts(Kind::Struct(name, fields), visitor, |visitor, parts| {
            visitor.visit_seq(parts.of_count(fields.len()))
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.parts(Kind::Enum(name, variants), visitor, |visitor, parts| visitor.visit_enum(parts))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.any(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The parts of an alternative, given out one by one.
struct Parts<'a> {
    explorer: &'a mut Explorer,
    id: Id,
    alternative: usize,
    given: usize,
    count: usize,
}

impl<'a> Parts<'a> {
    fn of_count(self, count: usize) -> Self {
        Parts { count, ..self }
    }

    fn slot(&self) -> Slot {
        Slot::Child { parent: self.id, alternative: self.alternative, index: self.given }
    }

    /// Returns the probe of an only part.
    fn only(self) -> Probe<'a> {
        let slot = self.slot();
        Probe { explorer: self.explorer, slot }
    }

    /// Answers the next part.
    fn next<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stop> {
        let slot = self.slot();
        let result = seed.deserialize(self.begin_next()?);
        self.end_next(slot, result.is_ok());
        result
    }

    fn begin_next(&mut self) -> Result<Probe<'_>, Stop> {
        if self.explorer.is_stopped() {
            return Err(Stop);
        }
        let slot = self.slot();
        self.given += 1;
        Ok(Probe { explorer: &mut *self.explorer, slot })
    }

    fn end_next(&mut self, slot: Slot, is_made_up: bool) {
        if !is_made_up {
            // The part itself was made up, and then its type refused it.
            self.explorer.refused(self.id, self.alternative);
        } else if !self.explorer.is_known(slot) {
            // The part has its value without asking for one.
            self.explorer.enter(slot, Key::of::<(), ()>(Kind::Unit), 0);
        }
    }

    fn is_over(&self) -> bool {
        self.given == self.count
    }

    fn has_form(&mut self, form: Form) {
        self.explorer.has_form(self.id, self.alternative, form);
    }
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stop> {
        if self.is_over() { Ok(None) } else { self.next(seed).map(Some) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.count - self.given)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        if self.is_over() { Ok(None) } else { self.next(seed).map(Some) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        if self.is_over() { Err(Stop) } else { self.next(seed) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some((self.count - self.given) / 2)
    }
}

impl<'de> EnumAccess<'de> for Parts<'_> {
    type Error = Stop;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Stop> {
        let index: U32Deserializer<Stop> = (self.alternative as u32).into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Parts<'_> {
    type Error = Stop;

    fn unit_variant(mut self) -> Result<(), Stop> {
        self.has_form(Form::Unit);
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(mut self, seed: S) -> Result<S::Value, Stop> {
        self.has_form(Form::Newtype);
        self.next(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, Stop> {
        self.has_form(Form::Tuple(len));
        visitor.visit_seq(self.of_count(len))
    }

    fn struct_variant<V: Visitor<'de>>(
        mut self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.has_form(Form::Struct(fields));
        visitor.visit_seq(self.of_count(fields.len()))
    }
}
