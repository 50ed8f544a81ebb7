//! Errors of `chunkcomm-simulation`.

use super::{Texts, errors, label, said};
use chunkcomm_simulation::{Differs, LoadError, NetworkError, WorldError};

pub(super) fn all(texts: &mut Texts) {
    let no_preset = || WorldError::NoPreset { name: "moon".into() };
    let (text, reason) = ("hosts = 0".to_owned(), "at least 1".to_owned());
    let (first, second) = ("a to b".to_owned(), "b to a".to_owned());
    errors!(
        texts,
        NetworkError::NoWay,
        NetworkError::PortTaken,
        NetworkError::Broken,
        NetworkError::Finished,
        WorldError::NoPreset { name: "moon".into() },
        WorldError::File { line: 3, text, reason },
        LoadError::Unknown { name: "moon".into() },
        LoadError::Io { path: "/a/file".into(), error: said() },
        LoadError::World { path: "/a/file".into(), error: no_preset() },
        Differs { number: 7, first, second },
    );
}
