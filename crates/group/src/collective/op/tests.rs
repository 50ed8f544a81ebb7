//! Each operator in its three forms.

use proptest::prelude::*;

use super::*;

/// Returns what the three forms make of one pair, which must be the same bits.
fn of<T: Element>(op: &Op<T>, lower: T, upper: T) -> T {
    let (mut before, mut after, mut out) = ([upper], [lower], [upper]);
    op.before(&mut before, &[lower]);
    op.after(&mut after, &[upper]);
    op.combine(&mut out, &[lower], &[upper]);
    assert_eq!(bytemuck::bytes_of(&before), bytemuck::bytes_of(&after));
    assert_eq!(bytemuck::bytes_of(&before), bytemuck::bytes_of(&out));
    out[0]
}

fn float_ops() -> [Op<f32>; 4] {
    [Op::sum(), Op::product(), Op::min(), Op::max()]
}

#[test]
fn integers_wrap() {
    assert_eq!(of(&Op::sum(), i8::MAX, 1), i8::MIN);
    assert_eq!(of(&Op::product(), u128::MAX, 2), u128::MAX - 1);
    assert_eq!(of(&Op::min(), -3_isize, 2), -3);
    assert_eq!(of(&Op::max(), 3_u16, 2), 3);
    assert_eq!(of(&Op::and(), 0b1100_u8, 0b1010), 0b1000);
    assert_eq!(of(&Op::or(), 0b1100_i64, 0b1010), 0b1110);
    assert_eq!(of(&Op::xor(), 0b1100_usize, 0b1010), 0b0110);
}

#[test]
fn minimum_and_maximum_of_ieee_754() {
    for (lower, upper) in [(0.0_f64, -0.0), (-0.0, 0.0)] {
        assert!(of(&Op::min(), lower, upper).is_sign_negative());
        assert!(of(&Op::max(), lower, upper).is_sign_positive());
    }
    assert_eq!(of(&Op::min(), f32::NEG_INFINITY, 1.0), f32::NEG_INFINITY);
    assert_eq!(of(&Op::max(), -2.5_f32, -2.0), -2.0);
}

#[test]
fn nans_come_out_with_the_same_bits_in_every_form() {
    let odd = [f32::from_bits(0xffc0_0001), f32::from_bits(0x7fc1_2345), f32::NAN, 1.0];
    let plus = Op::named("plus", |a: &f32, b: &f32| a + b).commutative();
    for op in float_ops().into_iter().chain([plus]) {
        for lower in odd {
            // Long enough for the vectorised part of the loop.
            let (lower, upper) = (vec![lower; 300], odd.repeat(75));
            let (mut before, mut after, mut out) = (upper.clone(), lower.clone(), upper.clone());
            op.before(&mut before, &lower);
            op.after(&mut after, &upper);
            op.combine(&mut out, &lower, &upper);
            let bits = |of: &[f32]| of.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&before), bits(&after), "{op:?}");
            assert_eq!(bits(&before), bits(&out), "{op:?}");
        }
    }
}

#[test]
fn elements_of_any_size_are_accumulated() {
    let sum = Op::named("sum", |a: &[u8; 2048], b: &[u8; 2048]| [a[0] + b[0]; 2048]);
    let mut acc = vec![[1; 2048]; 3];
    sum.before(&mut acc, &[[2; 2048]; 3]);
    assert_eq!(acc, [[3; 2048]; 3]);
    let mut acc = vec![[1_u16; 3]; 500];
    Op::named("first", |a: &[u16; 3], _| *a).before(&mut acc, &[[2; 3]; 500]);
    assert_eq!(acc, [[2; 3]; 500]);
    Op::named("none", |(), ()| ()).after(&mut [(); 5], &[(); 5]);
}

#[test]
fn a_named_one_keeps_the_order_of_ranks() {
    let last = Op::named("last", |_: &u32, upper: &u32| *upper);
    assert_eq!((of(&last, 1, 2), last.name(), last.is_commutative()), (2, "last", false));
    assert_eq!(last.identity(), None);
    assert!(last.clone().commutative().is_commutative());
    assert!(Op::<u8>::sum().is_commutative());
}

#[test]
#[should_panic(expected = "one length")]
fn other_lengths_are_refused() {
    Op::sum().combine(&mut [0; 3], &[1; 3], &[1; 2]);
}

proptest! {
    #[test]
    fn slices_are_combined_element_by_element(
        pairs in prop::collection::vec(any::<(i32, i32)>(), 0..600),
    ) {
        let (lower, upper): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let minus = Op::named("minus", |a: &i32, b: &i32| a.wrapping_sub(*b));
        let wanted: Vec<_> = pairs.iter().map(|(a, b)| a.wrapping_sub(*b)).collect();
        let mut out = vec![0; pairs.len()];
        minus.combine(&mut out, &lower, &upper);
        prop_assert_eq!(&out, &wanted);
        out.clone_from(&lower);
        minus.after(&mut out, &upper);
        prop_assert_eq!(&out, &wanted);
        out.clone_from(&upper);
        minus.before(&mut out, &lower);
        prop_assert_eq!(&out, &wanted);
    }

    #[test]
    fn built_in_ones_agree_with_the_language(a: i64, b: i64, x: f32, y: f32) {
        prop_assert_eq!(of(&Op::sum(), a, b), a.wrapping_add(b));
        prop_assert_eq!(of(&Op::min(), a, b), a.min(b));
        prop_assert_eq!(of(&Op::max(), a, b), a.max(b));
        for (op, wanted) in [(Op::sum(), x + y), (Op::product(), x * y)] {
            let got = of(&op, x, y);
            prop_assert!(got == wanted || got.is_nan() && wanted.is_nan(), "{:?}", op);
        }
        if !x.is_nan() && !y.is_nan() {
            prop_assert_eq!(of(&Op::min(), x, y), x.min(y));
            prop_assert_eq!(of(&Op::max(), x, y), x.max(y));
        }
    }

    #[test]
    fn the_identity_changes_nothing(a: i16, x in prop::num::f32::ANY) {
        for op in [Op::sum(), Op::product(), Op::min(), Op::max(), Op::and(), Op::or(), Op::xor()] {
            prop_assert_eq!(of(&op, op.identity().unwrap(), a), a, "{:?}", op);
        }
        let x = if x.is_nan() { f32::NAN } else { x };
        for op in float_ops() {
            prop_assert_eq!(of(&op, x, op.identity().unwrap()).to_bits(), x.to_bits(), "{:?}", op);
        }
    }
}
