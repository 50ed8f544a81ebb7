//! Groups.
mod collective;
mod element;
mod error;
mod group;
mod landing;
#[doc(hidden)]
pub mod layer;
mod memory;
mod part;
mod proto;
mod pump;
mod region;
mod trouble;

pub use collective::call::Call;
pub use collective::op::{Bits, Number, Op};
pub use collective::pair::{Pair, Root};
pub use collective::parts::Parts;
pub use element::Element;
pub use error::{DeltaRecvError, DeltaSendError, Mismatch, PartError};
pub use group::error::{CallDifference, CollectiveError, GroupError};
pub use group::{Group, GroupReport, WaitingCall};
pub use part::Part;
pub use proto::frame::FrameFault;
pub use proto::increment::{AUTO_INCREMENT_BYTES_MAX, AUTO_INCREMENT_BYTES_MIN, Costs, Increment};
pub use proto::opening::{OpeningFault, Shape};
pub use proto::schedule::algorithm::{Algorithm, ParseAlgorithmError};
pub use region::{Operand, Region, RegionLanding, RegionSend};
