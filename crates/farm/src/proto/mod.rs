//! Pure parts of a farm: bytes, times and events go in, decisions come out.
//! Nothing here knows a socket, a task, a lock or a clock.
//!
//! Reading order: [`schedule`] (who gets work), [`order`] (results into the order
//! of their tasks), [`wire`] (what farmer and worker say to each other),
//! [`depth`] (how much work a worker holds), [`placement`] (where a worker runs a
//! task).

pub(crate) mod depth;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod schedule;
pub(crate) mod wire;

#[cfg(test)]
mod tests {
    /// The floor is pure: its sources name nothing that waits, locks or asks for
    /// the time.
    #[test]
    fn proto_names_no_socket_task_lock_or_clock() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proto");
        let forbidden = [
            concat!("tok", "io"),
            concat!("std::", "net"),
            concat!("Inst", "ant"),
            concat!("System", "Time"),
            concat!("std::", "thread"),
            concat!("Mut", "ex"),
            concat!("async ", "fn"),
        ];
        let mut read = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for word in forbidden {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
            read += 1;
        }
        assert!(read >= 6, "only {read} files found under {}", folder.display());
    }
}
