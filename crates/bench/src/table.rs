//! Rows: one JSON object each, or for people an aligned table with units.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::failure::STATUS_FAILED;
use crate::harness::machine;

/// One result: keys in the order they were set.
#[derive(Debug, Clone, Default)]
pub struct Row {
    entries: Vec<(&'static str, Value)>,
}

impl Row {
    /// Sets a key. NaN, an infinite figure and `None` become null.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.entries.iter_mut().find(|(known, _)| *known == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key, value)),
        }
        self
    }

    /// Returns the value of a key that was set.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Sets all keys of another row.
    pub fn append(&mut self, other: &Self) -> &mut Self {
        for (key, value) in &other.entries {
            self.set(key, value.clone());
        }
        self
    }

    /// Prints the row on standard output, in the form asked for.
    pub fn print(&self, json: bool) {
        if json {
            write_out(&format!("{}\n", self.to_json()));
        } else {
            write_out(&self.to_lines());
        }
    }

    /// Returns one line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("keys are strings and values are JSON")
    }

    /// Returns a line a key, aligned, with units; nulls are left out.
    pub fn to_lines(&self) -> String {
        let shown = || self.entries.iter().filter(|(_, value)| !value.is_null());
        let width = shown().map(|(key, _)| key.len()).max().unwrap_or(0);
        let mut lines = String::new();
        for (key, value) in shown() {
            // Writing into a string does not fail.
            let _ = writeln!(lines, "{key:width$}  {}", with_unit(key, value));
        }
        lines
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.entries.len()))?;
        for (key, value) in &self.entries {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Writes to standard output, at once. If no reader is left, or writing fails, the program ends as
/// after any other failure, where `println!` would panic.
pub fn write_out(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        eprintln!("{}: writing to standard output: {error}", machine::program_name());
        std::process::exit(i32::from(STATUS_FAILED));
    }
}

/// Returns a value as people read it; the end of the key names the unit.
fn with_unit(key: &str, value: &Value) -> String {
    let Some(number) = value.as_f64() else {
        return match value {
            Value::String(text) => text.clone(),
            Value::Object(parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|(name, part)| format!("{name} {part}")).collect();
                parts.join(", ")
            }
            other => other.to_string(),
        };
    };
    if key.ends_with("bytes_per_second") {
        scaled(number, "B/s")
    } else if key.ends_with("per_second") {
        scaled(number, "/s")
    } else if key.ends_with("seconds") {
        format!("{} s", significant(number))
    } else if key.ends_with("_us") || key.contains("_us_per_") {
        format!("{} us", significant(number))
    } else if key.ends_with("bytes") || key.starts_with("bytes") {
        format!("{number} B")
    } else {
        significant(number)
    }
}

/// Returns a number with a decimal prefix, as rates are given.
fn scaled(number: f64, unit: &str) -> String {
    let (divisor, prefix) = match number.abs() {
        n if n >= 1e9 => (1e9, "G"),
        n if n >= 1e6 => (1e6, "M"),
        n if n >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", significant(number / divisor))
}

/// Returns a number with four significant digits; whole numbers as they are.
pub fn significant(number: f64) -> String {
    if number == number.trunc() && number.abs() < 1e15 {
        return format!("{number}");
    }
    let digits = number.abs().log10().floor() as i32 + 1;
    format!("{number:.*}", usize::try_from(4 - digits).unwrap_or(0).min(9))
}

/// Returns lines with aligned columns, each as wide as its widest cell; the last is not padded.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A column of a table: a key of its rows, the heading with the unit, and the least width.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    key: &'static str,
    heading: &'static str,
    width: usize,
}

/// Makes a column of one key.
pub const fn column(key: &'static str, heading: &'static str, width: usize) -> Column {
    Column { key, heading, width }
}

/// Way in which a table leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A JSON object a row, with all of its keys.
    Json,
    /// A line a row, of the columns alone.
    Lines,
    /// Not yet: the table is written by somebody else, later.
    Kept,
}

impl Form {
    /// Returns JSON if it was asked for, else lines.
    pub fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Lines }
    }
}

/// Rows under columns. Each leaves at once when it is added, so that a run of minutes is seen to go on.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    form: Form,
}

impl Table {
    /// Begins a table; its heading is printed with the first row.
    pub fn new(columns: &[Column], form: Form) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), form }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        match self.form {
            Form::Json => {
                // A run into a file is seen to go on.
                eprint!("chunkperf: {}", self.line(&self.cells(&row)));
                row.print(true);
            }
            Form::Lines => {
                let heading = self.rows.is_empty().then(|| self.line(&self.headings()));
                write_out(&format!(
                    "{}{}",
                    heading.unwrap_or_default(),
                    self.line(&self.cells(&row))
                ));
            }
            Form::Kept => {}
        }
        self.rows.push(row);
    }

    /// Returns the rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the heading and all rows, aligned.
    pub fn to_lines(&self) -> String {
        let rows = self.rows.iter().map(|row| self.cells(row));
        aligned(&[self.headings()].into_iter().chain(rows).collect::<Vec<_>>())
    }

    fn headings(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.heading.to_owned()).collect()
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let cell = |column: &Column| match row.get(column.key) {
            None | Some(Value::Null) => "-".to_owned(),
            Some(Value::Bool(holds)) => if *holds { "yes" } else { "no" }.to_owned(),
            Some(Value::Number(number)) => significant(number.as_f64().unwrap_or(f64::NAN)),
            Some(value) => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        };
        self.columns.iter().map(cell).collect()
    }

    fn line(&self, cells: &[String]) -> String {
        let padded = cells.iter().zip(&self.columns).map(|(cell, column)| {
            let width = column.width.max(column.heading.len());
            format!("{cell:width$}")
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_order_and_writes_null() {
        let mut row = Row::default();
        row.set("b", 1).set("a", f64::NAN).set("c", None::<u64>).set("b", 2);
        assert_eq!(row.to_json(), r#"{"b":2,"a":null,"c":null}"#);
        assert_eq!(row.to_lines(), "b  2\n");
    }

    #[test]
    fn numbers_get_their_units() {
        let shown = |key: &str, number: f64| with_unit(key, &Value::from(number));
        assert_eq!(shown("messages_per_second", 98_765_432.0), "98.77 M/s");
        assert_eq!(shown("baseline_bytes_per_second", 6.5e9), "6.500 GB/s");
        assert_eq!(shown("p50_us", 51.234_56), "51.23 us");
        assert_eq!(shown("seconds", 0.012_345), "0.01235 s");
        assert_eq!(shown("ratio", 0.98765), "0.9877");
    }

    #[test]
    fn a_table_shows_its_columns() {
        let mut table = Table::new(&[column("a", "a, s", 3), column("b", "b", 3)], Form::Kept);
        let mut row = Row::default();
        row.set("c", 7).set("a", 0.12345).set("b", true);
        table.add(row);
        assert_eq!(table.to_lines(), "a, s    b\n0.1235  yes\n");
    }

    #[test]
    fn columns_are_aligned() {
        let lines = [vec!["a".to_owned(), "bb".to_owned()], vec!["ccc".to_owned(), "d".to_owned()]];
        assert_eq!(aligned(&lines), "a    bb\nccc  d\n");
    }
}
