use proptest::prelude::*;

use super::*;

/// A file of NumPy 2.4, written by `numpy.lib.format.write_array`: version, text, spaces, and elements.
struct Written {
    version: [u8; 2],
    length: &'static [u8],
    text: &'static str,
    spaces: usize,
    header: (&'static str, bool, &'static [usize]),
}

const WRITTEN: [Written; 9] = [
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }",
        spaces: 58,
        header: ("<f8", false, &[2, 3]),
    },
    Written {
        version: [2, 0],
        length: b"t\0\0\0",
        text: "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }",
        spaces: 58,
        header: ("<i2", false, &[3]),
    },
    Written {
        version: [3, 0],
        length: b"t\0\0\0",
        text: "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }",
        spaces: 58,
        header: ("<i2", false, &[3]),
    },
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3), }",
        spaces: 59,
        header: ("<u2", true, &[2, 3]),
    },
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }",
        spaces: 60,
        header: (">i4", false, &[2]),
    },
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }",
        spaces: 60,
        header: ("|u1", false, &[3]),
    },
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': [('a', '<f4'), ('b', '<i2', (2,))], 'fortran_order': False, 'shape': (1,), }",
        spaces: 31,
        header: ("[('a', '<f4'), ('b', '<i2', (2,))]", false, &[1]),
    },
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': '<f8', 'fortran_order': False, 'shape': (), }",
        spaces: 62,
        header: ("<f8", false, &[]),
    },
    Written {
        version: [1, 0],
        length: b"v\0",
        text: "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }",
        spaces: 58,
        header: ("<f4", false, &[0, 3]),
    },
];

impl Written {
    fn bytes(&self) -> Vec<u8> {
        let text = [self.text.as_bytes(), &vec![b' '; self.spaces], b"\n"].concat();
        [&MAGIC[..], &self.version, self.length, &text].concat()
    }

    fn header(&self) -> NpyHeader {
        let (descr, fortran_order, shape) = self.header;
        NpyHeader { shape: shape.to_vec(), fortran_order, descr: descr.to_owned() }
    }
}

/// A file of version 1 with this text.
fn with_text(text: &str) -> Vec<u8> {
    let length = (text.len() as u16).to_le_bytes();
    [&MAGIC[..], &[1, 0], &length, text.as_bytes()].concat()
}

/// The dict of a vector, with these words for type, order and shape.
fn dict([descr, order, shape]: [&str; 3]) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")
}

#[test]
fn headers_of_numpy_are_read_and_written_byte_for_byte() {
    for written in &WRITTEN {
        let (bytes, header) = (written.bytes(), written.header());
        let elements = [&bytes[..], b"elements"].concat();
        assert_eq!(NpyHeader::parse(&elements), Ok((header.clone(), bytes.len())), "{header:?}");
        if written.version == [1, 0] {
            assert_eq!(header.to_bytes(), bytes, "{header:?}");
        }
        for end in 0..bytes.len() {
            let cut = NpyHeader::parse(&bytes[..end]);
            let Err(NpyHeaderError::Short { needed, found }) = cut else {
                panic!("{end}: {cut:?}")
            };
            assert!(found == end && (end + 1..=bytes.len()).contains(&needed), "{end}: {cut:?}");
        }
    }
}

#[test]
fn the_version_follows_from_the_text() {
    let header = |fields: usize, name: &str| {
        let fields: Vec<String> = (0..fields).map(|it| format!("('{name}{it}', '<f4')")).collect();
        NpyHeader {
            shape: vec![3],
            fortran_order: false,
            descr: format!("[{}]", fields.join(", ")),
        }
    };
    assert_eq!(NpyHeader::new::<f32>(&[3]).to_bytes()[6..8], [1, 0]);
    let (header, long) = (header(1, "ä"), header(5000, "name"));
    let bytes = header.to_bytes();
    assert_eq!(bytes[6..8], [3, 0]);
    assert_eq!(NpyHeader::parse(&bytes), Ok((header, bytes.len())));
    // One that NumPy too reads only when told to.
    let bytes = long.to_bytes();
    assert_eq!(bytes[6..8], [2, 0]);
    let max = HEADER_BYTES_MAX;
    assert_eq!(NpyHeader::parse(&bytes), Err(NpyHeaderError::Long { bytes: bytes.len(), max }));
}

#[test]
fn other_words_of_python_for_the_same_are_read() {
    let expected = NpyHeader { shape: vec![3], fortran_order: false, descr: "<f8".to_owned() };
    for text in [
        dict(["'<f8'", "False", "(3,)"]),
        dict(["\"<f8\"", "False", "( 3 ,\t)"]),
        "{'shape':(3L,),'fortran_order':False,'descr':'<f8'}".to_owned(),
    ] {
        let bytes = with_text(&text);
        assert_eq!(NpyHeader::parse(&bytes), Ok((expected.clone(), bytes.len())), "{text:?}");
    }
    // Latin-1.
    let mut bytes = with_text(&dict(["[('?', '<f4')]", "False", "(3,)"]));
    let letter = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[letter] = 0xE4;
    assert_eq!(NpyHeader::parse(&bytes).unwrap().0.descr, "[('ä', '<f4')]");
    bytes[6] = 3;
    bytes.splice(10..10, [0, 0]);
    let utf8 = NpyHeaderError::Dict { at: letter - 10, expected: "UTF-8" };
    assert_eq!(NpyHeader::parse(&bytes), Err(utf8));
}

#[test]
fn bytes_that_are_no_header_are_told_from_each_other() {
    let vector = with_text(&dict(["'<f8'", "False", "(3,)"]));
    let changed = |at: usize, byte| {
        let mut bytes = vector.clone();
        bytes[at] = byte;
        NpyHeader::parse(&bytes).unwrap_err()
    };
    let found = vector.len();
    assert_eq!(changed(0, b'P'), NpyHeaderError::Magic);
    assert_eq!(changed(5, 0), NpyHeaderError::Magic);
    assert_eq!(NpyHeader::parse(b"PK"), Err(NpyHeaderError::Magic));
    assert_eq!(changed(6, 4), NpyHeaderError::Version { major: 4, minor: 0 });
    assert_eq!(changed(7, 1), NpyHeaderError::Version { major: 1, minor: 1 });
    assert_eq!(changed(8, 255), NpyHeaderError::Short { needed: 10 + 255, found });
    let long = [&MAGIC[..], &[2, 0, 255, 255, 255, 255]].concat();
    let bytes = 12 + u32::MAX as usize;
    let expected = NpyHeaderError::Long { bytes, max: HEADER_BYTES_MAX };
    assert_eq!(NpyHeader::parse(&long), Err(expected));
}

#[test]
fn a_text_that_is_no_dict_of_an_array_is_refused_where_it_goes_wrong() {
    let keys = "'descr', 'fortran_order' or 'shape'";
    let order = "True or False";
    for (text, at, expected) in [
        ("", 0, "'{'"),
        ("[1]", 0, "'{'"),
        ("{", 1, keys),
        ("{'other': 1}", 1, keys),
        ("{1: 2}", 1, keys),
        ("{'descr", 2, "a quote"),
        ("{'descr' '<f8'}", 9, "':'"),
        ("{'descr': <f8}", 10, "a type"),
        ("{'descr': None}", 10, "a type"),
        ("{'descr': }", 10, "a type"),
        ("{'descr':  '[<f8]'}", 11, "a type"),
        ("{'descr': [('a'}", 16, "']' or ')'"),
        ("{'descr': ['a", 12, "a quote"),
        ("{'descr': '<f8' 'shape': ()}", 16, "',' or '}'"),
        ("{'descr': '<f8',, }", 16, keys),
        ("{'fortran_order': 0}", 18, order),
        ("{'fortran_order': 'True'}", 18, order),
        ("{'shape': 3}", 10, "'('"),
        ("{'shape': [3]}", 10, "'('"),
        ("{'shape': (3)}", 12, "','"),
        ("{'shape': (3, -1)}", 14, "a whole number"),
        ("{'shape': (3, 1.5)}", 15, "',' or ')'"),
        ("{'shape': (3 4)}", 13, "','"),
        ("{'shape': (,)}", 11, "a whole number"),
        ("{'shape': (3,", 13, "a whole number"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)} 1", 56, "the end"),
    ] {
        let refused = NpyHeader::parse(&with_text(text));
        assert_eq!(refused, Err(NpyHeaderError::Dict { at, expected }), "{text:?}");
    }
    let whole = dict(["'<f8'", "False", "(3,)"]);
    for (key, value) in [("descr", "'<f8'"), ("fortran_order", "False"), ("shape", "(3,)")] {
        let entry = format!("'{key}': {value}, ");
        assert!(whole.contains(&entry), "{entry:?}");
        let refused = NpyHeader::parse(&with_text(&whole.replace(&entry, "")));
        assert_eq!(refused, Err(NpyHeaderError::Missing { key }));
        let refused = NpyHeader::parse(&with_text(&whole.replace(&entry, &entry.repeat(2))));
        assert_eq!(refused, Err(NpyHeaderError::Twice { key }));
    }
    for shape in ["(18446744073709551616,)", "(4294967296, 4294967296)", "(9999999999, 9999999999)"]
    {
        let refused = NpyHeader::parse(&with_text(&dict(["'<f8'", "False", shape])));
        assert_eq!(refused, Err(NpyHeaderError::Elements), "{shape}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        shape in prop::collection::vec(0..500_usize, 0..8),
        fortran_order: bool,
        descr in "[<>|=][a-z][0-9]{1,2}|\\[\\('[a-zäλ\\]]{0,9}', '<f4'\\)\\]",
    ) {
        let header = NpyHeader { shape, fortran_order, descr };
        let bytes = header.to_bytes();
        prop_assert_eq!(bytes.len() % ALIGNMENT_BYTES, 0);
        prop_assert_eq!(NpyHeader::parse(&bytes), Ok((header, bytes.len())));
    }

    #[test]
    fn any_changed_bytes_are_read_or_refused(
        changes in prop::collection::vec((0..128_usize, any::<u8>()), 1..4),
        of in 0..WRITTEN.len(),
    ) {
        let mut bytes = WRITTEN[of].bytes();
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        if let Ok((header, end)) = NpyHeader::parse(&bytes) {
            let again = header.to_bytes();
            prop_assert!(end <= bytes.len());
            prop_assert_eq!(NpyHeader::parse(&again), Ok((header, again.len())));
        }
    }
}
