//! Open MPI's `mpirun`. Its own protocol (PMIx) is binary, has many versions, and is not supported.
//! On one machine the nodes meet by a file. On several they meet at the address that `mpirun -x
//! CHUNKCOMM_MANAGER=host:port` passes on.

use super::{Launcher, Look, Meet, Place};
use crate::launch::LaunchError;

const RANK: &str = "OMPI_COMM_WORLD_RANK";
const SIZE: &str = "OMPI_COMM_WORLD_SIZE";
const LOCAL_SIZE: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
const NAMESPACE: &str = "PMIX_NAMESPACE";

/// Longest name of a job, in bytes. A file's name has at most 255, and holds more than the job's.
const JOB_BYTES_MAX: usize = 200;

pub(super) fn place(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    if !look.has(RANK) {
        return Ok(None);
    }
    let (rank, size) = look.rank_and_size(RANK, SIZE)?;
    let one_machine = look.number(LOCAL_SIZE, 1..=size)? == size;
    let meet = match look.manager()? {
        Some(manager) => manager,
        None if one_machine => {
            let job = look.needed(NAMESPACE, "the name of the job is needed")?;
            let plain = |letter: char| !letter.is_control() && letter != '/';
            if !(1..=JOB_BYTES_MAX).contains(&job.len()) || !job.chars().all(plain) {
                return Err(look.wrong(NAMESPACE, "it cannot be a part of a file's name"));
            }
            Meet::File(format!("openmpi-{job}"))
        }
        None => {
            let why = "nodes on several machines need the host:port that rank 0 listens at: \
                       mpirun -x CHUNKCOMM_MANAGER=host:port";
            return Err(look.wrong("CHUNKCOMM_MANAGER", why));
        }
    };
    let place = Place { one_machine, ..Place::new(Launcher::OpenMpi, meet) };
    Ok(Some(place.of(rank, size)))
}
