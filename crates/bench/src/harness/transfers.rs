//! Transfers of a matrix between two layouts: what each rank gives, and what it must get.
//!
//! Elements are `f64` that hold whole numbers: element `(i, j)` is `i * columns + j`, plus the number
//! of the call times the elements of the matrix. So an element in a wrong place is seen, and so is one
//! of the call before. Call 0 makes the plan: it moves nothing.

use chunkcomm_array::{Distribution, Layout};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Bytes of an element.
pub const ELEMENT_BYTES: usize = size_of::<f64>();

/// Number of calls after which the elements repeat.
const CALLS: u64 = 997;

/// One transfer of a matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferKind {
    /// Rows and columns of the matrix.
    pub shape: [usize; 2],
    /// The senders' layout, with its grid.
    pub from: String,
    /// The receivers' layout, with its grid; of the transposed matrix if it is one.
    pub to: String,
    /// Whether the senders are the receivers, and not processes of their own.
    pub within: bool,
    /// Whether the receivers get the transposed matrix.
    pub transposed: bool,
    /// Whether the receivers send it back: both groups have both parts.
    pub there_and_back: bool,
}

/// A transfer with its layouts.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// Its description.
    pub kind: TransferKind,
    /// The senders' layout.
    pub from: Layout,
    /// The receivers' layout, of what they store.
    pub to: Layout,
}

/// The rows and columns of a matrix that one rank stores, all with all.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Indices of its rows, in the order of its storage.
    pub rows: Vec<usize>,
    /// Indices of its columns, in the order of its storage.
    pub columns: Vec<usize>,
    /// Addend of each row to its elements.
    row_terms: Vec<f64>,
    /// Addend of each column to its elements.
    column_terms: Vec<f64>,
    /// Addend of each call to all elements.
    call_term: f64,
}

/// Returns the elements of a block of each dimension, if the layout is block-cyclic in all.
pub fn blocks(layout: &Layout) -> Option<Vec<usize>> {
    let dims = layout.distributions().into_iter().zip(layout.shape()).zip(layout.grid());
    dims.map(|((distribution, extent), ranks)| match distribution {
        Distribution::Whole => Some(extent),
        Distribution::Block => Some(extent.div_ceil(ranks)),
        Distribution::Cyclic(block) => Some(block),
        _ => None,
    })
    .collect()
}

/// An element in memory.
pub trait Cell: Copy {
    /// Makes the element.
    fn of(element: f64) -> Self;

    /// Returns the element.
    fn element(self) -> f64;
}

impl Cell for f64 {
    #[inline]
    fn of(element: f64) -> Self {
        element
    }

    #[inline]
    fn element(self) -> f64 {
        self
    }
}

impl Cell for [u8; ELEMENT_BYTES] {
    #[inline]
    fn of(element: f64) -> Self {
        element.to_ne_bytes()
    }

    #[inline]
    fn element(self) -> f64 {
        f64::from_ne_bytes(self)
    }
}

impl TransferKind {
    /// Returns the transfer with its layouts.
    ///
    /// # Errors
    /// If a text is no layout of such a matrix.
    pub fn parse(&self) -> Result<Transfer, Failure> {
        let [rows, columns] = self.shape;
        let stored = if self.transposed { [columns, rows] } else { [rows, columns] };
        let layout = |option: &str, text: &str, shape: &[usize]| {
            Layout::parse(text, shape)
                .map_err(|error| Failure::Refused(format!("--{option} {text}: {error}")))
        };
        let from = layout("from", &self.from, &self.shape)?;
        let to = layout("to", &self.to, &stored)?;
        Ok(Transfer { kind: self.clone(), from, to })
    }
}

impl Transfer {
    /// Returns the number of processes.
    pub fn ranks(&self) -> usize {
        self.first_receiver() + self.to.ranks()
    }

    /// Returns the process of the first receiver; the senders begin at 0.
    pub fn first_receiver(&self) -> usize {
        if self.kind.within { 0 } else { self.from.ranks() }
    }

    /// Returns the elements of the matrix.
    pub fn elements(&self) -> usize {
        self.kind.shape.iter().product()
    }

    /// Returns what a process gives; nothing if it is no sender.
    pub fn given(&self, process: usize) -> Part {
        let process = if self.kind.there_and_back { process % self.to.ranks() } else { process };
        let sender = (process < self.from.ranks()).then_some(process);
        self.part(&self.from, sender, false)
    }

    /// Returns what a process must get; nothing if it is no receiver.
    pub fn wanted(&self, process: usize) -> Part {
        let back = self.kind.there_and_back && process < self.first_receiver();
        let first = if back { 0 } else { self.first_receiver() };
        let receiver = process.checked_sub(first);
        let receiver = receiver.filter(|receiver| *receiver < self.to.ranks());
        self.part(&self.to, receiver, self.kind.transposed)
    }

    /// Whether some element has several owners.
    pub fn has_replicas(&self) -> bool {
        let has = |layout: &Layout| {
            let mut dims = layout.distributions().into_iter().zip(layout.grid());
            dims.any(|(distribution, ranks)| distribution == Distribution::Whole && ranks > 1)
        };
        has(&self.from) || has(&self.to)
    }

    /// Returns the number of pairs of different processes that exchange elements one way.
    pub fn messages(&self) -> usize {
        if self.kind.there_and_back {
            let kind = TransferKind { there_and_back: false, ..self.kind.clone() };
            return Self { kind, ..self.clone() }.messages();
        }
        let parts = |part: &dyn Fn(usize) -> Part| (0..self.ranks()).map(part).collect::<Vec<_>>();
        let (given, wanted) = (parts(&|rank| self.given(rank)), parts(&|rank| self.wanted(rank)));
        let meet = |sender: usize, receiver: usize| {
            let (one, other) = (&given[sender], &wanted[receiver]);
            let [rows, columns] = other.logical(self.kind.transposed);
            sender != receiver && have_common(&one.rows, rows) && have_common(&one.columns, columns)
        };
        let pairs = |sender| (0..self.ranks()).filter(move |receiver| meet(sender, *receiver));
        (0..self.ranks()).map(|sender| pairs(sender).count()).sum()
    }

    fn part(&self, layout: &Layout, rank: Option<usize>, transposed: bool) -> Part {
        let (mut rows, mut columns) = (Vec::new(), Vec::new());
        if let Some(rank) = rank {
            let shape = layout.local_shape(rank);
            let at = |offset| layout.global(rank, offset).expect("a layout without margins");
            if shape.iter().all(|extent| *extent > 0) {
                rows = (0..shape[0]).map(|row| at(row * shape[1])[0]).collect();
                columns = (0..shape[1]).map(|column| at(column)[1]).collect();
            }
        }
        let width = self.kind.shape[1];
        let terms = |indices: &[usize], scale: usize| -> Vec<f64> {
            indices.iter().map(|index| (index * scale) as f64).collect()
        };
        let (row_scale, column_scale) = if transposed { (1, width) } else { (width, 1) };
        Part {
            row_terms: terms(&rows, row_scale),
            column_terms: terms(&columns, column_scale),
            call_term: self.elements() as f64,
            rows,
            columns,
        }
    }
}

impl Part {
    /// Returns the elements.
    pub fn len(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rows and columns of the matrix as the senders have it.
    pub fn logical(&self, transposed: bool) -> [&[usize]; 2] {
        if transposed { [&self.columns, &self.rows] } else { [&self.rows, &self.columns] }
    }

    /// Writes the elements of a call.
    pub fn fill<C: Cell>(&self, call: u64, data: &mut [C]) {
        for (row, add) in data.chunks_exact_mut(self.columns.len().max(1)).zip(self.adds(call)) {
            for (cell, term) in row.iter_mut().zip(&self.column_terms) {
                *cell = C::of(add + term);
            }
        }
    }

    /// Whether these are the elements of a call.
    pub fn is_right<C: Cell>(&self, call: u64, data: &[C]) -> bool {
        let rows = data.chunks_exact(self.columns.len().max(1)).zip(self.adds(call));
        let right = |row: &[C], add: f64| {
            // Without a branch an element, so that looking takes little of a run.
            let wrong = |(cell, term): (&C, &f64)| u64::from(cell.element() != add + term);
            row.iter().zip(&self.column_terms).map(wrong).sum::<u64>() == 0
        };
        data.len() == self.len() && rows.into_iter().all(|(row, add)| right(row, add))
    }

    /// Returns what each row adds to its elements in a call.
    fn adds(&self, call: u64) -> impl Iterator<Item = f64> {
        let add = self.call_term * (call % CALLS) as f64;
        self.row_terms.iter().map(move |term| term + add)
    }
}

/// Whether two ascending lists have an index in common.
fn have_common(one: &[usize], other: &[usize]) -> bool {
    one.iter().any(|index| other.binary_search(index).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(transposed: bool) -> Transfer {
        let [from, to] = ["(block,cyclic(2))@2x2", "(cyclic,*)@3x1"].map(str::to_owned);
        TransferKind { shape: [7, 9], from, to, within: false, transposed, there_and_back: false }
            .parse()
            .unwrap()
    }

    #[test]
    fn what_is_given_is_what_is_wanted() {
        for transposed in [false, true] {
            let transfer = transfer(transposed);
            assert_eq!((transfer.ranks(), transfer.first_receiver()), (7, 4));
            let mut matrix = vec![0.0; transfer.elements()];
            for process in 0..transfer.ranks() {
                let part = transfer.given(process);
                assert_eq!(part.is_empty(), process >= 4);
                let mut data = vec![0.0; part.len()];
                part.fill(5, &mut data);
                let mut elements = data.into_iter();
                for row in &part.rows {
                    for column in &part.columns {
                        matrix[row * 9 + column] = elements.next().unwrap();
                    }
                }
            }
            assert_eq!((matrix[0], matrix[62]), (5.0 * 63.0, 5.0 * 63.0 + 62.0));
            for process in 0..transfer.ranks() {
                let part = transfer.wanted(process);
                assert_eq!(part.is_empty(), process < 4);
                let [rows, columns] = part.logical(transposed);
                let of = |one: usize, other: usize| {
                    if transposed { matrix[other * 9 + one] } else { matrix[one * 9 + other] }
                };
                let mut data: Vec<f64> = part
                    .rows
                    .iter()
                    .flat_map(|row| part.columns.iter().map(|column| of(*row, *column)))
                    .collect();
                assert_eq!(rows.len() * columns.len(), data.len());
                assert!(part.is_right(5, &data));
                let Some(last) = data.len().checked_sub(1) else { continue };
                assert!(!part.is_right(6, &data), "of another call");
                assert!(!part.is_right(5, &data[1..]), "too short");
                data[last] += 1.0;
                assert!(!part.is_right(5, &data), "the last differs");
            }
        }
    }

    #[test]
    fn replicas_and_blocks_are_seen() {
        let transfer = transfer(false);
        assert!(!transfer.has_replicas());
        assert_eq!(blocks(&transfer.from), Some(vec![4, 2]));
        let layout = |text| Layout::parse(text, &[7, 9]).unwrap();
        let replicated = Transfer { to: layout("(block,*)@2x2"), ..transfer };
        assert!(replicated.has_replicas());
        assert_eq!(blocks(&layout("(blocks(3,4),*)@2x1")), None);
    }
}
