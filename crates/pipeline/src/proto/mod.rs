//! Pure bookkeeping of a delta: what may be sent, what may be read, how big an increment is
//! best, and the bytes that both sides state at the start.
//!
//! Nothing here knows a socket, a task, a lock or a clock: lengths and costs come in as
//! arguments, ranges and bytes come out as values.

pub(crate) mod increment;
pub(crate) mod intervals;
pub(crate) mod notice;
pub(crate) mod opening;

#[cfg(test)]
mod tests {
    /// The floor is pure only while nobody imports a runtime, a socket, a clock or a lock.
    #[test]
    fn knows_no_runtime_clock_or_lock() {
        let sources = [
            include_str!("increment.rs"),
            include_str!("intervals.rs"),
            include_str!("notice.rs"),
            include_str!("opening.rs"),
        ];
        let forbidden =
            ["tokio", "std::net", "std::sync", "std::thread", "std::time", "chunkcomm::"];
        for source in sources {
            for word in forbidden {
                assert!(!source.contains(word), "a file of proto/ mentions {word}");
            }
        }
    }
}
