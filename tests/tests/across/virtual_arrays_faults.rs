//! Array transfers whose ranks state what does not fit, and ends that are used wrongly, in virtual time.

use crate::virtual_arrays::{array, halves, in_time, layout};
use crate::virtual_cluster::on_each;
use chunkcomm::host;
use chunkcomm_array::{Array, ArrayError, Layout, Transfer};
use chunkcomm_group::{Element, Group, Pair, PartError};
use std::time::Duration;

/// Part of a rank: whether it sends, and its layout.
type Act = (bool, Layout);

async fn opens<T: Element>(
    group: &Group,
    pair: &mut Pair,
    (sends, layout): &Act,
) -> Option<ArrayError> {
    let array = array(group, layout, vec![T::zeroed(); layout.local_len(group.rank())]);
    let failed = in_time(async {
        match sends {
            true => array.sender(pair).await.err(),
            false => array.receiver(pair).await.err(),
        }
    });
    let failed = failed.await?;
    assert_eq!(failed.data.layout(), layout, "the array comes back");
    assert_eq!(failed.data.local().len(), layout.local_len(group.rank()));
    Some(failed.cause)
}

/// Two groups of two open what does not fit: all get an error with this text. Then they transfer.
fn refuses(acts: [Act; 4], expected: &'static str) {
    on_each(1, 4, &[], move |rank, cluster| {
        let act = acts[rank].clone();
        async move {
            let (low, group, mut pair) = halves(&cluster, rank, 2).await;
            let error = opens::<u32>(&group, &mut pair, &act).await.expect("an error").to_string();
            assert_eq!(error, expected, "{rank}");
            let good = layout("(block)@2", &[10]);
            assert!(opens::<u32>(&group, &mut pair, &(low, good)).await.is_none());
            pair.barrier().await.unwrap();
        }
    });
}

fn act(sends: bool, text: &str, shape: &[usize]) -> Act {
    (sends, layout(text, shape))
}

#[test]
fn ranks_of_a_group_that_differ_are_both_named() {
    let b = |text| act(true, text, &[8, 8]);
    let receiver = || act(false, "(block,*)@2x1", &[8, 8]);
    refuses(
        [b("(block,*)@2x1"), b("(*,block)@1x2"), receiver(), receiver()],
        "the ranks of a group differ: rank 0 sends (block,*)@2x1 of 8x8 u32 (4 bytes each), rank 1 \
         sends (*,block)@1x2 of 8x8 u32 (4 bytes each)",
    );
    // The shape alone.
    let other = act(false, "(block,*)@2x1", &[8, 6]);
    refuses(
        [b("(block,*)@2x1"), b("(block,*)@2x1"), receiver(), other],
        "the ranks of a group differ: rank 2 receives (block,*)@2x1 of 8x8 u32 (4 bytes each), rank 3 \
         receives (block,*)@2x1 of 8x6 u32 (4 bytes each)",
    );
    // One sends, one receives.
    refuses(
        [b("(block,*)@2x1"), receiver(), receiver(), receiver()],
        "the ranks of a group differ: rank 0 sends (block,*)@2x1 of 8x8 u32 (4 bytes each), rank 1 \
         receives (block,*)@2x1 of 8x8 u32 (4 bytes each)",
    );
}

#[test]
fn groups_that_do_not_fit_are_both_named() {
    let sender = |shape: &[usize]| act(true, "(block,*)@2x1", shape);
    let receiver = |shape: &[usize]| act(false, "(*,block)@1x2", shape);
    let [wide, high] = [[8, 6], [6, 8]];
    refuses(
        [sender(&wide), sender(&wide), receiver(&high), receiver(&high)],
        "the groups do not fit: rank 0 sends (block,*)@2x1 of 8x6 u32 (4 bytes each), rank 2 receives \
         (*,block)@1x2 of 6x8 u32 (4 bytes each)",
    );
    refuses(
        [sender(&wide), sender(&wide), sender(&wide), sender(&wide)],
        "the groups do not fit: rank 0 sends (block,*)@2x1 of 8x6 u32 (4 bytes each), rank 2 sends \
         (block,*)@2x1 of 8x6 u32 (4 bytes each)",
    );
    refuses(
        [receiver(&wide), receiver(&wide), receiver(&high), receiver(&high)],
        "the groups do not fit: rank 0 receives (*,block)@1x2 of 8x6 u32 (4 bytes each), rank 2 \
         receives (*,block)@1x2 of 6x8 u32 (4 bytes each)",
    );
    // After the permutation.
    let (_, turned) = receiver(&wide);
    let turned = (false, turned.permuted(&[1, 0]).unwrap());
    refuses(
        [sender(&wide), sender(&wide), turned.clone(), turned],
        "the groups do not fit: rank 0 sends (block,*)@2x1 of 8x6 u32 (4 bytes each), rank 2 receives \
         (*,block)@1x2 permuted 1,0 of 6x8 u32 (4 bytes each)",
    );
    // Of the region.
    let (_, part) = receiver(&wide);
    let part = (false, part.region(&[0..8, 1..6]).unwrap());
    refuses(
        [sender(&wide), sender(&wide), part.clone(), part],
        "the groups do not fit: rank 0 sends (block,*)@2x1 of 8x6 u32 (4 bytes each), rank 2 receives \
         (*,block)@1x2 region 0..8x1..6 of 8x6 u32 (4 bytes each)",
    );
}

#[test]
fn other_elements_are_named() {
    on_each(1, 2, &[], move |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 1).await;
        let one = act(low, "(*)@1", &[9]);
        let error = match low {
            true => opens::<f64>(&group, &mut pair, &one).await,
            false => opens::<u64>(&group, &mut pair, &one).await,
        };
        assert_eq!(
            error.unwrap().to_string(),
            "the groups do not fit: rank 0 sends (*)@1 of 9 f64 (8 bytes each), rank 1 receives (*)@1 \
             of 9 u64 (8 bytes each)"
        );
        pair.barrier().await.unwrap();
    });
}

#[test]
fn an_array_of_another_group_than_the_pairs_is_named() {
    on_each(1, 4, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 2).await;
        let world = Group::world(&cluster).await.unwrap();
        let of = if rank == 3 { &world } else { &group };
        let array = Array::<u8>::zeros(of, "(block)", [8]).unwrap();
        let failed = match low {
            true => in_time(array.send(&mut pair)).await.unwrap_err(),
            false => in_time(array.receiver(&mut pair)).await.err().unwrap().cause,
        };
        assert_eq!(
            failed.to_string(),
            "rank 3 cannot take part in the transfer: its array is one of another group than its side of the pair"
        );
        pair.barrier().await.unwrap();
    });
}

/// A rank that cannot take its part says so to all.
#[test]
fn a_part_without_memory_is_named_everywhere() {
    on_each(1, 4, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 2).await;
        let plain = layout("(block)@2", &[10]);
        let wide = plain.clone().margin(1 << 50).unwrap();
        let failed = match low {
            true => {
                let array = array(&group, &plain, vec![0_u8; 5]);
                in_time(array.send(&mut pair)).await
            }
            false => {
                let layout = if rank == 3 { &wide } else { &plain };
                in_time(Array::<u8>::receive(&group, &mut pair, layout)).await.map(drop)
            }
        };
        let text = failed.unwrap_err().to_string();
        let expected = "rank 3 cannot take part in the transfer: there is no memory for";
        assert!(text.starts_with(expected), "{text}");
        pair.barrier().await.unwrap();
    });
}

/// The rounds that were committed arrive, and the array comes back.
#[test]
fn a_sender_that_is_taken_back_in_a_round_has_sent_those_before() {
    on_each(1, 2, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 1).await;
        let one = layout("(*,*)@1x1", &[100, 1000]);
        let array = array(&group, &one, vec![0_u32; 100_000]);
        let settings = Transfer::default().depth(2);
        if low {
            let mut sender = array.sender_with(&mut pair, settings).await.unwrap();
            for round in 1..=3 {
                while let Some(mut slab) = sender.next_slab() {
                    slab.fill(round);
                    slab.commit();
                }
                in_time(sender.start()).await.unwrap();
            }
            let slab = sender.next_slab().unwrap();
            let late = async {
                host::sleep(Duration::from_secs(1)).await;
                drop(slab);
            };
            let (array, ()) = in_time(async { tokio::join!(sender.into_array(), late) }).await;
            assert_eq!(*array.local(), [2; 100_000]);
        } else {
            let mut receiver = array.receiver_with(&mut pair, settings).await.unwrap();
            for round in 1..=3 {
                assert_eq!(in_time(receiver.finish()).await.unwrap(), [round; 100_000]);
                in_time(receiver.start()).await.unwrap();
            }
            let failed = in_time(receiver.into_array()).await.unwrap_err();
            assert!(failed.to_string().contains("it dropped its end"), "{failed}");
        }
        pair.barrier().await.unwrap();
    });
}

/// The array of a call stays where it is, and as it is.
#[test]
fn an_array_is_sent_and_received_in_one_call() {
    on_each(1, 5, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 3).await;
        for (from, to) in [("(block,*)", "(*,block)"), ("(cyclic,*) margin 0x2", "(*,*)")] {
            let [from, to] =
                [from, to].map(|it| Layout::over(it, &[900, 50], group.size()).unwrap());
            let number = |at: &[usize]| (at[0] * 50 + at[1]) as u64;
            if low {
                let mut array = Array::from_fn(&group, &from, number).unwrap();
                let before = (array.local().as_ptr().addr(), array.local().to_vec());
                for _ in 0..2 {
                    in_time(array.send(&mut pair)).await.unwrap();
                    let local = array.local_mut();
                    assert_eq!((local.as_ptr().addr(), local.to_vec()), before, "it is not copied");
                }
            } else {
                for _ in 0..2 {
                    let array =
                        in_time(Array::<u64>::receive(&group, &mut pair, &to)).await.unwrap();
                    let expected = Array::from_fn(&group, &to, number).unwrap();
                    assert_eq!(*array.local(), *expected.local());
                }
            }
        }
        pair.barrier().await.unwrap();
    });
}

#[test]
fn long_statements_that_differ_are_told_apart() {
    let blocks: Vec<usize> = (0..90).map(|at| at % 3).collect();
    on_each(1, 91, &[], move |rank, cluster| {
        let mut blocks = blocks.clone();
        async move {
            let (low, group, mut pair) = halves(&cluster, rank, 90).await;
            if rank == 40 {
                blocks.swap(88, 89);
            }
            let many = Layout::builder(&[90]).blocks(&blocks).build().unwrap();
            let act = if low { (true, many) } else { (false, layout("(*)@1", &[90])) };
            let error = opens::<u8>(&group, &mut pair, &act).await;
            let Some(ArrayError::Differs(difference)) = error else { panic!("{error:?}") };
            assert_eq!(difference.ranks, [0, 40]);
            pair.barrier().await.unwrap();
        }
    });
}

#[test]
fn a_copy_states_its_faults() {
    on_each(1, 3, &[], move |rank, cluster| async move {
        let mut group = Group::world(&cluster).await.unwrap();
        let rows = layout("(block,*)@3x1", &[9, 6]);
        let columns = layout("(*,block)@1x3", &[9, 6]);
        let odd = layout("(block,*)@2x1", &[9, 6]);
        let other = layout("(block,*)@3x1", &[6, 9]);
        let of = |layout: &Layout| array(&group, layout, vec![0_u16; layout.local_len(rank)]);
        let mut from = of(&rows);
        let mut error = async |to: &Layout| -> String {
            in_time(from.copy_to(&mut of(to))).await.expect_err("it is refused").to_string()
        };
        let text = error(&other).await;
        assert!(text.contains("the groups do not fit") && text.contains("6x9"), "{text}");
        let to = if rank == 1 { &columns } else { &rows };
        let text = error(to).await;
        assert!(text.contains("rank 0 receives") && text.contains("rank 1 receives"), "{text}");
        let text = in_time(from.to(&odd)).await.unwrap_err().to_string();
        assert!(text.contains("(block,*)@2x1 is one of 2 ranks, the group has 3"), "{text}");
        let text = Array::from_local(&group, &rows, vec![0_u16; 17]).unwrap_err().to_string();
        assert!(text.contains("it gives 17 elements, its part of (block,*)@3x1 has 18"), "{text}");
        in_time(from.copy_to(&mut of(&columns))).await.unwrap();
        group.barrier().await.unwrap();
    });
}

/// Before anything is opened there is the agreement: the death is that of a call.
#[test]
fn a_death_before_the_agreement_is_the_groups() {
    on_each(1, 3, &[(1, Duration::from_secs(2))], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 2).await;
        if rank == 1 {
            host::sleep(Duration::from_secs(10)).await;
        }
        let act = act(low, if low { "(block)@2" } else { "(*)@1" }, &[2]);
        let error = opens::<u8>(&group, &mut pair, &act).await;
        let Some(ArrayError::Group(cause)) = error else { panic!() };
        assert_eq!(cause.death().map(|(rank, _)| rank), Some(1));
    });
}

#[test]
fn slabs_are_used_wrongly() {
    on_each(1, 2, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 1).await;
        let one = layout("(*,*)@1x1", &[10, 4]);
        if !low {
            let received = array(&group, &one, vec![0; 40]);
            let mut receiver = received.receiver(&mut pair).await.unwrap();
            let error = receiver.wait(3..11).await.unwrap_err();
            assert!(matches!(error, ArrayError::Rows { length: 10, .. }), "{error}");
            #[expect(clippy::reversed_empty_ranges, reason = "the fault under test")]
            let error = receiver.wait(5..3).await.unwrap_err();
            assert!(matches!(error, ArrayError::Rows { length: 10, .. }), "{error}");
            assert_eq!(receiver.wait(4..4).await.unwrap(), [0_u32; 0]);
            assert_eq!(in_time(receiver.finish()).await.unwrap(), [5; 40]);
            in_time(receiver.start()).await.unwrap();
            assert_eq!(in_time(receiver.finish()).await.unwrap(), [6; 40]);
            return;
        }
        let settings = Transfer::default().slab_rows(4);
        let sent = array(&group, &one, vec![5_u32; 40]);
        let mut sender = sent.sender_with(&mut pair, settings).await.unwrap();
        let not_committed = |error: &ArrayError| match error {
            ArrayError::Uncommitted { rows, all: 10 } => *rows,
            _ => panic!("{error}"),
        };
        assert_eq!(not_committed(&sender.finish().await.unwrap_err()), 10);
        assert_eq!(not_committed(&sender.start().await.unwrap_err()), 10);
        for rows in [0..11, 10..11, 20..20] {
            let error = sender.slab(rows).unwrap_err();
            assert!(matches!(error, ArrayError::Rows { length: 10, .. }), "{error}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "the fault under test")]
        let error = sender.slab(5..3).unwrap_err();
        assert!(matches!(error, ArrayError::Rows { length: 10, .. }), "{error}");
        let out = sender.slab(2..5).unwrap();
        let error = sender.slab(4..6).unwrap_err();
        assert!(matches!(error, ArrayError::Part(PartError::Out { .. })), "{error:?}");
        assert_eq!(not_committed(&sender.commit_all().unwrap_err()), 3);
        sender.slab(7..7).unwrap().commit();
        assert_eq!(not_committed(&sender.finish().await.unwrap_err()), 3);
        drop(out);
        let out = sender.slab(2..5).unwrap();
        out.commit();
        let error = sender.slab(2..3).unwrap_err();
        assert!(matches!(error, ArrayError::Part(_)), "{error:?}");
        // No rows, of those that have left.
        for rows in [0..0, 3..3, 10..10] {
            sender.slab(rows).unwrap().commit();
        }
        host::sleep(Duration::from_millis(1)).await;
        sender.slab(3..3).unwrap().commit();
        assert!(sender.next_slab().is_none());
        in_time(sender.finish()).await.unwrap();
        in_time(sender.start()).await.unwrap();
        assert_eq!(sender.round_number(), 2);
        while let Some(mut slab) = sender.next_slab() {
            slab.fill(6);
            sender.commit(slab).await.unwrap();
        }
        in_time(sender.finish()).await.unwrap();
    });
}

/// The last rank has rows without elements.
#[test]
fn rows_without_elements_are_committed_any_number_of_times() {
    on_each(1, 4, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 2).await;
        let empty = layout("(*,block)@1x2", &[4, 1]);
        let array = array(&group, &empty, vec![3_u8; empty.local_len(pair.rank())]);
        if !low {
            let mut receiver = array.receiver(&mut pair).await.unwrap();
            while in_time(receiver.next_slab()).await.unwrap().is_some() {}
            in_time(receiver.start()).await.unwrap();
            in_time(receiver.into_array()).await.unwrap();
            return;
        }
        let mut sender = array.sender(&mut pair).await.unwrap();
        for _ in 0..3 {
            sender.commit_all().unwrap();
            while let Some(slab) = sender.next_slab() {
                sender.commit(slab).await.unwrap();
            }
        }
        in_time(sender.start()).await.unwrap();
        sender.commit_all().unwrap();
        in_time(sender.finish()).await.unwrap();
    });
}
