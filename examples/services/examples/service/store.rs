//! The collector's file of lines.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use chunkcomm::channel::Delivery;

use super::Line;

/// Lines in a file, a JSON array each, and the last one of each source.
pub(crate) struct Store {
    pub(crate) file: BufWriter<File>,
    /// Number of each source's last line, and the stream that it came by.
    pub(crate) last: HashMap<String, (u64, u128)>,
    /// Number of lines that came again.
    pub(crate) again: u64,
}

impl Store {
    pub(crate) fn open(path: &Path) -> io::Result<Store> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A collector that was killed may have left a part of a line.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let lines = bytes[..whole].split(|&byte| byte == b'\n');
        let stored = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let last = stored.map(|(source, number, _, stream, _): (_, _, String, _, u64)| {
            (source, (number, stream))
        });
        Ok(Store { last: last.collect(), file: BufWriter::new(file), again: 0 })
    }

    pub(crate) fn add(
        &mut self,
        source: &str,
        (number, text): Line,
        from: Delivery,
    ) -> io::Result<()> {
        let last = self.last.entry(source.to_owned()).or_default();
        if number <= last.0 {
            if !from.redelivered && from.stream == last.1 {
                eprintln!("service: line {number} of {source} came again undeclared");
            }
            self.again += 1;
            return Ok(());
        }
        *last = (number, from.stream);
        serde_json::to_writer(&mut self.file, &(source, number, text, from.stream, from.number))?;
        self.file.write_all(b"\n")
    }
}
