//! NumPy's `.npy` files: each rank reads what it owns, and writes it.
//!
//! `header`, `element` and `runs` are pure.

mod element;
mod error;
mod header;
mod runs;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use element::{NpyElement, NpyType};
pub use error::NpyError;
pub use header::{NpyHeader, NpyHeaderError};

use crate::layout::Layout;
use runs::{Access, each_batch};

/// Bytes between two runs that are read as well. To read 4 KiB took 1 to 2 us, a call of the system about 2 us.
const GAP_BYTES: usize = 4096;

/// Most bytes of an access that are not one piece of the storage, and so of the memory beside it. 64 MiB of
/// `(*,cyclic(64))` were read in 55 ms so and with 4 MiB; in 85 ms with 256 KiB, in 210 ms with 64 KiB.
const ACCESS_BYTES_MAX: usize = 1 << 20;

/// First bytes of a file, with which most headers are whole.
const FIRST_BYTES: usize = 4096;

/// An `.npy` file, of which each rank of a layout reads its own elements, or writes them.
///
/// The ranks may be processes on several machines that see the same file. Each opens it by itself. Both calls
/// block; where a node has to go on with other things, they belong on a thread (`chunkcomm::host::compute`).
///
/// ```no_run
/// # use chunkcomm_array::{Layout, Npy};
/// # fn rank(rank: usize) -> Result<(), Box<dyn std::error::Error>> {
/// let mut input = Npy::open("input.npy")?;
/// let layout = Layout::parse("(block,*)@4x1", input.shape())?;
/// let rows: Vec<f64> = input.read_local(&layout, rank)?;
///
/// if rank == 0 {
///     Npy::create::<f64>("output.npy", input.shape())?;
/// }
/// // All ranks wait for rank 0, then:
/// Npy::open_to_write("output.npy")?.write_local(&layout, rank, &rows)?;
/// # Ok(())
/// # }
/// ```
///
/// A file may have its elements in C's or in Fortran's order: an index counts, not its place. Files are created
/// in C's order.
#[derive(Debug)]
pub struct Npy {
    path: PathBuf,
    file: File,
    header: NpyHeader,
    element: NpyType,
    /// Offset of the elements in bytes.
    elements_at: u64,
}

impl Npy {
    /// Opens a file to read from it.
    ///
    /// # Errors
    /// The file cannot be read, is no `.npy` file, has elements of a type or byte order that are not
    /// known here, or another length than its header says.
    pub fn open(path: impl AsRef<Path>) -> Result<Npy, NpyError> {
        Npy::open_with(path.as_ref(), OpenOptions::new().read(true))
    }

    /// Opens a file that [`create`](Npy::create) made, to write into it.
    ///
    /// # Errors
    /// See [`open`](Npy::open).
    pub fn open_to_write(path: impl AsRef<Path>) -> Result<Npy, NpyError> {
        Npy::open_with(path.as_ref(), OpenOptions::new().read(true).write(true))
    }

    /// Creates a file of zeros with this shape, or replaces the one at this path; one rank does it before all
    /// write.
    ///
    /// # Errors
    /// The file cannot be created, or not be that large.
    pub fn create<T: NpyElement>(path: impl AsRef<Path>, shape: &[usize]) -> Result<Npy, NpyError> {
        let path = path.as_ref();
        let header = NpyHeader::new::<T>(shape);
        let bytes = header.to_bytes();
        let elements_at = bytes.len() as u64;
        let length = length(elements_at, &header, T::TYPE).ok_or_else(|| NpyError::Header {
            path: path.to_owned(),
            source: NpyHeaderError::Elements,
        })?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        let mut file = options.open(path).map_err(failed("create", path))?;
        let written = file.write_all(&bytes).and_then(|()| file.set_len(length));
        written.map_err(failed("write", path))?;
        Ok(Npy { path: path.to_owned(), file, header, element: T::TYPE, elements_at })
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<Npy, NpyError> {
        let mut file = options.open(path).map_err(failed("open", path))?;
        let (header, elements_at) = read_header(&mut file, path)?;
        let path = path.to_owned();
        let Some((element, is_ours)) = NpyType::of_descr(&header.descr) else {
            return Err(NpyError::UnknownType { path, descr: header.descr });
        };
        if !is_ours {
            return Err(NpyError::ByteOrder { path, descr: header.descr, ours: element });
        }
        let found = file.metadata().map_err(failed("read", &path))?.len();
        // None is as long as one that cannot be counted.
        let expected = length(elements_at, &header, element).unwrap_or(u64::MAX);
        if found != expected {
            return Err(NpyError::Length { path, expected, found });
        }
        Ok(Npy { path, file, header, element, elements_at })
    }

    /// Returns the shape of the array.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Returns the type of the elements.
    #[must_use]
    pub fn element(&self) -> NpyType {
        self.element
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &NpyHeader {
        &self.header
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the elements that a rank owns into its storage; what is there besides, such as margins, is zero.
    ///
    /// With a region the file has the elements of the region alone. Memory beside the storage is 1 MiB at most.
    /// Runs that are 4 KiB or less apart are read together.
    ///
    /// # Errors
    /// The file has another shape or type, there is no memory for the part, or the file cannot be read.
    ///
    /// # Panics
    /// The layout has no such rank.
    pub fn read_local<T: NpyElement>(
        &mut self,
        layout: &Layout,
        rank: usize,
    ) -> Result<Vec<T>, NpyError> {
        self.check::<T>(layout)?;
        let mut storage = self.zeros::<T>(layout, rank)?;
        let mut buffer: Vec<T> = Vec::new();
        let order = self.header.fortran_order;
        each_batch(layout, rank, order, access::<T>(GAP_BYTES), |batch| {
            let span = batch.span();
            if let Some(piece) = batch.piece() {
                return self.read(span.start, &mut storage[piece]);
            }
            buffer.resize(span.len(), T::zeroed());
            self.read(span.start, &mut buffer)?;
            for run in batch.runs() {
                let elements = &buffer[run.file - span.start..][..run.count];
                let places = storage[run.storage..].iter_mut().step_by(run.stride);
                places.zip(elements).for_each(|(place, element)| *place = *element);
            }
            Ok(())
        })?;
        Ok(storage)
    }

    /// Writes the elements that a rank owns from its storage into the file, and nothing between them: other ranks
    /// may write at the same time. Of ranks that own the same elements the first writes them.
    ///
    /// A run of neighbours in the file costs a call of the system, some microseconds: 64 MiB took 0.4 s in runs of
    /// 512 bytes, 39 s in runs of 8. [`Array::write_npy`](crate::Array::write_npy) first brings such an array into
    /// blocks.
    ///
    /// The bytes are with the system, not yet on a disk, when the call returns.
    ///
    /// # Errors
    /// The file has another shape or type, `storage` has not as many elements as the rank stores, or the file
    /// cannot be written.
    ///
    /// # Panics
    /// The layout has no such rank.
    pub fn write_local<T: NpyElement>(
        &mut self,
        layout: &Layout,
        rank: usize,
        storage: &[T],
    ) -> Result<(), NpyError> {
        self.check::<T>(layout)?;
        let (expected, found) = (layout.local_len(rank), storage.len());
        if expected != found {
            return Err(NpyError::Storage { path: self.path.clone(), rank, expected, found });
        }
        if !layout.is_first_replica(rank) {
            return Ok(());
        }
        let mut buffer: Vec<T> = Vec::new();
        let order = self.header.fortran_order;
        each_batch(layout, rank, order, access::<T>(0), |batch| {
            let start = batch.span().start;
            if let Some(piece) = batch.piece() {
                return self.write(start, &storage[piece]);
            }
            buffer.clear();
            for run in batch.runs() {
                buffer.extend(storage[run.storage..].iter().step_by(run.stride).take(run.count));
            }
            self.write(start, &buffer)
        })
    }

    /// Returns the storage of a rank.
    fn zeros<T: NpyElement>(&self, layout: &Layout, rank: usize) -> Result<Vec<T>, NpyError> {
        let elements = layout.local_len(rank);
        bytemuck::try_zeroed_vec(elements).map_err(|()| {
            let bytes = elements.saturating_mul(size_of::<T>());
            NpyError::Memory { path: self.path.clone(), rank, bytes }
        })
    }

    /// Checks that the file has elements of `T` and the shape of the layout.
    fn check<T: NpyElement>(&self, layout: &Layout) -> Result<(), NpyError> {
        let path = || self.path.clone();
        if self.element != T::TYPE {
            let (found, expected) = (self.element, T::TYPE);
            return Err(NpyError::Element { path: path(), found, expected });
        }
        let expected = layout.shape();
        if self.header.shape != expected {
            let found = self.header.shape.clone();
            return Err(NpyError::Shape { path: path(), found, expected });
        }
        Ok(())
    }

    /// Reads elements from the one with this index in the file on.
    fn read<T: NpyElement>(&mut self, index: usize, elements: &mut [T]) -> Result<(), NpyError> {
        let at = self.elements_at + (index * size_of::<T>()) as u64;
        let read = read_at(&mut self.file, bytemuck::cast_slice_mut(elements), at);
        read.map_err(failed("read", &self.path))
    }

    /// Writes elements from the one with this index in the file on.
    fn write<T: NpyElement>(&mut self, index: usize, elements: &[T]) -> Result<(), NpyError> {
        let at = self.elements_at + (index * size_of::<T>()) as u64;
        let written = write_at(&mut self.file, bytemuck::cast_slice(elements), at);
        written.map_err(failed("write", &self.path))
    }
}

pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NpyError {
    move |source| NpyError::Io { what, path: path.to_owned(), source: Arc::new(source) }
}

/// Reads the header; returns it and the offset of the elements.
fn read_header(file: &mut File, path: &Path) -> Result<(NpyHeader, u64), NpyError> {
    let mut bytes = Vec::new();
    let mut wanted = FIRST_BYTES;
    loop {
        let more = (wanted - bytes.len()) as u64;
        file.take(more).read_to_end(&mut bytes).map_err(failed("read", path))?;
        match NpyHeader::parse(&bytes) {
            Ok((header, end)) => return Ok((header, end as u64)),
            // More than there was need for until now, so the loop ends.
            Err(NpyHeaderError::Short { needed, .. }) if bytes.len() == wanted => wanted = needed,
            Err(source) => return Err(NpyError::Header { path: path.to_owned(), source }),
        }
    }
}

/// Returns the number of bytes of a file with elements from this offset on, if that can be counted.
fn length(elements_at: u64, header: &NpyHeader, element: NpyType) -> Option<u64> {
    let elements = header.shape.iter().try_fold(1_u64, |all, it| all.checked_mul(*it as u64))?;
    elements.checked_mul(element.bytes() as u64)?.checked_add(elements_at)
}

fn access<T>(gap_bytes: usize) -> Access {
    Access { gap: gap_bytes / size_of::<T>(), most: ACCESS_BYTES_MAX / size_of::<T>() }
}

#[cfg(unix)]
fn read_at(file: &mut File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(unix)]
fn write_at(file: &mut File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(not(unix))]
fn read_at(file: &mut File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    io::Seek::seek(file, io::SeekFrom::Start(at))?;
    file.read_exact(bytes)
}

#[cfg(not(unix))]
fn write_at(file: &mut File, bytes: &[u8], at: u64) -> io::Result<()> {
    io::Seek::seek(file, io::SeekFrom::Start(at))?;
    file.write_all(bytes)
}
