//! The array to move: that of a file, or one that is made.

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use chunkcomm_array::{Array, ArrayError, Layout, Npy, NpyElement, NpyHeader, NpyType};
use chunkcomm_group::Group;

/// The array to move. All processes of the program have the same.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// File to read; without one each element is its number in C's order.
    file: Option<PathBuf>,
    pub(crate) element: NpyType,
    pub(crate) shape: Vec<usize>,
}

impl Input {
    /// Looks at a file.
    ///
    /// # Errors
    /// It cannot be read; the text names it.
    pub(crate) fn of_file(path: &Path) -> Result<Input, Box<dyn Error>> {
        let file = Npy::open(path)?;
        let (element, shape) = (file.element(), file.shape().to_vec());
        Ok(Input { file: Some(path.to_owned()), element, shape })
    }

    /// Makes an array of this shape, in memory and by parts.
    pub(crate) fn made(shape: &[usize]) -> Input {
        Input { file: None, element: NpyType::F64, shape: shape.to_vec() }
    }

    /// Returns the size of all elements in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.element.bytes()
    }

    /// Returns the array, of which each rank of a group reads or makes its part.
    ///
    /// # Errors
    /// The file cannot be read; the text names it.
    pub(crate) async fn array<T: NpyElement>(
        &self,
        group: &mut Group,
        layout: &Layout,
    ) -> Result<Array<T>, ArrayError> {
        let Some(file) = &self.file else {
            let made = |index: &[usize]| (number(index, &self.shape) as f64).to_ne_bytes();
            // Made elements are f64, which T is.
            return Array::from_fn(group, layout, |it| bytemuck::pod_read_unaligned(&made(it)));
        };
        Array::read_npy(group, layout, file).await
    }

    /// Compares the elements with those of a file that was written, byte by byte, in no layout.
    ///
    /// # Errors
    /// A file cannot be read, or an element differs; the text names it.
    pub(crate) fn compare(&self, written: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
        let found = File::read(written)?;
        let expected = self.file.as_deref().map(File::read).transpose()?;
        let descr = match &expected {
            Some(file) => file.header.descr.clone(),
            None => self.element.descr(),
        };
        if (&found.header.shape, &found.header.descr) != (&self.shape, &descr) {
            return Err(format!("{} has another shape or type", written.display()).into());
        }
        let mut index = vec![0; self.shape.len()];
        for number in 0..found.header.elements() {
            let made = (number as f64).to_ne_bytes();
            let expected = match &expected {
                Some(file) => file.element(&index, self.element.bytes())?,
                None => &made,
            };
            if found.element(&index, self.element.bytes())? != expected {
                return Err(format!("{}: element {index:?} differs", written.display()).into());
            }
            next(&mut index, &self.shape);
        }
        Ok(())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "{} of {}", extents.join(" x "), self.element)?;
        match &self.file {
            Some(file) => write!(f, ", {}", file.display()),
            None => f.write_str(", each its own number"),
        }
    }
}

/// A file as a whole.
struct File {
    path: PathBuf,
    header: NpyHeader,
    bytes: Vec<u8>,
    elements_at: usize,
}

impl File {
    fn read(path: &Path) -> Result<File, String> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed = NpyHeader::parse(&bytes);
        let (header, elements_at) =
            parsed.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(File { path: path.to_owned(), header, bytes, elements_at })
    }

    /// Returns the bytes of an element of this size.
    fn element(&self, index: &[usize], size: usize) -> Result<&[u8], String> {
        let (mut index, mut shape) = (index.to_vec(), self.header.shape.clone());
        if self.header.fortran_order {
            index.reverse();
            shape.reverse();
        }
        let at = self.elements_at + number(&index, &shape) * size;
        let bytes = self.bytes.get(at..at + size);
        bytes.ok_or_else(|| format!("{} ends before element {index:?}", self.path.display()))
    }
}

/// Returns the number of an element in C's order.
fn number(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |number, (index, extent)| number * extent + index)
}

/// Steps to the next index in C's order.
fn next(index: &mut [usize], shape: &[usize]) {
    for (index, extent) in index.iter_mut().zip(shape).rev() {
        *index += 1;
        if *index < *extent {
            return;
        }
        *index = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_that_differs_is_named() {
        let file = std::env::temp_dir().join(format!("redistribute-{}.npy", std::process::id()));
        let array = Input::made(&[3, 5]);
        let layout = Layout::parse("(*,*)", &[3, 5]).expect("a layout");
        let mut part: Vec<f64> = (0..15).map(f64::from).collect();
        let mut compared = |change: f64, array: &Input| {
            part[7] = change;
            let mut written = Npy::create::<f64>(&file, &[3, 5]).expect("a file");
            written.write_local(&layout, 0, &part).expect("it is written");
            array.compare(&file).map_err(|error| error.to_string())
        };
        assert_eq!(compared(7.0, &array), Ok(()));
        let name = file.display();
        assert_eq!(compared(8.0, &array), Err(format!("{name}: element [1, 2] differs")));
        let turned = Input::made(&[5, 3]);
        assert_eq!(compared(7.0, &turned), Err(format!("{name} has another shape or type")));
        fs::remove_file(&file).expect("the file is there");
    }
}
