//! Layouts as words, for the ranks of the other group.
//!
//! ```text
//! dimensions
//! for each axis of the grid, which is the order of the storage:
//!     extent, ranks, kind, parameter, lengths of `Blocks`, region's start, its end, margin
//! for each dimension in the order of the transfer: its axis
//! ```

use super::{DIMS_MAX, Distribution, Layout, LayoutError};

const WHOLE: usize = 0;
const BLOCK: usize = 1;
const CYCLIC: usize = 2;
const BLOCKS: usize = 3;

impl Layout {
    /// Returns the words that describe this layout; equal layouts have equal words.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let mut words = vec![self.dims.len()];
        for (&number, &ranks) in self.memory.iter().zip(&self.grid) {
            let dim = &self.dims[number];
            let (kind, parameter, lengths) = match &dim.distribution {
                Distribution::Whole => (WHOLE, 0, &[][..]),
                Distribution::Block => (BLOCK, 0, &[][..]),
                Distribution::Cyclic(block) => (CYCLIC, *block, &[][..]),
                Distribution::Blocks(lengths) => (BLOCKS, lengths.len(), &lengths[..]),
            };
            words.extend([dim.extent, ranks, kind, parameter]);
            words.extend_from_slice(lengths);
            words.extend([dim.window.start, dim.window.end, dim.margin]);
        }
        words.extend(self.dims.iter().map(|dim| dim.axis));
        words.into_iter().map(|word| word as u64).collect()
    }

    /// Returns the layout that words describe.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Words`] names the first word that cannot be there; the others, what the words describe.
    pub(crate) fn from_words(words: &[u64]) -> Result<Layout, LayoutError> {
        let mut reader = Reader { words, at: 0 };
        let dims = reader.next()?;
        if dims == 0 || dims > DIMS_MAX {
            return Err(LayoutError::Dims { dims });
        }
        let (mut shape, mut each) = (Vec::new(), Vec::new());
        let (mut ranges, mut margins) = (Vec::new(), Vec::new());
        for _ in 0..dims {
            shape.push(reader.next()?);
            let ranks = reader.next()?;
            each.push((reader.distribution()?, ranks));
            ranges.push(reader.next()?..reader.next()?);
            margins.push(reader.next()?);
        }
        let axes = (0..dims).map(|_| reader.next()).collect::<Result<Vec<_>, _>>()?;
        if reader.at < words.len() {
            return Err(reader.error());
        }
        let builder = Layout::builder(&shape);
        let builder =
            each.into_iter().fold(builder, |b, (distribution, r)| b.dimension(distribution, r));
        builder.build()?.margins(&margins)?.region(&ranges)?.permuted(&axes)
    }
}

struct Reader<'a> {
    words: &'a [u64],
    at: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<usize, LayoutError> {
        let word = self.words.get(self.at).ok_or_else(|| self.error())?;
        let word = usize::try_from(*word).map_err(|_| self.error())?;
        self.at += 1;
        Ok(word)
    }

    /// Reads kind, parameter and lengths.
    fn distribution(&mut self) -> Result<Distribution, LayoutError> {
        let at = self.at;
        let (kind, parameter) = (self.next()?, self.next()?);
        match (kind, parameter) {
            (WHOLE, 0) => Ok(Distribution::Whole),
            (BLOCK, 0) => Ok(Distribution::Block),
            (CYCLIC, block) => Ok(Distribution::Cyclic(block)),
            (BLOCKS, count) => {
                let lengths = (0..count).map(|_| self.next()).collect::<Result<_, _>>()?;
                Ok(Distribution::Blocks(lengths))
            }
            _ => Err(LayoutError::Words { position: at, words: self.words.len() }),
        }
    }

    /// Returns the error of the word that is read next.
    fn error(&self) -> LayoutError {
        LayoutError::Words { position: self.at, words: self.words.len() }
    }
}
