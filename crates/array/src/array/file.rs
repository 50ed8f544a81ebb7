//! Arrays in NumPy's files: each rank reads and writes its part, and all of them hear of a failure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use chunkcomm::host;
use chunkcomm::with_causes;
use chunkcomm_group::Group;

use super::{Array, IntoLayout, fits, whole};
use crate::ends::error::ArrayError;
use crate::layout::Layout;
use crate::npy::{Npy, NpyElement, NpyError, failed};

/// Bytes of neighbours in a file with which they are written as they are: 512. An array of shorter ones is brought
/// into blocks first: 64 MiB in runs of 8 bytes are 8 Mi calls of the system, of some microseconds.
const RUN_BYTES_MIN: usize = 512;

impl<T: NpyElement> Array<T> {
    /// Reads an array: each rank its part, in a thread. All ranks see the same file.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Npy`] where a rank cannot read its part, and [`ArrayError::Rank`] with that rank at the others.
    /// As [`Array::zeros`]; or the file has another shape at some ranks.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks wait until this one makes its next call of the group, and get an error.
    pub async fn read_npy(
        group: &mut Group,
        layout: impl IntoLayout,
        path: impl AsRef<Path>,
    ) -> Result<Array<T>, ArrayError> {
        let (rank, path) = (group.rank(), path.as_ref().to_owned());
        let open = async {
            let from = path.clone();
            let input = on_a_thread(move || Npy::open(from)).await?;
            let layout = layout.into_layout(input.shape(), group.size());
            let layout = layout.map_err(ArrayError::Layout)?;
            fits(group, &layout)?;
            whole(group, &layout)?;
            let of = layout.clone();
            let storage = on_a_thread(move || {
                let mut input = input;
                input.read_local::<T>(&of, rank)
            });
            Ok((layout, storage.await?))
        };
        let ours: Result<(Layout, Vec<T>), ArrayError> = open.await;
        let stated = ours.as_ref().map(|(layout, _)| super::stated(layout));
        let all = Step { path: &path, number: 0, name: "has read" };
        let all = all.done(group, stated).await?;
        let (layout, storage) = ours?;
        if let Some(other) = all.iter().position(|it| *it != all[rank]) {
            let why = format!("its file gives {}, that of rank {rank} {}", all[other], all[rank]);
            return Err(ArrayError::refused(other, why));
        }
        Array::from_local(group, &layout, storage)
    }

    /// Writes the array into a file, which all ranks see: each its part, in a thread, into a temporary one beside it,
    /// which takes its place when all have succeeded.
    ///
    /// Where neighbours along the last dimension are less than 512 bytes, the array is first brought into blocks.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Npy`] where a rank cannot write its part, and [`ArrayError::Rank`] with that rank at the others:
    /// a file that was there stays as it was. [`ArrayError::Group`]: a rank is gone. For blocks, as [`Array::to`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks wait until this one makes its next call of the group, and get an error; the
    /// old file stays, unless all had written.
    pub async fn write_npy(&mut self, path: impl AsRef<Path>) -> Result<(), ArrayError> {
        let (mut group, rank) = (self.group.share(), self.group.rank());
        whole(&group, &self.layout)?;
        if self.layout.run() * size_of::<T>() < RUN_BYTES_MIN {
            let blocks = self.layout.in_blocks(group.size()).map_err(ArrayError::Layout)?;
            if blocks.run() > self.layout.run() {
                let mut blocks = self.to(&blocks).await?;
                return Box::pin(blocks.write_npy(path)).await;
            }
        }
        let path = path.as_ref();
        let (mut created, mut number) = (Ok(None), 0);
        if rank == 0 {
            number = host::random().unwrap_or_default();
            let (part, shape) = (Temporary::of(path, number), self.shape());
            let create = move || Npy::create::<T>(&part.0, &shape).map(|_| Some(part));
            created = on_a_thread(create).await;
        }
        let step = |number, name| Step { path, number, name };
        let said = created.as_ref().map(|_| number.to_string());
        let numbers = step(0, "has created the temporary file").done(&mut group, said).await?;
        let (temporary, number) = (created?, numbers[0].parse().unwrap_or_default());
        let (layout, storage) = (self.layout.clone(), Arc::clone(&self.storage));
        let part = Temporary::name(path, number);
        let write = move || Npy::open_to_write(part)?.write_local(&layout, rank, &storage);
        let written = on_a_thread(write).await;
        let said = written.as_ref().map(|()| String::new());
        step(number, "has written its part").done(&mut group, said).await?;
        written?;
        let mut renamed = Ok(());
        if let Some(part) = temporary {
            let to = path.to_owned();
            let rename = move || fs::rename(&part.0, &to).map_err(failed("replace", &to));
            renamed = on_a_thread(rename).await;
        }
        let said = renamed.as_ref().map(|()| String::new());
        step(number, "has the file").done(&mut group, said).await?;
        renamed
    }
}

/// A file that goes unless it was renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn of(path: &Path, number: u64) -> Temporary {
        Temporary(Temporary::name(path, number))
    }

    fn name(path: &Path, number: u64) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number:016x}.part"));
        name.into()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have its name by now, or never have been there.
        let _: io::Result<()> = fs::remove_file(&self.0);
    }
}

async fn on_a_thread<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, NpyError> + Send + 'static,
) -> Result<R, ArrayError> {
    host::compute(Duration::ZERO, work).await.map_err(ArrayError::Npy)
}

/// A step of all ranks with a file. Another step of a rank is an error: it has dropped a call, and made the next one.
struct Step<'a> {
    path: &'a Path,
    number: u64,
    name: &'a str,
}

impl Step<'_> {
    /// Hears whether all ranks have succeeded, and what they say; fails with the first one that has not.
    async fn done(
        &self,
        group: &mut Group,
        ours: Result<String, &ArrayError>,
    ) -> Result<Vec<String>, ArrayError> {
        let error = ours.as_ref().err().map(|error| (*error).clone());
        let said = ours.map_err(|error| with_causes(error));
        let step = format!("{} {} {:x}", self.name, self.path.display(), self.number);
        let all = group.all_gather_values((step.clone(), said)).await;
        let all = all.map_err(|error| ArrayError::Group(error.cause))?;
        let other = all.iter().position(|(theirs, _)| *theirs != step);
        let failed =
            all.iter().enumerate().find_map(|(rank, (_, it))| Some((rank, it.as_ref().err()?)));
        match (error, other, failed) {
            (Some(error), ..) => Err(error),
            (None, Some(rank), _) => {
                let why = format!("its step is another: {}, here {step}", all[rank].0);
                Err(ArrayError::refused(rank, why))
            }
            (None, None, Some((rank, why))) => Err(ArrayError::refused(rank, why)),
            (None, None, None) => Ok(all.into_iter().filter_map(|(_, it)| it.ok()).collect()),
        }
    }
}
