//! Addresses as text.

use chunkcomm::Address;

/// Writes and reads back what was read as an address; both must be the same.
pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address), "{text:?}");
    }
}

/// Returns an address of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    ["tcp://host:1", "127.0.0.1:80", "[fe80::1%2]:65535", "unix:/path", "memory:name"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}
