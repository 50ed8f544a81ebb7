//! Lloyd's algorithm (S. Lloyd, "Least squares quantization in PCM", 1982) on points with whole
//! coordinates. Its sums are exact, so it does not matter who adds which points in which order.

use std::time::Duration;

use chunkcomm::host;

/// A point: x and y.
pub(crate) type Point = [i64; 2];

/// Largest coordinate, on either side of 0: a squared distance then stays below 2^63, and so does
/// twice the sum of 4 * 10^9 coordinates.
pub(crate) const COORDINATE_MAX: i64 = 1_000_000_000;

/// Cluster of a point that is in none yet.
pub(crate) const NONE: u32 = u32::MAX;

/// Work of a distance on a virtual host. Measured once: 100,000 points and 8 centres take 2.1 ms.
const DISTANCE_NANOS: u64 = 2;

/// The clusters after an iteration; the same at all ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clusters {
    pub(crate) centres: Vec<Point>,
    /// Number of points of each cluster.
    pub(crate) counts: Vec<i64>,
    /// Number of points that the iteration took to another cluster.
    pub(crate) changed: i64,
}

impl Clusters {
    /// Returns the clusters before the first iteration: their centres are the first distinct points.
    ///
    /// # Errors
    /// There are fewer distinct points; the text says how many.
    pub(crate) fn first(points: &[Point], count: usize) -> Result<Clusters, String> {
        let mut centres: Vec<Point> = Vec::with_capacity(count);
        for point in points {
            if centres.len() < count && !centres.contains(point) {
                centres.push(*point);
            }
        }
        if centres.len() < count {
            let there = centres.len();
            return Err(format!("{there} distinct points are too few for --clusters {count}"));
        }
        Ok(Clusters { centres, counts: vec![0; count], changed: points.len() as i64 })
    }

    /// Puts each point into the cluster of the nearest centre, that with the lowest number if there are
    /// several. Returns the sums of these points: x, y and number for each cluster, and the number of
    /// points that were in another.
    pub(crate) fn assign(&self, points: &[Point], cluster_of: &mut [u32]) -> Vec<i64> {
        let distances = points.len() as u64 * self.centres.len() as u64;
        host::spend(Duration::from_nanos(distances * DISTANCE_NANOS));
        let mut sums = vec![0; 3 * self.centres.len() + 1];
        for (point, cluster) in points.iter().zip(cluster_of) {
            let squared = |centre: &Point| {
                let [x, y] = [point[0] - centre[0], point[1] - centre[1]];
                x * x + y * y
            };
            let distances = self.centres.iter().map(squared).zip(0..);
            let (_, nearest) = distances.min().expect("there is a centre");
            let at = 3 * nearest as usize;
            sums[at] += point[0];
            sums[at + 1] += point[1];
            sums[at + 2] += 1;
            *sums.last_mut().expect("one more than the centres have") +=
                i64::from(*cluster != nearest);
            *cluster = nearest;
        }
        sums
    }

    /// Returns the clusters whose points have these sums: each centre is the mean of its points, and
    /// stays where it is without any.
    pub(crate) fn next(&self, sums: &[i64]) -> Clusters {
        let of_each = || sums.chunks_exact(3);
        let mean = |sum: i64, count: i64| (2 * sum + count).div_euclid(2 * count);
        let centres = of_each().zip(&self.centres).map(|(sums, old)| match sums[2] {
            0 => *old,
            count => [mean(sums[0], count), mean(sums[1], count)],
        });
        Clusters {
            centres: centres.collect(),
            counts: of_each().map(|sums| sums[2]).collect(),
            changed: sums[sums.len() - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_centre_is_the_rounded_mean_of_its_points() {
        let points = [[0, 0], [-10, 10], [-3, 3], [0, 1], [-11, 10], [-11, 12]];
        let first = Clusters::first(&points, 2).unwrap();
        assert_eq!((&first.centres[..], first.changed), (&points[..2], 6));
        let mut cluster_of = [NONE; 6];
        let sums = first.assign(&points, &mut cluster_of);
        assert_eq!(cluster_of, [0, 1, 0, 0, 1, 1]);
        assert_eq!(sums, [-3, 4, 3, -32, 32, 3, 6]);
        let next = first.next(&sums);
        // Of -10.67 and 1.33.
        assert_eq!(next.centres, [[-1, 1], [-11, 11]]);
        assert_eq!((&next.counts[..], next.changed), (&[3, 3][..], 6));
        assert_eq!(next.assign(&points, &mut cluster_of).last(), Some(&0));
    }

    #[test]
    fn a_centre_without_points_stays() {
        let clusters = Clusters { centres: vec![[1, 1], [9, 9]], counts: vec![0; 2], changed: 1 };
        let next = clusters.next(&[5, 6, 2, 0, 0, 0, 1]);
        assert_eq!(next.centres, [[3, 3], [9, 9]]);
    }

    #[test]
    fn the_farthest_points_do_not_overflow() {
        let points = [[-COORDINATE_MAX; 2], [COORDINATE_MAX; 2]];
        let clusters = Clusters { centres: vec![points[0]], counts: vec![0], changed: 1 };
        let next = clusters.next(&clusters.assign(&points, &mut [NONE; 2]));
        assert_eq!(next.centres, [[0, 0]]);
    }
}
