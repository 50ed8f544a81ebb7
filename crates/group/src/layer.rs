//! The ground of `chunkcomm-pipeline`: the parts of which regions and large calls are made here, and deltas there.
//!
//! | part | names |
//! |---|---|
//! | memory that is written in parts and read meanwhile | [`share`], [`Owner`], [`Share`], [`Lease`], [`View`], [`Carrier`], [`State`] |
//! | which of its bytes | [`Extents`], [`Cursor`], [`Sections`], [`Ranges`], [`Corrections`], [`Taken`], [`part_of`], [`indices`] |
//! | from memory to a peer | [`pump`], [`Target`], [`Manner`], [`Source`], [`Pace`], [`PumpHandle`], [`Fated`] |
//! | from a peer into memory | [`accept`], [`Accepted`], [`land`], [`land_sections`], [`Own`], [`Combine`], [`Ending`], [`Interest`] |
//! | why a transfer of a collective stopped | [`FlowEnd`], [`Trouble`], [`Found`] |
//! | this rank's transfers in a collective | [`Schedule`], [`FlowReceive`], [`FlowSend`], [`Memory`], [`Side`], [`combining`], [`overlap`], [`sections`], [`bounds`] |
//! | a call with a run of one's own | [`FlowKind`], [`ask`], [`Asked`], [`submit`], [`Giver`], [`Run`], [`Io`], [`Heard`], [`zeros`] |

pub use crate::collective::flow::{combining, overlap, sections};
pub use crate::collective::foreign::{Asked, FlowKind, Giver, ask, submit};
pub use crate::element::zeros;
pub use crate::group::io::{Heard, Io};
pub use crate::group::shared::Run;
pub use crate::landing::{
    Accepted, Combine, Ending, Interest, Operand as Own, accept, land, land_sections,
};
pub use crate::memory::{Carrier, Lease, Owner, Share, State, View, share};
pub use crate::part::{indices, part_of};
pub use crate::proto::corrections::Corrections;
pub use crate::proto::extents::{Cursor, Extents, Taken};
pub use crate::proto::frame::CORRECTION_BYTES_MAX;
pub use crate::proto::ranges::Ranges;
pub use crate::proto::schedule::bounds;
pub use crate::proto::schedule::flow::{Flow as Schedule, FlowReceive, FlowSend, Memory, Side};
pub use crate::proto::sections::Sections;
pub use crate::pump::{Fated, Manner, Pace, PumpHandle, Source, Target, start as pump};
pub use crate::trouble::{FlowEnd, Found, Trouble};
