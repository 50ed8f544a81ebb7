//! Settings from a file of TOML, and from variables of the environment.

use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, error, fmt, fs, io};

/// Reads settings from a file of TOML.
///
/// # Errors
/// [`SettingsError`] names the file, and the line and key of a wrong value.
///
/// ```
/// use chunkcomm::settings::{self, NodeSettings};
///
/// let folder = std::env::temp_dir();
/// let file = folder.join(format!("node-{}.toml", std::process::id()));
/// std::fs::write(&file, "listen = ['127.0.0.1:0']\nconnect_deadline = '2 parsecs'\n")?;
/// let error = settings::from_file::<NodeSettings>(&file).unwrap_err();
/// assert!(error.to_string().contains("line 2"), "{error}");
/// # std::fs::remove_file(file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn from_file<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, SettingsError> {
    let place = path.as_ref();
    let unread = |source: io::Error| SettingsError::Unread {
        file: place.to_owned(),
        source: Arc::new(source),
    };
    let text = fs::read_to_string(place).map_err(unread)?;
    toml::from_str(&text).map_err(|error| wrong(place.display(), &error))
}

/// As [`from_file`]; variables of the environment that begin with `prefix` and two low lines come before the file.
///
/// `ORDERS__NODE__LISTEN` is the key `listen` in the part `node` for the prefix `ORDERS`; letters are small. A value
/// is written as in TOML (`8`, `true`, `["a", "b"]`); any other text is a string. An empty one counts as none.
///
/// # Errors
/// As [`from_file`]; with such variables, the key alone tells the place.
pub fn from_file_and_variables<T: DeserializeOwned>(
    path: impl AsRef<Path>,
    prefix: &str,
) -> Result<T, SettingsError> {
    let path = path.as_ref();
    let variables = variables(prefix)?;
    if variables.is_empty() {
        return from_file(path);
    }
    let place = format!("{} and the variables {prefix}__*", path.display());
    overlaid(from_file(path)?, variables, &place)
}

/// As [`from_file_and_variables`], from the variables alone.
///
/// # Errors
/// [`SettingsError`] names the variables and the key.
pub fn from_variables<T: DeserializeOwned>(prefix: &str) -> Result<T, SettingsError> {
    overlaid(toml::Table::new(), variables(prefix)?, &format!("the variables {prefix}__*"))
}

/// Names, without their prefix, and values.
fn variables(prefix: &str) -> Result<Vec<(String, String)>, SettingsError> {
    among(prefix, env::vars_os())
}

fn among(
    prefix: &str,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, SettingsError> {
    // One low line would take the variables of other programs.
    let begin = format!("{prefix}__");
    let mut all = Vec::new();
    for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
        let Some(name) = name.to_str() else { continue };
        let Some(key) = name.strip_prefix(&begin) else { continue };
        let value = value.into_string().map_err(|_| SettingsError::Wrong {
            place: format!("the variable {name}"),
            why: "its value is no UTF-8".to_owned(),
        })?;
        all.push((key.to_ascii_lowercase(), value));
    }
    // A whole part before the keys in it.
    all.sort();
    Ok(all)
}

fn overlaid<T: DeserializeOwned>(
    mut table: toml::Table,
    variables: Vec<(String, String)>,
    place: &str,
) -> Result<T, SettingsError> {
    for (name, text) in variables {
        let mut part = &mut table;
        let mut keys: Vec<&str> = name.split("__").collect();
        let last = keys.pop().unwrap_or_default();
        for key in keys {
            let inner = part.entry(key).or_insert_with(|| toml::Table::new().into());
            part = inner.as_table_mut().ok_or_else(|| SettingsError::Wrong {
                place: place.to_owned(),
                why: format!("{key:?} has no keys of its own, as in {name:?}"),
            })?;
        }
        let value = toml::from_str::<toml::Table>(&format!("value = {text}"));
        let value = value.ok().filter(|it| it.len() == 1).and_then(|mut it| it.remove("value"));
        part.insert(last.to_owned(), value.unwrap_or(toml::Value::String(text)));
    }
    table.try_into().map_err(|error| wrong(place, &error))
}

fn wrong(place: impl fmt::Display, error: &toml::de::Error) -> SettingsError {
    let why = error.to_string().trim_end().to_owned();
    SettingsError::Wrong { place: place.to_string(), why }
}

/// Why there are no settings.
#[derive(Clone)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    Unread {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// It is no TOML, or a key is unknown, missing or has a wrong value.
    Wrong {
        /// The file, or the variables.
        place: String,
        /// Line and key as far as they are known, and what is allowed.
        why: String,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingsError::Unread { file, .. } => {
                write!(f, "the settings in {} cannot be read", file.display())
            }
            SettingsError::Wrong { place, why } => write!(f, "settings in {place}: {why}"),
        }
    }
}

crate::debug_with_causes!(SettingsError);

impl error::Error for SettingsError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            SettingsError::Unread { source, .. } => Some(source.as_ref()),
            SettingsError::Wrong { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::NodeSettings;
    use std::time::Duration;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Service {
        node: NodeSettings,
        shards: u32,
    }

    fn read(file: &str, variables: &[(&str, &str)]) -> Result<Service, SettingsError> {
        let all = variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        overlaid(toml::from_str(file).unwrap(), all.collect(), "here")
    }

    #[test]
    fn variables_come_before_the_file() {
        let file = "shards = 2\nnode.name = 'a'\nnode.limits.message_bytes_max = '1MiB'";
        let variables = [("shards", "8"), ("node__name", "b"), ("node__limits__sessions_max", "3")];
        let service = read(file, &variables).unwrap();
        assert_eq!((service.shards, service.node.name.as_deref()), (8, Some("b")));
        let limits = service.node.limits;
        assert_eq!((limits.message_bytes_max, limits.sessions_max), (Some(1 << 20), Some(3)));
        let lists = read("shards = 1\n[node]", &[("node__listen", "['127.0.0.1:1', 'memory:x']")]);
        assert_eq!(lists.unwrap().node.listen.len(), 2);
        let quoted = read("shards = 1\n[node]", &[("node__name", "'5'"), ("node__quiet", "true")]);
        assert_eq!(quoted.unwrap().node.name.as_deref(), Some("5"));
    }

    #[test]
    fn errors_name_key_and_place() {
        let wrong = |variables: &[(&str, &str)]| {
            read("shards = 1\n[node]", variables).unwrap_err().to_string()
        };
        let error = wrong(&[("node__connect_deadline", "2 parsecs")]);
        assert!(error.contains("here") && error.contains("2 parsecs"), "{error}");
        assert!(error.contains("connect_deadline") && error.contains("1.5s"), "{error}");
        assert!(wrong(&[("node__nam", "x")]).contains("nam"));
        assert!(wrong(&[("shards__x", "1")]).contains("shards"));
        let error = toml::from_str::<NodeSettings>("name = 'a'\nlimits = { sessions = 1 }");
        let error = wrong_text(&error.unwrap_err());
        assert!(error.contains("line 2") && error.contains("sessions_max"), "{error}");
        let error = from_file::<NodeSettings>("/nowhere/node.toml").unwrap_err();
        assert!(error.to_string().contains("/nowhere/node.toml"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt as _;
        let bad = OsString::from_vec(vec![0xff]);
        let all = [("KV__A".into(), "1".into()), ("KV_B".into(), bad.clone())];
        assert_eq!(among("KV", all.into_iter()).unwrap(), [("a".to_owned(), "1".to_owned())]);
        let error = among("KV", [("KV__B".into(), bad)].into_iter()).unwrap_err();
        assert_eq!(error.to_string(), "settings in the variable KV__B: its value is no UTF-8");
    }

    fn wrong_text(error: &toml::de::Error) -> String {
        wrong("node.toml", error).to_string()
    }

    #[test]
    fn durations_are_those_of_the_file() {
        let settings: NodeSettings =
            toml::from_str("age_bound = '2ms'\nsilence = { dead = '1min' }").unwrap();
        assert_eq!(settings.age_bound, Some(Duration::from_millis(2)));
        assert_eq!(settings.silence.dead, Some(Duration::from_secs(60)));
    }
}
