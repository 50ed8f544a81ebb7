//! Errors of `chunkcomm-array`.

use super::cluster::death;
use super::{Texts, errors, label, said};
use crate::virtual_arrays::halves;
use crate::virtual_cluster::on_each;
use chunkcomm_array::{Array, ArrayError, AttachError, Layout, Npy, NpyError, NpyHeader};
use chunkcomm_cluster::cluster::{End, NameError};
use chunkcomm_group::{Group, GroupError, Op, PartError};
use chunkcomm_testkit::Scratch;
use std::sync::{Arc, Mutex};

pub(super) fn all(texts: &mut Texts) {
    layouts(texts);
    headers(texts);
    files(texts);
    // A simulation runs within no other runtime.
    std::thread::scope(|scope| scope.spawn(|| transfers(texts)).join().unwrap());
}

/// Asks for layouts that cannot be.
fn layouts(texts: &mut Texts) {
    let of = |text: &str, shape: &[usize]| Layout::parse(text, shape).unwrap_err();
    let good = || Layout::parse("(block,cyclic)@2x2", &[10, 10]).unwrap();
    let blocks = |lengths: &[usize]| Layout::builder(&[9]).blocks(lengths).build().unwrap_err();
    let block_count = Layout::parse("(blocks(4,5))@3", &[9]).unwrap_err();
    let errors = [
        ("Dims", of("(block)@2", &[])),
        ("TooLarge", of("(block,block)@2x2", &[usize::MAX, 2])),
        ("OtherDims", of("(block)@2", &[4, 4])),
        ("GridAxes", of("(block,block)@2", &[4, 4])),
        ("ZeroGrid", of("(block,block)@2x0", &[4, 4])),
        ("TooManyRanks", of("(block,block)@100000x100000", &[4, 4])),
        ("NoGrid", Layout::over("(blocks(1,2,3),block)", &[6, 8], 4).unwrap_err()),
        ("ZeroCycle", of("(cyclic(0))@2", &[4])),
        ("BlockCount", block_count),
        ("BlockSum", blocks(&[4, 4])),
        ("Notation", of("(block,cycle)@2x2", &[4, 4])),
        ("Notation", of("(block", &[4])),
        ("CyclicMargin", good().margin(1).unwrap_err()),
        ("Count", good().margins(&[1]).unwrap_err()),
        ("Region", good().region(&[0..4, 3..11]).unwrap_err()),
        ("Axes", good().permuted(&[0, 0]).unwrap_err()),
    ];
    for (variant, error) in errors {
        texts.error(&format!("LayoutError::{variant}"), &error);
    }
}

/// Parses bytes that are no header.
fn headers(texts: &mut Texts) {
    let of = |bytes: &[u8]| NpyHeader::parse(bytes).unwrap_err();
    let dict = |text: &str| of(&file(text));
    for (variant, error) in [
        ("Magic", of(b"PK\x03\x04")),
        ("Version", of(b"\x93NUMPY\x09\0")),
        ("Short", of(b"")),
        ("Short", of(&file(NUMBERS)[..60])),
        ("Long", of(b"\x93NUMPY\x02\0\0\0\x01\0")),
        ("Dict", dict("[]")),
        ("Dict", dict("{'kind': 1}")),
        ("Dict", dict("{'shape': (2)}")),
        ("Dict", dict(&format!("{NUMBERS} more"))),
        ("Dict", of(b"\x93NUMPY\x03\0\x01\0\0\0\xff")),
        ("Twice", dict("{'shape': (2,), 'shape': (2,)}")),
        ("Missing", dict("{'descr': '<f8', 'shape': (2,)}")),
        ("Elements", dict("{'shape': (99999999999, 99999999999)}")),
    ] {
        texts.error(&format!("NpyHeaderError::{variant}"), &error);
    }
}

/// Dict of a file of 2 by 3 `f64`.
const NUMBERS: &str = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}";

/// Returns the start of a file with this dict, in version 1.0.
fn file(dict: &str) -> Vec<u8> {
    let length = u16::try_from(dict.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], dict.as_bytes()].concat()
}

/// Reads and writes files that do not fit.
fn files(texts: &mut Texts) {
    let scratch = Scratch::new("texts.npy");
    let open = |bytes: &[u8]| {
        std::fs::write(&scratch, bytes).unwrap();
        Npy::open(&scratch).unwrap_err()
    };
    let typed = |descr: &str| open(&file(&NUMBERS.replace("<f8", descr)));
    let missing = Npy::open(&scratch).unwrap_err();
    let layout = |shape: &[usize]| Layout::parse("(block,*)@2x1", shape).unwrap();
    let mut errors = vec![
        ("Io", missing),
        ("Header", open(b"PK\x03\x04")),
        ("Header", Npy::create::<f64>(&scratch, &[usize::MAX, 2]).unwrap_err()),
        ("UnknownType", typed("<U\u{7}")),
        ("ByteOrder", typed(if cfg!(target_endian = "little") { ">f8" } else { "<f8" })),
        ("Length", open(&file(NUMBERS))),
    ];
    let mut whole = Npy::create::<f64>(&scratch, &[2, 3]).unwrap();
    let wide = layout(&[2, 3]).margins(&[0, 1 << 50]).unwrap();
    errors.extend([
        ("Element", whole.read_local::<[f32; 2]>(&layout(&[2, 3]), 0).unwrap_err()),
        ("Shape", whole.read_local::<f64>(&layout(&[3, 2]), 0).unwrap_err()),
        ("Memory", whole.read_local::<f64>(&wide, 0).unwrap_err()),
        ("Storage", whole.write_local(&layout(&[2, 3]), 1, &[0.0; 4]).unwrap_err()),
    ]);
    for (variant, error) in errors {
        texts.error(&format!("NpyError::{variant}"), &elsewhere(error));
    }
}

/// Returns the error as one of a file, and of a system, that have the same words on all machines.
fn elsewhere(mut error: NpyError) -> NpyError {
    if let NpyError::Io { source, .. } = &mut error {
        *source = said();
    }
    match &mut error {
        NpyError::Io { path, .. }
        | NpyError::Header { path, .. }
        | NpyError::UnknownType { path, .. }
        | NpyError::ByteOrder { path, .. }
        | NpyError::Element { path, .. }
        | NpyError::Length { path, .. }
        | NpyError::Shape { path, .. }
        | NpyError::Memory { path, .. }
        | NpyError::Storage { path, .. } => *path = "/a/file".into(),
        _ => panic!("{error}"),
    }
    error
}

fn transfers(texts: &mut Texts) {
    let differs = opened(["(block)@2", "(cyclic)@2", "(*)@1"], [9, 9, 9]);
    let mismatch = opened(["(block)@2", "(block)@2", "(*)@1"], [9, 9, 8]);
    let rank = opened(["(block)@3", "(block)@2", "(*)@1"], [9, 9, 9]);
    let ArrayError::Layout(words) = nonsense() else { panic!() };
    texts.error("LayoutError::Words", &words);
    let (peer, refusal) = (peer(), mismatch.clone());
    errors!(
        texts,
        ArrayError::Group(GroupError::Lost { rank: 1, loss: death().into() }),
        rank => ArrayError::Rank,
        differs => ArrayError::Differs,
        mismatch => ArrayError::Mismatch,
        ArrayError::Layout(words),
        ArrayError::Layouts {
            ours: "(block,*)@2x1 of 6x4".to_owned(),
            theirs: "(*,block)@1x2 of 6x4".to_owned(),
            dim: Some(0),
        },
        ArrayError::OtherGroup,
        ArrayError::Npy(elsewhere(Npy::open("/nowhere/file.npy").unwrap_err())),
        peer.clone() => ArrayError::Peer,
        ArrayError::Uncommitted { rows: 3, all: 10 },
        ArrayError::Rows { asked: 3..12, length: 10 },
        ArrayError::Part(PartError::Range { asked: 3..12, length: 9 }),
        ArrayError::Ended,
    );
    visits(texts, &refusal, peer);
}

/// Makes the errors of a visitor, one of a transfer among them, and one with which the group refuses it.
fn visits(texts: &mut Texts, refusal: &ArrayError, transfer: ArrayError) {
    let name = || "field".to_owned();
    let layout = Layout::parse("(*,*)@1x1", &[4, usize::MAX]).unwrap_err();
    let npy = Npy::open("/nowhere/file.npy").unwrap_err();
    errors!(
        texts,
        AttachError::Name { name: name(), source: NameError::Ended(End::Left) },
        AttachError::Gone { name: name(), loss: death().into() },
        AttachError::Closed { name: name() },
        AttachError::Refused { name: name(), why: refusal.to_string() },
        AttachError::Transfer { name: name(), source: transfer },
        AttachError::Layout { name: name(), source: layout },
        AttachError::Elements { shape: vec![2, 3], expected: 6, found: 5 },
        AttachError::Memory { name: name(), shape: vec![2, 3], bytes: 48 },
        AttachError::Npy(elsewhere(npy)),
    );
}

/// Two ranks send as these layouts, one receives: the error of all.
fn opened(layouts: [&'static str; 3], shapes: [usize; 3]) -> ArrayError {
    let error = Arc::new(Mutex::new(None));
    let all = Arc::clone(&error);
    on_each(1, 3, &[], move |rank, cluster| {
        let error = Arc::clone(&all);
        async move {
            let layout = Layout::parse(layouts[rank], &[shapes[rank]]).unwrap();
            let (sends, group, mut pair) = halves(&cluster, rank, 2).await;
            // A layout of three ranks is one of both groups.
            let world = Group::world(&cluster).await.unwrap();
            let of = if layout.ranks() == 3 { &world } else { &group };
            let array = Array::from_fn(of, &layout, |_| 0_u8).unwrap();
            let opened = match sends {
                true => array.sender(&mut pair).await.err(),
                false => array.receiver(&mut pair).await.err(),
            };
            let opened = opened.map(ArrayError::from);
            let mut error = error.lock().unwrap();
            let text = opened.as_ref().unwrap().to_string();
            assert!(error.as_ref().is_none_or(|it: &ArrayError| it.to_string() == text), "{text}");
            *error = opened;
        }
    });
    error.lock().unwrap().take().unwrap()
}

/// The receiver drops its end.
fn peer() -> ArrayError {
    let error = Arc::new(Mutex::new(None));
    let all = Arc::clone(&error);
    on_each(1, 2, &[], move |rank, cluster| {
        let error = Arc::clone(&all);
        async move {
            let layout = Layout::parse("(*)@1", &[9]).unwrap();
            let (sends, group, mut pair) = halves(&cluster, rank, 1).await;
            if !sends {
                let array = Array::from_fn(&group, &layout, |_| 0_u8).unwrap();
                drop(array.receiver(&mut pair).await.unwrap());
                return pair.barrier().await.unwrap();
            }
            let array = Array::from_fn(&group, &layout, |_| 0_u8).unwrap();
            let mut sender = array.sender(&mut pair).await.unwrap();
            sender.commit_all().unwrap();
            *error.lock().unwrap() = sender.finish().await.err();
            pair.barrier().await.unwrap();
        }
    });
    error.lock().unwrap().take().unwrap()
}

/// The sender states a layout of one dimension, and nothing of it.
fn nonsense() -> ArrayError {
    let error = Arc::new(Mutex::new(None));
    let all = Arc::clone(&error);
    on_each(1, 2, &[], move |rank, cluster| {
        let error = Arc::clone(&all);
        async move {
            let layout = Layout::parse("(*)@1", &[9]).unwrap();
            let (sends, group, mut pair) = halves(&cluster, rank, 1).await;
            if !sends {
                let received = Array::<u8>::receive(&group, &mut pair, &layout).await;
                *error.lock().unwrap() = received.err();
                return;
            }
            // Side, length and hash, then element and layout.
            let mut part = vec![1, 5, 0, 1, 0, 2, u64::from_le_bytes(*b"u8\0\0\0\0\0\0"), 1];
            part.resize(75, 0);
            let inverted = part.iter().map(|word| !word).collect();
            let words = [vec![0, 1], part, inverted, vec![0; 150]].concat();
            pair.both().all_reduce(words, Op::max()).await.unwrap();
        }
    });
    error.lock().unwrap().take().unwrap()
}
