//! Indexed jobs of Kubernetes. The index is the rank, and the pod of index 0 has a DNS name under
//! the job's headless service. The environment does not contain the number of pods, so the manifest
//! sets `CHUNKCOMM_SIZE`.

use super::{Launcher, Look, Meet, Place};
use crate::launch::LaunchError;

const INDEX: &str = "JOB_COMPLETION_INDEX";
const SIZE: &str = "CHUNKCOMM_SIZE";
const HOSTNAME: &str = "HOSTNAME";
const SERVICE: &str = "CHUNKCOMM_SERVICE";

pub(super) fn place(look: &mut Look<'_>) -> Result<Option<Place>, LaunchError> {
    if !look.has(INDEX) {
        return Ok(None);
    }
    let (rank, size) = look.rank_and_size(INDEX, SIZE)?;
    let of_the_manager = look.manager()?;
    let hostname = look.needed(HOSTNAME, "the name of the pod, JOB-INDEX, is needed")?;
    let job = hostname.strip_suffix(&format!("-{rank}"));
    let job = job.ok_or_else(|| look.wrong(HOSTNAME, format!("it does not end with -{rank}")))?;
    look.host(HOSTNAME, job)?;
    let service = look.needed(SERVICE, "the headless service of the job is needed")?;
    look.host(SERVICE, &service)?;
    let name = |index: u32| format!("{job}-{index}.{service}");
    let ports = look.ports_from(0)?;
    let meet = of_the_manager.unwrap_or_else(|| Meet::at(&name(0), [ports[0]]));
    let place = Place { host: Some(name(rank)), ..Place::new(Launcher::Kubernetes, meet) };
    Ok(Some(place.of(rank, size)))
}
