//! Settings of tracked buffers, and the names of the engines.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Means to learn the pages that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendEngine {
    /// `wp-async`: the kernel notes writes by itself, and a scan every 100 us returns the noted pages and
    /// protects them again. A fault costs the least. Linux 6.7.
    ///
    /// A scan cannot order writes within 100 us. The tracker assumes code that begins anywhere, and goes up or
    /// down from there. Of code that jumps to and fro, or that goes down with a single
    /// [open increment](Tracking::open_increments), an increment may be sent while it is written: take
    /// [`Wp`](Self::Wp) for it with strict settings.
    WpAsync,
    /// `wp`: a write to a protected page stops its thread until the tracker has allowed it
    /// (`userfaultfd`). Linux 5.19.
    Wp,
    /// `mprotect`: a handler of SIGSEGV opens the page. Works on every Linux. The handler stays installed and
    /// passes on the faults of others; one that is installed later must pass on ours.
    ///
    /// Each border between protected and open increments is a mapping of the process. Code that writes
    /// here and there in a large buffer may reach the system's limit (`vm.max_map_count`, 65,530 unless
    /// set). Then **the process is aborted**, since a store cannot return an error. Larger increments need
    /// fewer mappings. At most 64 buffers use this engine at a time, those that are read included.
    Mprotect,
}

/// Means to let a reader wait for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecvEngine {
    /// `minor`: pages of a memory file are mapped as they come (`userfaultfd`). Linux 5.14.
    Minor,
    /// `missing`: private pages are made as they come (`userfaultfd`). Linux 4.11.
    Missing,
    /// `mprotect`: a handler of SIGSEGV waits for the page. Works on every Linux. At most 64 buffers use
    /// this engine at a time, those that are written included.
    Mprotect,
}

/// A name that is no engine's.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine {name:?}; allowed are: {allowed}")]
pub struct UnknownEngine {
    name: String,
    allowed: &'static str,
}

chunkcomm::debug_with_causes!(UnknownEngine);

macro_rules! named {
    ($engine:ident, $allowed:literal, $($variant:ident = $name:literal),+) => {
        impl $engine {
            /// All engines, the preferred first.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl fmt::Display for $engine {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $name),+ })
            }
        }

        impl FromStr for $engine {
            type Err = UnknownEngine;

            fn from_str(name: &str) -> Result<Self, UnknownEngine> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(UnknownEngine { name: name.to_owned(), allowed: $allowed }),
                }
            }
        }
    };
}

named!(
    SendEngine,
    "wp-async, wp, mprotect",
    WpAsync = "wp-async",
    Wp = "wp",
    Mprotect = "mprotect"
);
named!(
    RecvEngine,
    "minor, missing, mprotect",
    Minor = "minor",
    Missing = "missing",
    Mprotect = "mprotect"
);

/// Treatment of a page that is written again after it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rewrites {
    /// Ends the transfer with an error that names the elements. For code that writes each element once, with
    /// one thread: of several, one that does not run for a while counts as done with its increment, and fails
    /// when it goes on. A large copy is no such code: it may write one end of the buffer last.
    Strict,
    /// Hands the elements on again when they are finished again. A delta sends their last values once more
    /// when the code has returned, and its receiver learns which elements it may have seen before.
    #[default]
    Resend,
}

/// Treatment of a reader that waits in a fault for a page that does not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Writes the reason to the standard error and aborts the process, since a load cannot return an error.
    /// A load waits for the deadline only while elements may still come: after an end or an error it
    /// aborts at once.
    #[default]
    Abort,
    /// Lets the reader go on with the elements that the memory holds: zeros, or those of an earlier
    /// run. The call returns an error in the place of the closure's result. For closures whose
    /// effect is their result alone.
    Unfilled,
}

/// Pages of an increment unless set otherwise.
///
/// Source of the range from 3 to 8: "Delta Send-Recv", section 3.
pub const INCREMENT_PAGES: usize = 5;

/// Most pages of an increment: 256.
pub const INCREMENT_PAGES_MAX: usize = 256;

/// Settings of a buffer that is sent while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tracking {
    /// Engine; by default the first of [`SendEngine::ALL`] that works here.
    pub engine: Option<SendEngine>,
    /// Pages of an increment, from 1 to [`INCREMENT_PAGES_MAX`]; the default is [`INCREMENT_PAGES`].
    /// More cost latency, fewer cost a fault each. At least one element.
    pub increment_pages: usize,
    /// Increments that are still being written when another one is begun, at least 1; the default is
    /// 2. The oldest is finished when one more is begun. More allow the code to go to and fro between
    /// as many places, and delay each increment by as many.
    pub open_increments: usize,
    /// Treatment of pages that are written again after they were sent; sent again by default.
    pub rewrites: Rewrites,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            engine: None,
            increment_pages: INCREMENT_PAGES,
            open_increments: 2,
            rewrites: Rewrites::Resend,
        }
    }
}

impl Tracking {
    /// Returns the same settings with this engine, which must work here.
    #[must_use]
    pub fn with_engine(self, engine: SendEngine) -> Self {
        Self { engine: Some(engine), ..self }
    }

    /// Returns the same settings with increments of `pages` pages.
    #[must_use]
    pub fn with_increment_pages(self, pages: usize) -> Self {
        Self { increment_pages: pages.clamp(1, INCREMENT_PAGES_MAX), ..self }
    }

    /// Returns the same settings with `count` increments being written at a time.
    #[must_use]
    pub fn with_open_increments(self, count: usize) -> Self {
        Self { open_increments: count.max(1), ..self }
    }

    /// Returns the same settings with this treatment of pages that are written again.
    #[must_use]
    pub fn with_rewrites(self, rewrites: Rewrites) -> Self {
        Self { rewrites, ..self }
    }
}

/// Settings of a buffer that is read while it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Awaiting {
    /// Engine; by default the first of [`RecvEngine::ALL`] that works here.
    pub engine: Option<RecvEngine>,
    /// Time that a read waits for one page; the default is 30 s.
    pub deadline: Duration,
    /// Treatment of a read whose page does not come; the process is aborted by default.
    pub missing: Missing,
}

impl Default for Awaiting {
    fn default() -> Self {
        Self { engine: None, deadline: Duration::from_secs(30), missing: Missing::Abort }
    }
}

impl Awaiting {
    /// Returns the same settings with this engine, which must work here.
    #[must_use]
    pub fn with_engine(self, engine: RecvEngine) -> Self {
        Self { engine: Some(engine), ..self }
    }

    /// Returns the same settings with this deadline of a read.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the same settings with this treatment of a read whose page does not come.
    #[must_use]
    pub fn with_missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }
}
