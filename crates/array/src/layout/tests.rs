//! Layouts beside brute force, and what cannot be a layout.

mod brute;
mod input;

use super::{Layout, LayoutError};

/// Returns the indices of a rank's storage, in its order.
fn stored_at(layout: &Layout, rank: usize) -> Vec<Vec<usize>> {
    (0..layout.local_len(rank)).filter_map(|offset| layout.global(rank, offset)).collect()
}

#[test]
fn ragged_ends_and_empty_parts() -> Result<(), LayoutError> {
    let layout = Layout::builder(&[9]).block(4).build()?;
    let counts: Vec<usize> = (0..4).map(|rank| layout.local_len(rank)).collect();
    assert_eq!(counts, [3, 3, 3, 0]);
    let layout = Layout::builder(&[9]).cyclic(2, 4).build()?;
    assert_eq!(stored_at(&layout, 0), [[0], [1], [8]]);
    assert_eq!(stored_at(&layout, 3), [[6], [7]]);
    let layout = Layout::builder(&[3]).cyclic(usize::MAX, 4).build()?;
    assert_eq!(layout.local_shape(0), [3]);
    assert_eq!(layout.local_shape(3), [0]);
    let layout = Layout::builder(&[3]).blocks(&[0, 2, 0, 1]).build()?;
    let owners: Vec<usize> = (0..3).map(|index| layout.owner(&[index])).collect();
    assert_eq!(owners, [1, 1, 3]);
    Ok(())
}

#[test]
fn a_rank_without_elements_has_no_margin() -> Result<(), LayoutError> {
    let layout = Layout::builder(&[4, 4]).block(3).whole().build()?.margin(1)?;
    assert_eq!(layout.local_shape(1), [4, 6]);
    assert_eq!(layout.local_shape(2), [0, 6]);
    assert_eq!(layout.global(2, 0), None);
    assert!(layout.stored(0, 2).bounds.is_empty());
    Ok(())
}

#[test]
fn held_begins_with_the_block_that_reaches_into_the_region() -> Result<(), LayoutError> {
    let layout = Layout::parse("(cyclic(3),*)@2x1 region 14..30x0..1", &[40, 1])?;
    let held = layout.owned(0, 0);
    assert_eq!((held.first, held.local, held.bounds.clone()), (-2, 6, 0..16));
    let places: Vec<Option<usize>> = (0..5).map(|index| held.local_of(index)).collect();
    assert_eq!(places, [Some(8), None, None, None, Some(9)]);
    Ok(())
}

#[test]
fn a_cycle_without_a_second_block_is_one_interval() -> Result<(), LayoutError> {
    for text in ["(cyclic(5))@2", "(cyclic)@1", "(cyclic(18446744073709551615))@3"] {
        let layout = Layout::parse(text, &[10])?;
        assert_eq!(layout.owned(0, 0).period, i64::MAX, "{text}");
    }
    Ok(())
}

#[test]
fn large_extents_take_no_longer() -> Result<(), LayoutError> {
    let extent = 1 << 58;
    let layout = Layout::builder(&[extent]).cyclic(1000, 4096).build()?;
    let last = extent - 1;
    let rank = layout.owner(&[last]);
    assert_eq!(rank, last / 1000 % 4096);
    assert_eq!(layout.local(rank, &[last]), Some(layout.local_len(rank) - 1));
    assert_eq!(layout.global(rank, layout.local_len(rank) - 1), Some(vec![last]));
    let elements: usize = (0..4096).map(|rank| layout.local_len(rank)).sum();
    assert_eq!(elements, extent);
    Ok(())
}

#[test]
fn a_second_region_counts_from_the_first() -> Result<(), LayoutError> {
    let layout = Layout::builder(&[20]).block(2).build()?;
    let (first, second, third) = (3..15, 2..4, 0..3);
    let twice = layout.region(&[first])?.region(&[second])?;
    assert_eq!(twice, Layout::parse("(block)@2 region 5..7", &[20])?);
    assert!(matches!(twice.region(&[third]), Err(LayoutError::Region { extent: 2, .. })));
    Ok(())
}

#[test]
fn permutations_follow_each_other() -> Result<(), LayoutError> {
    let layout = Layout::parse("(block,cyclic(2),*)@2x3x1", &[4, 5, 6])?;
    let twice = layout.clone().permuted(&[1, 2, 0])?.permuted(&[1, 0, 2])?;
    assert_eq!(twice, layout.permuted(&[2, 1, 0])?);
    assert_eq!((twice.shape(), twice.memory()), (vec![6, 5, 4], &[2, 1, 0][..]));
    assert_eq!(twice.grid(), [1, 3, 2]);
    Ok(())
}

#[test]
fn replicas_have_the_same_and_the_first_one_owns() -> Result<(), LayoutError> {
    let layout = Layout::builder(&[4, 6]).replicated(3).block(2).build()?;
    assert_eq!((layout.replicas(0), layout.replicas(1)), (3, 1));
    assert_eq!(layout.owner(&[3, 5]), 1);
    for rank in [1, 3, 5] {
        assert_eq!(layout.local(rank, &[3, 5]), Some(11));
    }
    Ok(())
}

#[test]
#[should_panic(expected = "rank 4 of a layout of 4 ranks")]
fn a_rank_outside_of_the_grid_panics() {
    let layout = Layout::builder(&[4]).block(4).build().unwrap();
    layout.local_shape(4);
}

#[test]
#[should_panic(expected = "element [4] of an array of shape [4]")]
fn an_element_outside_of_the_array_has_no_owner() {
    let layout = Layout::builder(&[4]).block(4).build().unwrap();
    layout.owner(&[4]);
}

#[test]
fn pictures_of_large_arrays_are_small() -> Result<(), LayoutError> {
    let picture = Layout::parse("(*,cyclic(64))@2x2", &[4096, 4096])?.picture();
    let lines: Vec<&str> = picture.lines().collect();
    assert_eq!(lines[0], "(*,cyclic(64))@2x2 of 4096 x 4096, 2 times");
    assert_eq!(lines[1], "columns 0, 32, 64, ..., 992");
    assert_eq!(lines[2], format!("{:4}:  {} ...", 0, ["0 0 1 1"; 8].join(" ")));
    assert_eq!(lines.len(), 2 + 16);
    let rows = Layout::parse("(cyclic(2),*)@2x1", &[4096, 1])?.picture();
    assert_eq!(rows.lines().count(), 2 + 16 + 1);
    assert!(rows.ends_with("15:  1\n...\n"), "{rows}");
    Ok(())
}

#[test]
fn pictures_of_large_cycles_differ_as_those_of_small_ones_do() -> Result<(), LayoutError> {
    let row = |text: &str, extent: usize| -> Result<String, LayoutError> {
        let picture = Layout::parse(text, &[1, extent])?.picture();
        Ok(picture.lines().last().unwrap_or_default().to_owned())
    };
    for (block, first) in [(1, "0 1 2 0 1 2"), (2, "0 0 1 1 2 2 0"), (3, "0 0 0 1 1 1 2 2 2 0")] {
        let text = format!("(*,cyclic({block}))@1x3");
        let (small, large) = (row(&text, 12)?, row(&text, 1000)?);
        assert!(small.starts_with(&format!("0:  {first}")), "{small}");
        assert!(large.starts_with(&small) && large.ends_with(" ..."), "{small}, {large}");
    }
    // No second block, and two: all is shown.
    assert_eq!(row("(*,cyclic(1000))@1x3", 64)?, format!("0:  {}", ["0"; 32].join(" ")));
    let halves = format!("0:  {} {}", ["0"; 16].join(" "), ["1"; 16].join(" "));
    assert_eq!(row("(*,cyclic(32))@1x3", 64)?, halves);
    Ok(())
}

#[test]
fn pictures_show_regions() -> Result<(), LayoutError> {
    let picture =
        Layout::parse("(block,*,*)@11x1x1 region 10..11x1..3x2..3", &[11, 3, 3])?.picture();
    assert!(picture.ends_with("9:   .  .  .\n10:   . 10 10\n"), "{picture}");
    let picture = Layout::parse("(block)@2", &[3])?.picture();
    assert_eq!(picture, "(block)@2 of 3\n0:  0\n1:  0\n2:  1\n");
    Ok(())
}
