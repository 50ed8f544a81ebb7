//! A scene: its triangles, light and camera.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::triangle::Ray;
use super::vector::Vector;
use super::{built_in, obj};

/// Half of the shorter side of the picture, at a distance of 1 from the eye.
const HALF_VIEW: f64 = 0.5;

/// Distance of the eye from a scene of radius 1, which then fills most of the view.
const EYE_DISTANCE: f64 = 2.5;

/// Distance from a surface at which its shadows and reflections begin, for a scene of radius 1: more
/// than the error of a computed point, and less than is visible.
const GAP: f64 = 1e-9;

/// Place that a scene comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    BuiltIn,
    /// An OBJ file.
    File(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scene {
    pub(crate) tree: Tree,
    /// The point that shines.
    pub(crate) light: Vector,
    /// Distance from a surface at which its shadows and reflections begin.
    pub(crate) gap: f64,
    camera: Camera,
}

/// An eye and the directions of its picture, each of length 1.
#[derive(Debug, Serialize, Deserialize)]
struct Camera {
    eye: Vector,
    ahead: Vector,
    right: Vector,
    up: Vector,
}

impl Source {
    /// Returns the scene.
    ///
    /// # Errors
    /// The file cannot be read or makes no sense; the text names it and the line.
    pub(crate) fn scene(&self) -> Result<Scene, String> {
        match self {
            Source::BuiltIn => Ok(Scene::built_in()),
            Source::File(path) => {
                let told = path.display();
                let bytes = std::fs::read(path).map_err(|error| format!("{told}: {error}"))?;
                // Names and comments may be in any encoding.
                let triangles = obj::read(&String::from_utf8_lossy(&bytes))
                    .map_err(|malformed| format!("{told}:{malformed}"))?;
                if triangles.is_empty() {
                    return Err(format!("{told}: no face is in this file"));
                }
                Ok(Scene::around(Tree::new(triangles)))
            }
        }
    }
}

impl Scene {
    fn built_in() -> Scene {
        let camera = Camera::new(Vector::new(1.0, 2.6, 7.5), Vector::new(0.0, 0.9, 0.0));
        let light = Vector::new(-5.0, 8.0, 6.0);
        Scene { tree: Tree::new(built_in::triangles()), light, gap: GAP * 10.0, camera }
    }

    /// Sets eye and light so that all triangles are seen, from the front and a little from above.
    fn around(tree: Tree) -> Scene {
        let (least, greatest) = tree.bounds();
        let centre = (least + greatest) * 0.5;
        let radius = (greatest - least).length() * 0.5;
        let towards_eye = Vector::new(0.5, 0.4, 1.0).unit();
        let camera = Camera::new(centre + towards_eye * (EYE_DISTANCE * radius), centre);
        let light = centre + Vector::new(-1.5, 3.0, 2.5) * radius;
        Scene { tree, light, gap: GAP * radius, camera }
    }

    /// Returns the ray through the centre of a pixel of a picture of these sides.
    pub(crate) fn ray(&self, sides: (u32, u32), column: u32, row: u32) -> Ray {
        let (width, height) = (f64::from(sides.0), f64::from(sides.1));
        let pixel = 2.0 * HALF_VIEW / width.min(height);
        let right = (f64::from(column) + 0.5 - width * 0.5) * pixel;
        let up = (height * 0.5 - f64::from(row) - 0.5) * pixel;
        let Camera { eye, ahead, .. } = self.camera;
        let direction = ahead + self.camera.right * right + self.camera.up * up;
        Ray { origin: eye, direction: direction.unit() }
    }
}

impl Camera {
    fn new(eye: Vector, looks_at: Vector) -> Camera {
        let ahead = (looks_at - eye).unit();
        let right = ahead.cross(Vector::new(0.0, 1.0, 0.0)).unit();
        Camera { eye, ahead, right, up: right.cross(ahead) }
    }
}
