use std::fs;

use proptest::prelude::*;

use super::*;

/// A file that is gone when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn file(name: &str) -> Scratch {
        let name = format!("chunkcomm-npy-{}-{name}.npy", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn with(name: &str, bytes: &[u8]) -> Scratch {
        let file = Scratch::file(name);
        fs::write(&file.0, bytes).unwrap();
        file
    }

    /// Returns the error's text with the file's path as `FILE`.
    fn told<T>(&self, result: Result<T, NpyError>) -> String {
        let Err(error) = result else { panic!("no error") };
        assert!(error.to_string().contains(self.0.to_str().unwrap()), "{error}");
        format!("{error:?}").replace(self.0.to_str().unwrap(), "FILE")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Bytes that NumPy 2.4 writes: `numpy.save` of `numpy.arange(6, dtype='<f8').reshape(2, 3)`.
fn numbers() -> Vec<u8> {
    let head = b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";
    let elements = (0..6).flat_map(|it| f64::from(it).to_le_bytes());
    head.iter().copied().chain([b' '; 58]).chain([b'\n']).chain(elements).collect()
}

/// The same in Fortran's order, of `<u2`.
fn by_columns() -> Vec<u8> {
    let head = b"\x93NUMPY\x01\0v\0{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3), }";
    let elements = b"\x00\x00\x03\x00\x01\x00\x04\x00\x02\x00\x05\x00";
    head.iter().copied().chain([b' '; 59]).chain([b'\n']).chain(*elements).collect()
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|it| it == from.as_bytes()).unwrap();
    [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat()
}

fn columns(ranks: usize) -> Layout {
    Layout::builder(&[2, 3]).whole().cyclic(1, ranks).build().unwrap()
}

#[cfg(target_endian = "little")]
#[test]
fn files_of_numpy_are_read_and_written_byte_for_byte() {
    let file = Scratch::with("numpy", &numbers());
    let mut input = Npy::open(&file.0).unwrap();
    assert_eq!((input.shape(), input.element()), (&[2, 3][..], NpyType::F64));
    let layout = columns(2);
    let parts = [0, 1].map(|rank| input.read_local::<f64>(&layout, rank).unwrap());
    assert_eq!(parts, [vec![0., 2., 3., 5.], vec![1., 4.]]);
    // In the place of another file.
    let output = Scratch::with("output", &[7; 1000]);
    let mut created = Npy::create::<f64>(&output.0, &[2, 3]).unwrap();
    created.write_local(&layout, 1, &parts[1]).unwrap();
    Npy::open_to_write(&output.0).unwrap().write_local(&layout, 0, &parts[0]).unwrap();
    assert_eq!(fs::read(&output.0).unwrap(), numbers());

    let file = Scratch::with("fortran", &by_columns());
    let mut input = Npy::open(&file.0).unwrap();
    assert!(input.header().fortran_order);
    assert_eq!(input.read_local::<u16>(&columns(1), 0).unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(input.read_local::<u16>(&layout, 0).unwrap(), [0, 2, 3, 5]);
    Npy::open_to_write(&file.0).unwrap().write_local(&layout, 1, &[11_u16, 44]).unwrap();
    assert_eq!(input.read_local::<u16>(&columns(1), 0).unwrap(), [0, 11, 2, 3, 44, 5]);
}

#[cfg(target_endian = "little")]
#[test]
fn what_cannot_be_read_is_named_with_the_file() {
    let bytes = numbers();
    let open = |bytes: &[u8]| {
        let file = Scratch::with("wrong", bytes);
        file.told(Npy::open(&file.0))
    };
    let header = |fault: &str| format!("FILE cannot be read or written: {fault}");
    let typed = |descr: &str| open(&replaced(&bytes, "<f8", descr));
    let known = "which is none of u1, u2, u4, u8, i1, i2, i4, i8, f4, f8, c8, c16";
    for (told, expected) in [
        (open(b""), header("the header ends after 0 of 8 bytes")),
        (open(&bytes[..100]), header("the header ends after 100 of 128 bytes")),
        (open(b"PK\x03\x04"), header("it is no .npy file: the first bytes are not \\x93NUMPY")),
        (
            open(&replaced(&bytes, "\u{1}\0v", "\u{9}\0v")),
            header("version 9.0 of the format is not known; known are 1.0, 2.0 and 3.0"),
        ),
        (
            open(&replaced(&bytes, "{", "[")),
            header("the header is not the dict of an array: expected '{' at byte 0 of its text"),
        ),
        (open(&bytes[..175]), "FILE has 175 bytes, but its header promises 176".to_owned()),
        (
            open(&[&bytes[..], b" "].concat()),
            "FILE has 177 bytes, but its header promises 176".to_owned(),
        ),
        (typed("|b1"), format!("FILE has elements of type |b1, {known}")),
        (typed("<f2"), format!("FILE has elements of type <f2, {known}")),
        (
            typed(">f8"),
            "FILE has elements >f8, whose bytes are in another order than this machine's <f8"
                .to_owned(),
        ),
    ] {
        assert_eq!(told, expected);
    }
    let none = Scratch::file("none");
    let told = none.told(Npy::open(&none.0));
    assert!(told.starts_with("could not open FILE: No such file"), "{told}");
    // The header's text may be longer than the first read.
    let padded = [&b"\x93NUMPY\x02\0"[..], &20_000_u32.to_le_bytes(), &bytes[10..127]].concat();
    let padded = [padded, vec![b' '; 20_000 - 117], bytes[128..].to_vec()].concat();
    let file = Scratch::with("padded", &padded);
    let read = Npy::open(&file.0).unwrap().read_local::<f64>(&columns(3), 2).unwrap();
    assert_eq!(read, [2., 5.]);
}

#[cfg(target_endian = "little")]
#[test]
fn what_does_not_fit_the_file_is_named_with_the_file() {
    let file = Scratch::with("fits", &numbers());
    let mut input = Npy::open(&file.0).unwrap();
    let layout = columns(2);
    let told = file.told(input.read_local::<[f32; 2]>(&layout, 0));
    assert_eq!(told, "FILE has elements of f64, not of complex f32");
    let told = file.told(input.write_local(&layout, 0, &[1_u64; 4]));
    assert_eq!(told, "FILE has elements of f64, not of u64");
    let told = file.told(input.write_local(&layout, 0, &[1.0; 3]));
    assert_eq!(told, "3 elements for FILE: rank 0 of the layout stores 4");
    let told = file.told(input.write_local(&layout, 0, &[1.0; 4]));
    assert!(told.starts_with("could not write FILE: "), "{told}");
    let turned = layout.permuted(&[1, 0]).unwrap();
    let told = file.told(input.read_local::<f64>(&turned, 0));
    assert_eq!(told, "FILE has an array of [2, 3], the layout one of [3, 2]");
    fs::write(&file.0, &numbers()[..150]).unwrap();
    let told = file.told(input.read_local::<f64>(&columns(1), 0));
    assert!(told.starts_with("could not read FILE: "), "{told}");
    let told = file.told(Npy::create::<f64>(&file.0, &[usize::MAX, 2]));
    assert_eq!(
        told,
        "FILE cannot be read or written: the shape has more elements than can be counted"
    );
}

#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
#[test]
fn a_part_for_which_there_is_no_memory_is_an_error() {
    let file = Scratch::with("large", &numbers());
    let mut input = Npy::open(&file.0).unwrap();
    let layout = Layout::builder(&[2, 3]).block(2).whole().build().unwrap();
    // More than there are addresses.
    let layout = layout.margins(&[0, 1 << 50]).unwrap();
    let told = file.told(input.read_local::<f64>(&layout, 1));
    assert_eq!(
        told,
        "there is no memory of 18014398509482008 bytes for the part of FILE that rank 1 of the layout stores"
    );
}

#[test]
fn an_array_without_elements_is_read_and_written() {
    let file = Scratch::file("empty");
    let layout = Layout::builder(&[3, 0]).block(2).whole().build().unwrap();
    Npy::create::<f64>(&file.0, &[3, 0]).unwrap().write_local::<f64>(&layout, 0, &[]).unwrap();
    let mut input = Npy::open(&file.0).unwrap();
    assert_eq!(input.shape(), [3, 0]);
    assert_eq!(input.read_local::<f64>(&layout, 1).unwrap(), [0.0; 0]);
}

#[test]
fn of_replicas_the_first_writes_and_margins_stay_out() {
    let file = Scratch::file("replicas");
    let layout = Layout::builder(&[3, 4]).replicated(2).block(2).build().unwrap();
    let mut output = Npy::create::<u8>(&file.0, &[3, 4]).unwrap();
    for rank in 0..4 {
        output.write_local(&layout, rank, &[rank as u8 + 1; 6]).unwrap();
    }
    let elements = |file: &Scratch| fs::read(&file.0).unwrap()[128..].to_vec();
    assert_eq!(elements(&file), [1, 1, 2, 2].repeat(3));

    let wide = Layout::builder(&[3, 4]).whole().block(2).build().unwrap().margin(1).unwrap();
    assert_eq!(wide.local_shape(0), [5, 4]);
    let mut input = Npy::open_to_write(&file.0).unwrap();
    let expected = [[0; 4], [0, 2, 2, 0], [0, 2, 2, 0], [0, 2, 2, 0], [0; 4]].concat();
    assert_eq!(input.read_local::<u8>(&wide, 1).unwrap(), expected);
    input.write_local(&wide, 0, &[9_u8; 20]).unwrap();
    assert_eq!(elements(&file), [9, 9, 2, 2].repeat(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_all_ranks_write_is_the_array(
        shape in prop::collection::vec(0..12_usize, 1..4),
        kinds in prop::collection::vec((0..3_usize, 1..4_usize, 1..4_usize), 3),
        turned: bool,
        seed: u32,
    ) {
        let mut builder = Layout::builder(&shape);
        for &(kind, ranks, k) in &kinds[..shape.len()] {
            builder = match kind {
                0 => builder.replicated(ranks),
                1 => builder.block(ranks),
                _ => builder.cyclic(k, ranks),
            };
        }
        let mut layout = builder.build().unwrap();
        if turned {
            let axes: Vec<usize> = (0..shape.len()).rev().collect();
            layout = layout.permuted(&axes).unwrap();
        }
        let shape = layout.shape();
        let whole = shape.iter().fold(Layout::builder(&shape), |it, _| it.whole()).build().unwrap();
        let all: Vec<u32> = (0..whole.local_len(0) as u32).map(|it| it.wrapping_mul(seed | 1)).collect();
        let files = ["all", "parts"].map(|name| Scratch::file(&format!("{name}-{seed}")));
        Npy::create::<u32>(&files[0].0, &shape).unwrap().write_local(&whole, 0, &all).unwrap();
        let mut input = Npy::open(&files[0].0).unwrap();
        let mut output = Npy::create::<u32>(&files[1].0, &shape).unwrap();
        for rank in 0..layout.ranks() {
            let part = input.read_local::<u32>(&layout, rank).unwrap();
            for (offset, element) in part.iter().enumerate() {
                let index = layout.global(rank, offset).unwrap();
                prop_assert_eq!(*element, all[whole.local(0, &index).unwrap()]);
            }
            output.write_local(&layout, rank, &part).unwrap();
        }
        prop_assert_eq!(fs::read(&files[0].0).unwrap(), fs::read(&files[1].0).unwrap());
    }
}
