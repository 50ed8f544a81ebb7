//! [`Credential`]: the secret that the members of a cluster share.

use crate::proto::credential::{SEED_BYTES, Seed, SeedTextError};
use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Most bytes read of a credential's file, more than one has: 4 KiB.
const FILE_BYTES_MAX: u64 = 4096;

/// The secret that the members of a cluster share. A node with a credential admits only peers that
/// prove to have the same one, and its traffic with them is encrypted.
///
/// A credential is one line of text. It usually lies in a file that the program
/// `chunkcomm-credential` made and that was copied to every machine. Anybody who can read it can
/// join. To replace it, make a new file; nodes with the old one are then refused.
///
/// ```
/// use chunkcomm::Credential;
///
/// let made = Credential::generate()?;
/// let copied: Credential = made.reveal().parse()?;
/// assert_eq!(format!("{copied:?}"), "Credential(..)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Credential(Seed);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

impl Credential {
    /// Makes a new credential from the system's random numbers.
    ///
    /// # Errors
    ///
    /// [`CredentialError::Random`].
    pub fn generate() -> Result<Credential, CredentialError> {
        let mut bytes = [0; SEED_BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| CredentialError::Random(Arc::new(io::Error::other(error))))?;
        Ok(Credential(Seed::new(bytes)))
    }

    /// Reads the credential in this file.
    ///
    /// # Errors
    ///
    /// - [`CredentialError::File`]: the file cannot be read.
    /// - [`CredentialError::FileText`]: it holds something else, or is damaged.
    /// - [`CredentialError::Exposed`], on Unix: every user of the machine can read it, or its group can
    ///   change it.
    pub fn load(path: impl AsRef<Path>) -> Result<Credential, CredentialError> {
        let path = path.as_ref();
        let io = |error| CredentialError::File { path: path.to_owned(), error: Arc::new(error) };
        let file = File::open(path).map_err(io)?;
        if let Some(mode) = exposed(&file).map_err(io)? {
            return Err(CredentialError::Exposed { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(io)?;
        let text = String::from_utf8(bytes).map_err(|_| SeedTextError::Foreign);
        let seed = text.and_then(|text| Seed::from_text(&text));
        let wrong = |fault| CredentialError::FileText { path: path.to_owned(), fault };
        seed.map(Credential).map_err(wrong)
    }

    /// Writes the credential to a new file that only this user can read (mode 0600, on Unix).
    ///
    /// # Errors
    ///
    /// [`CredentialError::File`]: the file exists already, which is never overwritten, or cannot be
    /// written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CredentialError> {
        let path = path.as_ref();
        let io = |error| CredentialError::File { path: path.to_owned(), error: Arc::new(error) };
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(io)?;
        let written = file.write_all(self.reveal().as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // Half a credential would only hinder the next attempt.
            let _ = std::fs::remove_file(path);
            io(error)
        })
    }

    /// Returns the credential's line of text, which [`FromStr`] reads. Keep it from logs, command
    /// lines and other users.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.0.to_text()
    }

    /// Returns the seed from which keys are derived.
    #[cfg(feature = "tls")]
    pub(crate) fn seed(&self) -> &Seed {
        &self.0
    }
}

impl FromStr for Credential {
    type Err = CredentialError;

    /// # Errors
    /// [`CredentialError::Text`]: the text is something else, or damaged.
    fn from_str(text: &str) -> Result<Credential, CredentialError> {
        Seed::from_text(text).map(Credential).map_err(CredentialError::Text)
    }
}

/// Returns the permissions of a file that others than its user can change, or that all can read.
#[cfg(unix)]
fn exposed(file: &File) -> io::Result<Option<u32>> {
    use std::os::unix::fs::PermissionsExt;
    // A group may read the file: some systems hand secrets to a service in that way.
    const NOT_FOR_OTHERS: u32 = 0o027;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    Ok((mode & NOT_FOR_OTHERS != 0).then_some(mode))
}

#[cfg(not(unix))]
fn exposed(_file: &File) -> io::Result<Option<u32>> {
    Ok(None)
}

/// Why there is no credential.
#[derive(Clone)]
#[non_exhaustive]
pub enum CredentialError {
    /// The system gives no random numbers.
    Random(Arc<io::Error>),
    /// A text is no credential.
    Text(SeedTextError),
    /// A file cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// A file holds no credential.
    FileText {
        /// The file.
        path: PathBuf,
        /// The fault of its text.
        fault: SeedTextError,
    },
    /// Others than a file's user can read or change it.
    Exposed {
        /// The file.
        path: PathBuf,
        /// The file's permissions.
        mode: u32,
    },
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialError::Random(_) => f.write_str("the system gives no random numbers"),
            CredentialError::Text(_) => f.write_str("the text is no credential"),
            CredentialError::File { path, .. } => {
                write!(f, "credential file {} cannot be read or written", path.display())
            }
            CredentialError::FileText { path, fault } => {
                write!(f, "credential file {} cannot be used: {fault}", path.display())
            }
            CredentialError::Exposed { path, mode } => write!(
                f,
                "credential file {} is not taken: others than its user can read or change it (mode \
                 {mode:04o}): chmod 600 mends that",
                path.display()
            ),
        }
    }
}

crate::debug_with_causes!(CredentialError);

impl Error for CredentialError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CredentialError::Random(error) | CredentialError::File { error, .. } => {
                Some(error.as_ref())
            }
            CredentialError::Text(fault) => Some(fault),
            // The message has the fault.
            CredentialError::FileText { .. } | CredentialError::Exposed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_testkit::Scratch;

    #[test]
    fn what_is_saved_is_loaded_and_never_written_over() {
        let folder = Scratch::folder("saved");
        let path = folder.join("credential");
        let made = Credential::generate().unwrap();
        made.save(&path).unwrap();
        assert_eq!(Credential::load(&path).unwrap().reveal(), made.reveal());
        let again = Credential::generate().unwrap();
        assert_ne!(again.reveal(), made.reveal());
        let error = again.save(&path).unwrap_err().to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error} names no file");
        assert_eq!(Credential::load(&path).unwrap().reveal(), made.reveal());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Scratch::folder("exposed");
        let path = folder.join("credential");
        Credential::generate().unwrap().save(&path).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for (bits, allowed) in [(0o400, true), (0o640, true), (0o644, false), (0o660, false)] {
            mode(bits);
            let loaded = Credential::load(&path);
            assert_eq!(loaded.is_ok(), allowed, "{bits:o}: {loaded:?}");
        }
        let error = Credential::load(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0660") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn files_that_are_no_credential_are_told_apart() {
        let folder = Scratch::folder("apart");
        let line = Credential::generate().unwrap().reveal();
        let contents: [(&str, &[u8], &str); 4] = [
            ("foreign", b"a letter", "not a credential"),
            ("bytes", b"\xFF\xFE\x00", "not a credential"),
            ("cut", &line.as_bytes()[..50], "damaged"),
            ("endless", &[b'0'; 10_000], "not a credential"),
        ];
        for (name, bytes, part) in contents {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            #[cfg(unix)]
            {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                std::fs::set_permissions(&path, mode).unwrap();
            }
            let error = Credential::load(&path).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(part), "{error}");
        }
        let error = Credential::load(folder.join("absent")).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
    }
}
