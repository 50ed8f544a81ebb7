//! The example program `streamstats`, run as its user runs it.

use std::path::PathBuf;

use super::example::Example;

const STREAMSTATS: Example =
    Example { name: "streamstats", file: env!("CARGO_BIN_EXE_streamstats-program") };

const WINDOW_BYTES: usize = 256 * 1024;

/// A file that is removed at the end.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn files_of_any_length_give_the_sequential_statistics() {
    let name = format!("streamstats-{}", std::process::id());
    let file = File(std::env::temp_dir().join(name));
    for length in [0, 1, WINDOW_BYTES, WINDOW_BYTES + 1, 5 * WINDOW_BYTES + 77_777] {
        let bytes: Vec<u8> = (0..length).map(|index| (index * index / 7) as u8).collect();
        std::fs::write(&file.0, bytes).unwrap();
        let told = STREAMSTATS.prints(&[file.0.to_str().unwrap()]);
        assert!(told.contains(&format!("{length} bytes in windows of {WINDOW_BYTES}: ")), "{told}");
        assert!(told.contains("the same as the sequential result\n"), "{told}");
        for rank in 0..3 {
            assert!(told.contains(&format!("rank {rank}: ")), "{told}");
        }
    }
}
