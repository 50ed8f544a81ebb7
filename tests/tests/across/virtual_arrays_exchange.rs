//! Distributed arrays that change their layout within a group, and their margins, in virtual time.

use crate::virtual_arrays::{Case, ELSEWHERE, array, in_time, layout, random_layout, random_shape};
use crate::virtual_cluster::on_each;
use chunkcomm::host;
use chunkcomm_array::Layout;
use chunkcomm_group::Group;
use chunkcomm_simulation::{Random, each_seed};
use std::time::Duration;

/// Copies an array to another one, or fills its margins if both layouts are one, three times. With a seed, futures are
/// dropped and ranks are late.
fn exchanges(seed: u64, case: &Case, nagging: Option<u64>) {
    let case = case.clone();
    on_each(seed, case.from.ranks(), &[], move |rank, cluster| {
        let case = case.clone();
        in_time_of(rank, cluster, case, nagging)
    });
}

async fn in_time_of(
    rank: usize,
    cluster: chunkcomm_cluster::Cluster,
    case: Case,
    nagging: Option<u64>,
) {
    let mut group = Group::world(&cluster).await.unwrap();
    let is_halo = case.from == case.to;
    let mut random = nagging.map(|seed| Random::fork(seed, rank as u64));
    let made = |layout: &Layout| array(&group, layout, vec![ELSEWHERE; layout.local_len(rank)]);
    let (mut from, mut to) = (made(&case.from), made(&case.to));
    for round in 0..3 {
        from.local_mut().copy_from_slice(&case.sent(rank, round));
        let before = if is_halo { &from } else { &to }.local().to_vec();
        loop {
            let wait = random.as_mut().map_or(60_000_000, |it| it.pick(&[0, 0, 40, 1_000, 60_000]));
            let call =
                async { if is_halo { from.halo(0).await } else { from.copy_to(&mut to).await } };
            if let Ok(outcome) = host::timeout(Duration::from_micros(wait), call).await {
                outcome.unwrap();
                break;
            }
            assert!(random.is_some(), "an exchange hangs");
        }
        case.check(rank, round, &before, &if is_halo { &from } else { &to }.local());
        if let Some(random) = &mut random {
            host::sleep(Duration::from_micros(random.below(3000))).await;
        }
    }
    // Others may still wait for what this rank sends.
    in_time(group.barrier()).await.unwrap();
}

#[test]
fn random_exchanges_bring_what_every_element_must_be() {
    each_seed(0..24, |seed| {
        let mut random = Random::new(seed);
        let shape = random_shape(&mut random);
        let ranks = random.pick(&[1, 2, 3, 4, 6, 8]);
        let with_region = random.one_in(3);
        let (from, from_start) = random_layout(&mut random, &shape, ranks, with_region);
        let (to, to_start) = random_layout(&mut random, &shape, ranks, with_region);
        let case = Case { from, from_start, to, to_start };
        println!("seed {seed}: {} to {}", case.from, case.to);
        exchanges(seed, &case, random.one_in(2).then(|| random.next_u64()));
    });
}

#[test]
fn an_array_is_transposed_and_redistributed() {
    let rows = layout("(block,*)@4x1", &[30, 22]);
    let columns = layout("(*,block)@1x4", &[30, 22]);
    let transposed = layout("(block,*)@4x1", &[22, 30]).permuted(&[1, 0]).unwrap();
    let cycles = layout("(cyclic(3),cyclic)@2x2", &[30, 22]);
    for (seed, to) in [&columns, &transposed, &cycles, &rows].into_iter().enumerate() {
        exchanges(seed as u64, &Case::new(&rows, to), None);
        exchanges(seed as u64, &Case::new(to, &rows), None);
    }
    // Larger than what leaves without the peer's word.
    let square = [500, 500];
    let rows = layout("(block,*)@3x1", &square);
    let transposed = layout("(block,*)@3x1", &square).permuted(&[1, 0]).unwrap();
    exchanges(9, &Case::new(&rows, &transposed), None);
}

#[test]
fn halos_have_corners_and_widths_and_ranks_without_elements() {
    let halo = |text: &str, shape: &[usize], width: usize| -> Layout {
        layout(text, shape).margin(width).unwrap()
    };
    let cases = [
        halo("(block,block)@2x2", &[8, 9], 1),
        halo("(block,block)@3x2", &[11, 7], 2),
        halo("(block,block,block)@2x2x2", &[5, 6, 7], 1),
        halo("(block,*,block)@2x1x3", &[6, 4, 7], 2),
        // Margins wider than the neighbours' parts.
        halo("(block)@7", &[9], 3),
        // The last ranks own nothing.
        halo("(block,block)@4x2", &[5, 2], 1),
        halo("(blocks(3,0,4,1),*)@4x1", &[8, 3], 2),
        halo("(block,block)@2x3", &[8, 9], 1).permuted(&[1, 0]).unwrap(),
    ];
    for (seed, layout) in cases.into_iter().enumerate() {
        let case = Case::new(&layout, &layout);
        let margins = (0..layout.ranks()).map(|rank| {
            let comes = (0..layout.local_len(rank)).filter(|at| case.comes(rank, *at, 0).is_some());
            comes.count()
        });
        let owned: usize = layout.shape().iter().product();
        assert!(margins.sum::<usize>() > owned, "{layout} has no halo");
        exchanges(seed as u64, &case, Some(seed as u64));
    }
}

#[test]
fn a_halo_is_that_of_its_layout() {
    on_each(1, 4, &[], |rank, cluster| async move {
        let mut group = Group::world(&cluster).await.unwrap();
        let layout = layout("(block,block)@2x2", &[6, 6]).margin(1).unwrap();
        let case = Case::new(&layout, &layout);
        let before = case.sent(rank, 0);
        let mut halo = array(&group, &layout, before.clone());
        in_time(halo.halo(1)).await.unwrap();
        case.check(rank, 0, &before, &halo.local());
        // The corner that comes from the rank across.
        let corner = [24, 20, 4, 0][rank];
        let across = layout.global(rank, corner).unwrap();
        assert_eq!(layout.owner(&across), 3 - rank);
        group.barrier().await.unwrap();
    });
}
