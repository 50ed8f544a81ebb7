//! Address and credential by which others find rank 0, and files of one user by which nodes of one
//! machine meet.

use chunkcomm::{Address, Credential};
use std::io;
use std::path::{Path, PathBuf};

/// Place of rank 0, and the credential to prove there.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Meeting {
    /// Credential that was made for this cluster alone.
    pub(in crate::cluster) credential: Option<Credential>,
    pub(in crate::cluster) addresses: Vec<Address>,
}

/// Stands for no credential.
const NONE: &str = "-";

/// Longest meeting that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 8192;

impl Meeting {
    /// Returns it as lines of text: the credential, then the addresses.
    pub(in crate::cluster) fn to_text(&self) -> String {
        let credential = self.credential.as_ref().map(Credential::reveal);
        let mut text = credential.as_deref().map_or(NONE, str::trim_end).to_owned() + "\n";
        for address in &self.addresses {
            text += &format!("{address}\n");
        }
        text
    }

    /// Reads the lines of text; `None` when they are incomplete or something else.
    pub(in crate::cluster) fn from_text(text: &str) -> Option<Meeting> {
        let (credential, addresses) = text.strip_suffix('\n')?.split_once('\n')?;
        let credential = match credential {
            NONE => None,
            line => Some(line.parse().ok()?),
        };
        let addresses = addresses.lines().map(|line| line.parse().ok());
        Some(Meeting { credential, addresses: addresses.collect::<Option<_>>()? })
    }

    /// Reads a file; `None` when it is missing or makes no sense yet.
    pub(in crate::cluster) fn read(path: &Path) -> Option<Meeting> {
        use std::io::Read as _;
        let mut text = String::new();
        let file = std::fs::File::open(path).ok()?;
        file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
        Meeting::from_text(&text)
    }

    /// Writes a file for this user alone, all at once; an older one is replaced.
    pub(in crate::cluster) fn write(&self, path: &Path) -> io::Result<()> {
        use std::io::Write as _;
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&new)?.write_all(self.to_text().as_bytes())?;
        std::fs::rename(&new, path)
    }
}

/// Folder or file of the private folder that is removed when this is dropped. Removing the last one
/// removes the private folder too.
#[derive(Debug)]
pub(in crate::cluster) struct Removed(pub(in crate::cluster) PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // A leftover is in a folder of this user alone, and the next start removes it.
        let _ = match self.0.is_dir() {
            true => std::fs::remove_dir_all(&self.0),
            false => std::fs::remove_file(&self.0),
        };
        // Fails while the folder has another entry.
        let _ = self.0.parent().map(std::fs::remove_dir);
    }
}

/// Returns the folder of this user in which nodes of one machine meet. No other user may read it.
/// `makes`: a missing folder is made.
pub(in crate::cluster) fn private_folder(makes: bool) -> Result<PathBuf, (PathBuf, io::Error)> {
    let path = std::env::temp_dir().join(format!("chunkcomm-{}", user()));
    let found = match if makes { make_private(&path) } else { check_private(&path) } {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_private(&path),
        found => found,
    };
    found.map(|()| path.clone()).map_err(|error| (path, error))
}

/// Longest path of a socket, in bytes.
const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Longest name of a socket in its folder, in bytes: a process id of 7 digits and a random number.
const SOCKET_NAME_BYTES_MAX: usize = 16;

/// Checks that the path of each socket in the folder is one that the system takes.
fn check_length(folder: &Path) -> io::Result<()> {
    let bytes = folder.as_os_str().len() + 1 + SOCKET_NAME_BYTES_MAX;
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let why = format!(
        "a socket there would have a path of {bytes} bytes, at most {SOCKET_PATH_BYTES_MAX} are \
         allowed: set TMPDIR to a folder with a shorter path"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Makes the folder of a new socket, `PID-RANDOM` within the private one.
pub(in crate::cluster) fn socket_folder() -> Result<Removed, (PathBuf, io::Error)> {
    /// Most attempts: another cluster that ends removes the private folder when that is empty.
    const ATTEMPTS: usize = 100;
    let mut tried = 0;
    loop {
        tried += 1;
        let base = private_folder(true)?;
        sweep(&base);
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| (base.clone(), io::Error::other(error)))?;
        let random = u32::from_le_bytes(random);
        let path = base.join(format!("{}-{random:08x}", std::process::id()));
        match check_length(&path).and_then(|()| make_private(&path)) {
            Ok(()) => return Ok(Removed(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && tried < ATTEMPTS => {}
            Err(error) => return Err((path, error)),
        }
    }
}

/// Name of rank 0's socket in such a folder.
pub(in crate::cluster) const MANAGER_SOCKET: &str = "manager";

/// Removes leftovers of clusters whose rank 0 was killed: nothing listens there.
#[cfg(unix)]
fn sweep(base: &Path) {
    use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let meeting = Meeting::read(&path).and_then(|it| it.addresses.into_iter().next());
        let socket = match &meeting {
            Some(Address::Unix(socket)) => socket.clone(),
            _ => path.join(MANAGER_SOCKET),
        };
        let fault = std::os::unix::net::UnixStream::connect(socket).err().map(|it| it.kind());
        let dead = match fault {
            // For a moment, a socket that was bound does not listen yet.
            Some(ConnectionRefused) => !is_made_by_the_living(&path),
            // An entry without a socket is just being made, or its maker was killed meanwhile.
            Some(NotFound | NotADirectory) => meeting.is_some() || is_old(&path),
            _ => false,
        };
        if dead {
            drop(Removed(path));
        }
    }
}

/// Whether the process that made a folder `PID-RANDOM` is still there. A process that ended has no
/// program, even if no parent has waited for it. `false` if the system does not say.
#[cfg(unix)]
fn is_made_by_the_living(path: &Path) -> bool {
    let pid = path.file_name().and_then(|name| name.to_str()?.split_once('-')?.0.parse().ok());
    pid.is_some_and(|pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok())
}

/// Whether the entry changed last before the time that it takes to make one.
#[cfg(unix)]
fn is_old(path: &Path) -> bool {
    const MADE_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);
    let changed = std::fs::metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > MADE_WITHIN))
}

#[cfg(not(unix))]
fn sweep(_base: &Path) {}

#[cfg(target_os = "linux")]
fn user() -> String {
    rustix::process::getuid().as_raw().to_string()
}

#[cfg(not(target_os = "linux"))]
fn user() -> String {
    let name = std::env::var("USER").unwrap_or_default();
    name.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect()
}

fn make_private(path: &Path) -> io::Result<()> {
    let mut folder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    folder.create(path)
}

/// Checks that no other user made the folder, to read its files.
fn check_private(path: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
    if !found.is_dir() {
        return wrong("it is no folder");
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 != 0 {
        return wrong("others than its user can read or change it: chmod 700 mends that");
    }
    #[cfg(target_os = "linux")]
    if std::os::unix::fs::MetadataExt::uid(&found) != rustix::process::getuid().as_raw() {
        return wrong("it belongs to another user");
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_killed_clusters_left_is_swept_and_nothing_else() {
        let base = chunkcomm_testkit::Scratch::new("sweep");
        let folder = |name: &str| {
            let path = base.join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let ages = |path: &Path| {
            let hour_ago = SystemTime::now() - Duration::from_secs(3600);
            File::open(path).unwrap().set_modified(hour_ago).unwrap();
        };
        let lives = folder("lives");
        let _listening = UnixListener::bind(lives.join(MANAGER_SOCKET)).unwrap();
        ages(&lives);
        let killed = folder("killed");
        drop(UnixListener::bind(killed.join(MANAGER_SOCKET)).unwrap());
        // This process has bound its socket and is about to listen.
        let bound = format!("{}-bound", std::process::id());
        drop(UnixListener::bind(folder(&bound).join(MANAGER_SOCKET)).unwrap());
        // One of a process killed before it listened, and one of a process about to listen.
        ages(&folder("empty"));
        folder("new");
        let half = base.join("job.new-7");
        std::fs::write(&half, "-\nunix:/x").unwrap();
        ages(&half);
        let meeting = Meeting { credential: None, addresses: vec![Address::Unix(killed)] };
        meeting.write(&base.join("job")).unwrap();
        sweep(&base);
        // A file may go in the second sweep, after the socket that it names.
        sweep(&base);
        let left = std::fs::read_dir(&base).unwrap().map(|it| it.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort_unstable();
        assert_eq!(left, [&*bound, "lives", "new"]);
    }
}
