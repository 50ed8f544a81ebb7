use super::*;

/// Indices of a rank: blocks of `block` elements, every `count`-th, from the `at`-th on.
fn cyclic(extent: usize, block: usize, count: usize, at: usize) -> Vec<usize> {
    (0..extent).filter(|index| index / block % count == at).collect()
}

fn number(row: usize, column: usize) -> Element {
    ((row * 1000 + column) as u64).to_ne_bytes()
}

/// Moves all that a sender and a receiver have in common, and looks at every element of the receiver.
fn transfer(given: [&[usize]; 2], wanted: [&[usize]; 2], is_transposed: bool) {
    let width = if is_transposed { wanted[0].len() } else { wanted[1].len() };
    let places = [common(given[0], wanted[0]), common(given[1], wanted[1])];
    let [rows, columns] = places;
    let shared = Shared::new(rows, columns, (given[1].len(), width), is_transposed);
    let source: Vec<Element> = given[0]
        .iter()
        .flat_map(|row| given[1].iter().map(|column| number(*row, *column)))
        .collect();
    let mut target = vec![Element::default(); wanted[0].len() * wanted[1].len()];
    let (mut at, mut count) = (0, 0);
    while at < shared.units() {
        let units = shared.next(at);
        let mut elements = vec![Element::default(); shared.before(units.end) - shared.before(at)];
        shared.pack(units.clone(), &source, &mut elements);
        for unit in units.clone() {
            let range = shared.before(unit)..shared.before(unit + 1);
            range.clone().for_each(|element| assert_eq!(shared.unit_of(element), unit));
            let range = range.start - shared.before(at)..range.end - shared.before(at);
            shared.unpack(unit, &elements[range], &mut target);
        }
        count += elements.len();
        at = units.end;
    }
    assert_eq!(count, shared.len());
    for (at_row, row) in wanted[0].iter().enumerate() {
        for (at_column, column) in wanted[1].iter().enumerate() {
            let place = if is_transposed { (at_column, at_row) } else { (at_row, at_column) };
            let came = given[0].contains(row) && given[1].contains(column);
            let expected = if came { number(*row, *column) } else { Element::default() };
            assert_eq!(target[place.0 * width + place.1], expected, "({row}, {column})");
        }
    }
}

#[test]
fn every_element_lands_in_its_place() {
    let extents = [37, 50];
    for (blocks, counts) in
        [([10, 13], [4, 4]), ([1, 1], [3, 2]), ([3, 5], [2, 3]), ([37, 1], [1, 7])]
    {
        for others in [([50, 50], [1, 1]), ([1, 4], [2, 3]), ([7, 1], [2, 2])] {
            for at in 0..counts[0] * counts[1] {
                let of = |dim, (blocks, counts): ([usize; 2], [usize; 2]), at| {
                    cyclic(extents[dim], blocks[dim], counts[dim], at)
                };
                let given = [0, 1].map(|dim| {
                    let at = if dim == 0 { at / counts[1] } else { at % counts[1] };
                    of(dim, (blocks, counts), at)
                });
                let wanted = [0, 1].map(|dim| of(dim, others, others.1[dim] - 1));
                for is_transposed in [false, true] {
                    let (given, wanted) = (given.each_ref(), wanted.each_ref());
                    transfer(given.map(|it| &it[..]), wanted.map(|it| &it[..]), is_transposed);
                }
            }
        }
    }
}

#[test]
fn equal_runs_are_one_family() {
    let [cyclic_1, block] = [cyclic(64, 1, 4, 1), cyclic(64, 16, 4, 2)];
    let places = common(&cyclic_1, &block);
    let one = Family { places: (8, 1), steps: (1, 4), len: 1, count: 4 };
    assert_eq!(families(&places), [one]);
    let all: Vec<usize> = (0..62).collect();
    let places = common(&all, &cyclic(62, 3, 2, 0));
    let families = families(&places);
    assert_eq!(families[0], Family { places: (0, 0), steps: (6, 3), len: 3, count: 10 });
    assert_eq!(families.len(), 2, "the last one is cut");
}
