//! Input of peers and users: words, text, numbers that cannot be.

use proptest::prelude::*;

use super::brute::any_case;
use crate::layout::{Layout, LayoutError};

const MAX: usize = usize::MAX;

/// Parts of texts that are nearly layouts.
const TOKENS: &[&str] = &[
    "(",
    ")",
    "*",
    ",",
    "@",
    "x",
    "1",
    "2",
    "0",
    "(",
    ")",
    "block",
    "cyclic",
    "blocks",
    "Cyclic(2)",
    "(block,*)",
    "@2x1",
    " ",
    "margin",
    "region",
    "permuted",
    "..",
    "1,0",
    "é",
    "99999999999999999999",
];

/// Asks a layout for what would overflow or index outside, if it could.
fn use_up(layout: &Layout) {
    for rank in [0, layout.ranks() - 1] {
        let last = layout.local_len(rank).saturating_sub(1);
        layout.global(rank, last);
        layout.strides(rank);
        for (dim, at) in layout.coordinates(rank).into_iter().enumerate() {
            layout.owned(dim, at);
            layout.stored(dim, at);
        }
    }
    let shape = layout.global_shape();
    let last: Option<Vec<usize>> = shape.iter().map(|extent| extent.checked_sub(1)).collect();
    if let Some(last) = last {
        assert!(layout.owner(&last) < layout.ranks());
    }
    assert!(layout.picture().lines().count() <= 19);
}

fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..5_u64, 1 => any::<u64>(), 1 => (0..64_u32).prop_map(|shift| 1 << shift)]
}

fn any_text() -> impl Strategy<Value = String> {
    let tokens = prop::collection::vec(prop::sample::select(TOKENS), 0..12);
    prop_oneof![tokens.prop_map(|tokens| tokens.concat()), ".{0,20}"]
}

proptest! {
    #[test]
    fn words_and_text_give_the_layout_again(case in any_case()) {
        let layout = case.layout()?;
        prop_assert_eq!(&Layout::from_words(&layout.to_words())?, &layout);
        let shape: Vec<usize> = case.specs.iter().map(|spec| spec.extent).collect();
        prop_assert_eq!(&Layout::parse(&layout.to_string(), &shape)?, &layout);
        use_up(&layout);
    }

    #[test]
    fn any_words_are_a_layout_or_an_error(words in prop::collection::vec(any_word(), 0..40)) {
        if let Ok(layout) = Layout::from_words(&words) {
            prop_assert_eq!(layout.to_words(), words);
            use_up(&layout);
        }
    }

    #[test]
    fn changed_words_are_a_layout_or_an_error(
        case in any_case(), at in any::<prop::sample::Index>(), word in any_word(), cut in any::<bool>(),
    ) {
        let mut words = case.layout()?.to_words();
        let longer = [&words[..], &[0]].concat();
        let error = LayoutError::Words { position: words.len(), words: longer.len() };
        prop_assert_eq!(Layout::from_words(&longer), Err(error));
        let at = at.index(words.len());
        words[at] = word;
        if let Ok(layout) = Layout::from_words(&words) {
            prop_assert_eq!(layout.to_words(), words.clone());
            use_up(&layout);
        }
        if cut {
            prop_assert!(Layout::from_words(&words[..at]).is_err());
        }
    }

    #[test]
    fn any_text_is_a_layout_or_an_error(text in any_text(), extents in prop::collection::vec(0..6_usize, 1..4)) {
        match Layout::parse(&text, &extents) {
            Ok(layout) => {
                prop_assert_eq!(&Layout::parse(&layout.to_string(), &extents)?, &layout);
                use_up(&layout);
            }
            Err(LayoutError::Notation { position, found, .. }) => {
                prop_assert!(text[position..].starts_with(&found));
            }
            Err(_) => {}
        }
    }
}

#[test]
fn spaces_and_case_do_not_matter() -> Result<(), LayoutError> {
    let plain = Layout::parse(
        "(blocks(1,3),cyclic(2),*)@2x2x1 margin 1x0x2 region 0..2x1..3x0..4",
        &[4; 3],
    )?;
    let loud = " ( BLOCKS (1 , 3),\tCyclic ( 2 ) , * ) @ 2 X 2 x1 Margin 1 x 0x 2 REGION 0 .. 2 x 1..3x0..4 ";
    assert_eq!(Layout::parse(loud, &[4; 3])?, plain);
    assert_eq!(Layout::parse("(*,*)", &[4; 2])?, Layout::parse("(*,*)@1x1", &[4; 2])?);
    assert_eq!(
        plain.to_string(),
        "(blocks(1,3),cyclic(2),*)@2x2x1 margin 1x0x2 region 0..2x1..3x0..4"
    );
    Ok(())
}

#[test]
fn errors_name_what_cannot_be() {
    let cases: [(&str, &[usize], &str); 22] = [
        ("(*)", &[], "an array has 1 to 6 dimensions, not 0"),
        ("(*)", &[1; 7], "an array has 1 to 6 dimensions, not 7"),
        ("(*,*)", &[1], "the layout has 2 dimensions, the array 1"),
        ("(block)@0", &[4], "the grid of ranks has extent 0 in dimension 0"),
        ("(block)@2x2", &[4], "the grid of ranks has 2 axes, the layout 1 dimensions"),
        ("(*,*)@65536x65536", &[4; 2], "a grid of [65536, 65536] has more than 4294967295 ranks"),
        ("(cyclic(0))@2", &[4], "dimension 0 is cyclic(0): a block has at least 1 element"),
        ("(blocks(1,3))@3", &[4], "dimension 0 has 2 blocks over 3 ranks"),
        ("(blocks(1,4))@2", &[4], "the blocks of dimension 0 have 5 elements, the array 4"),
        ("(cyclic)@2 margin 1", &[4], "dimension 0 is cyclic, so it has no margin of 1"),
        ("(block)@2 margin 1x1", &[4], "2 margins for 1 dimensions"),
        ("(block)@2 region 2..5", &[4], "the region 2..5 of dimension 0 is not within 0..4"),
        ("(block)@2 region 2..1", &[4], "the region 2..1 of dimension 0 is not within 0..4"),
        ("(*,*) region 0..1", &[4; 2], "1 ranges for 2 dimensions"),
        ("(*,*) permuted 1,1", &[4; 2], "the axes [1, 1] do not name each dimension once"),
        ("(*,*) permuted 0", &[4; 2], "1 axes for 2 dimensions"),
        ("block", &[4], "position 0 of the layout: expected `(`, found \"block\""),
        ("(block", &[4], "position 6 of the layout: expected `,` or `)`, found \"\""),
        (
            "(block)",
            &[4],
            "position 7 of the layout: expected `@` and the grid of ranks, found \"\"",
        ),
        (
            "(blocks)@2",
            &[4],
            "position 7 of the layout: expected `(` and the lengths of the blocks, found \")\"",
        ),
        ("(*)@-1", &[4], "position 4 of the layout: expected a number of 64 bits, found \"-\""),
        (
            "(*)@1 é",
            &[4],
            "position 6 of the layout: expected margin, region, permuted or the end, found \"é\"",
        ),
    ];
    for (text, shape, message) in cases {
        let error = Layout::parse(text, shape).map_err(|error| error.to_string());
        assert_eq!(error.err().as_deref(), Some(message), "{text}");
    }
}

#[test]
fn arrays_that_cannot_be_addressed_are_errors() {
    let too_large = |shape: &[usize], margin: usize| {
        let layout = shape.iter().fold(Layout::builder(shape), |b, _| b.whole()).build();
        matches!(layout.and_then(|layout| layout.margin(margin)), Err(LayoutError::TooLarge { .. }))
    };
    assert!(!too_large(&[MAX / 32], 0));
    assert!(too_large(&[MAX / 32 + 1], 0) && too_large(&[MAX / 32], 1));
    assert!(too_large(&[1 << 32, 1 << 32], 0) && too_large(&[4; 6], MAX));
    assert!(!too_large(&[0, MAX / 32], 0) && too_large(&[0, MAX], 0) && too_large(&[MAX, 0], 0));
}

#[test]
fn a_grid_is_nearly_square_over_the_distributed_dimensions() {
    let grid = |text: &str, ranks: usize| {
        let shape = vec![64; text.matches(',').count() + 1];
        Layout::over(text, &shape, ranks).map(|layout| layout.grid())
    };
    for (text, ranks, expected) in [
        ("(block)", 7, vec![7]),
        ("(*,block)", 6, vec![1, 6]),
        ("(block,cyclic)", 72, vec![9, 8]),
        ("(block,cyclic)", 7, vec![7, 1]),
        ("(block,*,block,block)", 16, vec![4, 1, 2, 2]),
        ("(block,block,block)", 1, vec![1, 1, 1]),
        ("(*,*)", 5, vec![5, 1]),
        ("(block,block)@2x3", 6, vec![2, 3]),
    ] {
        assert_eq!(grid(text, ranks), Ok(expected), "{text} over {ranks}");
    }
    let of_blocks = Layout::over("(blocks(30,34),block)", &[64, 64], 6).unwrap();
    assert_eq!(of_blocks.grid(), [2, 3]);
    for text in ["(blocks(30,34),block)", "(blocks(30,34),*)"] {
        let error = Layout::over(text, &[64, 64], 5).unwrap_err();
        assert!(matches!(error, LayoutError::NoGrid { ranks: 5, .. }), "{error}");
    }
    // Texts of others: no panic, and an error.
    let zeros = "blocks(0,0)";
    let many = vec![zeros; 64].join(",");
    assert!(matches!(grid(&format!("({many})"), 4), Err(LayoutError::Dims { dims: 64 })));
    let long = format!("blocks({})", vec!["0"; 2048].join(","));
    let long = vec![long; 6].join(",");
    assert!(Layout::over(&format!("({long})"), &[0; 6], 4).is_err());
}
