//! The example program `streamstats`, run as its user runs it.

use super::example::Example;
use chunkcomm_testkit::Scratch;

const STREAMSTATS: Example = Example { name: "streamstats" };

const WINDOW_BYTES: usize = 256 * 1024;

#[test]
fn files_of_any_length_give_the_sequential_statistics() {
    let file = Scratch::new("streamstats");
    for length in [0, 1, WINDOW_BYTES, WINDOW_BYTES + 1, 5 * WINDOW_BYTES + 77_777] {
        let bytes: Vec<u8> = (0..length).map(|index| (index * index / 7) as u8).collect();
        std::fs::write(&file, bytes).unwrap();
        let told = STREAMSTATS.prints(&[file.to_str().unwrap()]);
        assert!(told.contains(&format!("{length} bytes in windows of {WINDOW_BYTES}: ")), "{told}");
        assert!(told.contains("the same as the sequential result\n"), "{told}");
        for rank in 0..3 {
            assert!(told.contains(&format!("rank {rank}: ")), "{told}");
        }
    }
}
