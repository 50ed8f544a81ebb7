//! Errors of `chunkcomm-page`.

use super::{Texts, errors, label, said};
use chunkcomm::error::WatchError;
use chunkcomm_page::PageError;

pub(super) fn all(texts: &mut Texts) {
    let address = "127.0.0.1:80".parse().unwrap();
    errors!(
        texts,
        PageError::Address { given: "nowhere".to_owned() },
        PageError::BeyondLoopback { address: "0.0.0.0:80".parse().unwrap() },
        PageError::Listen { address, error: said() },
        PageError::System(said()),
        PageError::Join(WatchError::Closed),
    );
}
