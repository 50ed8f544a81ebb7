//! Settings of a farm from a file or the environment: [`chunkcomm::settings`] reads them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::settings::{bytes_option, duration_option};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Grain, Model, Tree, VirtualWorkers, WorkersAs};

/// Settings of a farm; those that are left out have the defaults of [`FarmBuilder`](crate::FarmBuilder).
///
/// ```
/// use chunkcomm_farm::settings::FarmSettings;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = "workers = 8\ngrain = 'auto'\ntask_timeout = '2min'\n";
/// # let path = std::env::temp_dir().join(format!("farm-{}.toml", std::process::id()));
/// # std::fs::write(&path, file)?;
/// let settings: FarmSettings = chunkcomm::settings::from_file(&path)?;
/// # std::fs::remove_file(&path)?;
/// assert_eq!(settings.workers, Some(8));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FarmSettings {
    /// [`FarmBuilder::name`](crate::FarmBuilder::name).
    pub name: Option<String>,
    /// [`FarmBuilder::workers`](crate::FarmBuilder::workers).
    pub workers: Option<usize>,
    /// [`FarmBuilder::workers_as`](crate::FarmBuilder::workers_as): `process` or `thread`.
    pub workers_as: Option<WorkersAs>,
    /// [`FarmBuilder::model`](crate::FarmBuilder::model): `a`, `b` or `auto`.
    pub model: Option<Model>,
    /// [`FarmBuilder::prefetch`](crate::FarmBuilder::prefetch): a number; by default as many as pay.
    pub prefetch: Option<u32>,
    /// [`FarmBuilder::grain`](crate::FarmBuilder::grain): `auto`, or a number of tasks.
    #[serde(deserialize_with = "parsed")]
    pub grain: Option<Grain>,
    /// [`FarmBuilder::tree`](crate::FarmBuilder::tree): `auto`, `off`, `hosts`, or nodes of a group.
    #[serde(deserialize_with = "parsed")]
    pub tree: Option<Tree>,
    /// [`FarmBuilder::virtual_workers`](crate::FarmBuilder::virtual_workers): `auto`, or a number a thread.
    #[serde(deserialize_with = "parsed")]
    pub virtual_workers: Option<VirtualWorkers>,
    /// [`FarmBuilder::deaths_max`](crate::FarmBuilder::deaths_max).
    pub deaths_max: Option<u32>,
    /// [`FarmBuilder::task_timeout`](crate::FarmBuilder::task_timeout).
    #[serde(deserialize_with = "duration_option")]
    pub task_timeout: Option<Duration>,
    /// [`FarmBuilder::start_deadline`](crate::FarmBuilder::start_deadline).
    #[serde(deserialize_with = "duration_option")]
    pub start_deadline: Option<Duration>,
    /// [`FarmBuilder::walltime`](crate::FarmBuilder::walltime).
    #[serde(deserialize_with = "duration_option")]
    pub walltime: Option<Duration>,
    /// File of the [`FarmBuilder::journal`](crate::FarmBuilder::journal), which is made permanent every second.
    pub journal: Option<PathBuf>,
    /// [`Messaging::message_bytes_max`](super::Messaging::message_bytes_max).
    #[serde(deserialize_with = "bytes_option")]
    pub message_bytes_max: Option<u64>,
}

/// Reads a word or a number, as its type is written.
fn parsed<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a word or a number")]
    enum Written {
        Number(u64),
        Word(String),
    }

    let text = match Written::deserialize(from)? {
        Written::Number(number) => number.to_string(),
        Written::Word(word) => word,
    };
    text.parse().map(Some).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use chunkcomm::settings;

    use super::*;

    #[test]
    fn words_and_numbers_are_taken_and_the_rest_is_named() {
        let folder = chunkcomm_testkit::Scratch::folder("settings");
        let file = folder.join("farm.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            settings::from_file::<FarmSettings>(&file).map_err(|error| error.to_string())
        };
        let all = read("model = 'a'\nworkers_as = 'thread'\ngrain = 5\ntree = 'hosts'").unwrap();
        assert_eq!((all.model, all.workers_as), (Some(Model::A), Some(WorkersAs::Thread)));
        assert_eq!((all.grain, all.tree), (Some(Grain::Fixed(5)), Some(Tree::Hosts)));
        for (wrong, expected) in [
            ("grain = 'many'", "auto"),
            ("tree = 1", "hosts"),
            ("task_timeout = 7", "task_timeout"),
            ("worker = 7", "workers"),
            ("model = 'c'", "`a`"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("line 1") && error.contains(expected), "{wrong}: {error}");
        }
    }
}
