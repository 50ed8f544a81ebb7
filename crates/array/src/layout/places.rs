//! From an element of the array to its rank and place there, and back.

use super::Layout;

impl Layout {
    /// Returns the lowest rank that owns an element; ScaLAPACK's `indxg2p`.
    ///
    /// `index` is that of the whole array, also if there is a region. Of a replicated dimension the first
    /// replica is named.
    ///
    /// # Panics
    ///
    /// If the array has no such element.
    #[doc(alias = "indxg2p")]
    pub fn owner(&self, index: &[usize]) -> usize {
        let shape = self.global_shape();
        assert!(self.has(index), "element {index:?} of an array of shape {shape:?}");
        let each = self.dims.iter().zip(index);
        let coordinates: Vec<usize> =
            each.map(|(dim, &index)| dim.coordinate_of(self.grid[dim.axis], index)).collect();
        self.rank_of(&coordinates)
    }

    /// Returns the place, in the storage of a rank, of an element that it owns; ScaLAPACK's `indxg2l`.
    ///
    /// `index` is that of the whole array. `None`: the rank does not own it, though a margin may have it.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    #[doc(alias = "indxg2l")]
    pub fn local(&self, rank: usize, index: &[usize]) -> Option<usize> {
        let coordinates = self.coordinates(rank);
        if !self.has(index) {
            return None;
        }
        let strides = self.strides(rank);
        let mut offset = 0;
        for (number, dim) in self.dims.iter().enumerate() {
            let part = dim.part(self.grid[dim.axis], coordinates[number]);
            offset += (part.local_of(index[number])? + dim.margin) * strides[number];
        }
        Some(offset)
    }

    /// Returns the index, in the whole array, of an element of a rank's storage; ScaLAPACK's `indxl2g`.
    ///
    /// An element of a margin has the index of its owner's. `None`: the storage ends before, or this is
    /// in a margin outside of the array.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    #[doc(alias = "indxl2g")]
    pub fn global(&self, rank: usize, offset: usize) -> Option<Vec<usize>> {
        let (shape, coordinates) = (self.local_shape(rank), self.coordinates(rank));
        if offset >= shape.iter().product() {
            return None;
        }
        let mut rest = offset;
        let mut index = vec![0; shape.len()];
        for &number in self.memory.iter().rev() {
            let dim = &self.dims[number];
            let part = dim.part(self.grid[dim.axis], coordinates[number]);
            index[number] = part.global_of(rest % shape[number], dim.margin, dim.extent)?;
            rest /= shape[number];
        }
        Some(index)
    }

    fn has(&self, index: &[usize]) -> bool {
        let mut each = self.dims.iter().zip(index);
        index.len() == self.dims.len() && each.all(|(dim, &index)| index < dim.extent)
    }
}
