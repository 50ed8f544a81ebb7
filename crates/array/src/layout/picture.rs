//! Layouts as pictures of text.

use std::fmt::Write;

use super::dim::Dim;
use super::{Distribution, Layout};

/// Largest number of rows of a picture.
const ROWS_MAX: usize = 16;
/// Largest number of cells of a row.
const COLUMNS_MAX: usize = 32;
/// Largest block of a cycle that is shown with a cell for each index; a larger one has two or what there is room for.
/// So `cyclic(2)` does not look as `cyclic` does, and a row still has many blocks.
const WHOLE_BLOCK_MAX: usize = 4;
/// Stands for the rest of a dimension that is not shown.
const REST: &str = "...";

impl Layout {
    /// Draws who owns what: a cell has the lowest rank that owns the element, `.` if it is not in the region.
    ///
    /// Rows are the first dimension, columns the second one; the others stay at the region's first
    /// index. A picture has up to 16 x 32 cells. Of a larger cyclic dimension it shows the first blocks, and `...` for
    /// the rest: each index of blocks of up to 4, else two or more at equal distances. Of any other it shows elements
    /// at equal distances.
    ///
    /// ```
    /// # use chunkcomm_array::{Layout, LayoutError};
    /// let picture = Layout::parse("(block,cyclic)@2x3", &[4, 6])?.picture();
    /// assert_eq!(picture, "\
    /// (block,cyclic)@2x3 of 4 x 6
    /// columns 0..6
    /// 0:  0 1 2 0 1 2
    /// 1:  0 1 2 0 1 2
    /// 2:  3 4 5 3 4 5
    /// 3:  3 4 5 3 4 5
    /// ");
    /// # Ok::<(), LayoutError>(())
    /// ```
    pub fn picture(&self) -> String {
        let (rows, has_more_rows) = self.samples(0, ROWS_MAX);
        let (columns, has_more_columns) = self.samples(1, COLUMNS_MAX);
        let (label_width, cell_width) =
            (width(rows.last().copied()), width(self.ranks().checked_sub(1)));
        let mut picture = self.caption(&columns);
        for &row in &rows {
            let mut line = format!("{row:label_width$}: ");
            for &column in &columns {
                let cell = self.cell(row, column);
                let _ = write!(line, " {cell:>cell_width$}");
            }
            picture.push_str(line.trim_end());
            if has_more_columns {
                let _ = write!(picture, " {REST}");
            }
            picture.push('\n');
        }
        if has_more_rows {
            let _ = writeln!(picture, "{REST}");
        }
        picture
    }

    fn caption(&self, columns: &[usize]) -> String {
        let shape: Vec<String> = self.dims.iter().map(|dim| dim.extent.to_string()).collect();
        let mut caption = format!("{self} of {}", shape.join(" x "));
        let replicas: usize = (0..self.dims.len()).map(|dim| self.replicas(dim)).product();
        if replicas > 1 {
            let _ = write!(caption, ", {replicas} times");
        }
        caption.push('\n');
        match (self.dims.get(1), columns) {
            (Some(dim), [.., last]) if columns.len() == dim.extent => {
                let _ = writeln!(caption, "columns 0..{}", last + 1);
            }
            (Some(_), [first, second, third, .., last]) => {
                let _ = writeln!(caption, "columns {first}, {second}, {third}, ..., {last}");
            }
            _ => {}
        }
        caption
    }

    fn cell(&self, row: usize, column: usize) -> String {
        let mut index: Vec<usize> = self.dims.iter().map(|dim| dim.window.start).collect();
        for (place, at) in index.iter_mut().zip([row, column]) {
            *place = at;
        }
        let mut each = self.dims.iter().zip(&index);
        let is_carried = each.all(|(dim, at)| dim.window.contains(at));
        if is_carried { self.owner(&index).to_string() } else { ".".to_owned() }
    }

    /// Returns the indices of a dimension that are shown, and whether a cycle goes on behind them.
    fn samples(&self, dim: usize, cells_max: usize) -> (Vec<usize>, bool) {
        let Some(Dim { extent, distribution, .. }) = self.dims.get(dim) else {
            return (vec![0], false);
        };
        let extent = *extent;
        match distribution {
            _ if extent <= cells_max => ((0..extent).collect(), false),
            // Equal distances would show a cycle as if it were another one.
            Distribution::Cyclic(block) => {
                let block = (*block).min(extent);
                let room = cells_max / extent.div_ceil(block);
                let cells = if block <= WHOLE_BLOCK_MAX { block } else { room.clamp(2, block) };
                let of_block = |start| (0..cells).map(move |cell| start + cell * (block / cells));
                let all = (0..extent).step_by(block).flat_map(of_block);
                let mut shown = all.take_while(|index| *index < extent);
                let first = shown.by_ref().take(cells_max).collect();
                (first, shown.next().is_some())
            }
            Distribution::Whole | Distribution::Block | Distribution::Blocks(_) => {
                let distance = extent.div_ceil(cells_max);
                ((0..extent).step_by(distance).collect(), false)
            }
        }
    }
}

/// Returns the number of digits.
fn width(number: Option<usize>) -> usize {
    number.map_or(1, |number| number.to_string().len())
}
