//! Makes the file that the nodes of a cluster share: `chunkcomm-credential new FILE`.

use chunkcomm::Credential;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Makes and checks the credential that the nodes of a chunkcomm cluster share.

Usage: chunkcomm-credential new FILE     write a new credential to FILE (mode 0600)
       chunkcomm-credential check FILE   say whether FILE can be used by a node
       chunkcomm-credential --help

A file that exists is never written over. Copy it to every machine of the cluster,
by a way that nobody else can read, and name it to the nodes by
NodeBuilder::credential_file or the environment variable CHUNKCOMM_CREDENTIAL_FILE.
Whoever can read it can join.

Exit status: 0 done, 1 it could not be done, 2 wrong usage.
";

/// Exit status of a command line that means nothing.
const STATUS_USAGE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&OsString> = words.iter().collect();
    let is_option = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    let done = match words[..] {
        [_, file] if is_option(file) => {
            let file = file.display();
            eprintln!("chunkcomm-credential: {file}: there is no such option; a file is ./{file}");
            return ExitCode::from(STATUS_USAGE);
        }
        [command, file] if command == "new" => new(Path::new(file)),
        [command, file] if command == "check" => check(Path::new(file)),
        [option] if option == "--help" || option == "-h" || option == "help" => Ok(HELP.to_owned()),
        _ => {
            eprint!("chunkcomm-credential: allowed are new FILE and check FILE\n\n{HELP}");
            return ExitCode::from(STATUS_USAGE);
        }
    };
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("chunkcomm-credential: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn new(file: &Path) -> Result<String, chunkcomm::error::CredentialError> {
    Credential::generate()?.save(file)?;
    let file = file.display();
    Ok(format!(
        "wrote a new credential to {file}, readable by this user alone\n\
         copy it to every machine of the cluster and set CHUNKCOMM_CREDENTIAL_FILE={file} there\n"
    ))
}

fn check(file: &Path) -> Result<String, chunkcomm::error::CredentialError> {
    Credential::load(file)?;
    Ok(format!("{} holds a credential\n", file.display()))
}
