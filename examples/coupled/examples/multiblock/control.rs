//! Agreement of simulation and viewer: names of arrays, their elements, and where the source may be.

use super::problem::Parameters;

/// Names under which the three groups offer their blocks.
pub(crate) const BLOCKS: [&str; 3] = ["multiblock/left", "multiblock/middle", "multiblock/right"];

/// Name of an array of all ranks. A visitor takes five numbers: x, y and strength of the source, the number of the
/// sweep, its residual. A visitor gives the first three, which moves the source.
pub(crate) const CONTROL: &str = "multiblock/control";

/// Checks whether the source may be so.
///
/// # Errors
/// It may not; the text says what is allowed.
pub(crate) fn check(source: &Parameters) -> Result<(), String> {
    let Parameters { x, y, strength } = source;
    let is_middle = (1.0..1.5).contains(x);
    let rows = if is_middle { 0.25..=0.75 } else { 0.0..=1.0 };
    if !((0.0..=2.5).contains(x) && rows.contains(y)) {
        return Err(format!(
            "x={x}, y={y}: allowed are places in a block, x from 0 to 2.5 and y from 0 to 1, between x=1 and x=1.5 \
             from 0.25 to 0.75"
        ));
    }
    if !(1e-6..=1e6).contains(strength) {
        return Err(format!("strength={strength}: allowed are numbers from 1e-6 to 1e6"));
    }
    Ok(())
}
