//! Inner loops of packing and unpacking, one for each spacing of the fastest axis.

use std::array::from_fn;

use super::axis::{Axis, Piece, walk};

/// Mean elements of runs that are moved together; of fewer each element is moved alone.
const TOGETHER_MIN: usize = 8;

/// Runs of equal lengths, evenly apart in a storage, which follow each other in the stream.
struct Runs {
    /// Position of the first element, which is its place in the stream.
    position: usize,
    /// Its place in the storage.
    offset: usize,
    /// Elements of a run.
    length: usize,
    /// Distance of two runs in the storage.
    distance: usize,
    count: usize,
}

/// Moves the elements at axes of a storage, the last one fastest: to a stream if it `PACKS`, else from there.
pub(super) fn copy<T: Copy, const PACKS: bool>(axes: &[&Axis], from: &[T], to: &mut [T]) {
    let Some((inner, outer)) = axes.split_last() else {
        to[0] = from[0];
        return;
    };
    if !PACKS && inner.stream != 1 {
        return place_across(inner, outer, from, to);
    }
    let (count, runs) = (inner.count, runs(inner));
    if runs.len() * TOGETHER_MIN > count.max(TOGETHER_MIN) {
        let places = places(inner);
        return walk(outer, 0, 0, &mut |begin, offset| {
            if PACKS {
                let (from, to) = (&from[offset..], &mut to[begin..][..count]);
                to.iter_mut().zip(&places).for_each(|(to, place)| *to = from[*place]);
            } else {
                let (from, to) = (&from[begin..][..count], &mut to[offset..]);
                from.iter().zip(&places).for_each(|(from, place)| to[*place] = *from);
            }
        });
    }
    walk(outer, 0, 0, &mut |begin, offset| {
        for runs in &runs {
            let (begin, offset) = (begin + runs.position, offset + runs.offset);
            let (from_at, to_at) = if PACKS { (offset, begin) } else { (begin, offset) };
            runs.copy::<T, PACKS>(&from[from_at..], &mut to[to_at..]);
        }
    });
}

impl Runs {
    /// Moves the elements, from the first one on. Copies of a constant length need no call.
    #[inline]
    fn copy<T: Copy, const PACKS: bool>(&self, from: &[T], to: &mut [T]) {
        let (stored, end) =
            (if PACKS { from.len() } else { to.len() }, self.distance * (self.count - 1));
        assert!(end + self.length <= stored, "the storage has all runs");
        match self.length {
            1 if PACKS => {
                let places = from.iter().step_by(self.distance);
                to[..self.count].iter_mut().zip(places).for_each(|(to, from)| *to = *from);
            }
            1 => {
                let places = to.iter_mut().step_by(self.distance);
                places.zip(&from[..self.count]).for_each(|(to, from)| *to = *from);
            }
            2 => self.copy_runs::<T, PACKS>(2, from, to),
            3 => self.copy_runs::<T, PACKS>(3, from, to),
            4 => self.copy_runs::<T, PACKS>(4, from, to),
            8 => self.copy_runs::<T, PACKS>(8, from, to),
            16 => self.copy_runs::<T, PACKS>(16, from, to),
            length => self.copy_runs::<T, PACKS>(length, from, to),
        }
    }

    #[inline(always)]
    fn copy_runs<T: Copy, const PACKS: bool>(&self, length: usize, from: &[T], to: &mut [T]) {
        let (of_storage, elements) = (self.distance, length * self.count);
        if PACKS {
            let runs = to[..elements].chunks_exact_mut(length).zip(from.chunks(of_storage));
            runs.for_each(|(to, from)| to.copy_from_slice(&from[..length]));
        } else {
            let runs = to.chunks_mut(of_storage).zip(from[..elements].chunks_exact(length));
            runs.for_each(|(to, from)| to[..length].copy_from_slice(from));
        }
    }
}

/// Returns the positions of an axis as runs: pieces of equal lengths together, or the positions of each piece.
fn runs(axis: &Axis) -> Vec<Runs> {
    let mut all: Vec<Runs> = Vec::new();
    for &Piece { position, offset, length } in &axis.pieces {
        if axis.unit > 1 {
            all.push(Runs { position, offset, length: 1, distance: axis.unit, count: length });
            continue;
        }
        if let Some(last) = all.last_mut().filter(|last| last.length == length) {
            if last.count == 1 {
                last.distance = offset - last.offset;
            }
            if offset == last.offset + last.count * last.distance {
                last.count += 1;
                continue;
            }
        }
        all.push(Runs { position, offset, length, distance: length, count: 1 });
    }
    all
}

/// Places elements whose neighbours in the storage are apart in the stream: a transposition.
fn place_across<T: Copy>(inner: &Axis, outer: &[&Axis], stream: &[T], target: &mut [T]) {
    let neighbours = outer.iter().position(|axis| axis.stream == 1);
    let (Some(number), true) = (neighbours, inner.is_contiguous()) else {
        return walk(outer, 0, 0, &mut |begin, offset| {
            inner.each(|next, place| target[offset + place] = stream[begin + next]);
        });
    };
    let others = [&outer[..number], &outer[number + 1..]].concat();
    let rows = places(outer[number]);
    walk(&others, 0, 0, &mut |begin, offset| {
        let (stream, target) = (&stream[begin..], &mut target[offset..]);
        match size_of::<T>() {
            0..=4 => transpose::<T, 16>(inner, &rows, stream, target),
            5..=15 => transpose::<T, 8>(inner, &rows, stream, target),
            _ => transpose::<T, 4>(inner, &rows, stream, target),
        }
    });
}

/// Puts what follows each other in the stream into the lines that begin at `rows`.
///
/// In squares of `SIDE` elements: about as many lines of the cache as it has ways are read, and each is used whole.
fn transpose<T: Copy, const SIDE: usize>(
    columns: &Axis,
    rows: &[usize],
    stream: &[T],
    target: &mut [T],
) {
    let whole = columns.count - columns.count % SIDE;
    for (block, rows) in rows.chunks(SIDE).enumerate() {
        let first = block * SIDE;
        let squares = if rows.len() == SIDE { whole } else { 0 };
        for column in (0..squares).step_by(SIDE) {
            let lines: [&[T]; SIDE] =
                from_fn(|next| &stream[first + (column + next) * columns.stream..][..SIDE]);
            for (number, &row) in rows.iter().enumerate() {
                let line: [T; SIDE] = from_fn(|next| lines[next][number]);
                target[row + column..][..SIDE].copy_from_slice(&line);
            }
        }
        for (number, &row) in rows.iter().enumerate() {
            for column in squares..columns.count {
                target[row + column] = stream[first + number + column * columns.stream];
            }
        }
    }
}

/// Returns the places in the storage of all positions of an axis.
fn places(axis: &Axis) -> Vec<usize> {
    let mut places = Vec::with_capacity(axis.count);
    axis.each(|_, place| places.push(place));
    places
}
