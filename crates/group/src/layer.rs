//! The ground of `chunkcomm-pipeline`: the parts of which regions and large calls are made here, and deltas there.
//!
//! | part | names |
//! |---|---|
//! | memory that is written in parts and read meanwhile | [`share`], [`Owner`], [`Share`], [`Lease`], [`State`] |
//! | its bytes | [`Cursor`], [`Sections`], [`Ranges`], [`indices`], [`part_of`], [`free_part`], [`zeros`], [`CORRECTION_BYTES_MAX`] |
//! | from memory to a peer | [`pump`], [`Target`], [`Manner`], [`Source`], [`Pace`], [`PumpHandle`], [`Fated`] |
//! | from a peer into memory | [`accept`], [`land`], [`land_sections`], [`Own`], [`Ending`], [`Interest`] |
//! | this rank's transfers in a collective | [`Schedule`], [`FlowReceive`], [`Memory`], [`bounds`], [`sections`], [`overlap`], [`combining`] |
//! | why one of them stopped, and until when that is known | [`FlowEnd`], [`Trouble`], [`LAST_WORDS`] |
//! | a call with a run of one's own | [`FlowKind`], [`ask`], [`Asked`], [`submit`], [`Run`], [`Io`], [`Giver`] |

pub use crate::collective::flow::{combining, overlap, sections};
pub use crate::collective::foreign::{Asked, FlowKind, Giver, ask, submit};
pub use crate::element::zeros;
pub use crate::group::io::Io;
pub use crate::group::shared::Run;
pub use crate::landing::{Ending, Interest, Operand as Own, accept, land, land_sections};
pub use crate::memory::{Lease, Owner, Share, State, share};
pub use crate::part::{free_part, indices, part_of};
pub use crate::proto::extents::Cursor;
pub use crate::proto::frame::CORRECTION_BYTES_MAX;
pub use crate::proto::ranges::Ranges;
pub use crate::proto::schedule::bounds;
pub use crate::proto::schedule::flow::{Flow as Schedule, FlowReceive, Memory};
pub use crate::proto::sections::Sections;
pub use crate::pump::{Fated, Manner, Pace, PumpHandle, Source, Target, start as pump};
pub use crate::trouble::{FlowEnd, Trouble};
pub use chunkcomm_cluster::roster::LAST_WORDS;
