//! Options that programs of several groups of nodes share.

use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_cluster::launch::LaunchError;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use clap::Args;

use crate::cluster_options::ClusterOptions;

/// Most elements of a dimension.
const EXTENT_MAX: usize = 1 << 16;

/// Most elements of an array: 4 GiB of complex numbers.
const ELEMENTS_MAX: usize = 1 << 28;

/// Most ranks of a group.
const RANKS_MAX: usize = 1024;

/// Exit status of a process that an option ends, to demonstrate a fault.
pub const STATUS_DIED: i32 = 9;

/// Costs of computing and packing on the hosts of a virtual LAN. On real ones both take their time by themselves.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Nanoseconds of a floating point operation on a virtual host
    #[arg(long, value_name = "NS", default_value = "2", value_parser = nanoseconds)]
    pub flop: f64,

    /// Nanoseconds of packing or unpacking a byte on a virtual host
    #[arg(long, value_name = "NS", default_value = "0", value_parser = nanoseconds)]
    pub packing: f64,
}

impl Costs {
    /// Lets the time pass that these operations take on a virtual host, and the packing of these bytes. Real ones
    /// take their time elsewhere.
    pub async fn pass(self, flops: f64, packed_bytes: usize) {
        let nanos = flops * self.flop + packed_bytes as f64 * self.packing;
        if host::is_virtual() && nanos > 0.0 {
            host::compute(Duration::from_nanos(nanos as u64), || ()).await;
        }
    }
}

/// Parses the numbers of rows and columns: `96x250`.
///
/// # Errors
/// The text is another; the error says what is allowed.
pub fn shape(text: &str) -> Result<[usize; 2], String> {
    let shape = list(text, 'x', EXTENT_MAX).ok_or_else(|| {
        format!("allowed are two whole numbers from 1 to {EXTENT_MAX}, as 96x250")
    })?;
    match shape.iter().product() {
        ..=ELEMENTS_MAX => Ok(shape),
        elements => Err(format!("{elements} elements: allowed are up to {ELEMENTS_MAX}")),
    }
}

/// Parses the numbers of ranks of `N` groups: `4,1,4`.
///
/// # Errors
/// The text is another; the error says what is allowed.
pub fn ranks<const N: usize>(text: &str) -> Result<[usize; N], String> {
    let example = ["4", "1"].iter().cycle().take(N).copied().collect::<Vec<_>>().join(",");
    list(text, ',', RANKS_MAX)
        .ok_or_else(|| format!("allowed are {N} whole numbers from 1 to {RANKS_MAX}, as {example}"))
}

/// Parses a death: the rank of a process, and the number of the step in which it ends.
///
/// # Errors
/// The text is another; the error says what is allowed.
pub fn death(text: &str) -> Result<(u32, usize), String> {
    match list::<2>(text, ':', u32::MAX as usize) {
        Some([rank, step]) => Ok((rank as u32, step)),
        None => Err("allowed are RANK:NUMBER, both from 1; rank 0 runs the manager of the cluster"
            .to_owned()),
    }
}

fn nanoseconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e9).contains(number));
    number.ok_or_else(|| "allowed are numbers from 0 to 1000000000".to_owned())
}

fn list<const N: usize>(text: &str, between: char, most: usize) -> Option<[usize; N]> {
    let number = |word: &str| word.parse().ok().filter(|number| (1..=most).contains(number));
    let numbers: Option<Vec<usize>> = text.split(between).map(number).collect();
    numbers?.try_into().ok()
}

/// Returns the options of a cluster with as many nodes as `ranks` says, where they do not say it themselves.
///
/// # Errors
/// They say another number; the text says what is allowed.
pub fn with_nodes<const N: usize>(
    options: &ClusterOptions,
    ranks: Option<[usize; N]>,
) -> Result<ClusterOptions, String> {
    let Some(ranks) = ranks else { return Ok(options.clone()) };
    let sum = ranks.iter().sum::<usize>() as u32;
    match options.nodes {
        Some(nodes) if nodes != sum => Err(format!(
            "--nodes {nodes} with --ranks {}: allowed is --nodes {sum}",
            joined(&ranks)
        )),
        _ => Ok(ClusterOptions { nodes: Some(sum), ..options.clone() }),
    }
}

/// Returns the settings of a cluster of groups with these ranks; of `nodes` nodes where neither `ranks` nor an option
/// says how many. A launcher's number stands: by [`sizes`] rank 0 compares it with `ranks`.
///
/// # Errors
/// A variable of the launcher makes no sense.
pub fn config_of_ranks<const N: usize>(
    options: &ClusterOptions,
    ranks: Option<[usize; N]>,
    nodes: u32,
) -> Result<ClusterConfig, LaunchError> {
    let nodes = ranks.map_or(nodes, |ranks| ranks.iter().sum::<usize>() as u32);
    match options.config().place()?.launcher() {
        Launcher::User => options.config_of_nodes(nodes),
        _ => Ok(options.config()),
    }
}

/// Returns the numbers of ranks of `N` groups: the given ones, or shares of the cluster in proportion to
/// `weights`, at least one each.
///
/// # Errors
/// The cluster has another number of nodes, or fewer than groups; the text says what is allowed.
pub fn sizes<const N: usize>(
    cluster: &Cluster,
    ranks: Option<[usize; N]>,
    weights: [usize; N],
) -> Result<[usize; N], String> {
    let size = cluster.size() as usize;
    match ranks {
        Some(ranks) if ranks.iter().sum::<usize>() != size => {
            Err(format!("--ranks {} in a cluster of {size} nodes", joined(&ranks)))
        }
        Some(ranks) => Ok(ranks),
        None if size < N => {
            Err(format!("{N} groups in {size} nodes: allowed are {N} nodes or more"))
        }
        None => Ok(shares(size, weights)),
    }
}

/// Shares `size` among `N` in proportion to their weights: each gets one, each further one goes where a rank
/// has most to do.
#[must_use]
pub fn shares<const N: usize>(size: usize, weights: [usize; N]) -> [usize; N] {
    let mut shares = [1; N];
    for _ in N..size {
        // Ties go to the first.
        let load = |group: &usize| weights[*group] as f64 / shares[*group] as f64;
        let most = (0..N).rev().max_by(|a, b| load(a).total_cmp(&load(b)));
        shares[most.expect("there is a group")] += 1;
    }
    shares
}

/// Returns the group of a rank, by number from 0: each group has the next ranks of the cluster.
///
/// # Panics
/// When the groups have fewer ranks together.
#[must_use]
pub fn group_of<const N: usize>(sizes: [usize; N], rank: usize) -> usize {
    let mut end = 0;
    let ends = sizes.map(|size| {
        end += size;
        end
    });
    ends.iter().position(|end| rank < *end).expect("the groups have all ranks")
}

fn joined(ranks: &[usize]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(shape("96x250"), Ok([96, 250]));
        for wrong in ["", "96", "96x", "0x5", "1x2x3", "96X250", "65537x1", "65536x65536"] {
            assert!(shape(wrong).unwrap_err().contains("allowed"), "{wrong}");
        }
        assert_eq!(ranks("4,1,4"), Ok([4, 1, 4]));
        assert!(ranks::<3>("4,1").unwrap_err().ends_with("as 4,1,4"));
        assert_eq!(death("2:5"), Ok((2, 5)));
        assert!(death("0:5").unwrap_err().contains("rank 0"));
    }

    #[test]
    fn ranks_are_shared_in_proportion() {
        assert_eq!(shares(9, [4, 1, 4]), [4, 1, 4]);
        assert_eq!(shares(3, [4, 1, 4]), [1, 1, 1]);
        assert_eq!(shares(5, [1, 1]), [3, 2]);
        let sizes = [4, 1, 4];
        assert_eq!([0, 3, 4, 5, 8].map(|rank| group_of(sizes, rank)), [0, 0, 1, 2, 2]);
    }
}
