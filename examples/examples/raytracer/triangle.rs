//! A triangle, and the point at which a ray meets it.

use serde::{Deserialize, Serialize};

use super::vector::Vector;

/// Surface of a triangle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Material {
    /// Red, green and blue, from 0 to 1.
    pub(crate) colour: Vector,
    /// Part of the light that is mirrored, from 0 to 1.
    pub(crate) mirror: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Triangle {
    pub(crate) corners: [Vector; 3],
    /// Normals at the corners, of length 1.
    normals: [Vector; 3],
    pub(crate) material: Material,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ray {
    pub(crate) origin: Vector,
    /// Direction, of length 1.
    pub(crate) direction: Vector,
}

/// Point of a triangle that a ray meets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Distance from the ray's origin.
    pub(crate) distance: f64,
    /// Parts of the second and of the third corner in the point; the first has the rest.
    parts: (f64, f64),
}

impl Triangle {
    /// A corner without a normal has that of the triangle's plane.
    pub(crate) fn new(
        corners: [Vector; 3],
        normals: [Option<Vector>; 3],
        material: Material,
    ) -> Triangle {
        let [a, b, c] = corners;
        let plane = (b - a).cross(c - a);
        Triangle {
            corners,
            normals: normals.map(|normal| normal.unwrap_or(plane).unit()),
            material,
        }
    }

    /// Returns the point that the ray meets before `distance_max`, by the algorithm of Möller and
    /// Trumbore (1997); `None` also for a triangle without an area.
    pub(crate) fn meet(&self, ray: &Ray, distance_max: f64) -> Option<Hit> {
        let [a, b, c] = self.corners;
        let (side, other_side) = (b - a, c - a);
        let across = ray.direction.cross(other_side);
        let scale = side.dot(across).recip();
        let from_a = ray.origin - a;
        let second = from_a.dot(across) * scale;
        let turned = from_a.cross(side);
        let third = ray.direction.dot(turned) * scale;
        let distance = other_side.dot(turned) * scale;
        // None of these holds for the numbers of a triangle without an area, which are not finite.
        let inside = second >= 0.0 && third >= 0.0 && second + third <= 1.0;
        let ahead = distance > 0.0 && distance < distance_max;
        (inside && ahead).then_some(Hit { distance, parts: (second, third) })
    }

    /// Returns the normals of a point, on the side from which the ray comes: that of the plane, and
    /// that of the surface which the triangle stands for.
    pub(crate) fn normals_at(&self, hit: &Hit, ray: &Ray) -> (Vector, Vector) {
        let facing =
            |normal: Vector| if normal.dot(ray.direction) > 0.0 { -normal } else { normal };
        let [a, b, c] = self.corners;
        let (second, third) = hit.parts;
        let [from_a, from_b, from_c] = self.normals;
        let smooth = from_a * (1.0 - second - third) + from_b * second + from_c * third;
        (facing((b - a).cross(c - a).unit()), facing(smooth.unit()))
    }

    /// Returns the least and the greatest corner of the box around the triangle.
    pub(crate) fn bounds(&self) -> (Vector, Vector) {
        let [a, b, c] = self.corners;
        (a.with(b, f64::min).with(c, f64::min), a.with(b, f64::max).with(c, f64::max))
    }

    pub(crate) fn centre(&self) -> Vector {
        let [a, b, c] = self.corners;
        (a + b + c) * 3.0f64.recip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREY: Material = Material { colour: Vector::new(0.5, 0.5, 0.5), mirror: 0.0 };

    #[test]
    fn a_ray_meets_the_inside_alone_and_ahead_alone() {
        let corners = [(0.0, 0.0), (4.0, 0.0), (0.0, 4.0)].map(|(x, y)| Vector::new(x, y, 0.0));
        let triangle = Triangle::new(corners, [None; 3], GREY);
        let along = |x, y, down| {
            let (origin, direction) = (Vector::new(x, y, 5.0), Vector::new(0.0, 0.0, down));
            let ray = Ray { origin, direction };
            triangle.meet(&ray, 100.0).map(|hit| (hit.distance, triangle.normals_at(&hit, &ray)))
        };
        let up = Vector::new(0.0, 0.0, 1.0);
        assert_eq!(along(1.0, 1.0, -1.0), Some((5.0, (up, up))));
        assert_eq!(along(1.0, 1.0, 1.0), None);
        assert_eq!(along(3.0, 3.0, -1.0), None);
        assert_eq!(along(-0.1, 1.0, -1.0), None);
    }

    #[test]
    fn a_triangle_without_an_area_is_never_met() {
        let line = [0.0, 1.0, 2.0].map(|x| Vector::new(x, 0.0, 0.0));
        let triangle = Triangle::new(line, [None; 3], GREY);
        let ray =
            Ray { origin: Vector::new(0.5, 0.0, 1.0), direction: Vector::new(0.0, 0.0, -1.0) };
        assert!(triangle.meet(&ray, f64::INFINITY).is_none());
    }
}
