//! Vectors of the space.

use std::ops::{Add, Mul, Neg, Sub};

use serde::{Deserialize, Serialize};

/// A point, a direction or a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Vector(pub(crate) [f64; 3]);

impl Vector {
    pub(crate) const fn new(x: f64, y: f64, z: f64) -> Vector {
        Vector([x, y, z])
    }

    pub(crate) fn dot(self, other: Vector) -> f64 {
        let [x, y, z] = self.0;
        x * other.0[0] + y * other.0[1] + z * other.0[2]
    }

    pub(crate) fn cross(self, other: Vector) -> Vector {
        let ([a, b, c], [x, y, z]) = (self.0, other.0);
        Vector([b * z - c * y, c * x - a * z, a * y - b * x])
    }

    pub(crate) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// Returns the vector of length 1 of this direction; it has no meaning for a vector of length 0.
    pub(crate) fn unit(self) -> Vector {
        self * self.length().recip()
    }

    /// Combines each coordinate with the other's.
    pub(crate) fn with(self, other: Vector, combine: impl Fn(f64, f64) -> f64) -> Vector {
        Vector([0, 1, 2].map(|axis| combine(self.0[axis], other.0[axis])))
    }
}

impl Add for Vector {
    type Output = Vector;
    fn add(self, other: Vector) -> Vector {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for Vector {
    type Output = Vector;
    fn sub(self, other: Vector) -> Vector {
        self.with(other, |a, b| a - b)
    }
}

impl Neg for Vector {
    type Output = Vector;
    fn neg(self) -> Vector {
        self * -1.0
    }
}

impl Mul<f64> for Vector {
    type Output = Vector;
    fn mul(self, factor: f64) -> Vector {
        Vector(self.0.map(|coordinate| coordinate * factor))
    }
}
