//! Errors of visitors.

use chunkcomm::error::Plain;
use chunkcomm::{Loss, debug_with_causes};
use chunkcomm_cluster::cluster::NameError;

use crate::ends::error::ArrayError;
use crate::layout::error::LayoutError;
use crate::npy::NpyError;

/// Reason why a visitor could not take an array, or give it.
///
/// After each of them another visit may be made.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No group can offer the array any more.
    #[error("no group that offers array {name:?} can be found")]
    Name {
        /// The array's name.
        name: String,
        /// The reason.
        source: NameError,
    },
    /// Rank 0 of the group that offers the array is gone.
    #[error("the group that offers array {name:?} is gone: {loss:?}")]
    Gone {
        /// The array's name.
        name: String,
        /// The reason.
        loss: Loss,
    },
    /// The group closed its port before it had served this visitor.
    #[error("array {name:?} is offered no longer")]
    Closed {
        /// The array's name.
        name: String,
    },
    /// The group does not serve this visitor: it has elements of another type or an array of another shape, does
    /// the opposite, or cannot go on.
    #[error("the group of array {name:?} does not serve this visitor: {}", Plain(.why))]
    Refused {
        /// The array's name.
        name: String,
        /// The reason, with both sides where they differ.
        why: String,
    },
    /// A rank of the group is gone, or could not go on.
    #[error("array {name:?} was not transferred whole")]
    Transfer {
        /// The array's name.
        name: String,
        /// The reason.
        source: ArrayError,
    },
    /// There is no array of this shape.
    #[error("array {name:?} cannot have this shape")]
    Layout {
        /// The array's name.
        name: String,
        /// The reason.
        source: LayoutError,
    },
    /// The elements to be given are not those of the shape.
    #[error("{found} elements were given for an array of shape {shape:?}, which has {expected}")]
    Elements {
        /// The shape.
        shape: Vec<usize>,
        /// Number of its elements.
        expected: usize,
        /// Number of the elements that were given.
        found: usize,
    },
    /// The system has no memory for the array.
    #[error("there is no memory of {bytes} bytes for array {name:?} of shape {shape:?}")]
    Memory {
        /// The array's name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Bytes of its elements.
        bytes: usize,
    },
    /// The file of the array could not be read, or written.
    #[error(transparent)]
    Npy(NpyError),
}

debug_with_causes!(AttachError);
