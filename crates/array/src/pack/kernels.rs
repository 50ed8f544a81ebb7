//! Inner loops of packing and unpacking, one for each spacing of the fastest axis.

use std::array::from_fn;

use bytemuck::{bytes_of, cast_slice, cast_slice_mut, pod_read_unaligned};
use chunkcomm_group::Element;

use super::axis::{Axis, Piece, Spacing, walk};

/// Mean bytes of a piece from which pieces are copied one by one; shorter ones go element by element.
const PIECE_BYTES_MIN: usize = 64;

/// Appends the elements at axes of a storage, the last one fastest, in their order in the stream.
pub(super) fn append<T: Element>(axes: &[&Axis], source: &[T], out: &mut Vec<u8>) {
    let Some((inner, outer)) = axes.split_last() else {
        return out.extend_from_slice(bytes_of(&source[0]));
    };
    match &inner.spacing {
        Spacing::Even(1) => walk(outer, 0, 0, &mut |_, offset| {
            out.extend_from_slice(cast_slice(&source[offset..offset + inner.count]));
        }),
        Spacing::Even(step) => {
            walk(outer, 0, 0, &mut |_, offset| {
                let source = &source[offset..][..(inner.count - 1) * step + 1];
                let line = grown(out, inner.count * size_of::<T>());
                for (number, bytes) in line.chunks_exact_mut(size_of::<T>()).enumerate() {
                    bytes.copy_from_slice(bytes_of(&source[number * step]));
                }
            });
        }
        Spacing::Pieces { unit: 1, pieces } if are_long::<T>(pieces, inner.count) => {
            walk(outer, 0, 0, &mut |_, offset| {
                for piece in pieces {
                    let begin = offset + piece.offset;
                    out.extend_from_slice(cast_slice(&source[begin..begin + piece.length]));
                }
            });
        }
        Spacing::Pieces { .. } => {
            let places = places(inner);
            walk(outer, 0, 0, &mut |_, offset| {
                let line = grown(out, inner.count * size_of::<T>());
                let source = &source[offset..];
                for (bytes, &place) in line.chunks_exact_mut(size_of::<T>()).zip(&places) {
                    bytes.copy_from_slice(bytes_of(&source[place]));
                }
            });
        }
    }
}

/// Puts the elements of a stream to their places, those of axes of a storage, the last one fastest.
pub(super) fn place<T: Element>(axes: &[&Axis], stream: &[u8], target: &mut [T]) {
    let Some((inner, outer)) = axes.split_last() else {
        target[0] = element(stream, 0);
        return;
    };
    if inner.stream != 1 {
        return place_across(inner, outer, stream, target);
    }
    match &inner.spacing {
        Spacing::Even(1) => walk(outer, 0, 0, &mut |begin, offset| {
            let line = &mut target[offset..offset + inner.count];
            cast_slice_mut(line).copy_from_slice(line_of::<T>(stream, begin, inner.count));
        }),
        Spacing::Even(step) => walk(outer, 0, 0, &mut |begin, offset| {
            let line = line_of::<T>(stream, begin, inner.count).chunks_exact(size_of::<T>());
            for (chunk, bytes) in target[offset..].chunks_mut(*step).zip(line) {
                chunk[0] = pod_read_unaligned(bytes);
            }
        }),
        Spacing::Pieces { unit: 1, pieces } if are_long::<T>(pieces, inner.count) => {
            walk(outer, 0, 0, &mut |begin, offset| {
                for piece in pieces {
                    let line = &mut target[offset + piece.offset..][..piece.length];
                    let bytes = line_of::<T>(stream, begin + piece.position, piece.length);
                    cast_slice_mut(line).copy_from_slice(bytes);
                }
            });
        }
        Spacing::Pieces { .. } => {
            let places = places(inner);
            walk(outer, 0, 0, &mut |begin, offset| {
                let line = line_of::<T>(stream, begin, inner.count).chunks_exact(size_of::<T>());
                let target = &mut target[offset..];
                for (&place, bytes) in places.iter().zip(line) {
                    target[place] = pod_read_unaligned(bytes);
                }
            });
        }
    }
}

/// The same where neighbours in the storage are apart in the stream: a transposition.
fn place_across<T: Element>(inner: &Axis, outer: &[&Axis], stream: &[u8], target: &mut [T]) {
    let neighbours = outer.iter().position(|axis| axis.stream == 1);
    let (Some(number), Spacing::Even(1)) = (neighbours, &inner.spacing) else {
        return walk(outer, 0, 0, &mut |begin, offset| {
            inner.each(|next, place| target[offset + place] = element(stream, begin + next));
        });
    };
    let others = [&outer[..number], &outer[number + 1..]].concat();
    let rows = places(outer[number]);
    walk(&others, 0, 0, &mut |begin, offset| {
        let (stream, target) = (&stream[begin * size_of::<T>()..], &mut target[offset..]);
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
fn transpose<T: Element, const SIDE: usize>(
    columns: &Axis,
    rows: &[usize],
    stream: &[u8],
    target: &mut [T],
) {
    let whole = columns.count - columns.count % SIDE;
    for (block, rows) in rows.chunks(SIDE).enumerate() {
        let first = block * SIDE;
        let squares = if rows.len() == SIDE { whole } else { 0 };
        for column in (0..squares).step_by(SIDE) {
            let lines: [&[u8]; SIDE] = from_fn(|next| {
                line_of::<T>(stream, first + (column + next) * columns.stream, SIDE)
            });
            for (number, &row) in rows.iter().enumerate() {
                let line: [T; SIDE] = from_fn(|next| element(lines[next], number));
                target[row + column..][..SIDE].copy_from_slice(&line);
            }
        }
        for (number, &row) in rows.iter().enumerate() {
            for column in squares..columns.count {
                target[row + column] = element(stream, first + number + column * columns.stream);
            }
        }
    }
}

/// Returns an element of a stream.
#[inline]
fn element<T: Element>(stream: &[u8], number: usize) -> T {
    pod_read_unaligned(line_of::<T>(stream, number, 1))
}

/// Returns the bytes of consecutive elements of a stream.
#[inline]
fn line_of<T>(stream: &[u8], begin: usize, count: usize) -> &[u8] {
    &stream[begin * size_of::<T>()..][..count * size_of::<T>()]
}

/// Makes room for some bytes at the end of `out`: a line at a time, so that its zeros are still in the cache.
#[inline]
fn grown(out: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    let begin = out.len();
    out.resize(begin + bytes, 0);
    &mut out[begin..]
}

fn are_long<T>(pieces: &[Piece], count: usize) -> bool {
    count * size_of::<T>() >= pieces.len() * PIECE_BYTES_MIN
}

/// Returns the places in the storage of all positions of an axis.
fn places(axis: &Axis) -> Vec<usize> {
    let mut places = Vec::with_capacity(axis.count);
    axis.each(|_, place| places.push(place));
    places
}
