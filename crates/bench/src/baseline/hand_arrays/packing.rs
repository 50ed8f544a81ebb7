//! Copies between the storages of two ranks and the bytes that travel between them.
//!
//! The elements that two ranks have in common are a product of rows and columns. They travel row by row of the
//! sender, or, if the receiver stores the transposed matrix, in bands of [`BAND`] rows, column by column:
//! so both ends touch whole cache lines.

use std::ops::Range;

use crate::harness::transfers::ELEMENT_BYTES;

/// An element in memory.
pub(super) type Element = [u8; ELEMENT_BYTES];

/// Rows of a band: two cache lines of a column. With fewer the receiver writes parts of lines.
const BAND: usize = 16;

/// Columns that are read together: a cache line of each row.
const LINE: usize = 8;

/// Elements of a buffer: 128 KiB. With more the buffers of all peers leave the processor's cache; with
/// less a rank calls the system more often.
const BUFFER_ELEMENTS: usize = 16 * 1024;

/// Indices that two ranks have in common: where each lies at the sender and at the receiver.
pub(super) type Places = Vec<(usize, usize)>;

/// Runs of equal lengths and distances; both numbers of a pair are the sender's and the receiver's.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Family {
    places: (usize, usize),
    steps: (usize, usize),
    len: usize,
    count: usize,
}

/// All that two ranks have in common.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    rows: Places,
    columns: Places,
    /// The columns as families, of which a row is copied.
    families: Vec<Family>,
    is_transposed: bool,
    /// Elements from row to row at the sender and at the receiver.
    strides: (usize, usize),
}

/// Returns where two ranks have the indices that are in both of their ascending lists.
pub(in crate::baseline) fn common(one: &[usize], other: &[usize]) -> Places {
    let (mut at, mut places) = (0, Vec::new());
    for (index, value) in one.iter().enumerate() {
        while other.get(at).is_some_and(|there| there < value) {
            at += 1;
        }
        if other.get(at) == Some(value) {
            places.push((index, at));
        }
    }
    places
}

impl Shared {
    /// Makes it of the rows and columns in common, and the elements of a stored row at both ends.
    pub(super) fn new(
        rows: Places,
        columns: Places,
        strides: (usize, usize),
        is_transposed: bool,
    ) -> Self {
        let families = families(&columns);
        Self { rows, columns, families, is_transposed, strides }
    }

    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Returns the number of units: rows or bands.
    pub(super) fn units(&self) -> usize {
        if self.len() == 0 { 0 } else { self.rows.len().div_ceil(self.unit_rows()) }
    }

    /// Returns the elements before a unit.
    pub(super) fn before(&self, unit: usize) -> usize {
        self.rows.len().min(unit * self.unit_rows()) * self.columns.len()
    }

    /// Returns the units from this one on that fill a buffer: one at least, if there is one.
    pub(super) fn next(&self, unit: usize) -> Range<usize> {
        let fit = BUFFER_ELEMENTS / self.before(1).max(1);
        unit..self.units().min(unit + fit.max(1))
    }

    /// Returns the unit of an element, in the order in which they travel.
    pub(super) fn unit_of(&self, element: usize) -> usize {
        element / (self.unit_rows() * self.columns.len())
    }

    /// Writes some units to what leaves.
    pub(super) fn pack(&self, units: Range<usize>, source: &[Element], mut out: &mut [Element]) {
        for unit in units {
            let rows = self.rows_of(unit);
            let (unit, rest) = out.split_at_mut(rows.len() * self.columns.len());
            out = rest;
            if self.is_transposed {
                self.pack_band(rows, source, unit);
            } else {
                self.pack_row(rows[0].0, source, unit);
            }
        }
    }

    /// Puts one unit that came into the storage.
    pub(super) fn unpack(&self, unit: usize, elements: &[Element], target: &mut [Element]) {
        let rows = self.rows_of(unit);
        if self.is_transposed {
            self.unpack_band(rows, elements, target);
        } else {
            self.unpack_row(rows[0].1, elements, target);
        }
    }

    fn unit_rows(&self) -> usize {
        if self.is_transposed { BAND } else { 1 }
    }

    fn rows_of(&self, unit: usize) -> &[(usize, usize)] {
        let start = unit * self.unit_rows();
        &self.rows[start..self.rows.len().min(start + self.unit_rows())]
    }

    fn pack_row(&self, row: usize, source: &[Element], mut out: &mut [Element]) {
        let row = &source[row * self.strides.0..][..self.strides.0];
        for family in &self.families {
            let (elements, rest) = out.split_at_mut(family.len * family.count);
            family.gather(row, elements);
            out = rest;
        }
    }

    fn unpack_row(&self, row: usize, mut elements: &[Element], target: &mut [Element]) {
        let row = &mut target[row * self.strides.1..][..self.strides.1];
        for family in &self.families {
            let (of_family, rest) = elements.split_at(family.len * family.count);
            family.scatter(of_family, row);
            elements = rest;
        }
    }

    fn pack_band(&self, rows: &[(usize, usize)], source: &[Element], out: &mut [Element]) {
        let columns = self.columns.chunks(LINE);
        for (columns, out) in columns.zip(out.chunks_mut(rows.len() * LINE)) {
            let (first, last) = (columns[0].0, columns[columns.len() - 1].0);
            let together = last - first + 1 == columns.len();
            for (at, (row, _)) in rows.iter().enumerate() {
                let row = &source[row * self.strides.0..][..self.strides.0];
                let places = out[at..].iter_mut().step_by(rows.len());
                if together {
                    places.zip(&row[first..=last]).for_each(|(to, element)| *to = *element);
                } else {
                    places.zip(columns).for_each(|(to, (column, _))| *to = row[*column]);
                }
            }
        }
    }

    fn unpack_band(&self, rows: &[(usize, usize)], bytes: &[Element], target: &mut [Element]) {
        let (first, last) = (rows[0].1, rows[rows.len() - 1].1);
        let together = last - first + 1 == rows.len();
        for ((_, column), elements) in self.columns.iter().zip(bytes.chunks_exact(rows.len())) {
            let into = &mut target[column * self.strides.1..][..self.strides.1];
            if together {
                into[first..=last].copy_from_slice(elements);
            } else {
                rows.iter().zip(elements).for_each(|((_, row), element)| into[*row] = *element);
            }
        }
    }
}

impl Family {
    fn gather(&self, row: &[Element], out: &mut [Element]) {
        let (row, step) = (&row[self.places.0..], self.steps.0);
        if self.count == 1 || step == self.len {
            out.copy_from_slice(&row[..out.len()]);
        } else if self.len == 1 {
            out.iter_mut().zip(row.iter().step_by(step)).for_each(|(to, element)| *to = *element);
        } else {
            let runs = out.chunks_exact_mut(self.len).zip(row.chunks(step));
            runs.for_each(|(to, run)| to.copy_from_slice(&run[..self.len]));
        }
    }

    fn scatter(&self, elements: &[Element], row: &mut [Element]) {
        let (row, step) = (&mut row[self.places.1..], self.steps.1);
        if self.count == 1 || step == self.len {
            row[..elements.len()].copy_from_slice(elements);
        } else if self.len == 1 {
            let places = row.iter_mut().step_by(step);
            places.zip(elements).for_each(|(to, element)| *to = *element);
        } else {
            let runs = row.chunks_mut(step).zip(elements.chunks_exact(self.len));
            runs.for_each(|(to, run)| to[..self.len].copy_from_slice(run));
        }
    }
}

/// Returns the runs that lie together at both ends, those of equal lengths and distances as one.
fn families(places: &[(usize, usize)]) -> Vec<Family> {
    let mut runs: Vec<Family> = Vec::new();
    for &places in places {
        match runs.last_mut() {
            Some(run) if places == (run.places.0 + run.len, run.places.1 + run.len) => run.len += 1,
            _ => runs.push(Family { places, steps: (0, 0), len: 1, count: 1 }),
        }
    }
    let mut families: Vec<Family> = Vec::new();
    for run in runs {
        if let Some(family) = families.last_mut().filter(|family| family.len == run.len) {
            let steps = (run.places.0 - family.places.0, run.places.1 - family.places.1);
            if family.count == 1 {
                (family.steps, family.count) = (steps, 2);
                continue;
            }
            let count = family.count;
            if steps == (family.steps.0 * count, family.steps.1 * count) {
                family.count += 1;
                continue;
            }
        }
        families.push(run);
    }
    families
}

#[cfg(test)]
mod tests;
