//! A tree of boxes around the triangles (bounding volume hierarchy): a ray that misses a box misses all
//! that is in it.

use std::cell::Cell;

use serde::{Deserialize, Serialize};

use super::triangle::{Hit, Ray, Triangle};
use super::vector::Vector;

/// Most triangles of a leaf. Fewer make more boxes, more make more triangles to try.
const LEAF_TRIANGLES_MAX: usize = 4;

/// Most boxes that wait on the way down: one a level, and each level halves the triangles.
const WAITING_MAX: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tree {
    /// Parents before their children; the first child stands right behind its parent.
    nodes: Vec<Node>,
    triangles: Vec<Triangle>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    least: Vector,
    greatest: Vector,
    content: Content,
}

#[derive(Debug, Serialize, Deserialize)]
enum Content {
    Leaf {
        first: usize,
        end: usize,
    },
    /// The first child has the lower centres along the axis.
    Branch {
        axis: usize,
        second_child: usize,
    },
}

impl Tree {
    pub(crate) fn new(mut triangles: Vec<Triangle>) -> Tree {
        let mut nodes = Vec::new();
        add_nodes(&mut nodes, &mut triangles, 0);
        Tree { nodes, triangles }
    }

    pub(crate) fn triangles(&self) -> &[Triangle] {
        &self.triangles
    }

    /// Returns the least and the greatest corner of the box around all triangles.
    pub(crate) fn bounds(&self) -> (Vector, Vector) {
        (self.nodes[0].least, self.nodes[0].greatest)
    }

    /// Returns the first triangle that the ray meets, and adds the number of boxes tried to `tried`.
    pub(crate) fn nearest(&self, ray: &Ray, tried: &Cell<u64>) -> Option<(Hit, &Triangle)> {
        let mut nearest = None;
        self.visit(ray, f64::INFINITY, tried, |triangle, distance_max| {
            if let Some(hit) = triangle.meet(ray, *distance_max) {
                *distance_max = hit.distance;
                nearest = Some((hit, triangle));
            }
        });
        nearest
    }

    /// Whether a triangle is on the ray before this distance; counts as [`nearest`](Tree::nearest).
    pub(crate) fn is_blocked(&self, ray: &Ray, distance: f64, tried: &Cell<u64>) -> bool {
        let mut is_blocked = false;
        self.visit(ray, distance, tried, |triangle, distance_max| {
            if triangle.meet(ray, *distance_max).is_some() {
                is_blocked = true;
                *distance_max = 0.0; // no box is before it
            }
        });
        is_blocked
    }

    /// Passes the triangles of the boxes that the ray meets before `distance_max`, near boxes first;
    /// `try_triangle` may lower that distance.
    fn visit<'a>(
        &'a self,
        ray: &Ray,
        mut distance_max: f64,
        tried: &Cell<u64>,
        mut try_triangle: impl FnMut(&'a Triangle, &mut f64),
    ) {
        let inverse = inverse(ray.direction);
        let mut waiting = [0; WAITING_MAX];
        let mut count = 1;
        let mut boxes = 0;
        while count > 0 {
            count -= 1;
            let index = waiting[count];
            let node = &self.nodes[index];
            boxes += 1;
            if !node.is_met(ray.origin, inverse, distance_max) {
                continue;
            }
            match node.content {
                Content::Leaf { first, end } => {
                    for triangle in &self.triangles[first..end] {
                        try_triangle(triangle, &mut distance_max);
                    }
                }
                Content::Branch { axis, second_child } => {
                    let is_up = ray.direction.0[axis] >= 0.0;
                    let (near, far) =
                        if is_up { (index + 1, second_child) } else { (second_child, index + 1) };
                    waiting[count] = far;
                    waiting[count + 1] = near;
                    count += 2;
                }
            }
        }
        tried.set(tried.get() + boxes);
    }
}

impl Node {
    fn is_met(&self, origin: Vector, inverse: Vector, distance_max: f64) -> bool {
        let (mut enter, mut leave) = (0.0f64, distance_max);
        for axis in 0..3 {
            let one = (self.least.0[axis] - origin.0[axis]) * inverse.0[axis];
            let other = (self.greatest.0[axis] - origin.0[axis]) * inverse.0[axis];
            enter = enter.max(one.min(other));
            leave = leave.min(one.max(other));
        }
        enter <= leave
    }
}

/// Returns the inverse of each coordinate. That of 0 is finite, since 0 times infinity is no number.
fn inverse(direction: Vector) -> Vector {
    Vector(direction.0.map(|it| if it == 0.0 { f64::MAX } else { it.recip() }))
}

/// Adds the box around these triangles and those within it; sorts the triangles, of which the first
/// has the index `first` in the whole.
fn add_nodes(nodes: &mut Vec<Node>, triangles: &mut [Triangle], first: usize) {
    let (least, greatest) = around(triangles.iter().map(Triangle::bounds));
    let index = nodes.len();
    let content = Content::Leaf { first, end: first + triangles.len() };
    nodes.push(Node { least, greatest, content });
    if triangles.len() <= LEAF_TRIANGLES_MAX {
        return;
    }
    let centres = triangles.iter().map(|triangle| (triangle.centre(), triangle.centre()));
    let (low, high) = around(centres);
    let axis = longest_axis(high - low);
    let middle = triangles.len() / 2;
    let along = |triangle: &Triangle| triangle.centre().0[axis];
    triangles.select_nth_unstable_by(middle, |a, b| along(a).total_cmp(&along(b)));
    let (below, above) = triangles.split_at_mut(middle);
    add_nodes(nodes, below, first);
    nodes[index].content = Content::Branch { axis, second_child: nodes.len() };
    add_nodes(nodes, above, first + middle);
}

fn around(boxes: impl Iterator<Item = (Vector, Vector)>) -> (Vector, Vector) {
    let nothing = (Vector([f64::INFINITY; 3]), Vector([f64::NEG_INFINITY; 3]));
    boxes.fold(nothing, |(least, greatest), (low, high)| {
        (least.with(low, f64::min), greatest.with(high, f64::max))
    })
}

fn longest_axis(sides: Vector) -> usize {
    (0..3).max_by(|&a, &b| sides.0[a].total_cmp(&sides.0[b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::built_in;
    use super::*;

    /// The tree gives what trying every triangle gives.
    #[test]
    fn the_tree_misses_nothing() {
        let tree = Tree::new(built_in::triangles());
        let tried = Cell::new(0);
        let mut met = 0;
        for number in 0..400 {
            let [x, y, z] = [7, 11, 13].map(|step| f64::from(number * step % 41 - 20) / 5.0);
            let (origin, to) = (Vector::new(z, 5.0, 6.0), Vector::new(x, y.abs(), 0.0));
            // Some along an axis, where a coordinate of the direction is 0.
            let to = if number % 9 == 0 { Vector::new(z, 0.0, 6.0) } else { to };
            let ray = Ray { origin, direction: (to - origin).unit() };
            let distances = tree.triangles().iter().filter_map(|it| it.meet(&ray, f64::INFINITY));
            let expected = distances.map(|hit| hit.distance).min_by(f64::total_cmp);
            let found = tree.nearest(&ray, &tried).map(|(hit, _)| hit.distance);
            assert_eq!(found, expected, "{ray:?}");
            let Some(distance) = expected else { continue };
            met += 1;
            assert!(tree.is_blocked(&ray, distance * 1.001, &tried), "{ray:?}");
            assert!(!tree.is_blocked(&ray, distance * 0.999, &tried), "{ray:?}");
        }
        assert!(met > 200, "only {met} rays meet the scene");
        let tried_each = tried.get() / 800;
        assert!(tried_each < tree.nodes.len() as u64 / 50, "{tried_each} boxes tried a ray");
    }
}
