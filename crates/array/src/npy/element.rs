//! Types of elements that an `.npy` file may have here.

use std::fmt;

use chunkcomm_group::Element;

/// Type of the elements of an `.npy` file, whatever their byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NpyType {
    /// `u8`.
    U8,
    /// `u16`.
    U16,
    /// `u32`.
    U32,
    /// `u64`.
    U64,
    /// `i8`.
    I8,
    /// `i16`.
    I16,
    /// `i32`.
    I32,
    /// `i64`.
    I64,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// Complex number of two `f32`; NumPy's `complex64`.
    C64,
    /// Complex number of two `f64`; NumPy's `complex128`.
    C128,
}

impl NpyType {
    /// All types.
    pub const ALL: [NpyType; 12] = [
        NpyType::U8,
        NpyType::U16,
        NpyType::U32,
        NpyType::U64,
        NpyType::I8,
        NpyType::I16,
        NpyType::I32,
        NpyType::I64,
        NpyType::F32,
        NpyType::F64,
        NpyType::C64,
        NpyType::C128,
    ];

    /// Returns NumPy's word for the type without a byte order, such as `f8`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            NpyType::U8 => "u1",
            NpyType::U16 => "u2",
            NpyType::U32 => "u4",
            NpyType::U64 => "u8",
            NpyType::I8 => "i1",
            NpyType::I16 => "i2",
            NpyType::I32 => "i4",
            NpyType::I64 => "i8",
            NpyType::F32 => "f4",
            NpyType::F64 => "f8",
            NpyType::C64 => "c8",
            NpyType::C128 => "c16",
        }
    }

    /// Returns the size of an element in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            NpyType::U8 | NpyType::I8 => 1,
            NpyType::U16 | NpyType::I16 => 2,
            NpyType::U32 | NpyType::I32 | NpyType::F32 => 4,
            NpyType::U64 | NpyType::I64 | NpyType::F64 | NpyType::C64 => 8,
            NpyType::C128 => 16,
        }
    }

    /// Returns the type as NumPy describes it in a file of this machine, such as `<f8`.
    #[must_use]
    pub fn descr(self) -> String {
        let order = match self.bytes() {
            1 => '|',
            _ if cfg!(target_endian = "big") => '>',
            _ => '<',
        };
        format!("{order}{}", self.code())
    }

    /// Reads a description such as `<f8`; returns the type and whether its bytes are in the order of
    /// this machine. `None`: none of these types.
    pub(crate) fn of_descr(descr: &str) -> Option<(NpyType, bool)> {
        let (order, code) = descr.split_at_checked(1)?;
        let found = NpyType::ALL.into_iter().find(|it| it.code() == code)?;
        let is_ours = match order {
            _ if found.bytes() == 1 => "<>|=".contains(order),
            "=" => true,
            "<" => cfg!(target_endian = "little"),
            ">" => cfg!(target_endian = "big"),
            _ => return None,
        };
        (is_ours || found.bytes() > 1).then_some((found, is_ours))
    }
}

impl fmt::Display for NpyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NpyType::U8 => "u8",
            NpyType::U16 => "u16",
            NpyType::U32 => "u32",
            NpyType::U64 => "u64",
            NpyType::I8 => "i8",
            NpyType::I16 => "i16",
            NpyType::I32 => "i32",
            NpyType::I64 => "i64",
            NpyType::F32 => "f32",
            NpyType::F64 => "f64",
            NpyType::C64 => "complex f32",
            NpyType::C128 => "complex f64",
        })
    }
}

/// Elements that are read from `.npy` files and written to them: numbers, and pairs `[f32; 2]` and
/// `[f64; 2]` for complex ones.
///
/// A slice of another type with the same bytes, such as that of `num-complex`, becomes one of pairs by
/// `bytemuck::cast_slice`.
pub trait NpyElement: Element + sealed::Sealed {
    /// The type in a file.
    const TYPE: NpyType;
}

mod sealed {
    /// Keeps the types to those of [`NpyType`](super::NpyType).
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty => $type:ident),+ $(,)?) => {$(
        impl sealed::Sealed for $element {}

        impl NpyElement for $element {
            const TYPE: NpyType = NpyType::$type;
        }
    )+};
}

elements! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f32 => F32, f64 => F64, [f32; 2] => C64, [f64; 2] => C128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_read_from_its_own_description() {
        for element in NpyType::ALL {
            assert_eq!(NpyType::of_descr(&element.descr()), Some((element, true)), "{element}");
            let native = format!("={}", element.code());
            assert_eq!(NpyType::of_descr(&native), Some((element, true)), "{element}");
        }
        fn agrees<T: NpyElement>() {
            assert_eq!(size_of::<T>(), T::TYPE.bytes(), "{}", T::TYPE);
        }
        agrees::<u8>();
        agrees::<i16>();
        agrees::<u32>();
        agrees::<f64>();
        agrees::<[f32; 2]>();
        agrees::<[f64; 2]>();
    }

    #[test]
    fn the_order_of_bytes_is_told_apart_from_the_type() {
        let of = NpyType::of_descr;
        let little = cfg!(target_endian = "little");
        assert_eq!(of("<f8"), Some((NpyType::F64, little)));
        assert_eq!(of(">f8"), Some((NpyType::F64, !little)));
        assert_eq!(of(">u1"), Some((NpyType::U8, true)));
        assert_eq!(of("|i1"), Some((NpyType::I8, true)));
        for other in ["", "f", "f8", "|f8", "<f2", "<f16", "|b1", "<U4", "xu1", "<f8 ", "é8"] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
