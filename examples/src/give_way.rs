//! One command that starts two programs as one cluster.
//!
//! A launcher may start different programs side by side: `mpiexec -n 2 one : -n 4 other`. Without one, a program
//! starts copies of itself. Here copies give way to the other program before they join:
//!
//! ```text
//! one                      rank 0
//!  |- copy of one          rank 1
//!  |- copy of one -> other rank 2      the same process, with its environment and its open files,
//!  '- copy of one -> other rank 3      so with its place in the cluster
//! ```

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use chunkcomm_cluster::ClusterConfig;

/// Returns the path of a program beside this one.
///
/// # Errors
/// There is no such file, or the system does not say where this program is.
pub fn beside_this(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
    let file = this.with_file_name(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if file.is_file() {
        Ok(file)
    } else {
        Err(format!("{}: there is no such program", file.display()))
    }
}

/// Replaces this process by another program with these arguments if its rank is `first` or above. To be called
/// before the process joins a cluster; a process whose rank is not known yet stays.
///
/// # Errors
/// The other program cannot be started, or a variable of the launcher makes no sense.
pub fn give_way(
    config: &ClusterConfig,
    first: usize,
    program: &Path,
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<(), Box<dyn Error>> {
    let rank = config.place()?.rank();
    if rank.is_none_or(|rank| (rank as usize) < first) {
        return Ok(());
    }
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    Err(format!("{}: {}", program.display(), replaced(program, &arguments)).into())
}

/// Replaces this process; returns why it did not.
#[cfg(unix)]
fn replaced(program: &Path, arguments: &[OsString]) -> String {
    use std::os::unix::process::CommandExt as _;
    std::process::Command::new(program).args(arguments).exec().to_string()
}

#[cfg(not(unix))]
fn replaced(_program: &Path, _arguments: &[OsString]) -> String {
    "a process becomes another program on Unix only; a launcher starts both".to_owned()
}
