//! Arrays in NumPy's files: each rank reads and writes its part, and all of them hear of a failure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use chunkcomm::host;
use chunkcomm::with_causes;
use chunkcomm_group::Group;

use super::{Array, IntoLayout, check};
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
    /// When the future is dropped, the other ranks wait for this one's next call of the group, and get an error.
    pub async fn read_npy(
        group: &mut Group,
        layout: impl IntoLayout,
        path: impl AsRef<Path>,
    ) -> Result<Array<T>, ArrayError> {
        let (rank, path) = (group.rank(), path.as_ref().to_owned());
        let open = async {
            let input = on_a_thread(move || Npy::open(path)).await?;
            let layout = layout.into_layout(input.shape(), group.size());
            let layout = layout.map_err(ArrayError::Layout)?;
            check(group, &layout)?;
            let of = layout.clone();
            let storage = on_a_thread(move || {
                let mut input = input;
                input.read_local::<T>(&of, rank)
            });
            Ok((layout, storage.await?))
        };
        let ours: Result<(Layout, Vec<T>), ArrayError> = open.await;
        let stated = ours.as_ref().map(|(layout, _)| super::stated(layout));
        let first = all_succeed(group, stated).await?;
        let (layout, storage) = ours?;
        if let Some(other) = first.iter().position(|it| *it != first[rank]) {
            let why =
                format!("its file gives {}, that of rank {rank} {}", first[other], first[rank]);
            return Err(ArrayError::refused(other, why));
        }
        Array::from_local(group, &layout, storage)
    }

    /// Writes the array into a file, which all ranks see: each its part, in a thread, into a temporary one beside it,
    /// which takes its place when all have succeeded.
    ///
    /// Where a rank owns less than 512 bytes in a row of the last dimension, the array is first brought into blocks.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Npy`] where a rank cannot write its part, and [`ArrayError::Rank`] with that rank at the others:
    /// a file that was there stays as it was.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the other ranks wait for this one's next call of the group, and get an error; the
    /// old file stays.
    pub async fn write_npy(&mut self, path: impl AsRef<Path>) -> Result<(), ArrayError> {
        let (mut group, rank) = (self.group.share(), self.group.rank());
        if self.layout.run() * size_of::<T>() < RUN_BYTES_MIN {
            let blocks = self.layout.in_blocks(group.size()).map_err(ArrayError::Layout)?;
            if blocks.run() > self.layout.run() {
                let mut blocks = self.to(&blocks).await?;
                return Box::pin(blocks.write_npy(path)).await;
            }
        }
        let path = path.as_ref().to_owned();
        let mut temporary = None;
        let mut created = Ok(());
        if rank == 0 {
            let number = host::random().unwrap_or_default();
            let mut name = path.clone().into_os_string();
            name.push(format!(".{number:016x}.part"));
            let (part, shape) = (PathBuf::from(name), self.shape());
            temporary = Some(Temporary(part.clone()));
            created = on_a_thread(move || Npy::create::<T>(part, &shape).map(drop)).await;
        }
        let name = temporary.as_ref().map(|it| it.0.to_string_lossy().into_owned());
        let names =
            all_succeed(&mut group, created.as_ref().map(|()| name.unwrap_or_default())).await?;
        created?;
        let (part, layout, storage) =
            (PathBuf::from(&names[0]), self.layout.clone(), Arc::clone(&self.storage));
        let written =
            on_a_thread(move || Npy::open_to_write(part)?.write_local(&layout, rank, &storage));
        let written = written.await;
        all_succeed(&mut group, written.as_ref().map(|()| String::new())).await?;
        written?;
        let mut renamed = Ok(());
        if let Some(part) = temporary {
            let to = path.clone();
            let rename = move || fs::rename(&part.0, &to).map_err(failed("replace", &to));
            renamed = on_a_thread(rename).await;
        }
        all_succeed(&mut group, renamed.as_ref().map(|()| String::new())).await?;
        renamed
    }
}

/// A file that goes unless it was renamed.
struct Temporary(PathBuf);

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

/// Hears whether all ranks have succeeded, and what they say; fails with the first one that has not.
async fn all_succeed(
    group: &mut Group,
    ours: Result<String, &ArrayError>,
) -> Result<Vec<String>, ArrayError> {
    let error = ours.as_ref().err().map(|error| (*error).clone());
    let said = ours.map_err(|error| with_causes(error));
    let all = group.all_gather_values(said).await;
    let all = all.map_err(|error| ArrayError::Group(error.cause))?;
    let failed = all.iter().enumerate().find_map(|(rank, it)| Some((rank, it.as_ref().err()?)));
    match (error, failed) {
        (Some(error), _) => Err(error),
        (None, Some((rank, why))) => Err(ArrayError::refused(rank, why)),
        (None, None) => Ok(all.into_iter().flatten().collect()),
    }
}
