//! Floor 1, pure: state machines and formats. Bytes, time and calls go in;
//! bytes, deadlines and events come out. Nothing here knows a socket, a task,
//! a lock or a clock, which a test below holds it to.
//!
//! Reading order: [`packet`] (what is on the wire), [`message`] (messages in a
//! run), [`flush`] (when a packet leaves), [`outbox`] (what goes in it),
//! [`credit`] (how much may be sent), [`session`] (what was acknowledged, and is
//! kept until then), [`liveness`] (is the peer there), [`link`] (one peer's whole
//! machine); [`hello`], [`credential`] and [`resume`] come before all of them,
//! [`codec`] and [`describe`] stand beside.

pub mod attempts;
pub mod backoff;
pub mod codec;
pub mod credential;
pub mod credit;
pub mod describe;
pub mod fair;
pub mod flush;
pub mod hello;
pub mod ids;
pub mod limits;
pub mod link;
pub mod liveness;
pub mod message;
pub mod outbox;
pub mod packet;
mod planted;
pub mod resume;
pub mod session;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
pub mod spares;

/// A point in time in nanoseconds since an epoch that the driver chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub u64);

impl Time {
    /// This point and `duration` later, at most the end of time.
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }

    /// Microseconds from `earlier` to this point; 0 when `earlier` is later.
    #[must_use]
    pub fn micros_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
}

#[cfg(test)]
mod tests {
    /// The floor is pure: its sources name nothing that waits, locks or asks
    /// for the time.
    #[test]
    fn proto_names_no_socket_task_lock_or_clock() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proto");
        // Split so that this very file does not contain the words.
        let forbidden = [
            concat!("tok", "io"),
            concat!("std::", "net::Tcp"),
            concat!("Instant::", "now"),
            concat!("System", "Time"),
            concat!("std::", "thread"),
            concat!("Mut", "ex"),
            concat!("Rw", "Lock"),
            concat!("async ", "fn"),
            concat!("std::", "fs"),
        ];
        let mut read = 0;
        let mut folders = vec![folder.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                read += 1;
                // This file and tests may read folders and name threads.
                let test = path
                    == std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proto/mod.rs");
                if test || path.ends_with("tests.rs") {
                    continue;
                }
                for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                    for word in forbidden {
                        assert!(!line.contains(word), "{}: {word} in {line:?}", path.display());
                    }
                }
            }
        }
        assert!(read >= 10, "only {read} files found under {}", folder.display());
    }
}
