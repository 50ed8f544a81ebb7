//! An end of a far process: opened as the near end orders, it receives slice after slice.

use tokio::runtime::Runtime;

use super::control::Control;
use super::machine;
use super::protocol::{Order, Place, Reply, Usage};
use crate::failure::Failure;

/// One opened end that can receive slices.
pub trait FarEnd {
    /// Receives and verifies one slice; returns the times of the marked messages.
    ///
    /// # Errors
    /// If the connection breaks or a message is wrong; the end is then closed.
    fn slice(&mut self, runtime: &Runtime, order: &Order) -> Result<Vec<u64>, Failure>;
}

/// Place, runtime and control connection for opening an end.
pub struct Opening<'a> {
    /// Place and settings of the far end.
    pub place: &'a Place,
    /// Runtime of the process.
    pub runtime: &'a Runtime,
    pub(crate) control: &'a mut Control,
}

impl Opening<'_> {
    /// Sends the near end the address to connect to.
    ///
    /// # Errors
    /// If the near end is gone.
    pub fn announce(&mut self, address: String) -> Result<(), Failure> {
        self.control.send(&Reply::Opened { address })
    }
}

/// Returns the memory and switches of this process.
pub fn usage() -> Usage {
    Usage { resident_bytes: machine::resident_bytes(), switches: machine::switches() }
}
