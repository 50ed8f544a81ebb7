//! The texts of errors, as they stand in a file.

use chunkcomm::error::WatchError;
use chunkcomm::proto::codec::{DecodeError, EncodeError};
use chunkcomm::proto::credential::SeedTextError;
use chunkcomm::{AcceptError, ConnectError, LinkError, NodeError, OpenError, with_causes};
use chunkcomm_array::{ArrayError, LayoutError, NpyError, NpyHeaderError};
use chunkcomm_cluster::cluster::NameError;
use chunkcomm_cluster::launch::LaunchError;
use chunkcomm_group::{DeltaFault, DeltaRecvError, GroupError, PartError};
use chunkcomm_simulation::WorldError;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::{Display, Write};
use std::io;
use std::path::Path;

/// Set to write the file anew instead of comparing with it.
const UPDATE_VARIABLE: &str = "UPDATE_ERROR_TEXTS";

/// Texts in the order in which they were added.
#[derive(Default)]
pub(super) struct Texts {
    text: String,
    part: &'static str,
    labels: BTreeSet<(&'static str, String)>,
}

impl Texts {
    /// Begins the errors of a crate.
    pub(super) fn part(&mut self, part: &'static str) {
        self.part = part;
        write!(self.text, "= {part} =\n\n").unwrap();
    }

    /// Adds an error: its message, its `{:?}` where that is more, and its sources with their types.
    pub(super) fn error(&mut self, label: &str, error: &dyn Error) {
        self.words(label, error);
        assert_eq!(format!("{error:?}"), with_causes(error));
        self.text.pop();
        let (mut message, mut source) = (error.to_string(), error.source());
        if source.is_some() {
            writeln!(self.text, "  {{:?}} {error:?}").unwrap();
        }
        while let Some(error) = source {
            assert!(!message.contains(&error.to_string()), "{message:?} has its cause {error}");
            message = error.to_string();
            writeln!(self.text, "  source {}: {error}", type_of(error)).unwrap();
            source = error.source();
        }
        self.text.push('\n');
    }

    /// Adds the message of what an error is made of.
    pub(super) fn words(&mut self, label: &str, words: &(impl Display + ?Sized)) {
        let label = label.split(['(', '{']).next().unwrap().trim();
        assert!(label.contains(char::is_uppercase), "{label} names no error");
        self.labels.insert((self.part, label.to_owned()));
        write!(self.text, "{label}\n  {{}}   {words}\n\n").unwrap();
    }

    /// Whether the part has this type or variant.
    pub(super) fn has(&self, part: &str, label: &str) -> bool {
        let is = |(of, has): &(&str, String)| *of == part && has.split(' ').next() == Some(label);
        self.labels.iter().any(is)
    }

    /// Compares with the file of this name in this package.
    pub(super) fn compare(&self, file: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        if std::env::var_os(UPDATE_VARIABLE).is_some() {
            return std::fs::write(file, &self.text).unwrap();
        }
        let is = std::fs::read_to_string(&file).unwrap();
        for (line, (is, becomes)) in is.lines().zip(self.text.lines()).enumerate() {
            let place = format!("{}:{}", file.display(), line + 1);
            assert_eq!(is, becomes, "{place} ({UPDATE_VARIABLE}=1 writes the file anew)");
        }
        assert_eq!(is, self.text, "{UPDATE_VARIABLE}=1 writes {} anew", file.display());
    }
}

/// Returns the name of a source's type, by which users look for it.
fn type_of(error: &(dyn Error + 'static)) -> &'static str {
    macro_rules! first_of {
        ($($type:ty),+ $(,)?) => {
            $(if error.is::<$type>() { return stringify!($type); })+
        };
    }
    first_of!(
        io::Error,
        EncodeError,
        DecodeError,
        SeedTextError,
        NodeError,
        LinkError,
        ConnectError,
        OpenError,
        AcceptError,
        LaunchError,
        DeltaFault,
        DeltaRecvError,
        PartError,
        GroupError,
        LayoutError,
        NpyError,
        NpyHeaderError,
        ArrayError,
        NameError,
        WorldError,
        WatchError,
    );
    panic!("a source of another type: {error}")
}

/// Adds errors, each by the name of its variant, which stands behind a call that makes it.
macro_rules! errors {
    ($texts:expr, $($error:expr $(=> $label:path)?),+ $(,)?) => {
        $($texts.error(label!($error $(=> $label)?), &$error);)+
    };
}

/// Adds messages, as `errors!` does.
macro_rules! words {
    ($texts:expr, $($words:expr $(=> $label:path)?),+ $(,)?) => {
        $($texts.words(label!($words $(=> $label)?), &$words);)+
    };
}

macro_rules! label {
    ($error:expr => $label:path) => {
        stringify!($label)
    };
    ($error:expr) => {
        stringify!($error)
    };
}

pub(super) use {errors, label, words};
