//! The picture: its areas, which are the tasks of the farm, and the colour of each pixel.

use std::cell::Cell;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_examples::picture::Pixel;
use chunkcomm_farm::Shared;
use serde::{Deserialize, Serialize};

use super::scene::Scene;
use super::triangle::Ray;
use super::vector::Vector;

/// Most mirrors that a ray meets one after the other.
const REFLECTIONS_MAX: u32 = 3;

/// Part of the light that also reaches a shadow.
const AMBIENT: f64 = 0.15;

/// A rectangle of the picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Area {
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// An area to render, of a picture of these sides (width and height): a task of the farm.
pub(crate) type Task = (Shared<Scene>, (u32, u32), Area);

/// Pixels of an area, row by row from the top.
pub(crate) type Pixels = Vec<Pixel>;

/// Cuts a picture into areas of these sides, row by row from the top; those at its right and lower edge
/// may be smaller.
pub(crate) fn areas(sides: (u32, u32), of: (u32, u32)) -> Vec<Area> {
    let cuts = |whole: u32, part: u32| {
        let starts = (0..whole).step_by(part as usize);
        starts.map(move |start| (start, part.min(whole - start)))
    };
    let row = |(top, height)| {
        cuts(sides.0, of.0).map(move |(left, width)| Area { left, top, width, height })
    };
    cuts(sides.1, of.1).flat_map(row).collect()
}

impl Area {
    /// Copies the pixels of this area to their place in a picture of this width.
    pub(crate) fn place(&self, pixels: &[Pixel], picture: &mut [Pixel], picture_width: u32) {
        for (row, line) in (self.top..).zip(pixels.chunks(self.width as usize)) {
            let at = row as usize * picture_width as usize + self.left as usize;
            picture[at..at + line.len()].copy_from_slice(line);
        }
    }
}

/// Work of a box that is tried, on a virtual host, with all that follows from it. Measured once: the
/// picture of the default options tries 71,880,047 boxes in 0.78 s.
const BOX_NANOS: u64 = 11;

/// Computes the pixels of an area: the function that the farm runs. Reports the fraction that is done after
/// each row.
pub(crate) fn render(scene: &Scene, sides: (u32, u32), area: Area, report: impl Fn(f64)) -> Pixels {
    let tracer = Tracer { scene, tried: Cell::new(0) };
    let Area { left, top, width, height } = area;
    let mut pixels = Vec::with_capacity(width as usize * height as usize);
    for row in top..top + height {
        pixels.extend((left..left + width).map(|column| {
            let ray = scene.ray(sides, column, row);
            pixel(tracer.colour(&ray, REFLECTIONS_MAX))
        }));
        report(f64::from(row + 1 - top) / f64::from(height));
    }
    if host::is_virtual() {
        host::spend(Duration::from_nanos(BOX_NANOS * tracer.tried.get()));
    }
    pixels
}

/// Colours of rays, and the work for them.
struct Tracer<'a> {
    scene: &'a Scene,
    /// Number of boxes tried.
    tried: Cell<u64>,
}

impl Tracer<'_> {
    fn colour(&self, ray: &Ray, reflections_left: u32) -> Vector {
        let Some((hit, triangle)) = self.scene.tree.nearest(ray, &self.tried) else {
            return sky(ray.direction);
        };
        let (plane, normal) = triangle.normals_at(&hit, ray);
        let point = ray.origin + ray.direction * hit.distance + plane * self.scene.gap;
        let material = triangle.material;
        let own = material.colour * (AMBIENT + (1.0 - AMBIENT) * self.light_at(point, normal));
        if reflections_left == 0 || material.mirror == 0.0 {
            return own;
        }
        let direction = (ray.direction - normal * (2.0 * normal.dot(ray.direction))).unit();
        let mirrored = self.colour(&Ray { origin: point, direction }, reflections_left - 1);
        own * (1.0 - material.mirror) + mirrored * material.mirror
    }

    /// Returns the light that comes from the lamp to a point, from 0 in its shadow to 1.
    fn light_at(&self, point: Vector, normal: Vector) -> f64 {
        let to_light = self.scene.light - point;
        let ray = Ray { origin: point, direction: to_light.unit() };
        let slant = normal.dot(ray.direction);
        let is_dark =
            slant <= 0.0 || self.scene.tree.is_blocked(&ray, to_light.length(), &self.tried);
        if is_dark { 0.0 } else { slant }
    }
}

/// Returns the colour that is behind everything: from white at the horizon to blue above.
fn sky(direction: Vector) -> Vector {
    let height = direction.0[1].clamp(0.0, 1.0);
    Vector::new(0.85, 0.9, 0.95) * (1.0 - height) + Vector::new(0.2, 0.4, 0.8) * height
}

/// Returns the pixel of a colour; the root makes dark colours as bright as the eye expects them.
fn pixel(colour: Vector) -> Pixel {
    // The product is between 0 and 255; the cast cuts off the fraction.
    colour.0.map(|level| (level.clamp(0.0, 1.0).sqrt() * 255.0) as u8)
}

#[cfg(test)]
mod tests {
    use super::super::scene::Source;
    use super::*;

    #[test]
    fn areas_of_any_sides_make_the_picture() {
        let (sides, scene) = ((23, 17), Source::BuiltIn.scene().unwrap());
        let rendered = |area| render(&scene, sides, area, |_| ());
        let whole = rendered(Area { left: 0, top: 0, width: 23, height: 17 });
        assert_eq!(whole.len(), 23 * 17);
        for of in [(23, 1), (1, 1), (5, 5), (8, 17), (100, 100)] {
            let areas = areas(sides, of);
            assert_eq!(areas.len() as u32, 23u32.div_ceil(of.0) * 17u32.div_ceil(of.1));
            let mut picture = vec![[0; 3]; 23 * 17];
            for area in areas {
                area.place(&rendered(area), &mut picture, sides.0);
            }
            assert!(picture == whole, "{of:?}");
        }
    }

    #[test]
    fn a_point_behind_a_sphere_is_in_its_shadow() {
        let scene = Source::BuiltIn.scene().unwrap();
        let tracer = Tracer { scene: &scene, tried: Cell::new(0) };
        let up = Vector::new(0.0, 1.0, 0.0);
        // On the line from the light through the centre of the sphere in the middle, to the board.
        let centre = Vector::new(0.0, 1.3, 0.0);
        let down = centre - scene.light;
        let behind = centre + down * (1.3 / -down.0[1]) + up * 1e-6;
        assert_eq!(tracer.light_at(behind, up), 0.0);
        assert!(tracer.light_at(Vector::new(0.0, 1e-6, 6.0), up) > 0.5);
    }

    #[test]
    fn a_mirror_shows_what_is_before_it() {
        let scene = Source::BuiltIn.scene().unwrap();
        let tracer = Tracer { scene: &scene, tried: Cell::new(0) };
        let (origin, direction) = (Vector::new(0.0, 1.3, 6.0), Vector::new(0.0, 0.0, -1.0));
        let ray = Ray { origin, direction };
        assert_ne!(tracer.colour(&ray, 1), tracer.colour(&ray, 0));
    }
}
