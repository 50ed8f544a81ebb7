//! The packets of an endpoint on their way to the network.

use super::rings::Rings;
use chunkcomm_proto::Time;
use chunkcomm_proto::endpoint::{Endpoint, Output};
use chunkcomm_simulation::{EndId, Network, NetworkError};

/// Yields in a row, beyond which an endpoint yields without end.
const YIELDS_MAX: u32 = 1000;

/// Returns the endpoint's next step of writing that is no yield; `None` when it yields without end.
pub(super) fn next_output(endpoint: &mut Endpoint, rings: &mut Rings, now: Time) -> Option<Output> {
    let mut outputs = (0..YIELDS_MAX).map(|_| endpoint.poll_output(rings, now));
    outputs.find(|output| !matches!(output, Output::Yield(_)))
}

/// Writes as much of the packet at hand as the network takes, in writes of at most `most` of what
/// is left; returns the bytes, and whether the packet is written.
pub(super) fn write_packet(
    endpoint: &mut Endpoint,
    network: &mut Network,
    way: EndId,
    now: Time,
    mut most: impl FnMut(usize) -> usize,
) -> Result<(usize, bool), NetworkError> {
    let mut written = 0;
    loop {
        let [head, tail] = endpoint.unwritten();
        let most = most(head.len() + tail.len());
        let from_head = head.len().min(most);
        let parts = [&head[..from_head], &tail[..(most - from_head).min(tail.len())]];
        let count = network.write_parts(now, way, &parts)?;
        if count == 0 {
            return Ok((written, false));
        }
        written += count;
        if endpoint.wrote(count) {
            return Ok((written, true));
        }
    }
}
