//! Packing alone: the elements of one pair of ranks into messages and out of them, against loops by hand.

use std::hint::black_box;
use std::time::Instant;

use chunkcomm_array::packing_of;

use super::RedistributeArgs;
use crate::baseline::hand_arrays;
use crate::commands::{Verdict, set_ratio};
use crate::failure::Failure;
use crate::harness::transfers::{Cell, ELEMENT_BYTES, TransferKind};
use crate::ours::arrays::receivers_layout;
use crate::stats::{Ratio, median};

/// Turns of the two sides.
const TURNS: usize = 31;

/// Call whose elements are packed.
const CALL: u64 = 1;

/// Measures both sides in turns, in this process.
pub(super) fn run(args: &RedistributeArgs) -> Result<Verdict, Failure> {
    args.common.setting()?;
    let (from, to, transposed) = (args.from.clone(), args.to.clone(), args.transposed);
    let kind = TransferKind {
        shape: args.shape,
        from,
        to,
        within: false,
        transposed,
        there_and_back: false,
    };
    let transfer = kind.parse()?;
    let (given, wanted) = (transfer.given(0), transfer.wanted(transfer.first_receiver()));
    let mut ours = packing_of(&transfer.from, &receivers_layout(&transfer)?)
        .ok_or_else(|| Failure::Refused("the first ranks exchange nothing".to_owned()))?;
    let mut hand = hand_arrays::packing(&transfer);
    let (mut source, mut target) = (vec![0_f64; given.len()], vec![0_f64; wanted.len()]);
    let (mut hand_source, mut hand_target) =
        (vec![[0; ELEMENT_BYTES]; given.len()], vec![[0; ELEMENT_BYTES]; wanted.len()]);
    given.fill(CALL, &mut source);
    given.fill(CALL, &mut hand_source);
    let mut seconds = [const { Vec::new() }; 2];
    for turn in 0..=TURNS {
        for side in [turn % 2, 1 - turn % 2] {
            let began = Instant::now();
            if side == 0 {
                ours(black_box(&source), &mut target);
            } else {
                hand(black_box(&hand_source), &mut hand_target);
            }
            // The first turn makes the buffers.
            seconds[side].extend((turn > 0).then(|| began.elapsed().as_secs_f64()));
        }
    }
    let same = |(ours, hand): (&f64, &[u8; ELEMENT_BYTES])| *ours == hand.element();
    if !target.iter().zip(&hand_target).all(same) {
        return Err(Failure::broken("packing", "an element is in a wrong place"));
    }
    let [ours, hand] = seconds;
    let mut row = args.common.row("redistribute");
    row.set("shape", format!("{}x{}", args.shape[0], args.shape[1]))
        .set("from", args.from.as_str())
        .set("to", args.to.as_str())
        .set("transposed", transposed)
        .set("seconds", median(&ours));
    set_ratio(&mut row, "hand", Ratio::of_pairs(&hand, &ours));
    row.set("baseline_seconds", median(&hand)).print(args.common.json);
    Ok(Verdict::Fine)
}
