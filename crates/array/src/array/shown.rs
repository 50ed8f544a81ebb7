//! Arrays as people read them.

use std::fmt;

use chunkcomm_group::Element;

use super::{Array, stated};

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("layout", &format_args!("{}", self.layout))
            .field("shape", &self.shape())
            .field("rank", &self.group.rank())
            .finish_non_exhaustive()
    }
}

/// Shows the layout, and this rank's part: at most six rows of six elements.
impl<T: Element + fmt::Display> fmt::Display for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        let (rank, dims) = (self.group.rank(), self.shape().len());
        write!(f, "{}, rank {rank}:", stated(&self.layout))?;
        for dim in 0..dims {
            let mut owned = self.layout.indices(rank, dim).into_iter().flatten();
            let first = owned.next();
            let last = owned.last().or(first);
            match (first, last) {
                (Some(first), Some(last)) => write!(f, " {first}..{}", last + 1)?,
                _ => f.write_str(" nothing")?,
            }
        }
        let mut runs = self.layout.owned_runs(rank).flat_map(|run| {
            let fastest = self.layout.memory().last().copied();
            let length = fastest.map_or(1, |dim| self.layout.local_shape(rank)[dim]).max(1);
            run.clone().step_by(length).map(move |at| at..run.end.min(at + length))
        });
        for run in runs.by_ref().take(SHOWN) {
            let shown = &self.storage[run.clone()];
            f.write_str("\n")?;
            for element in shown.iter().take(SHOWN) {
                write!(f, " {element}")?;
            }
            if shown.len() > SHOWN {
                f.write_str(" ..")?;
            }
        }
        if runs.next().is_some() { f.write_str("\n ..") } else { Ok(()) }
    }
}
