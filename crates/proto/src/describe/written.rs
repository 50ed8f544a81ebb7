//! Compares how a made-up value is written with what was found out about reading it.
//!
//! The bytes have no names, so a type that leaves out a field or counts its variants in one of the
//! two directions only would be misread without an error. A value that is written as the probe
//! answered is read as it was. Another one is walked through here: it may be written differently
//! because the type changes what it reads, say to the newest of its variants.

use std::fmt;

use serde::ser::{
    self, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::graph::{Form, Id, Kind, Node};

/// Most structs and tuples within each other that are opened to find the next part to be read.
const OPENED_MAX: u32 = 10_000;

/// End of a walk.
#[derive(Debug)]
pub(super) enum Stop {
    /// The value is written in a way in which it cannot be read back, for this reason.
    Misread(String),
    /// The value refuses to be written, or nothing is known of its part.
    Unknown,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the walk is over")
    }
}

impl std::error::Error for Stop {}

impl ser::Error for Stop {
    fn custom<T: fmt::Display>(_cause: T) -> Self {
        Stop::Unknown
    }
}

fn misread<R>(reason: impl Into<String>) -> Result<R, Stop> {
    Err(Stop::Misread(reason.into()))
}

/// Compares how `value` is written with how `root` is read.
pub(super) fn walk<T: Serialize>(value: &T, nodes: &[Node], root: Id) -> Result<(), Stop> {
    let mut walk = Walk { nodes, ahead: vec![root], behind: vec![], opened: 0, is_unsure: false };
    value.serialize(&mut walk)?;
    walk.is_over()?;
    if walk.is_unsure { Err(Stop::Unknown) } else { Ok(()) }
}

/// The parts that are still to be read.
struct Walk<'a> {
    nodes: &'a [Node],
    /// The next one is the last.
    ahead: Vec<Id>,
    /// The parts ahead behind each element that is being walked through.
    behind: Vec<Vec<Id>>,
    opened: u32,
    /// Whether a variant, or all fields of a struct, may be written and read by different names.
    is_unsure: bool,
}

impl<'a> Walk<'a> {
    /// Puts the children of an alternative ahead of everything else.
    fn open(&mut self, id: Id, alternative: usize) -> Result<(), Stop> {
        self.opened += 1;
        let one = &self.nodes[id].alternatives[alternative];
        if !one.is_done() || self.opened > OPENED_MAX {
            return Err(Stop::Unknown);
        }
        self.ahead.extend(one.children.iter().rev());
        Ok(())
    }

    /// Takes the next part that has bytes of its own, or for which `wanted` is true. Structs,
    /// tuples and the like are their parts.
    fn next(&mut self, wanted: impl Fn(Kind) -> bool) -> Result<Option<(Id, &'a Node)>, Stop> {
        while let Some(id) = self.ahead.pop() {
            let node = &self.nodes[id];
            match node.kind {
                kind if wanted(kind) => return Ok(Some((id, node))),
                Kind::Unit | Kind::UnitStruct(_) => {}
                Kind::Newtype(_) | Kind::Tuple(_) | Kind::TupleStruct(..) | Kind::Struct(..) => {
                    self.open(id, 0)?;
                }
                Kind::Any => return Err(Stop::Unknown),
                _ => return Ok(Some((id, node))),
            }
        }
        Ok(None)
    }

    fn expect(&mut self, written: &str) -> Result<(Id, &'a Node), Stop> {
        match self.next(|_| false)? {
            Some(next) => Ok(next),
            None => misread(format!("it writes {written} behind the last part that it reads")),
        }
    }

    fn is_over(&mut self) -> Result<(), Stop> {
        match self.next(|_| false)? {
            None => Ok(()),
            Some((_, node)) => misread(format!(
                "it reads {} behind the last part that it writes",
                described(node.kind)
            )),
        }
    }

    fn leaf(&mut self, written: &'static str) -> Result<(), Stop> {
        let (id, node) = self.expect(written)?;
        match node.kind {
            Kind::Leaf(read) if width(read) == width(written) => Ok(()),
            // The bytes of a sequence of bytes are the same.
            Kind::Seq if width(written) == COUNTED => {
                let bytes = node.alternatives[0].children.iter();
                let mut bytes = bytes.map(|child| self.nodes[*child].kind);
                match bytes.all(|kind| matches!(kind, Kind::Leaf(name) if width(name) == 1)) {
                    true => Ok(()),
                    false => misread_as(written, self.nodes[id].kind),
                }
            }
            read => misread_as(written, read),
        }
    }

    /// Goes to the elements or entries of a container.
    fn container(&mut self, wanted: Kind, written: &'static str) -> Result<Parts<'_, 'a>, Stop> {
        let (id, node) = self.expect(written)?;
        match node.kind {
            kind if kind == wanted => {}
            Kind::Leaf(name) if width(name) == COUNTED => return Err(Stop::Unknown),
            read => return misread_as(written, read),
        }
        if !node.alternatives[0].is_done() {
            return Err(Stop::Unknown);
        }
        Ok(Parts { walk: self, container: Some(id), given: 0, names: Names::default() })
    }

    fn parts(&mut self) -> Parts<'_, 'a> {
        Parts { walk: self, container: None, given: 0, names: Names::default() }
    }

    /// Goes into a variant; returns its fields.
    fn variant(
        &mut self,
        owner: &str,
        index: u32,
        name: &'static str,
        written: Form,
    ) -> Result<Parts<'_, 'a>, Stop> {
        let (id, node) = self.expect("an enum")?;
        let Kind::Enum(_, names) = node.kind else { return misread_as("an enum", node.kind) };
        let index = index as usize;
        let form = node.alternatives.get(index).and_then(|one| one.form);
        // Other names that are read for a variant stand in the list as well, so that those behind
        // them have a later place there than among the variants.
        let place = names.iter().position(|known| *known == name);
        // One that is not read at all leaves a later one without a place.
        let is_renamed = place.is_none() && form.is_some_and(|form| form.is_like(written));
        match form {
            Some(form) if is_renamed || place.is_some_and(|place| place >= index) => {
                self.is_unsure |= is_renamed;
                self.open(id, index)?;
                let count = node.alternatives[index].children.len();
                let names = match form {
                    Form::Struct(fields) => Names::of(name, fields, count),
                    _ => Names::default(),
                };
                Ok(Parts { names, ..self.parts() })
            }
            // Nothing is known of it; an index that the type refused was given up.
            None if node.alternatives.get(index).is_some_and(|one| !one.given_up) => {
                Err(Stop::Unknown)
            }
            _ => {
                let read = names.get(index).filter(|_| form.is_some());
                let read = read.map_or_else(|| "nothing".to_owned(), |name| format!("`{name}`"));
                misread(format!(
                    "variant `{name}` of enum `{owner}` is written with index {index}, which is \
                     read as {read}"
                ))
            }
        }
    }
}

/// Width in the table below of what has its length before it.
const COUNTED: u32 = 100;

/// Returns a number that is the same for values without parts that take the same bytes.
fn width(leaf: &str) -> u32 {
    match leaf {
        "bool" | "u8" | "i8" => 1,
        "u16" | "i16" => 2,
        "u32" | "i32" | "f32" => 4,
        "u64" | "i64" | "f64" => 8,
        "u128" | "i128" => 16,
        "str" | "bytes" => COUNTED,
        _ => 0,
    }
}

fn described(kind: Kind) -> &'static str {
    match kind {
        Kind::Leaf(name) => name,
        Kind::Option => "an optional value",
        Kind::Seq => "a sequence",
        Kind::Map => "a map",
        Kind::Enum(..) => "an enum",
        _ => "another value",
    }
}

fn misread_as<R>(written: &str, read: Kind) -> Result<R, Stop> {
    misread(format!("it writes {written} where it reads {}", described(read)))
}

/// The fields that are read of a struct, in order, with those that were not written yet.
#[derive(Default)]
struct Names {
    owner: &'static str,
    /// `None` where something else than a struct is read.
    read: Option<&'static [&'static str]>,
    /// Number of fields that the struct reads; its list may hold other names for them.
    count: usize,
    written: usize,
    is_one_known: bool,
    /// The reason to refuse the first field that is written by a name that is not read.
    unknown: Option<String>,
}

impl Names {
    fn of(owner: &'static str, read: &'static [&'static str], count: usize) -> Names {
        Names { owner, read: Some(read), count, ..Names::default() }
    }

    fn next(&mut self, name: &str) -> Result<(), Stop> {
        self.written += 1;
        let Some(read) = &mut self.read else { return Ok(()) };
        if let Some(place) = read.iter().position(|known| *known == name) {
            *read = &read[place + 1..];
            self.is_one_known = true;
        } else if self.unknown.is_none() {
            self.unknown = Some(format!(
                "field `{name}` of `{}` is written and not read, at least not at its place",
                self.owner
            ));
        }
        self.check_unknown(self.is_one_known)
    }

    fn check_unknown(&mut self, is_refused: bool) -> Result<(), Stop> {
        self.unknown.take_if(|_| is_refused).map_or(Ok(()), misread)
    }

    /// Returns whether all fields may be written by other names than they are read by. A single one
    /// is rather another field.
    fn end(mut self) -> Result<bool, Stop> {
        if self.read.is_some() && self.written != self.count {
            let (owner, read, written) = (self.owner, self.count, self.written);
            return misread(format!(
                "`{owner}` is written with {written} fields and read with {read}"
            ));
        }
        self.check_unknown(self.count < 2)?;
        Ok(self.unknown.is_some())
    }
}

/// A value whose parts are being written.
struct Parts<'w, 'a> {
    walk: &'w mut Walk<'a>,
    /// The sequence or map; `None` for what is no more than its parts.
    container: Option<Id>,
    given: usize,
    names: Names,
}

impl<'a> Parts<'_, 'a> {
    fn part<T: Serialize + ?Sized>(&mut self, part: &T) -> Result<(), Stop> {
        self.begin_part()?;
        let walked = part.serialize(&mut *self.walk);
        self.end_part(walked)
    }

    /// Goes to the next element of a container.
    fn begin_part(&mut self) -> Result<(), Stop> {
        let Some(id) = self.container else { return Ok(()) };
        let children = &self.walk.nodes[id].alternatives[0].children;
        if children.is_empty() {
            return Err(Stop::Unknown);
        }
        let child = children[self.given % children.len()];
        self.given += 1;
        let behind = std::mem::replace(&mut self.walk.ahead, vec![child]);
        self.walk.behind.push(behind);
        Ok(())
    }

    fn end_part(&mut self, walked: Result<(), Stop>) -> Result<(), Stop> {
        if self.container.is_some() {
            let behind = self.walk.behind.pop().expect("the part has begun");
            walked?;
            self.walk.is_over()?;
            self.walk.ahead = behind;
            return Ok(());
        }
        walked
    }
}

/// Defines the methods that write a value without parts.
macro_rules! leaves {
    ($($serialize:ident $value:ty, $name:literal;)*) => {$(
        fn $serialize(self, _value: $value) -> Result<(), Stop> {
            self.leaf($name)
        }
    )*};
}

impl<'w, 'a> Serializer for &'w mut Walk<'a> {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Parts<'w, 'a>;
    type SerializeTuple = Parts<'w, 'a>;
    type SerializeTupleStruct = Parts<'w, 'a>;
    type SerializeTupleVariant = Parts<'w, 'a>;
    type SerializeMap = Parts<'w, 'a>;
    type SerializeStruct = Parts<'w, 'a>;
    type SerializeStructVariant = Parts<'w, 'a>;

    leaves! {
        serialize_bool bool, "bool";
        serialize_i8 i8, "i8";
        serialize_i16 i16, "i16";
        serialize_i32 i32, "i32";
        serialize_i64 i64, "i64";
        serialize_i128 i128, "i128";
        serialize_u8 u8, "u8";
        serialize_u16 u16, "u16";
        serialize_u32 u32, "u32";
        serialize_u64 u64, "u64";
        serialize_u128 u128, "u128";
        serialize_f32 f32, "f32";
        serialize_f64 f64, "f64";
        serialize_char char, "char";
        serialize_str &str, "str";
        serialize_bytes &[u8], "bytes";
    }

    fn serialize_none(self) -> Result<(), Stop> {
        let (_, node) = self.expect("an optional value")?;
        if node.kind == Kind::Option { Ok(()) } else { misread_as("an optional value", node.kind) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        let (id, node) = self.expect("an optional value")?;
        if node.kind != Kind::Option {
            return misread_as("an optional value", node.kind);
        }
        self.open(id, 0)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<(), Stop> {
        self.variant(name, index, variant, Form::Unit).map(|_| ())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        self.variant(name, index, variant, Form::Newtype)?;
        value.serialize(self)
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Parts<'w, 'a>, Stop> {
        self.container(Kind::Seq, "a sequence")
    }

    fn serialize_tuple(self, _len: usize) -> Result<Parts<'w, 'a>, Stop> {
        Ok(self.parts())
    }

    fn serialize_tuple_struct(
        self,
        _name: &'static str,
        _len: usize,
    ) -> Result<Parts<'w, 'a>, Stop> {
        Ok(self.parts())
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Parts<'w, 'a>, Stop> {
        self.variant(name, index, variant, Form::Tuple(len))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Parts<'w, 'a>, Stop> {
        self.container(Kind::Map, "a map")
    }

    fn serialize_struct(self, owner: &'static str, _len: usize) -> Result<Parts<'w, 'a>, Stop> {
        let mut names = Names::default();
        if let Some((id, node)) = self.next(|kind| matches!(kind, Kind::Struct(..)))? {
            if let Kind::Struct(_, fields) = node.kind {
                names = Names::of(owner, fields, node.alternatives[0].children.len());
                self.open(id, 0)?;
            } else {
                self.ahead.push(id);
            }
        }
        Ok(Parts { names, ..self.parts() })
    }

    fn serialize_struct_variant(
        self,
        owner: &'static str,
        index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Parts<'w, 'a>, Stop> {
        self.variant(owner, index, variant, Form::Struct(&[]))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Implements the traits that write the parts of a value.
macro_rules! parts {
    ($($parts:ident: $($part:ident)+;)*) => {$(
        impl $parts for Parts<'_, '_> {
            type Ok = ();
            type Error = Stop;

            $(fn $part<T: Serialize + ?Sized>(&mut self, part: &T) -> Result<(), Stop> {
                self.part(part)
            })+

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
    SerializeMap: serialize_key serialize_value;
}

/// Implements the traits that write fields by their names.
macro_rules! fields {
    ($($fields:ident)+) => {$(
        impl $fields for Parts<'_, '_> {
            type Ok = ();
            type Error = Stop;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                part: &T,
            ) -> Result<(), Stop> {
                self.names.next(name)?;
                self.part(part)
            }

            fn skip_field(&mut self, _name: &'static str) -> Result<(), Stop> {
                Err(Stop::Unknown)
            }

            fn end(self) -> Result<(), Stop> {
                self.walk.is_unsure |= self.names.end()?;
                Ok(())
            }
        }
    )+};
}

fields! { SerializeStruct SerializeStructVariant }
