//! Reads the triangles of an OBJ file: `v`, `vn` and `f`; other lines are passed over.

use std::fmt;

use super::triangle::{Material, Triangle};
use super::vector::Vector;

/// Material of every triangle: a file of materials is not read.
const MATERIAL: Material = Material { colour: Vector::new(0.8, 0.75, 0.65), mirror: 0.15 };

/// A line of an OBJ text that makes no sense.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Malformed {
    /// Number of the line, from 1.
    line: usize,
    text: String,
}

impl fmt::Display for Malformed {
    /// `12: f 1 2: a face has 3 corners or more`, to be put behind the name of the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)
    }
}

/// Vectors and triangles of the lines so far.
#[derive(Default)]
struct Reader {
    vertices: Vec<Vector>,
    normals: Vec<Vector>,
    triangles: Vec<Triangle>,
}

/// Reads the triangles of an OBJ text. A face of more than three corners becomes a fan around its
/// first; a corner without a normal has that of its triangle.
///
/// # Errors
/// The first line that makes no sense.
pub(crate) fn read(text: &str) -> Result<Vec<Triangle>, Malformed> {
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        let statement = line.split('#').next().unwrap_or_default().trim();
        reader.read_line(statement).map_err(|reason| {
            let text = format!("{statement}: {reason}");
            Malformed { line: index + 1, text }
        })?;
    }
    Ok(reader.triangles)
}

impl Reader {
    fn read_line(&mut self, statement: &str) -> Result<(), String> {
        let mut words = statement.split_whitespace();
        match words.next() {
            Some("v") => self.vertices.push(vector(words)?),
            Some("vn") => self.normals.push(vector(words)?),
            Some("f") => {
                let corners = words.map(|word| self.corner(word));
                self.add_face(&corners.collect::<Result<Vec<_>, _>>()?)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads `vertex`, `vertex/texture`, `vertex//normal` or `vertex/texture/normal`.
    fn corner(&self, word: &str) -> Result<(Vector, Option<Vector>), String> {
        let mut parts = word.split('/');
        let vertex = find("vertex", &self.vertices, parts.next().unwrap_or_default())?;
        // The coordinates of a texture are passed over.
        let normal = match parts.nth(1) {
            None | Some("") => None,
            Some(index) => Some(find("normal", &self.normals, index)?),
        };
        if parts.next().is_some() {
            return Err(format!("corner {word} has more than 3 parts"));
        }
        Ok((vertex, normal))
    }

    fn add_face(&mut self, corners: &[(Vector, Option<Vector>)]) -> Result<(), String> {
        let [first, others @ ..] = corners else { return Err(too_few(0)) };
        if others.len() < 2 {
            return Err(too_few(corners.len()));
        }
        for pair in others.windows(2) {
            let corners = [first.0, pair[0].0, pair[1].0];
            let normals = [first.1, pair[0].1, pair[1].1];
            self.triangles.push(Triangle::new(corners, normals, MATERIAL));
        }
        Ok(())
    }
}

fn too_few(corners: usize) -> String {
    format!("a face has 3 corners or more, this one {corners}")
}

/// Reads three numbers; a fourth and the colour that some programs write are passed over.
fn vector<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vector, String> {
    let mut coordinates = [0.0; 3];
    let mut count = 0;
    for (to, word) in coordinates.iter_mut().zip(words) {
        let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
        *to = number.ok_or_else(|| format!("{word} is no number"))?;
        count += 1;
    }
    if count < 3 {
        return Err(format!("3 numbers are needed, here are {count}"));
    }
    Ok(Vector(coordinates))
}

/// Returns the vector of this index: from 1 on, or back from -1, the last so far.
fn find(kind: &str, vectors: &[Vector], index: &str) -> Result<Vector, String> {
    let number = index.parse::<i64>().map_err(|_| format!("{index:?} is no index of a {kind}"))?;
    let count = vectors.len();
    let from_zero = if number < 0 { number + count as i64 } else { number - 1 };
    let found = usize::try_from(from_zero).ok().and_then(|index| vectors.get(index));
    found.copied().ok_or_else(|| format!("{kind} {number} does not exist, {count} stand above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARE: &str = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvn 0 0 1\n";

    fn faces(lines: &str) -> Vec<[Vector; 3]> {
        let triangles = read(&format!("{SQUARE}{lines}")).unwrap();
        triangles.iter().map(|triangle| triangle.corners).collect()
    }

    #[test]
    fn a_square_is_two_triangles_in_each_form() {
        let [a, b, c, d] =
            [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)].map(|(x, y)| Vector::new(x, y, 0.0));
        for form in [
            "1 2 3 4",
            "1/7 2/7 3/7 4/7",
            "1//1 2//1 3//1 4//1",
            "-4 -3 -2 -1",
            "1/1/1 -3//-1 3/ 4",
        ] {
            let found = faces(&format!("o square # of four\n\n  f {form} # done\n"));
            assert_eq!(found, [[a, b, c], [a, c, d]], "{form}");
        }
    }

    #[test]
    fn a_fan_has_two_triangles_less_than_corners() {
        assert_eq!(faces("v 2 2 0\nv 3 3 0\nf 1 2 3 4 5 6").len(), 4);
        assert!(faces("").is_empty());
    }

    #[test]
    fn a_wrong_line_is_told_by_its_number() {
        for (line, told) in [
            ("f 1 2", "6: f 1 2: a face has 3 corners or more, this one 2"),
            ("f", "6: f: a face has 3 corners or more, this one 0"),
            ("f 1 2 5", "6: f 1 2 5: vertex 5 does not exist, 4 stand above"),
            ("f 1 2 0", "6: f 1 2 0: vertex 0 does not exist, 4 stand above"),
            ("f 1 2 -5", "6: f 1 2 -5: vertex -5 does not exist, 4 stand above"),
            ("f 1//2 2 3", "6: f 1//2 2 3: normal 2 does not exist, 1 stand above"),
            ("f 1 2 x", "6: f 1 2 x: \"x\" is no index of a vertex"),
            ("f 1 2 /3", "6: f 1 2 /3: \"\" is no index of a vertex"),
            ("f 1 2 3/1/1/1", "6: f 1 2 3/1/1/1: corner 3/1/1/1 has more than 3 parts"),
            ("v 1 2", "6: v 1 2: 3 numbers are needed, here are 2"),
            ("v 1 2 z", "6: v 1 2 z: z is no number"),
            ("v 1 2 inf", "6: v 1 2 inf: inf is no number"),
            ("\n# a comment\nvn 1 0 - # up", "8: vn 1 0 -: - is no number"),
            ("f 1 2 9223372036854775807", "vertex 9223372036854775807 does not exist"),
            ("f 1 2 -9223372036854775808", "vertex -9223372036854775808 does not exist"),
        ] {
            let error = read(&format!("{SQUARE}{line}\nf 1 2 3\n")).unwrap_err().to_string();
            assert!(error.contains(told), "{line:?}: {error}");
        }
    }
}
