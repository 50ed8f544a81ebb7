//! Operators of reductions and scans.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;

use crate::Element;

#[cfg(test)]
mod tests;

/// Operator that combines the elements of two ranks, one by one.
///
/// Every operator is taken as associative. The lower rank's element is the left operand, unless the
/// operator is commutative.
///
/// ```
/// use chunkcomm_group::Op;
///
/// assert_eq!(Op::<f32>::sum().name(), "sum");
/// // The earliest of the largest: (value, place) pairs.
/// let largest = Op::named("largest", |a: &[u32; 2], b: &[u32; 2]| if b[0] > a[0] { *b } else { *a });
/// assert!(!largest.is_commutative());
/// ```
#[derive(Clone)]
pub struct Op<T: 'static> {
    name: Cow<'static, str>,
    commutative: bool,
    identity: Option<T>,
    kernel: Kernel<T>,
}

type Loop<T> = dyn Fn(&mut [T], &[T], &[T]) + Send + Sync;

/// A loop over slices, `out = lower op upper`. A built-in one costs no allocation, since a small call
/// makes none.
#[derive(Clone)]
enum Kernel<T: 'static> {
    BuiltIn(fn(&mut [T], &[T], &[T])),
    Named(Arc<Loop<T>>),
}

/// Bytes of an accumulator that are set aside at a time: they stay in the first-level cache.
const ASIDE_BYTES: usize = 1024;

/// Sums that [`Op::fold`] has under way.
const LANES: usize = 128;

impl<T: Element> Op<T> {
    /// Takes a function of the lower rank's element and the upper's, which must be associative.
    ///
    /// All ranks of a call give the operator the same name.
    pub fn named<F>(name: impl Into<Cow<'static, str>>, combine: F) -> Self
    where
        F: Fn(&T, &T) -> T + Send + Sync + 'static,
    {
        let kernel = Kernel::Named(Arc::new(move |out: &mut [T], lower: &[T], upper: &[T]| {
            each(out, lower, upper, &combine);
        }));
        Self { name: name.into(), commutative: false, identity: None, kernel }
    }

    /// Says that the order of the operands does not matter, which lets more algorithms serve.
    #[must_use]
    pub fn commutative(self) -> Self {
        Self { commutative: true, ..self }
    }

    /// Says what a byte costs to combine, in nanoseconds: in a simulation this is spent.
    #[doc(hidden)]
    #[must_use]
    pub fn declared(self, nanos_per_byte: f64) -> Self {
        let named = self.clone();
        let kernel = Kernel::Named(Arc::new(move |out: &mut [T], lower: &[T], upper: &[T]| {
            let nanos = nanos_per_byte * size_of_val(&*out) as f64;
            host::spend(Duration::from_nanos(nanos as u64));
            named.combine(out, lower, upper);
        }));
        Self { kernel, ..self }
    }

    /// Returns the name: `sum`, `product`, `min`, `max`, `and`, `or`, `xor`, or that of a named one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the order of the operands does not matter. True for all built-in ones.
    #[must_use]
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// Combines all of these elements of this rank, in any order where that does not matter; `None` for no
    /// elements. It is no call.
    #[must_use]
    pub fn fold(&self, elements: &[T]) -> Option<T> {
        let one_by_one = |elements: &[T]| {
            elements.iter().copied().reduce(|lower, upper| {
                let mut out = [lower];
                self.combine(&mut out, &[lower], &[upper]);
                out[0]
            })
        };
        if !self.commutative || elements.len() < 2 * LANES {
            return one_by_one(elements);
        }
        let (first, rest) = elements.split_at(LANES);
        let mut lanes = first.to_vec();
        rest.chunks(LANES).for_each(|chunk| self.after(&mut lanes[..chunk.len()], chunk));
        one_by_one(&lanes)
    }

    /// Whether it is one of this crate's own, which are short loops that do not panic.
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self.kernel, Kernel::BuiltIn(_))
    }

    /// Returns the element that changes no other, which the built-in operators have.
    pub(crate) fn identity(&self) -> Option<T> {
        self.identity
    }

    /// Sets `acc = lower op acc`.
    ///
    /// # Panics
    ///
    /// When the lengths differ, as the others do.
    pub(crate) fn before(&self, acc: &mut [T], lower: &[T]) {
        self.accumulate(acc, lower, |out, own, lower| self.combine(out, lower, own));
    }

    /// Sets `acc = acc op upper`.
    pub(crate) fn after(&self, acc: &mut [T], upper: &[T]) {
        self.accumulate(acc, upper, |out, own, upper| self.combine(out, own, upper));
    }

    /// Sets `out = lower op upper`: the fastest of the three.
    pub(crate) fn combine(&self, out: &mut [T], lower: &[T], upper: &[T]) {
        let len = out.len();
        assert!(len == lower.len() && len == upper.len(), "operands of one call are of one length");
        match &self.kernel {
            Kernel::BuiltIn(kernel) => kernel(out, lower, upper),
            Kernel::Named(kernel) => kernel(out, lower, upper),
        }
    }

    /// Combines what stood in `acc` with `other`.
    ///
    /// Two ranks of an all-reduce combine the same operands, one with the lower in its accumulator, one with
    /// the upper. The bits of a NaN depend on the instruction that makes it, so both take the same loop.
    fn accumulate(&self, acc: &mut [T], other: &[T], combine: impl Fn(&mut [T], &[T], &[T])) {
        assert_eq!(acc.len(), other.len(), "operands of one call are of one length");
        let mut aside = [0_u128; ASIDE_BYTES / size_of::<u128>()];
        let (_, aside, _) = bytemuck::pod_align_to_mut::<u128, T>(&mut aside);
        // Elements that do not fit go one by one.
        let mut one = [T::zeroed()];
        let aside = if aside.is_empty() { &mut one[..] } else { aside };
        for (out, other) in acc.chunks_mut(aside.len()).zip(other.chunks(aside.len())) {
            let own = &mut aside[..out.len()];
            own.copy_from_slice(out);
            combine(out, own, other);
        }
    }

    fn built_in(name: &'static str, identity: T, kernel: fn(&mut [T], &[T], &[T])) -> Self {
        let (identity, kernel) = (Some(identity), Kernel::BuiltIn(kernel));
        Self { name: Cow::Borrowed(name), commutative: true, identity, kernel }
    }
}

/// The loop of every operator, compiled once for each.
#[inline(never)]
fn each<T: Copy>(out: &mut [T], lower: &[T], upper: &[T], combine: impl Fn(&T, &T) -> T) {
    for (out, (lower, upper)) in out.iter_mut().zip(lower.iter().zip(upper)) {
        *out = combine(lower, upper);
    }
}

impl<T: Number> Op<T> {
    /// Returns the sum. Integers wrap.
    #[must_use]
    pub fn sum() -> Self {
        Self::built_in("sum", T::ZERO, |out, a, b| each(out, a, b, T::add))
    }

    /// Returns the product. Integers wrap.
    #[must_use]
    pub fn product() -> Self {
        Self::built_in("product", T::ONE, |out, a, b| each(out, a, b, T::multiply))
    }

    /// Returns the smaller one. Of floating-point numbers `minimum` of IEEE 754-2019: a NaN makes NaN, and -0 is
    /// below +0.
    #[must_use]
    pub fn min() -> Self {
        Self::built_in("min", T::HIGHEST, |out, a, b| each(out, a, b, T::minimum))
    }

    /// Returns the larger one. Of floating-point numbers `maximum` of IEEE 754-2019: a NaN makes NaN, and +0 is
    /// above -0.
    #[must_use]
    pub fn max() -> Self {
        Self::built_in("max", T::LOWEST, |out, a, b| each(out, a, b, T::maximum))
    }
}

impl<T: Bits> Op<T> {
    /// Returns the bits that both have.
    #[must_use]
    pub fn and() -> Self {
        Self::built_in("and", T::ONES, |out, a, b| each(out, a, b, T::and))
    }

    /// Returns the bits that one of them has.
    #[must_use]
    pub fn or() -> Self {
        Self::built_in("or", T::ZERO, |out, a, b| each(out, a, b, T::or))
    }

    /// Returns the bits that exactly one of them has.
    #[must_use]
    pub fn xor() -> Self {
        Self::built_in("xor", T::ZERO, |out, a, b| each(out, a, b, T::xor))
    }
}

impl<T: 'static> fmt::Debug for Op<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Op");
        shown.field("name", &self.name).field("commutative", &self.commutative);
        shown.finish_non_exhaustive()
    }
}

/// Elements with a sum, a product and an order: `u8` to `u128`, `i8` to `i128`, `usize`, `isize`, `f32` and `f64`.
pub trait Number: Element + sealed::Number {}

/// Elements with bits: the integers among [`Number`].
pub trait Bits: Number + sealed::Bits {}

mod sealed {
    #[allow(unreachable_pub, reason = "parents of public traits")]
    pub trait Number: Sized {
        const ZERO: Self;
        const ONE: Self;
        const LOWEST: Self;
        const HIGHEST: Self;
        fn add(&self, other: &Self) -> Self;
        fn multiply(&self, other: &Self) -> Self;
        fn minimum(&self, other: &Self) -> Self;
        fn maximum(&self, other: &Self) -> Self;
    }

    #[allow(unreachable_pub, reason = "parents of public traits")]
    pub trait Bits: Number {
        const ONES: Self;
        fn and(&self, other: &Self) -> Self;
        fn or(&self, other: &Self) -> Self;
        fn xor(&self, other: &Self) -> Self;
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Number for $integer {}
        impl Bits for $integer {}

        impl sealed::Number for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = Self::MIN;
            const HIGHEST: Self = Self::MAX;

            fn add(&self, other: &Self) -> Self {
                self.wrapping_add(*other)
            }

            fn multiply(&self, other: &Self) -> Self {
                self.wrapping_mul(*other)
            }

            fn minimum(&self, other: &Self) -> Self {
                *self.min(other)
            }

            fn maximum(&self, other: &Self) -> Self {
                *self.max(other)
            }
        }

        impl sealed::Bits for $integer {
            const ONES: Self = !0;

            fn and(&self, other: &Self) -> Self {
                self & other
            }

            fn or(&self, other: &Self) -> Self {
                self | other
            }

            fn xor(&self, other: &Self) -> Self {
                self ^ other
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl Number for $float {}

        impl sealed::Number for $float {
            // +0 would make +0 of -0.
            const ZERO: Self = -0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = Self::NEG_INFINITY;
            const HIGHEST: Self = Self::INFINITY;

            fn add(&self, other: &Self) -> Self {
                self + other
            }

            fn multiply(&self, other: &Self) -> Self {
                self * other
            }

            fn minimum(&self, other: &Self) -> Self {
                // Equal ones differ in the sign of zero at most.
                let equal = Self::from_bits(self.to_bits() | other.to_bits());
                let least = if self < other { *self } else { *other };
                let least = if self == other { equal } else { least };
                if self.is_nan() | other.is_nan() { Self::NAN } else { least }
            }

            fn maximum(&self, other: &Self) -> Self {
                let equal = Self::from_bits(self.to_bits() & other.to_bits());
                let most = if self > other { *self } else { *other };
                let most = if self == other { equal } else { most };
                if self.is_nan() | other.is_nan() { Self::NAN } else { most }
            }
        }
    )*};
}

floats!(f32 f64);
