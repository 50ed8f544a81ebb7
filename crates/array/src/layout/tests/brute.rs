//! Small layouts, of which every element is enumerated.

use std::ops::Range;

use proptest::prelude::*;

use crate::layout::{Distribution, Layout, LayoutError};

/// One dimension, in the order of the storage.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) extent: usize,
    distribution: Distribution,
    ranks: usize,
    margin: usize,
    range: Range<usize>,
}

/// All that a layout is made of.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) specs: Vec<Spec>,
    axes: Vec<usize>,
    /// Whether the dimensions are permuted before margins and region are given.
    is_permuted_first: bool,
}

impl Case {
    pub(super) fn layout(&self) -> Result<Layout, LayoutError> {
        let shape: Vec<usize> = self.specs.iter().map(|spec| spec.extent).collect();
        let builder = Layout::builder(&shape);
        let each = self.specs.iter();
        let builder =
            each.fold(builder, |b, spec| b.dimension(spec.distribution.clone(), spec.ranks));
        let layout = builder.build()?;
        if self.is_permuted_first {
            let (margins, ranges) = self.margins_and_ranges(&self.axes);
            layout.permuted(&self.axes)?.margins(&margins)?.region(&ranges)
        } else {
            let axes: Vec<usize> = (0..self.axes.len()).collect();
            let (margins, ranges) = self.margins_and_ranges(&axes);
            layout.region(&ranges)?.margins(&margins)?.permuted(&self.axes)
        }
    }

    fn margins_and_ranges(&self, axes: &[usize]) -> (Vec<usize>, Vec<Range<usize>>) {
        let each = axes.iter().map(|&axis| &self.specs[axis]);
        each.map(|spec| (spec.margin, spec.range.clone())).unzip()
    }

    /// Coordinates of all ranks, in the order of the storage.
    fn ranks(&self) -> Vec<Vec<usize>> {
        let extents: Vec<Vec<usize>> =
            self.specs.iter().map(|spec| (0..spec.ranks).collect()).collect();
        product(&extents)
    }

    /// Puts what is in the order of the storage into that of the transfer.
    fn permuted<T: Clone>(&self, each: &[T]) -> Vec<T> {
        self.axes.iter().map(|&axis| each[axis].clone()).collect()
    }
}

impl Spec {
    /// Returns what a coordinate owns, by dealing out one index after the other.
    fn owned(&self, coordinate: usize) -> Vec<usize> {
        let lengths: Vec<usize> = match &self.distribution {
            Distribution::Whole => return (0..self.extent).collect(),
            Distribution::Block => vec![self.extent.div_ceil(self.ranks); self.ranks],
            Distribution::Cyclic(block) => vec![*block; self.ranks],
            Distribution::Blocks(lengths) => lengths.clone(),
        };
        let turns = lengths.iter().enumerate().flat_map(|(at, &length)| vec![at; length]);
        let turns: Vec<usize> = turns.collect();
        let dealt = (0..self.extent).zip(turns.iter().cycle());
        dealt.filter(|(_, at)| **at == coordinate).map(|(index, _)| index).collect()
    }

    /// Returns the storage of a coordinate; `None` where the array has no such element.
    fn stored(&self, coordinate: usize) -> Vec<Option<usize>> {
        let owned = self.owned(coordinate);
        let (Some(&first), Some(&last)) = (owned.first(), owned.last()) else { return Vec::new() };
        let width = self.margin;
        let before = (1..=width).rev().map(|distance| first.checked_sub(distance));
        let after = (1..=width).map(|distance| Some(last + distance));
        let after = after.map(|index| index.filter(|&index| index < self.extent));
        before.chain(owned.iter().copied().map(Some)).chain(after).collect()
    }
}

/// Returns all combinations, the last list fastest.
fn product<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |combinations, list| {
        let longer = combinations.iter().flat_map(|begin| {
            list.iter().map(|one| [begin.as_slice(), std::slice::from_ref(one)].concat())
        });
        longer.collect()
    })
}

fn any_distribution(extent: usize, ranks: usize) -> impl Strategy<Value = Distribution> {
    let cuts = prop::collection::vec(0..=extent, ranks - 1);
    let blocks = cuts.prop_map(move |mut cuts| {
        cuts.sort_unstable();
        let (starts, ends) = ([&[0], &cuts[..]].concat(), [&cuts[..], &[extent]].concat());
        Distribution::Blocks(starts.iter().zip(ends).map(|(start, end)| end - start).collect())
    });
    prop_oneof![
        Just(Distribution::Whole),
        Just(Distribution::Block),
        (1..=extent + 1).prop_map(Distribution::Cyclic),
        (1..4_usize).prop_map(Distribution::Cyclic),
        blocks,
    ]
}

fn any_spec(extent_max: usize, ranks_max: usize, margin_max: usize) -> impl Strategy<Value = Spec> {
    (0..=extent_max, 1..=ranks_max).prop_flat_map(move |(extent, ranks)| {
        let range = (0..=extent).prop_flat_map(move |start| (Just(start), start..=extent));
        let range = prop_oneof![Just((0, extent)), range];
        (any_distribution(extent, ranks), 0..=margin_max, range).prop_map(
            move |(distribution, margin, (start, end))| {
                let is_cyclic = matches!(distribution, Distribution::Cyclic(_));
                let margin = if is_cyclic { 0 } else { margin };
                Spec { extent, distribution, ranks, margin, range: start..end }
            },
        )
    })
}

pub(super) fn any_case() -> impl Strategy<Value = Case> {
    (1..=6_usize).prop_flat_map(|dims| {
        let (extent, ranks, margin) =
            [(40, 6, 5), (9, 4, 3), (6, 3, 1), (4, 2, 1), (3, 2, 0), (2, 2, 0)][dims - 1];
        let specs = prop::collection::vec(any_spec(extent, ranks, margin), dims);
        let axes = Just((0..dims).collect::<Vec<_>>()).prop_shuffle();
        (specs, axes, any::<bool>()).prop_map(|(specs, axes, is_permuted_first)| Case {
            specs,
            axes,
            is_permuted_first,
        })
    })
}

proptest! {
    #[test]
    fn storage_is_that_of_brute_force(case in any_case()) {
        let layout = case.layout()?;
        prop_assert_eq!(layout.ranks(), case.ranks().len());
        for (rank, coordinates) in case.ranks().iter().enumerate() {
            let each = case.specs.iter().zip(coordinates);
            let stored: Vec<_> = each.map(|(spec, &at)| spec.stored(at)).collect();
            let shape: Vec<usize> = stored.iter().map(Vec::len).collect();
            prop_assert_eq!(layout.local_shape(rank), case.permuted(&shape));
            prop_assert_eq!(layout.coordinates(rank), case.permuted(coordinates));
            prop_assert_eq!(layout.rank_of(&layout.coordinates(rank)), rank);
            let elements = product(&stored);
            prop_assert_eq!(layout.local_len(rank), elements.len());
            for (offset, index) in elements.iter().enumerate() {
                let index = case.permuted(index).into_iter().collect::<Option<Vec<_>>>();
                prop_assert_eq!(layout.global(rank, offset), index);
            }
            prop_assert_eq!(layout.global(rank, elements.len()), None);
            let strides = layout.strides(rank);
            let places: Vec<Vec<usize>> = shape.iter().map(|&count| (0..count).collect()).collect();
            for (offset, place) in product(&places).iter().enumerate() {
                let place = case.permuted(place);
                let sum: usize = place.iter().zip(&strides).map(|(place, stride)| place * stride).sum();
                prop_assert_eq!(sum, offset);
            }
        }
    }

    #[test]
    fn owners_and_places_are_those_of_brute_force(case in any_case()) {
        let layout = case.layout()?;
        let extents: Vec<Vec<usize>> = case.specs.iter().map(|spec| (0..spec.extent).collect()).collect();
        let ranks = case.ranks();
        for index in product(&extents) {
            let mut owner = None;
            let transferred = case.permuted(&index);
            for (rank, coordinates) in ranks.iter().enumerate() {
                let each = case.specs.iter().zip(coordinates).zip(&index);
                let is_owned = each.clone().all(|((spec, &at), index)| spec.owned(at).contains(index));
                owner = owner.or(is_owned.then_some(rank));
                let place = layout.local(rank, &transferred);
                prop_assert_eq!(place.is_some(), is_owned);
                if let Some(place) = place {
                    prop_assert_eq!(layout.global(rank, place), Some(transferred.clone()));
                }
            }
            prop_assert_eq!(Some(layout.owner(&transferred)), owner);
        }
    }

    #[test]
    fn held_indices_are_those_of_brute_force(case in any_case()) {
        let layout = case.layout()?;
        for (dim, &axis) in case.axes.iter().enumerate() {
            let spec = &case.specs[axis];
            prop_assert_eq!(layout.grid_extent(dim), spec.ranks);
            prop_assert_eq!(layout.shape()[dim], spec.range.len());
            for at in 0..spec.ranks {
                let (owned, stored) = (spec.owned(at), spec.stored(at));
                let (held_owned, held_stored) = (layout.owned(dim, at), layout.stored(dim, at));
                for held in [&held_owned, &held_stored] {
                    prop_assert!(held.block >= 1 && held.period >= held.block, "{:?}", held);
                    prop_assert!(0 <= held.bounds.start, "{:?}", held);
                    prop_assert!(held.bounds.end <= spec.range.len() as i64, "{:?}", held);
                    let is_near = held.bounds.is_empty() || held.first + held.block > 0;
                    prop_assert!(is_near, "{:?}", held);
                    let mut bounds = held.bounds.clone();
                    let has_any = bounds.any(|index| held.local_of(index).is_some());
                    prop_assert_eq!(has_any, !held.bounds.is_empty(), "{:?}", held);
                }
                for index in spec.range.clone() {
                    let carried = (index - spec.range.start) as i64;
                    let place = stored.iter().position(|&one| one == Some(index));
                    prop_assert_eq!(held_stored.local_of(carried), place);
                    let place = place.filter(|_| owned.contains(&index));
                    prop_assert_eq!(held_owned.local_of(carried), place);
                }
            }
        }
    }
}
