//! The scene without a file: spheres on a board of two colours.

use super::triangle::{Material, Triangle};
use super::vector::Vector;

/// Squares of the board along a side; each is 1 wide.
const BOARD_SQUARES: i32 = 16;

/// Times that each triangle of an octahedron is cut into four, to become a sphere.
const SPHERE_CUTS: u32 = 4;

/// A sphere that stands on the board: its place there, its radius and its material.
struct Sphere {
    x: f64,
    z: f64,
    radius: f64,
    material: Material,
}

const fn sphere(x: f64, z: f64, radius: f64, colour: [f64; 3], mirror: f64) -> Sphere {
    Sphere { x, z, radius, material: Material { colour: Vector(colour), mirror } }
}

const SPHERES: [Sphere; 6] = [
    sphere(0.0, 0.0, 1.3, [0.9, 0.9, 0.9], 0.75),
    sphere(-2.5, 0.8, 0.9, [0.85, 0.15, 0.1], 0.2),
    sphere(2.5, 0.4, 1.0, [0.1, 0.3, 0.8], 0.2),
    sphere(1.2, 2.4, 0.5, [0.95, 0.7, 0.1], 0.1),
    sphere(-0.9, 2.5, 0.4, [0.15, 0.6, 0.2], 0.0),
    sphere(-1.8, -2.8, 1.1, [0.8, 0.5, 0.7], 0.3),
];

/// Returns the triangles of the scene. They are computed by operations that give the same bits on every
/// machine, as sine and cosine would not.
pub(crate) fn triangles() -> Vec<Triangle> {
    let mut triangles = board();
    for sphere in &SPHERES {
        add_sphere(&mut triangles, sphere);
    }
    triangles
}

fn board() -> Vec<Triangle> {
    let mut triangles = Vec::new();
    let half = BOARD_SQUARES / 2;
    for (x, z) in (-half..half).flat_map(|x| (-half..half).map(move |z| (x, z))) {
        let shade = if (x + z) % 2 == 0 { 0.75 } else { 0.25 };
        let material = Material { colour: Vector([shade; 3]), mirror: 0.15 };
        let corner = |right, down| Vector::new(f64::from(x + right), 0.0, f64::from(z + down));
        let [a, b, c, d] = [corner(0, 0), corner(1, 0), corner(1, 1), corner(0, 1)];
        for corners in [[a, b, c], [a, c, d]] {
            triangles.push(Triangle::new(corners, [None; 3], material));
        }
    }
    triangles
}

fn add_sphere(triangles: &mut Vec<Triangle>, sphere: &Sphere) {
    let centre = Vector::new(sphere.x, sphere.radius, sphere.z);
    for octant in 0..8 {
        let sign = |bit: u32| if octant >> bit & 1 == 0 { 1.0 } else { -1.0 };
        let corners = [
            Vector::new(sign(0), 0.0, 0.0),
            Vector::new(0.0, sign(1), 0.0),
            Vector::new(0.0, 0.0, sign(2)),
        ];
        cut(corners, SPHERE_CUTS, &mut |directions: [Vector; 3]| {
            let corners = directions.map(|direction| centre + direction * sphere.radius);
            triangles.push(Triangle::new(corners, directions.map(Some), sphere.material));
        });
    }
}

/// Cuts a triangle of the unit sphere into four, these again, and passes the last.
fn cut(corners: [Vector; 3], times: u32, add: &mut impl FnMut([Vector; 3])) {
    if times == 0 {
        return add(corners);
    }
    let [a, b, c] = corners;
    let (ab, bc, ca) = ((a + b).unit(), (b + c).unit(), (c + a).unit());
    for part in [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]] {
        cut(part, times - 1, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corners_of_a_sphere_are_on_it() {
        let mut triangles = Vec::new();
        add_sphere(&mut triangles, &SPHERES[1]);
        assert_eq!(triangles.len(), 8 * 4usize.pow(SPHERE_CUTS));
        let centre = Vector::new(-2.5, 0.9, 0.8);
        for corner in triangles.iter().flat_map(|triangle| triangle.corners) {
            assert!(((corner - centre).length() - 0.9).abs() < 1e-12, "{corner:?}");
        }
    }
}
