//! Headers of `.npy` files.

use chunkcomm_array::{NpyHeader, NpyHeaderError};

/// Writes and reads back what was read as a header; both must be the same. A header that is too short asks
/// for more bytes than there are.
pub fn run(data: &[u8]) {
    match NpyHeader::parse(data) {
        Ok((header, end)) => {
            assert!(end <= data.len());
            assert_eq!(header.elements(), header.shape.iter().product::<usize>());
            let bytes = header.to_bytes();
            match NpyHeader::parse(&bytes) {
                Ok(read) => assert_eq!(read, (header, bytes.len())),
                // One of the longest, which grows by UTF-8 and by spaces.
                Err(NpyHeaderError::Long { .. }) => assert!(bytes.len() < 2 * end + 256),
                Err(error) => panic!("{error:?}"),
            }
        }
        Err(NpyHeaderError::Short { needed, found }) => {
            assert!(found == data.len() && needed > found);
        }
        Err(_) => {}
    }
}

/// Returns headers of all versions.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let plain = NpyHeader::new::<f64>(&[12, 3]).to_bytes();
    let text = &plain[10..];
    let length = (text.len() as u32).to_le_bytes();
    let version = |major: u8| [&b"\x93NUMPY"[..], &[major, 0], &length, text].concat();
    let record = "{'descr': [('a', '<f4')], 'fortran_order': True, 'shape': (3L,), }\n";
    let record = [&b"\x93NUMPY\x01\0"[..], &[record.len() as u8, 0], record.as_bytes()].concat();
    vec![plain.clone(), version(2), version(3), record]
}
