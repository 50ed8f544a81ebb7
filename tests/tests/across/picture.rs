//! Pictures that the example programs write.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use png::{BitDepth, ColorType, Decoder};

use super::example::Example;

/// A path in the folder that cargo gives to integration tests.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A picture: its sides and its pixels, row by row from the top.
#[derive(PartialEq)]
pub(crate) struct Picture {
    pub(crate) sides: (u32, u32),
    pub(crate) pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn read(path: &Path) -> Picture {
        let file = BufReader::new(File::open(path).unwrap());
        let mut reader = Decoder::new(file).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((info.color_type, info.bit_depth), (ColorType::Rgb, BitDepth::Eight));
        Picture { sides: (info.width, info.height), pixels: bytes.as_chunks().0.to_vec() }
    }
}

/// Runs a program that renders into the file of this name; returns the picture and the report.
pub(crate) fn rendered(program: &Example, name: &str, options: &[&str]) -> (Picture, String) {
    let path = path(name);
    let _ = std::fs::remove_file(&path);
    let common = ["--no-progress", "--output", path.to_str().unwrap()];
    let report = program.prints(&[&common, options].concat());
    (Picture::read(&path), report)
}
