//! A generic value as the type that it is.
//!
//! [`Any`](std::any::Any) does this for `'static` types. A message need not be one: `Cow<'a, str>`
//! can be sent and received, too.
//!
//! # Why the unsafe code is sound
//!
//! 1. *The same type but for lifetimes.* [`type_id`] returns the `TypeId` that `T` has with
//!    `'static` in the place of its lifetimes. It extends the lifetime of a trait object for one
//!    call. Lifetimes do not exist when code is generated, so the object's methods are the same
//!    either way. The object is a `PhantomData`, without bytes, and the method reads nothing of it:
//!    no reference outlives its value.
//! 2. *The same type.* `U` has no lifetimes, as [`LifetimeFree`] demands. If the ids of `T` and `U`
//!    are equal, `T` has none either, and both are one type.
//! 3. *The same reference.* [`cast_ref`] and [`cast_mut`] give back the reference that they take:
//!    to the same type, for the same lifetime, shared or exclusive as it was.
#![allow(unsafe_code)]

use std::any::TypeId;
use std::marker::PhantomData;
use std::{mem, ptr};

/// A type without lifetimes.
///
/// # Safety
/// No part of the type may have a lifetime, not even `'static`: the id of `Vec<&'static u8>` is that
/// of `Vec<&'a u8>`.
pub(super) unsafe trait LifetimeFree {}

macro_rules! lifetime_free {
    ($($number:ty)*) => {
        // SAFETY: A primitive type has no lifetimes.
        $(unsafe impl LifetimeFree for $number {})*
    };
}

lifetime_free! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

// SAFETY: The lifetimes of these types are those of `T`.
unsafe impl<T: LifetimeFree> LifetimeFree for Vec<T> {}
// SAFETY: As above.
unsafe impl<T: LifetimeFree> LifetimeFree for Option<T> {}

/// Returns `value` as a `U`, if `T` is `U`.
#[inline(always)]
pub(super) fn cast_ref<T, U: LifetimeFree>(value: &T) -> Option<&U> {
    if !is_same::<T, U>() {
        return None;
    }
    // SAFETY: Both are one type, by 2 of the module.
    Some(unsafe { &*ptr::from_ref(value).cast() })
}

/// Returns `value` as a `U`, if `T` is `U`.
#[inline(always)]
pub(super) fn cast_mut<T, U: LifetimeFree>(value: &mut T) -> Option<&mut U> {
    if !is_same::<T, U>() {
        return None;
    }
    // SAFETY: Both are one type, by 2 of the module.
    Some(unsafe { &mut *ptr::from_mut(value).cast() })
}

/// Whether `T` is `U`. With optimisation the answer is a constant.
#[inline(always)]
fn is_same<T, U: LifetimeFree>() -> bool {
    type_id::<T>() == type_id::<U>()
}

/// Returns the id of `T` with `'static` in the place of its lifetimes, by the method of the crate
/// `typeid`.
#[inline(always)]
fn type_id<T>() -> TypeId {
    trait Typed {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }

    impl<T> Typed for PhantomData<T> {
        #[inline(always)]
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }

    let typed: &dyn Typed = &PhantomData::<T>;
    // SAFETY: The types differ in a lifetime only, and the object is not used, by 1 of the module.
    unsafe { mem::transmute::<&dyn Typed, &(dyn Typed + 'static)>(typed) }.id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::fmt::Debug;

    /// Returns the number of the types of numbers that a vector of `T` is a vector of.
    fn matches<T: Clone + PartialEq + Debug, const N: usize>(values: [T; N]) -> usize {
        let values = Vec::from(values);
        let mut found = 0;
        macro_rules! try_all {
            ($($number:ty)*) => {
                $(if let Some(numbers) = cast_ref::<_, Vec<$number>>(&values) {
                    assert!(ptr::addr_eq(numbers, &values));
                    let mut copy = Some(values.clone());
                    let numbers: &mut Option<Vec<$number>> = cast_mut(&mut copy).unwrap();
                    numbers.as_mut().unwrap().push(<$number>::default());
                    assert_eq!(copy.unwrap()[..values.len()], values);
                    found += 1;
                } else {
                    assert!(cast_mut::<_, Option<Vec<$number>>>(&mut Some(values.clone())).is_none());
                })*
            };
        }
        try_all! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }
        found
    }

    #[test]
    fn a_vector_of_numbers_is_itself_and_nothing_else() {
        macro_rules! each {
            ($($number:ty)*) => {
                $(assert_eq!(matches([1 as $number, 2 as $number]), 1);)*
            };
        }
        each! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }
    }

    #[test]
    fn types_of_the_same_layout_are_no_numbers() {
        #[derive(Clone, PartialEq, Debug)]
        #[repr(transparent)]
        struct Wrapped(u32);
        assert_eq!(matches([Wrapped(1)]), 0);
        assert_eq!(matches(['a']), 0);
        assert_eq!(matches([true]), 0);
        assert_eq!(matches([1usize]), 0);
        assert_eq!(matches([[1u8; 4]]), 0);
        assert!(cast_ref::<_, Vec<u8>>(&String::from("text")).is_none());
        assert!(cast_ref::<_, Vec<u8>>(&[0usize; 3]).is_none());
    }

    #[test]
    fn borrowed_values_are_no_numbers() {
        let local = String::from("text");
        assert_eq!(matches([&local]), 0);
        assert_eq!(matches([local.as_str()]), 0);
        assert_eq!(matches([Cow::Borrowed(local.as_str())]), 0);
        assert_eq!(matches([&1u8]), 0);
        assert!(cast_ref::<_, Vec<u8>>(&&vec![1u8]).is_none());
        assert!(cast_ref::<_, Vec<u8>>(&Cow::from(&[1u8][..])).is_none());
    }
}
