//! Statements of a paper, and whether they hold for ours.

use crate::table::{Row, write_out};

/// A statement of a paper.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) text: String,
    pub(crate) holds: bool,
    /// Our figures behind the verdict.
    pub(crate) ours: String,
    /// The reason why it cannot hold with the assumed numbers.
    pub(crate) note: Option<&'static str>,
}

impl Claim {
    pub(crate) fn new(text: impl Into<String>, holds: bool, ours: String) -> Self {
        Self { text: text.into(), holds, ours, note: None }
    }

    pub(crate) fn noted(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }

    /// Prints it: as JSON added to `row`, or as a line.
    pub(crate) fn print(&self, mut row: Row, json: bool) {
        if json {
            row.set("claim", self.text.as_str())
                .set("holds", self.holds)
                .set("ours", self.ours.as_str())
                .set("note", self.note)
                .print(true);
            return;
        }
        let holds = if self.holds { "holds" } else { "DOES NOT HOLD" };
        let note = self.note.map_or_else(String::new, |note| format!("; {note}"));
        write_out(&format!("{holds}: {} (ours: {}{note})\n", self.text, self.ours));
    }
}
