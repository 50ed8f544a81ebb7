//! The ranks of a group, and the hosts that they run on.

use std::ops::Range;

/// The ranks of a group in both orders that schedules take: by rank, and host by host.
///
/// Made once a group, so that a schedule allocates nothing.
#[derive(Clone, Debug)]
pub(crate) struct World {
    by_host: Line,
    by_rank: Line,
}

impl World {
    /// Takes a number of the host of each rank; equal numbers are one host.
    ///
    /// # Panics
    ///
    /// When there is no rank.
    pub(crate) fn new(hosts: &[u32]) -> Self {
        assert!(!hosts.is_empty(), "a group has its own rank at least");
        let size = hosts.len();
        let mut ranks = Vec::with_capacity(size);
        let mut starts = Vec::new();
        for (first, host) in hosts.iter().enumerate() {
            if !hosts[..first].contains(host) {
                starts.push(ranks.len());
                ranks.extend((first..size).filter(|rank| hosts[*rank] == *host));
            }
        }
        Self { by_host: Line::new(ranks, starts), by_rank: Line::new((0..size).collect(), vec![0]) }
    }

    /// Returns the number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.by_rank.ranks.len()
    }

    pub(super) fn by_rank(&self) -> &Line {
        &self.by_rank
    }

    /// Returns the ranks host by host; if they must be `ordered` and that is not the order of ranks,
    /// by rank, as if on one host.
    pub(super) fn line(&self, ordered: bool) -> &Line {
        let keeps_order = self.by_host.ranks.is_sorted();
        if ordered && !keeps_order { &self.by_rank } else { &self.by_host }
    }
}

/// The ranks in a row; a *place* is an index into it. The ranks of a host stand side by side.
#[derive(Clone, Debug)]
pub(super) struct Line {
    ranks: Vec<usize>,
    places: Vec<usize>,
    /// First place of each host.
    starts: Vec<usize>,
}

impl Line {
    fn new(ranks: Vec<usize>, starts: Vec<usize>) -> Self {
        let mut places = vec![0; ranks.len()];
        ranks.iter().enumerate().for_each(|(place, rank)| places[*rank] = place);
        Self { ranks, places, starts }
    }

    pub(super) fn rank(&self, place: usize) -> usize {
        self.ranks[place]
    }

    pub(super) fn place(&self, rank: usize) -> usize {
        self.places[rank]
    }

    pub(super) fn host_count(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn host(&self, place: usize) -> usize {
        self.starts.partition_point(|start| *start <= place) - 1
    }

    /// Returns the places of a host.
    pub(super) fn members(&self, host: usize) -> Range<usize> {
        self.starts[host]..self.starts.get(host + 1).copied().unwrap_or(self.ranks.len())
    }
}
