//! The first bytes of a connection.

use chunkcomm::proto::hello::{HELLO_BYTES, Hello, Name};

/// What is read as a hello is written and read back as the same, and agrees with itself.
pub fn run(data: &[u8]) {
    let mut bytes = [0; HELLO_BYTES];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    if let Ok(hello) = Hello::decode(&bytes) {
        assert!(Hello::may_start_with(&bytes));
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        assert!(Hello::agree(&hello, &hello).is_ok());
    }
}

/// One hello.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let names = (Name::truncated("cluster"), Name::truncated("node"));
    let hello = Hello { packet_bytes_max: 65_536, ..Hello::new(names.0, names.1, 7) };
    vec![hello.encode().to_vec()]
}
