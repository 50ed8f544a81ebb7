//! Tiles of random meetings and storages, against a loop over their elements.

use proptest::prelude::*;

use super::*;
use crate::plan::meeting::Segment;

/// A storage: its memory order, strides and number of elements.
#[derive(Clone, Debug)]
struct Place {
    order: Vec<usize>,
    strides: Vec<usize>,
    elements: usize,
}

impl Place {
    fn new(order: Vec<usize>, extents: &[usize]) -> Place {
        let (mut strides, mut elements) = (vec![0; extents.len()], 1);
        for &dimension in order.iter().rev() {
            strides[dimension] = elements;
            elements *= extents[dimension];
        }
        Place { order, strides, elements }
    }

    fn storage(&self) -> Storage<'_> {
        Storage { order: &self.order, strides: &self.strides }
    }

    fn offset(&self, indices: &[usize]) -> usize {
        indices.iter().zip(&self.strides).map(|(index, stride)| index * stride).sum()
    }
}

#[derive(Clone, Debug)]
struct Case {
    meetings: Vec<Meeting>,
    ranges: Vec<Range<usize>>,
    sender: Place,
    receiver: Place,
    heights: Vec<usize>,
    cut: usize,
}

/// A pattern of segments with random gaps, cut somewhere; often one run, or single indices evenly apart.
fn meeting() -> impl Strategy<Value = Meeting> {
    let segment = (1..4_usize, 0..3_usize, 0..3_usize);
    let one = (1..9_usize, 0..3_usize, 0..3_usize);
    let even = (Just(1_usize), 0..3_usize, 0..3_usize);
    let pattern = prop_oneof![
        prop::collection::vec(segment, 1..4),
        one.prop_map(|segment| vec![segment]),
        even.prop_map(|segment| vec![segment]),
    ];
    (pattern, 1..9_usize, 0..3_usize, 0..3_usize).prop_map(|(parts, total, sender, receiver)| {
        let mut at = Segment { before: 0, length: 0, at_sender: sender, at_receiver: receiver };
        let mut pattern = Vec::new();
        for (length, gap_sender, gap_receiver) in parts {
            pattern.push(Segment { length, ..at });
            at.before += length;
            at.at_sender += length + gap_sender;
            at.at_receiver += length + gap_receiver;
        }
        let (sender_step, receiver_step) = (at.at_sender - sender, at.at_receiver - receiver);
        Meeting { pattern: pattern.into(), window: at.before, sender_step, receiver_step, total }
    })
}

/// Indices at the sender and at the receiver of all positions.
fn indices(meeting: &Meeting) -> Vec<(usize, usize)> {
    let windows = meeting.total.div_ceil(meeting.window);
    let mut all = Vec::new();
    for window in 0..windows {
        for segment in meeting.pattern.iter() {
            for number in 0..segment.length {
                all.push((
                    segment.at_sender + window * meeting.sender_step + number,
                    segment.at_receiver + window * meeting.receiver_step + number,
                ));
            }
        }
    }
    all.truncate(meeting.total);
    all
}

fn case() -> impl Strategy<Value = Case> {
    (1..=6_usize).prop_flat_map(|dimensions| {
        let order = || Just((0..dimensions).collect::<Vec<_>>()).prop_shuffle();
        let orders =
            prop_oneof![order().prop_map(|order| (order.clone(), order)), (order(), order()),];
        (
            prop::collection::vec(
                (meeting(), any::<(u8, u8)>(), 0..2_usize, 0..2_usize),
                dimensions,
            ),
            orders,
            prop::collection::vec(1..5_usize, 1..5),
            0..4_usize,
        )
            .prop_map(|(dimensions, (sender, receiver), heights, cut)| {
                assembled(dimensions, sender, receiver, heights, cut)
            })
    })
}

/// At most this many positions of a dimension are in a tile of that many dimensions.
const POSITIONS_MAX: [usize; 7] = [0, 9, 9, 9, 5, 4, 3];

fn assembled(
    dimensions: Vec<(Meeting, (u8, u8), usize, usize)>,
    sender: Vec<usize>,
    receiver: Vec<usize>,
    heights: Vec<usize>,
    cut: usize,
) -> Case {
    let most = POSITIONS_MAX[dimensions.len()];
    let (mut meetings, mut ranges, mut extents) =
        (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    for (mut meeting, (begin, length), more_sender, more_receiver) in dimensions {
        meeting.total = meeting.total.min(most);
        let begin = usize::from(begin) % meeting.total;
        let length = 1 + usize::from(length) % (meeting.total - begin);
        ranges.push(begin..begin + length);
        let &(at_sender, at_receiver) = indices(&meeting).last().expect("it has indices");
        extents.0.push(at_sender + 1 + more_sender);
        extents.1.push(at_receiver + 1 + more_receiver);
        meetings.push(meeting);
    }
    let (sender, receiver) = (Place::new(sender, &extents.0), Place::new(receiver, &extents.1));
    Case { meetings, ranges, sender, receiver, heights, cut }
}

impl Case {
    fn tile(&self) -> Tile<'_> {
        Tile {
            meetings: &self.meetings,
            ranges: &self.ranges,
            sender: self.sender.storage(),
            receiver: self.receiver.storage(),
        }
    }

    /// Offsets at the sender and at the receiver of all elements, in the sender's memory order.
    fn elements(&self) -> Vec<(usize, usize)> {
        let indices: Vec<_> = self.meetings.iter().map(indices).collect();
        let mut all = vec![(Vec::<usize>::new(), Vec::<usize>::new())];
        for (dimension, range) in self.ranges.iter().enumerate() {
            let longer = |(s, r): &(Vec<usize>, Vec<usize>), position: usize| {
                let (at_sender, at_receiver) = indices[dimension][position];
                ([&s[..], &[at_sender]].concat(), [&r[..], &[at_receiver]].concat())
            };
            all = all.iter().flat_map(|one| range.clone().map(move |p| longer(one, p))).collect();
        }
        let offsets =
            |(s, r): &(Vec<usize>, Vec<usize>)| (self.sender.offset(s), self.receiver.offset(r));
        let mut offsets: Vec<_> = all.iter().map(offsets).collect();
        offsets.sort_unstable();
        offsets
    }
}

/// A receiver's storage in slabs of some heights, and the number of elements put into each.
struct Slabs<T> {
    row: usize,
    heights: Vec<usize>,
    slabs: Vec<(Vec<T>, usize)>,
}

impl<T: Element> Slabs<T> {
    fn new(row: usize, elements: usize, cycle: &[usize]) -> Slabs<T> {
        let (mut heights, mut slabs, mut left) = (Vec::new(), Vec::new(), elements / row);
        for &height in cycle.iter().cycle() {
            let height = height.min(left);
            heights.push(height);
            slabs.push((vec![T::zeroed(); height * row], 0));
            left -= height;
            if left == 0 {
                break;
            }
        }
        Slabs { row, heights, slabs }
    }
}

impl<T> Rows<T> for Slabs<T> {
    fn slab(&mut self, row: usize, work: &mut dyn FnMut(usize, &mut [T]) -> usize) {
        let (mut first, mut number) = (0, 0);
        while first + self.heights[number] <= row {
            first += self.heights[number];
            number += 1;
        }
        let (slab, put) = &mut self.slabs[number];
        assert_eq!(slab.len(), self.heights[number] * self.row);
        *put += work(first, slab);
    }
}

/// Elements of which each byte differs from its neighbours'.
fn numbered<T: Element>(count: usize) -> Vec<T> {
    let mut state = 1_u32;
    let mut bytes = std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let mut elements = vec![T::zeroed(); count];
    bytemuck::cast_slice_mut(&mut elements).fill_with(|| bytes.next().expect("it is endless"));
    elements
}

fn check<T: Element + PartialEq + std::fmt::Debug>(case: &Case) {
    let (tile, elements) = (case.tile(), case.elements());
    let storage: Vec<T> = numbered(case.sender.elements);
    let first = case.cut.min(elements[0].0);
    let expected: Vec<T> = elements.iter().map(|&(sender, _)| storage[sender]).collect();
    let expected: &[u8] = cast_slice(&expected);
    // Bytes where an element may begin, and where most may not.
    let mut memory = vec![0_u128; expected.len() / size_of::<u128>() + 2];
    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    for shift in [0, 1] {
        memory.fill(7);
        let out = &mut memory[shift..][..expected.len()];
        pack(&tile, &storage[first..], first, out);
        assert_eq!(out, expected, "packed");
        check_unpacked(case, (&tile, &elements), &storage, out);
    }
    assert_eq!(memory[1 + expected.len()], 7);
    let is_one_run = elements.windows(2).all(|two| two[0].0 + 1 == two[1].0);
    let run = elements[0].0..elements[0].0 + elements.len();
    assert_eq!(contiguous(&tile), is_one_run.then_some(run));
}

fn check_unpacked<T: Element + PartialEq + std::fmt::Debug>(
    case: &Case,
    (tile, elements): (&Tile<'_>, &[(usize, usize)]),
    storage: &[T],
    payload: &[u8],
) {
    let mut wanted = vec![T::zeroed(); case.receiver.elements];
    for &(sender, receiver) in elements {
        wanted[receiver] = storage[sender];
    }
    let mut whole = vec![T::zeroed(); case.receiver.elements];
    unpack(tile, payload, &mut whole[..]);
    assert_eq!(whole, wanted, "unpacked");
    let row = case.receiver.strides[case.receiver.order[0]];
    let mut slabs: Slabs<T> = Slabs::new(row, case.receiver.elements, &case.heights);
    unpack(tile, payload, &mut slabs);
    let mut begin = 0;
    for (slab, put) in &slabs.slabs {
        assert_eq!(slab[..], wanted[begin..begin + slab.len()], "a slab");
        let here = begin..begin + slab.len();
        assert_eq!(*put, elements.iter().filter(|(_, receiver)| here.contains(receiver)).count());
        begin = here.end;
    }
}

proptest! {
    #[test]
    fn tiles_arrive_as_they_were(case in case()) {
        check::<u8>(&case);
        check::<u16>(&case);
        check::<u32>(&case);
        check::<u64>(&case);
        check::<u128>(&case);
        check::<[u32; 3]>(&case);
    }
}

/// A meeting of indices that are the same and adjacent at both ends.
fn straight(total: usize) -> Meeting {
    let segment = Segment { before: 0, length: total, at_sender: 0, at_receiver: 0 };
    Meeting {
        pattern: [segment].into(),
        window: total,
        sender_step: total,
        receiver_step: total,
        total,
    }
}

fn straight_case(extents: &[usize]) -> Case {
    let order: Vec<usize> = (0..extents.len()).collect();
    Case {
        meetings: extents.iter().map(|&extent| straight(extent)).collect(),
        ranges: extents.iter().map(|&extent| 0..extent).collect(),
        sender: Place::new(order.clone(), extents),
        receiver: Place::new(order, extents),
        heights: vec![1],
        cut: 0,
    }
}

#[test]
fn whole_rows_are_one_run() {
    let mut case = straight_case(&[8, 6, 10]);
    case.ranges[0] = 2..5;
    assert_eq!(contiguous(&case.tile()), Some(120..300));
    case.ranges[1] = 1..6;
    assert_eq!(contiguous(&case.tile()), None);
    case.ranges[0] = 2..3;
    assert_eq!(contiguous(&case.tile()), Some(130..180));
}

#[test]
fn a_transposed_tile_arrives() {
    for extents in [[37, 21], [16, 32], [5, 40]] {
        let mut case = straight_case(&extents);
        case.receiver = Place::new(vec![1, 0], &extents);
        case.heights = vec![3, 17];
        check::<u8>(&case);
        check::<u32>(&case);
        check::<u64>(&case);
        check::<u128>(&case);
        check::<[u32; 3]>(&case);
    }
}

#[test]
fn runs_of_each_length_arrive() {
    for length in [1, 2, 3, 4, 5, 8, 9, 16, 17] {
        let segment = Segment { before: 0, length, at_sender: 0, at_receiver: 0 };
        let (sender_step, receiver_step, total) = (length + 2, length + 5, 12 * length + 1);
        let columns = Meeting {
            pattern: [segment].into(),
            window: length,
            sender_step,
            receiver_step,
            total,
        };
        let mut case = straight_case(&[3, total]);
        case.meetings[1] = columns;
        case.ranges[1] = 1..total;
        case.sender = Place::new(vec![0, 1], &[3, 13 * sender_step]);
        case.receiver = Place::new(vec![0, 1], &[3, 13 * receiver_step]);
        check::<u8>(&case);
        check::<u64>(&case);
        check::<[u32; 3]>(&case);
    }
}

#[test]
fn an_empty_tile_has_nothing() {
    let mut case = straight_case(&[8, 6]);
    case.ranges[0] = 2..2;
    pack(&case.tile(), &[0_u64; 48], 0, &mut []);
    unpack(&case.tile(), &[], &mut [0_u64; 48][..]);
    assert_eq!(contiguous(&case.tile()), None);
}

#[test]
#[should_panic(expected = "the bytes are those of the tile")]
fn bytes_of_another_length_are_refused() {
    unpack(&straight_case(&[8, 6]).tile(), &[0; 8], &mut [0_u64; 48][..]);
}
