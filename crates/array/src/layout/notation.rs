//! Layouts as text: HPF's notation with the grid of ranks.
//!
//! ```text
//! layout       = "(" distribution { "," distribution } ")" [ "@" list ] { change }
//! distribution = "*" | "block" | "cyclic" [ "(" number ")" ] | "blocks" "(" number { "," number } ")"
//! change       = "margin" list | "region" range { "x" range } | "permuted" number { "," number }
//! list         = number { "x" number }
//! range        = number ".." number
//! ```

use std::fmt;
use std::ops::Range;

use super::{DIMS_MAX, Distribution, Layout, LayoutError};

impl Layout {
    /// Reads a layout of an array of that shape in HPF's notation, with the grid of ranks behind `@`.
    ///
    /// | text | a dimension |
    /// |---|---|
    /// | `*` | is whole; replicated where the grid has more than one rank |
    /// | `block` | is in blocks of `ceil(n / p)` indices |
    /// | `cyclic`, `cyclic(4)` | is dealt out in blocks of 1, 4 indices |
    /// | `blocks(3,5)` | is in blocks of 3 and 5 indices |
    ///
    /// The grid may be left out if all dimensions are `*`; it is 1 x 1 then. Changes may follow, and are made in
    /// the order of the text: `margin 1` or `margin 1x0` ([`margins`](Layout::margins)), `region 0..4x2..8`
    /// ([`region`](Layout::region)), `permuted 1,0` ([`permuted`](Layout::permuted)). Spaces and case do not
    /// matter. `shape` is that of the text's dimensions, before `permuted`. A layout is displayed in this
    /// notation.
    ///
    /// ```
    /// # use chunkcomm_array::{Layout, LayoutError};
    /// let layout = Layout::parse("(block, cyclic(4))@2x2", &[4096, 4096])?;
    /// assert_eq!(layout.to_string(), "(block,cyclic(4))@2x2");
    /// let wrong = Layout::parse("(block, cylic)@2x2", &[4096, 4096]);
    /// assert_eq!(
    ///     wrong.map_err(|error| error.to_string()),
    ///     Err("position 8 of the layout: expected *, block, cyclic or blocks, found \"cylic\"".to_owned()),
    /// );
    /// # Ok::<(), LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LayoutError`], with the position where the text is wrong, or with what cannot be.
    pub fn parse(text: &str, shape: &[usize]) -> Result<Layout, LayoutError> {
        Layout::read(text, shape, None)
    }

    /// Reads a layout as [`parse`](Layout::parse) does, of an array that has this shape *after* `permuted`. Without
    /// `@` the grid is made of this number of ranks: nearly square over the `block` and `cyclic` dimensions, the earlier
    /// ones having the longer axes, as by `MPI_Dims_create`. Where none is distributed, each rank has the whole array.
    ///
    /// ```
    /// # use chunkcomm_array::Layout;
    /// let layout = Layout::over("(block,*,block)", &[64, 64, 64], 6)?;
    /// assert_eq!(layout.to_string(), "(block,*,block)@3x1x2");
    /// # Ok::<(), chunkcomm_array::LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As `parse`.
    pub fn over(text: &str, shape: &[usize], ranks: usize) -> Result<Layout, LayoutError> {
        Layout::read(text, shape, Some(ranks))
    }

    fn read(text: &str, shape: &[usize], ranks: Option<usize>) -> Result<Layout, LayoutError> {
        let mut reader = Reader { text, at: 0 };
        let distributions = reader.distributions()?;
        let grid = reader.grid(&distributions, ranks)?;
        if grid.len() != distributions.len() {
            return Err(LayoutError::GridAxes { axes: grid.len(), dims: distributions.len() });
        }
        let mut changes = Vec::new();
        while !reader.is_at_end() {
            changes.push(reader.change()?);
        }
        let mut extents = shape.to_vec();
        if ranks.is_some() && shape.len() == distributions.len() {
            let mut dims: Vec<usize> = (0..shape.len()).collect();
            for change in &changes {
                if let Change::Permuted(axes) = change {
                    dims = axes.iter().filter_map(|axis| dims.get(*axis).copied()).collect();
                }
            }
            dims.iter().zip(shape).for_each(|(dim, extent)| extents[*dim] = *extent);
        }
        let dims = distributions.into_iter().zip(grid);
        let builder =
            dims.fold(Layout::builder(&extents), |b, (dim, ranks)| b.dimension(dim, ranks));
        changes.into_iter().try_fold(builder.build()?, |layout, change| match change {
            Change::Margin(width) => layout.margin(width),
            Change::Margins(widths) => layout.margins(&widths),
            Change::Region(ranges) => layout.region(&ranges),
            Change::Permuted(axes) => layout.permuted(&axes),
        })
    }
}

/// A change of a layout, as its text says it.
enum Change {
    Margin(usize),
    Margins(Vec<usize>),
    Region(Vec<Range<usize>>),
    Permuted(Vec<usize>),
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<_> = self.memory.iter().map(|&dim| &self.dims[dim]).collect();
        let each = dims.iter().map(|dim| dim.distribution.to_string());
        write!(f, "({})@{}", joined(each, ","), joined(self.grid.iter(), "x"))?;
        if dims.iter().any(|dim| dim.margin > 0) {
            write!(f, " margin {}", joined(dims.iter().map(|dim| dim.margin), "x"))?;
        }
        if dims.iter().any(|dim| dim.window != (0..dim.extent)) {
            let ranges = dims.iter().map(|dim| format!("{}..{}", dim.window.start, dim.window.end));
            write!(f, " region {}", joined(ranges, "x"))?;
        }
        if self.dims.iter().enumerate().any(|(number, dim)| dim.axis != number) {
            write!(f, " permuted {}", joined(self.dims.iter().map(|dim| dim.axis), ","))?;
        }
        Ok(())
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Whole => f.write_str("*"),
            Distribution::Block => f.write_str("block"),
            Distribution::Cyclic(1) => f.write_str("cyclic"),
            Distribution::Cyclic(block) => write!(f, "cyclic({block})"),
            Distribution::Blocks(lengths) => write!(f, "blocks({})", joined(lengths.iter(), ",")),
        }
    }
}

fn joined(each: impl Iterator<Item = impl ToString>, between: &str) -> String {
    each.map(|one| one.to_string()).collect::<Vec<_>>().join(between)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn distributions(&mut self) -> Result<Vec<Distribution>, LayoutError> {
        self.expect('(', "`(`")?;
        let all = self.list(',', Reader::distribution)?;
        self.expect(')', "`,` or `)`")?;
        Ok(all)
    }

    fn distribution(&mut self) -> Result<Distribution, LayoutError> {
        if self.take('*') {
            return Ok(Distribution::Whole);
        }
        match self.peek_word().to_ascii_lowercase().as_str() {
            word @ "block" => {
                self.at += word.len();
                Ok(Distribution::Block)
            }
            word @ "cyclic" => {
                self.at += word.len();
                let block = if self.take('(') { self.last_number()? } else { 1 };
                Ok(Distribution::Cyclic(block))
            }
            word @ "blocks" => {
                self.at += word.len();
                self.expect('(', "`(` and the lengths of the blocks")?;
                let lengths = self.list(',', Reader::number)?;
                self.expect(')', "`,` or `)`")?;
                Ok(Distribution::Blocks(lengths))
            }
            _ => Err(self.error("*, block, cyclic or blocks")),
        }
    }

    fn grid(
        &mut self,
        distributions: &[Distribution],
        ranks: Option<usize>,
    ) -> Result<Vec<usize>, LayoutError> {
        if self.take('@') {
            self.list('x', Reader::number)
        } else if let Some(ranks) = ranks {
            grid_of(distributions, ranks)
        } else if distributions.iter().all(|distribution| *distribution == Distribution::Whole) {
            Ok(vec![1; distributions.len()])
        } else {
            Err(self.error("`@` and the grid of ranks"))
        }
    }

    fn change(&mut self) -> Result<Change, LayoutError> {
        match self.peek_word().to_ascii_lowercase().as_str() {
            word @ "margin" => {
                self.at += word.len();
                let widths = self.list('x', Reader::number)?;
                Ok(if let [width] = widths[..] {
                    Change::Margin(width)
                } else {
                    Change::Margins(widths)
                })
            }
            word @ "region" => {
                self.at += word.len();
                Ok(Change::Region(self.list('x', Reader::range)?))
            }
            word @ "permuted" => {
                self.at += word.len();
                Ok(Change::Permuted(self.list(',', Reader::number)?))
            }
            _ => Err(self.error("margin, region, permuted or the end")),
        }
    }

    fn list<T>(
        &mut self,
        between: char,
        one: fn(&mut Reader<'a>) -> Result<T, LayoutError>,
    ) -> Result<Vec<T>, LayoutError> {
        let mut all = vec![one(self)?];
        while self.take(between) {
            all.push(one(self)?);
        }
        Ok(all)
    }

    fn range(&mut self) -> Result<Range<usize>, LayoutError> {
        let start = self.number()?;
        self.expect('.', "`..`")?;
        self.expect('.', "`..`")?;
        Ok(start..self.number()?)
    }

    /// Reads a number and the closing bracket.
    fn last_number(&mut self) -> Result<usize, LayoutError> {
        let number = self.number()?;
        self.expect(')', "`)`")?;
        Ok(number)
    }

    fn number(&mut self) -> Result<usize, LayoutError> {
        let digits = self.peek(u8::is_ascii_digit);
        let number = digits.parse().map_err(|_| self.error("a number of 64 bits"))?;
        self.at += digits.len();
        Ok(number)
    }

    fn expect(&mut self, token: char, expected: &'static str) -> Result<(), LayoutError> {
        let is_there = self.take(token);
        is_there.then_some(()).ok_or_else(|| self.error(expected))
    }

    /// Steps over a token, if it comes next.
    fn take(&mut self, token: char) -> bool {
        self.skip_spaces();
        let next = self.text[self.at..].chars().next();
        let is_there = next.is_some_and(|next| next.eq_ignore_ascii_case(&token));
        self.at += if is_there { token.len_utf8() } else { 0 };
        is_there
    }

    fn peek_word(&mut self) -> &'a str {
        self.peek(u8::is_ascii_alphabetic)
    }

    /// Returns the characters that come next, as far as they are of that kind.
    fn peek(&mut self, is_of_kind: fn(&u8) -> bool) -> &'a str {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        &rest[..rest.bytes().take_while(is_of_kind).count()]
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.at == self.text.len()
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Returns the error of what comes next: a word, a number or one character.
    fn error(&self, expected: &'static str) -> LayoutError {
        let rest = &self.text[self.at..];
        let word = rest.bytes().take_while(u8::is_ascii_alphanumeric).take(FOUND_BYTES_MAX).count();
        let found = match word {
            0 => rest.chars().take(1).collect(),
            _ => rest[..word].to_owned(),
        };
        LayoutError::Notation { position: self.at, expected, found }
    }
}

/// Returns a grid of these ranks, whose axes along the distributed dimensions differ by as little as they may. Blocks of
/// given lengths have their axes already.
fn grid_of(distributions: &[Distribution], ranks: usize) -> Result<Vec<usize>, LayoutError> {
    if distributions.len() > DIMS_MAX {
        return Err(LayoutError::Dims { dims: distributions.len() });
    }
    let given = distributions.iter().map(|dim| match dim {
        Distribution::Blocks(lengths) => lengths.len(),
        _ => 1,
    });
    let mut grid: Vec<usize> = given.collect();
    let is_free = |dim: &Distribution| matches!(dim, Distribution::Block | Distribution::Cyclic(_));
    let mut free: Vec<usize> =
        (0..grid.len()).filter(|dim| is_free(&distributions[*dim])).collect();
    if distributions.iter().all(|dim| *dim == Distribution::Whole) {
        free.extend(0..grid.len().min(1));
    }
    let taken = grid.iter().try_fold(1_usize, |all, axis| all.checked_mul(*axis));
    let rest = taken.filter(|taken| *taken > 0 && ranks.is_multiple_of(*taken));
    let rest = rest.map(|taken| ranks / taken).filter(|rest| *rest == 1 || !free.is_empty());
    let Some(mut rest) = rest else { return Err(LayoutError::NoGrid { grid, ranks }) };
    // The shortest axis first: the largest divisor that leaves no shorter ones to the others.
    let mut axes = Vec::new();
    for left in (1..=free.len() as u32).rev() {
        let fits = |axis: &usize| axis.checked_pow(left).is_some_and(|all| all <= rest);
        let divides = |axis: &usize| rest.is_multiple_of(*axis);
        let axis = match left {
            1 => rest,
            _ => (1..).take_while(fits).filter(divides).last().unwrap_or(1),
        };
        axes.insert(0, axis);
        rest /= axis;
    }
    free.into_iter().zip(axes).for_each(|(dim, axis)| grid[dim] = axis);
    Ok(grid)
}

/// Largest part of a wrong text that its error repeats, in bytes.
const FOUND_BYTES_MAX: usize = 24;
