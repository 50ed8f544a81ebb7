//! Controllers that are switched off, to measure the worth of each. No program needs that.

use std::str::FromStr;

/// A controller that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Without it a full packet has 64 KiB.
    PacketSize,
    /// Without it bulk may have any number of bytes on their way.
    Pace,
    /// Without it a packet leaves as soon as the writer is free.
    Flush,
    /// Without it channels take turns, each of a whole packet, and express goes first.
    Shares,
    /// Without it a driver with nothing to do sleeps.
    Watching,
    /// Without it a reading buffer has 64 KiB.
    Buffers,
    /// Without it a ring has the size of a full packet from the start, and keeps it.
    Rings,
}

impl Controller {
    /// All controllers, each with its name.
    pub const ALL: [(Controller, &'static str); 7] = [
        (Controller::PacketSize, "packet-size"),
        (Controller::Pace, "pace"),
        (Controller::Flush, "flush"),
        (Controller::Shares, "shares"),
        (Controller::Watching, "watching"),
        (Controller::Buffers, "buffers"),
        (Controller::Rings, "rings"),
    ];
}

/// The environment variable that names the controllers to switch off, read when a node is built.
pub const WITHOUT_VARIABLE: &str = "CHUNKCOMM_WITHOUT";

/// The controllers that are switched off; by default none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Without(u8);

impl Without {
    /// Switches `controller` off, and no other.
    #[must_use]
    pub fn of(controller: Controller) -> Without {
        Without(1 << controller as u8)
    }

    /// Whether `controller` is switched off.
    #[must_use]
    pub fn has(self, controller: Controller) -> bool {
        self.0 & Without::of(controller).0 != 0
    }
}

/// A word that is no controller's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownController;

impl FromStr for Without {
    type Err = UnknownController;

    /// Reads names with commas between them.
    fn from_str(text: &str) -> Result<Without, UnknownController> {
        text.split(',').try_fold(Without::default(), |Without(bits), word| {
            let known = Controller::ALL.iter().find(|(_, name)| *name == word);
            let (controller, _) = known.ok_or(UnknownController)?;
            Ok(Without(bits | Without::of(*controller).0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_switch_their_controllers_off() {
        let without: Without = "pace,rings".parse().unwrap();
        let off: Vec<_> = Controller::ALL.iter().filter(|(it, _)| without.has(*it)).collect();
        assert_eq!(off, [&(Controller::Pace, "pace"), &(Controller::Rings, "rings")]);
        assert_eq!("pace,".parse::<Without>(), Err(UnknownController));
        assert!(!Controller::ALL.iter().any(|(it, _)| Without::default().has(*it)));
    }
}
