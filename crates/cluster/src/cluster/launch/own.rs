//! Variables of this crate.

use super::{Launcher, Look, Meet, Place};
use crate::launch::{COPIES, LaunchError};
use chunkcomm::Address;

const PARENT: &str = "CHUNKCOMM_PARENT";
const INDEX: &str = "CHUNKCOMM_INDEX";
pub(super) const RANK: &str = "CHUNKCOMM_RANK";
pub(super) const SIZE: &str = "CHUNKCOMM_SIZE";
pub(super) const MANAGER: &str = "CHUNKCOMM_MANAGER";
/// Variable with the id of the process that an ssh started. Programs that the process starts
/// inherit the other variables.
pub(super) const PROCESS: &str = "CHUNKCOMM_PROCESS";

/// The value of `CHUNKCOMM_MANAGER` where the address comes on standard input.
pub(super) const TOLD: &str = "told";

/// Looks for a copy that another node started on this machine; that node has rank 0.
pub(super) fn copy(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    if !look.has(PARENT) || !look.has(COPIES) {
        return Ok(None);
    }
    let parent = look.needed(PARENT, "")?;
    let address = parent.parse().map_err(|error| look.wrong(PARENT, format!("{error}")))?;
    let size = look.number(COPIES, 2..=super::SIZE_MAX)?;
    let rank = look.number(INDEX, 0..=size - 2)? + 1;
    Ok(Some(Place::new(Launcher::Copy, Meet::Parent(address)).of(rank, size)))
}

/// Looks for a node started by hand, by systemd, or by ssh.
pub(super) fn variables(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    if !look.has(RANK) {
        return Ok(None);
    }
    let (rank, size) = look.rank_and_size(RANK, SIZE)?;
    if look.environment.get(MANAGER) == Some(TOLD) {
        look.text(MANAGER);
        return Ok(Some(Place::new(Launcher::Ssh, Meet::Told).of(rank, size)));
    }
    let manager = look.manager()?;
    let why = "every node needs the host:port that rank 0 listens at";
    let manager = manager.ok_or_else(|| look.wrong(MANAGER, why))?;
    Ok(Some(Place::new(Launcher::Variables, manager).of(rank, size)))
}

/// Looks for a node that comes later. Rank 0 may listen at a Unix socket then: that of a cluster on this machine.
pub(super) fn later(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    let manager = match look.environment.get(MANAGER).map(str::parse) {
        Some(Ok(socket @ Address::Unix(_))) => {
            look.text(MANAGER);
            Some(Meet::At(vec![socket]))
        }
        _ => look.manager()?,
    };
    if manager.is_some() && look.has(SIZE) {
        let why = format!("who is of a start has a rank: set {RANK}, or do not set {SIZE}");
        return Err(look.wrong(SIZE, why));
    }
    Ok(manager.map(|manager| Place::new(Launcher::Variables, manager)))
}
