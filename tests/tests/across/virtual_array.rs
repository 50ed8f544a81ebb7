//! Arrays of a group, each method against a computation of its own.

use crate::virtual_arrays::in_time;
use crate::virtual_cluster::on_each;
use chunkcomm::LossKind;
use chunkcomm_array::{Array, ArrayError, Layout};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::Group;
use chunkcomm_testkit::{Scratch, cancelled};
use std::process::Command;
use std::time::Duration;

/// The value of an element.
fn value(index: &[usize]) -> f64 {
    index.iter().fold(1.0, |value, at| value * 100.0 + *at as f64)
}

fn filled(group: &Group, text: &str, shape: &[usize]) -> Array<f64> {
    Array::from_fn(group, &Layout::over(text, shape, group.size()).unwrap(), value).unwrap()
}

/// All indices of an array in C's order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |all, extent| {
        let each = all.iter().flat_map(|it| (0..*extent).map(move |at| [&it[..], &[at]].concat()));
        each.collect()
    })
}

/// Checks each element of this rank, and that margins have no others than zeros and their owners' elements.
#[track_caller]
fn check(array: &Array<f64>) {
    check_with(array, true);
}

#[track_caller]
fn check_with(array: &Array<f64>, margins: bool) {
    let local = array.local();
    for (place, element) in local.iter().enumerate() {
        let owned = local.index(place).filter(|index| local.place(index) == Some(place));
        match owned {
            Some(index) => assert_eq!(*element, value(&index), "{index:?} of {array:?}"),
            None if !margins => {}
            None => {
                let others = local.index(place).map_or(0.0, |index| value(&index));
                assert!(*element == 0.0 || *element == others, "{place} of {array:?}");
            }
        }
    }
}

async fn world(cluster: &Cluster) -> Group {
    Group::world(cluster).await.unwrap()
}

const LAYOUTS: [&str; 7] = [
    "(block,*)",
    "(*,block)",
    "(cyclic(3),block)",
    "(*,*)",
    "(block,cyclic)@2x2 permuted 1,0",
    "(blocks(1,0,8,2),*)",
    "(block,block) margin 1x2",
];

#[test]
fn arrays_move_from_each_layout_to_each() {
    for (seed, shape) in [[11, 7], [4, 4], [11, 0]].into_iter().enumerate() {
        on_each(seed as u64, 4, &[], move |rank, cluster| async move {
            let group = world(&cluster).await;
            for from in LAYOUTS {
                for to in LAYOUTS {
                    let fits = |text: &str| !text.contains("blocks(") || shape[0] == 11;
                    if !fits(from) || !fits(to) {
                        continue;
                    }
                    let mut array = filled(&group, from, &shape);
                    check(&array);
                    let mut moved = in_time(array.to(to)).await.unwrap();
                    check(&moved);
                    // Again, by the kept plan, with other elements.
                    let calls = group.calls();
                    array.map_inplace(|element| *element += 1.0);
                    moved.map_inplace(|element| *element = 0.0);
                    in_time(array.copy_to(&mut moved)).await.unwrap();
                    assert_eq!(group.calls(), calls, "nothing is agreed");
                    check(&moved.map(|element| if *element == 0.0 { 0.0 } else { element - 1.0 }));
                    let root = seed % 4;
                    let whole = in_time(moved.gather(root)).await.unwrap();
                    let indices = indices(&moved.shape());
                    let expected: Vec<f64> = indices.iter().map(|it| value(it) + 1.0).collect();
                    assert_eq!(whole, (rank == root).then_some(expected), "{from} {to}");
                }
            }
        });
    }
}

#[test]
fn reductions_count_each_element_once() {
    on_each(1, 4, &[], |_, cluster| async move {
        let group = world(&cluster).await;
        let shape = [11, 7];
        for text in LAYOUTS {
            let array = filled(&group, text, &shape);
            // Margins do not count.
            let mut array = array.map(|element| if *element == 0.0 { 1e9 } else { *element });
            let all: Vec<f64> = indices(&array.shape()).iter().map(|it| value(it)).collect();
            assert_eq!(in_time(array.sum()).await.unwrap(), all.iter().sum::<f64>(), "{text}");
            let most = all.iter().copied().reduce(f64::max);
            assert_eq!(in_time(array.max()).await.unwrap(), most, "{text}");
            assert_eq!(in_time(array.min()).await.unwrap(), Some(value(&[0, 0])), "{text}");
            let mut local = array.local_mut();
            if let Some(place) = local.place(&[3, 3]) {
                local[place] = f64::NAN;
            }
            assert!(in_time(array.max()).await.unwrap().unwrap().is_nan(), "{text}");
            assert!(in_time(array.min()).await.unwrap().unwrap().is_nan(), "{text}");
            assert!(in_time(array.sum()).await.unwrap().is_nan(), "{text}");
        }
        let none = Array::<u64>::zeros(&group, "(block,*)", [0, 3]).unwrap();
        assert_eq!(in_time(none.sum()).await.unwrap(), 0);
        assert_eq!(in_time(none.max()).await.unwrap(), None);
    });
}

#[test]
fn margins_have_the_elements_of_their_owners() {
    for (seed, text) in (0..).zip([
        "(block,*)",
        "(*,block)",
        "(block,block)",
        "(block,block) margin 2x1",
        "(*,block)@2x2",
    ]) {
        on_each(seed, 4, &[], move |_, cluster| async move {
            let group = world(&cluster).await;
            let shape = [9, 10];
            let mut array = filled(&group, text, &shape);
            for round in 0..3 {
                in_time(array.halo(1)).await.unwrap();
                let local = array.local();
                for (place, element) in local.iter().enumerate() {
                    let expected =
                        local.index(place).map_or(0.0, |it| value(&it) + f64::from(round));
                    // Beyond the edges nothing comes.
                    let outside = local.index(place).is_none();
                    assert!(outside || *element == expected, "{text}, {place}: {element}");
                }
                array.map_inplace(|element| *element += 1.0);
            }
        });
    }
}

#[test]
fn margins_at_the_edges_have_the_elements_of_the_opposite_ones() {
    let layouts = [
        "(block,*)",
        "(*,block)",
        "(block,block)",
        "(block,block) margin 2x1",
        "(block,*) margin 1",
        "(block,block) permuted 1,0",
    ];
    for (seed, text) in (0..).zip(layouts) {
        on_each(seed, 4, &[], move |rank, cluster| async move {
            let group = world(&cluster).await;
            let shape = [9, 10];
            let mut array = filled(&group, text, &shape);
            for round in 0..2 {
                in_time(array.halo_periodic(1)).await.unwrap();
                let (layout, local) = (array.layout().clone(), array.local());
                let (stored, strides) = (local.shape(), local.strides());
                // The index of the first owned element says that of each place, modulo the shape.
                let first = (0..local.len()).find(|at| {
                    local.index(*at).is_some_and(|index| layout.local(rank, &index) == Some(*at))
                });
                let Some(first) = first else { continue };
                let index = local.index(first).unwrap();
                for (at, element) in local.iter().enumerate() {
                    let wrapped: Vec<usize> = (0..2)
                        .map(|dim| {
                            let place = |at: usize| at / strides[dim] % stored[dim];
                            (index[dim] + shape[dim] + place(at) - place(first)) % shape[dim]
                        })
                        .collect();
                    let expected = value(&wrapped) + f64::from(round);
                    assert_eq!(*element, expected, "{text}, {at}: {wrapped:?}");
                }
                array.map_inplace(|element| *element += 1.0);
            }
            // Blocks of 3, 3, 3, 0.
            let mut narrow = filled(&group, "(block,*)", &[9, 2]);
            let error = in_time(narrow.halo_periodic(4)).await.unwrap_err();
            assert!(error.to_string().contains("wider than the part in dimension 0"), "{error}");
        });
    }
}

#[test]
fn rows_say_their_indices() {
    on_each(3, 3, &[], |rank, cluster| async move {
        let group = world(&cluster).await;
        for text in ["(cyclic(2),*)", "(block,*) margin 1x2", "(*,block)"] {
            let mut array = filled(&group, text, &[10, 6]);
            let layout = array.layout().clone();
            let mut seen = Vec::new();
            for (row, elements) in array.slowest_mut() {
                let owned = elements.iter().filter(|it| **it != 0.0);
                assert!(owned.clone().all(|it| (*it as usize / 100) % 100 == row), "{text}");
                seen.extend(owned.map(|it| *it as usize));
            }
            let mine = indices(&[10, 6]).into_iter();
            let mine: Vec<usize> = mine
                .filter(|it| layout.local(rank, it).is_some())
                .map(|it| value(&it) as usize)
                .collect();
            assert_eq!(seen, mine, "{text}");
        }
    });
}

#[test]
fn margins_that_ranks_do_not_agree_on_change_nothing() {
    on_each(3, 3, &[], |rank, cluster| async move {
        let group = world(&cluster).await;
        let mut array = filled(&group, "(block,*)", &[9, 4]);
        let width = if rank == 1 { 2 } else { 1 };
        let error = in_time(array.halo(width)).await.unwrap_err();
        assert!(matches!(error, ArrayError::Differs(_)), "{error}");
        assert_eq!(array.layout().to_string(), "(block,*)@3x1");
        let width = if rank == 1 { 1 << 50 } else { 1 };
        let error = in_time(array.halo(width)).await.unwrap_err();
        assert!(matches!(error, ArrayError::Rank { rank: 1, .. }), "{error}");
        check(&in_time(array.to("(*,block)")).await.unwrap());
        // A write between the halves of a call stays.
        let call = chunkcomm::host::timeout(Duration::ZERO, array.halo(1)).await;
        assert!(call.is_err());
        array.map_inplace(|element| *element += 1.0);
        in_time(array.halo(1)).await.unwrap();
        assert_eq!(array.layout().to_string(), "(block,*)@3x1 margin 1x0");
        check(&array.map(|element| if *element == 0.0 { 0.0 } else { element - 1.0 }));
        in_time(array.sum()).await.unwrap();
    });
}

#[test]
fn arrays_that_do_not_go_together_say_why() {
    on_each(4, 2, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let other = group.duplicate().await.unwrap();
        let mut rows = filled(&group, "(block,*)", &[6, 4]);
        let columns = filled(&group, "(*,block)", &[6, 4]);
        let error = rows.zip(&columns, |a, b| a + b).unwrap_err();
        let text =
            "the layouts (block,*)@2x1 of 6x4 and (*,block)@1x2 of 6x4 differ in dimension 0";
        assert_eq!(error.to_string(), text);
        let same = rows.to("(block,*)").await.unwrap();
        let sums = rows.zip(&same, |a, b| a + b).unwrap();
        assert!(sums.local().iter().zip(rows.local().iter()).all(|(sum, one)| *sum == 2.0 * one));
        let mut foreign = filled(&other, "(block,*)", &[6, 4]);
        let error = rows.copy_to(&mut foreign).await.unwrap_err();
        assert_eq!(error.to_string(), "the arrays are of different groups");
        let mut smaller = filled(&group, "(block,*)", &[4, 4]);
        let error = in_time(rows.copy_to(&mut smaller)).await.unwrap_err();
        assert!(matches!(error, ArrayError::Mismatch(_)), "{error}");
        // One rank's fault is told to all.
        let layout = if rank == 0 { "(blok,*)" } else { "(block,*)" };
        let Err(ArrayError::Rank { rank: 0, loss }) = in_time(rows.to(layout)).await else {
            panic!()
        };
        assert!(loss.to_string().contains("blok"), "{loss}");
        let Err(ArrayError::Rank { rank: 0, .. }) = in_time(rows.gather(2)).await else { panic!() };
        let error = Array::<f64>::zeros(&group, "(block,*)@3x1", [6, 4]).unwrap_err();
        assert!(error.to_string().contains("one of 3 ranks, the group has 2"), "{error}");
        let error = Array::<f64>::zeros(&group, rows.layout(), [4, 6]).unwrap_err();
        assert!(error.to_string().contains("has not the shape [4, 6]"), "{error}");
        let mut part = filled(&group, "(block,*) region 0..2x0..4", &[6, 4]);
        for error in [
            part.sum().await.unwrap_err(),
            part.gather(0).await.unwrap_err(),
            part.halo(1).await.unwrap_err(),
            part.halo_periodic(1).await.unwrap_err(),
            part.write_npy("/nowhere/part.npy").await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("a part of an array"), "{error}");
        }
        let error = Array::from_local(&group, rows.layout(), vec![0.0; 11]).unwrap_err();
        assert!(error.to_string().contains("11 elements"), "{error}");
        let shown = rows.to_string();
        assert!(shown.starts_with(&format!("(block,*)@2x1 of 6x4, rank {rank}:")), "{shown}");
        assert_eq!(shown.lines().count(), 4, "{shown}");
    });
}

#[test]
fn a_file_has_what_the_ranks_wrote_or_stays_as_it_was() {
    let folder = Scratch::folder("virtual-array");
    let (path, inside) = (folder.join("a.npy"), folder.to_path_buf());
    on_each(5, 3, &[], move |rank, cluster| {
        let (path, inside) = (path.clone(), inside.clone());
        async move {
            let mut group = world(&cluster).await;
            for text in ["(block,*)", "(*,cyclic)", "(cyclic(2),*) ", "(*,*)"] {
                let mut array = filled(&group, text, &[9, 5]);
                in_time(array.write_npy(&path)).await.unwrap();
                let read = Array::<f64>::read_npy(&mut group, "(*,block)", &path);
                check(&in_time(read).await.unwrap());
                in_time(group.barrier()).await.unwrap();
            }
            // One of them cannot: all hear of it, and the file is the old one.
            let error = in_time(Array::<u8>::read_npy(&mut group, "(block,*)", &path)).await;
            assert!(matches!(error, Err(ArrayError::Npy(_))), "{error:?}");
            let at = if rank == 1 { inside.join("none.npy") } else { path.clone() };
            let error = in_time(Array::<f64>::read_npy(&mut group, "(block,*)", &at)).await;
            match (rank, error.unwrap_err()) {
                (1, ArrayError::Npy(_)) => {}
                (_, ArrayError::Rank { rank: 1, loss }) => {
                    assert!(loss.to_string().contains("none.npy"), "{loss}");
                }
                (_, error) => panic!("{error}"),
            }
            let mut array = filled(&group, "(block,*)", &[9, 5]).map(|it| it + 1.0);
            let error = in_time(array.write_npy(inside.join("no/folder.npy"))).await.unwrap_err();
            assert!(matches!(error, ArrayError::Npy(_)) == (rank == 0), "{error}");
            // A call that was dropped at a rank, and made again there while the others are in the first one.
            if rank == 1 {
                let _ = cancelled(1, array.write_npy(&path)).await;
            }
            let error = in_time(array.write_npy(&path)).await.unwrap_err();
            assert!(matches!(error, ArrayError::Rank { .. }), "{error}");
            check(&in_time(Array::read_npy(&mut group, "(block,*)", &path)).await.unwrap());
            let left = std::fs::read_dir(&inside).unwrap();
            let names: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
            assert_eq!(names, ["a.npy"], "no temporary file stays");
        }
    });
}

/// Compares the files that the test below writes with what NumPy computes.
const BY_NUMPY: &str = "
import sys, numpy as np
load = lambda name: np.load(f'{sys.argv[1]}/{name}.npy')
whole = np.fromfunction(lambda i, j: (100 + i) * 100 + j, (9, 5))
for name, expected in [('made', whole), ('moved', whole), ('doubled', 2 * whole), ('zipped', whole + 2 * whole)]:
    assert np.array_equal(load(name), expected), name
assert np.array_equal(load('permuted'), np.fromfunction(lambda i, j: (100 + i) * 100 + j, (5, 9)))
holed = whole.copy()
holed[3, 3] = np.nan
for line, of in zip(open(f'{sys.argv[1]}/reduced'), [whole, holed]):
    for ours, theirs in zip(line.split(), [of.sum(), of.min(), of.max()]):
        assert np.array_equal(float(ours), theirs, equal_nan=True), (ours, theirs)
";

#[test]
fn numpy_computes_the_same() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !has_numpy.is_ok_and(|it| it.status.success()) {
        println!("skipped: {python} has no NumPy; set PYTHON to one that has");
        return;
    }
    let folder = Scratch::folder("by-numpy");
    let inside = folder.to_path_buf();
    on_each(6, 3, &[], move |rank, cluster| {
        let inside = inside.clone();
        let path = move |name: &str| inside.join(name);
        async move {
            let group = world(&cluster).await;
            let mut made = filled(&group, "(cyclic(2),*)", &[9, 5]);
            in_time(made.write_npy(path("made.npy"))).await.unwrap();
            let mut moved = in_time(made.to("(*,block)")).await.unwrap();
            in_time(moved.write_npy(path("moved.npy"))).await.unwrap();
            let mut doubled = moved.map(|element| 2.0 * element);
            in_time(doubled.write_npy(path("doubled.npy"))).await.unwrap();
            let mut zipped = moved.zip(&doubled, |one, other| one + other).unwrap();
            in_time(zipped.write_npy(path("zipped.npy"))).await.unwrap();
            let mut permuted = filled(&group, "(block,*) permuted 1,0", &[5, 9]);
            in_time(permuted.write_npy(path("permuted.npy"))).await.unwrap();
            let mut reduced = String::new();
            for _ in 0..2 {
                let (sum, least) = (in_time(moved.sum()).await, in_time(moved.min()).await);
                let most = in_time(moved.max()).await.unwrap().unwrap();
                let (sum, least) = (sum.unwrap(), least.unwrap().unwrap());
                reduced += &format!("{sum:?} {least:?} {most:?}\n");
                let mut local = moved.local_mut();
                if let Some(place) = local.place(&[3, 3]) {
                    local[place] = f64::NAN;
                }
            }
            if rank == 0 {
                std::fs::write(path("reduced"), reduced).unwrap();
            }
        }
    });
    let output = Command::new(python).args(["-c", BY_NUMPY]).arg(&*folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_dropped_call_is_heard_of_or_goes_on_and_no_element_goes() {
    for (call, polls) in (0..5).flat_map(|call| (1..12).map(move |polls| (call, polls))) {
        on_each(polls, 3, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            let mut array = filled(&group, "(block,*)", &[9, 9]);
            let mut moved = Array::zeros(&group, "(*,block)", [9, 9]).unwrap();
            // The first call of its kind is opened, later ones are not.
            if polls % 2 == 0 && call < 4 {
                array.copy_to(&mut moved).await.unwrap();
                array.halo_periodic(1).await.unwrap();
            }
            let make = async |array: &mut Array<f64>, moved: &mut Array<f64>| match call {
                0 => array.to("(cyclic,*)").await.map(|it| check(&it)),
                1 => array.gather(0).await.map(drop),
                2 => array.copy_to(moved).await,
                3 => array.halo_periodic(1).await,
                _ => array.halo(1).await,
            };
            let first = match rank {
                2 => cancelled(polls as u32, make(&mut array, &mut moved)).await,
                _ => Some(in_time(make(&mut array, &mut moved)).await),
            };
            check_with(&array, false);
            match (first, call) {
                (Some(Err(ArrayError::Peer { rank: 2, loss, .. })), 0 | 1) => {
                    assert_eq!(loss.kind(), LossKind::Left);
                }
                (Some(ended), _) => ended.unwrap(),
                (None, 0 | 1) => {}
                (None, _) => in_time(make(&mut array, &mut moved)).await.unwrap(),
            }
            check_with(&array, false);
            in_time(group.barrier()).await.unwrap();
            in_time(array.copy_to(&mut moved)).await.unwrap();
            check(&moved);
            in_time(array.halo_periodic(1)).await.unwrap();
            check(&in_time(array.to("(*,cyclic)")).await.unwrap());
            in_time(group.barrier()).await.unwrap();
        });
    }
}

#[test]
fn a_dead_rank_ends_each_call_and_no_element_goes() {
    for call in 0..4 {
        let deaths = [(2, Duration::from_secs(5))];
        on_each(call, 3, &deaths, move |rank, cluster| async move {
            let group = world(&cluster).await;
            let mut array = filled(&group, "(block,*)", &[9, 9]);
            let mut moved = array.to("(*,block)").await.unwrap();
            if rank == 2 {
                std::future::pending::<()>().await;
            }
            let ended = in_time(async {
                match call {
                    0 => array.to("(cyclic,*)").await.map(drop),
                    1 => array.copy_to(&mut moved).await,
                    2 => array.halo(1).await,
                    _ => array.sum().await.map(drop),
                }
            });
            let error = ended.await.unwrap_err();
            let is_named = match &error {
                ArrayError::Peer { loss, .. } => loss.kind() != LossKind::Left,
                ArrayError::Group(_) => true,
                _ => false,
            };
            assert!(is_named, "{error:?}");
            check(&array);
        });
    }
}
