//! Single transfers: which messages, which packing, and whether pipelining pays.

use super::{WORLD, pairs, transfer};
use crate::commands::papers::{Found, Scene};
use crate::commands::redistribute::SP2_PACKING_NS;
use crate::commands::redistribute::world::timed;
use crate::failure::Failure;
use crate::harness::protocol::RuntimeKind;
use crate::harness::transfers::Transfer;
use crate::lan::LanArgs;
use crate::ours::arrays::ArraysKind;

/// Layouts whose numbers of messages are counted, of 48 x 48 elements.
const LAYOUTS: [[&str; 2]; 7] = [
    ["(block,*)@4x1", "(block,*)@4x1"],
    ["(block,*)@4x1", "(*,block)@1x4"],
    ["(block,*)@6x1", "(block,*)@4x1"],
    ["(cyclic,*)@4x1", "(cyclic,*)@6x1"],
    ["(block,block)@2x3", "(block,block)@3x2"],
    ["(cyclic(2),*)@8x1", "(cyclic(4),*)@4x1"],
    ["(cyclic(3),block)@4x2", "(block,cyclic(2))@3x2"],
];

/// Costs of packing that counts as half: up to 0.6.
const HALF: f64 = 0.6;

/// Makes all transfers.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let (mut ours, mut fewest) = (0, 0);
    for [from, to] in LAYOUTS {
        let transfer = transfer([48; 2], from.to_owned(), to.to_owned(), false)?;
        // By plan, and by the elements of each pair.
        ours += pairs(&transfer);
        fewest += transfer.messages();
    }
    found.verdict("schedule-minimal", ours == fewest, format!("{ours} messages, fewest {fewest}"));

    // From one sender to two receivers. Rows leave from the array itself: only receivers pack, which is half.
    let packing = |to: &str| {
        let transfer = transfer([128; 2], "(*,*)@1x1".to_owned(), to.to_owned(), false)?;
        Ok::<_, Failure>(seconds(&transfer, SP2_PACKING_NS, true)? - seconds(&transfer, 0.0, true)?)
    };
    let share = packing("(block,*)@2x1")? / packing("(*,block)@1x2")?;
    let told = format!("{share:.2} for rows to rows");
    found.verdict("packing-avoidable", share <= HALF, told);

    // Each piece leaves when it is packed, or none before all are.
    let side = scene.sized(1024, 128);
    let [from, to] = ["(block,*)@4x1", "(*,block)@1x4"].map(str::to_owned);
    let transfer = transfer([side; 2], from, to, false)?;
    let [pieces, whole] =
        [seconds(&transfer, SP2_PACKING_NS, true)?, seconds(&transfer, SP2_PACKING_NS, false)?];
    let gain = whole / pieces;
    found.verdict("pipelined-messages", gain > 1.0, format!("{gain:.2} times as fast"));
    Ok(())
}

/// Returns the seconds of a transfer with a kept plan.
fn seconds(transfer: &Transfer, packing_ns: f64, overlap: bool) -> Result<f64, Failure> {
    let lan = LanArgs { lan: String::new(), trace: None, check: false };
    let kind = ArraysKind { overlap, ..ArraysKind::kept(RuntimeKind::Ambient, packing_ns) };
    Ok(timed(&lan, WORLD, transfer, &[kind])?.0[0].0)
}
