//! A report of what layers do, as typed values: for a page, a terminal or a program that watches a node.
//!
//! [`Explanation`](crate::explain::Explanation) is text for people who ask why something does not go on. A [`Report`]
//! is for those who look at it all the time. Calls, groups, arrays, farms and your own layers fill it
//! ([`layer`](crate::layer)), and a viewer shows it without knowing any of them.
//!
//! ```text
//!   Report ── sections ── facts      a name and a Cell
//!                     ├── tables     columns, rows of Cells
//!                     └── timeline   lanes, spans
//! ```
//!
//! A report is made when [`Node::report`](crate::Node::report) is called, and costs nothing before. It is bounded: the
//! constants here are its limits, and what has no room is counted (`left_out`). Its types can be sent.

use crate::proto::plain::cut;
use serde::{Deserialize, Serialize};

/// Version of the form of reports. A viewer shows another version as far as it understands it.
pub const VERSION: u16 = 1;

/// Most sections of a report: 64.
pub const SECTIONS_MAX: usize = 64;

/// Most facts, and most tables, of a section: 32.
pub const PARTS_MAX: usize = 32;

/// Most columns of a table: 16.
pub const COLUMNS_MAX: usize = 16;

/// Most rows of a table, and most lanes of a timeline: 1,024.
pub const ROWS_MAX: usize = 1024;

/// Most spans of a timeline: 4,096.
pub const SPANS_MAX: usize = 4096;

/// Most lines of a lane of a timeline: 1,024.
pub const LINES_MAX: u32 = 1024;

/// Most bytes of a text: 200.
pub const TEXT_BYTES_MAX: usize = 200;

/// Most bytes of a report of a peer, whose limits above multiply: 64 KiB. Texts count with their bytes, and each section,
/// fact, table, column, row, cell and lane with 16 more, each span with its size in memory.
pub const REPORT_BYTES_MAX: usize = 64 << 10;

/// Highest rate a second that is taken for one: 10^18.
pub const RATE_MAX: f64 = 1e18;

/// Bytes of a thing beside its texts.
const THING_BYTES: usize = 16;

/// The work of the layers of a node at one moment. Made by [`Node::report`](crate::Node::report).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The [`VERSION`] of the node that made it.
    pub version: u16,
    /// The sections.
    pub sections: Vec<Section>,
    /// Number of sections without room.
    pub left_out: u64,
}

impl Default for Report {
    fn default() -> Report {
        Report { version: VERSION, sections: Vec::new(), left_out: 0 }
    }
}

/// A part of a report, about one thing: a farm, a group, the calls of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Section {
    /// The kind of the thing, as a word for people.
    pub kind: String,
    /// Its name; may be empty.
    pub name: String,
    /// Values of the thing as a whole.
    pub facts: Vec<Fact>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its timeline, if it has one.
    pub timeline: Option<Timeline>,
    /// Number of facts and tables without room.
    pub left_out: u64,
}

/// A value with its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fact {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Cell,
}

/// Rows of values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Table {
    /// Name of the table.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Number of rows without room.
    pub left_out: u64,
}

/// Spans of work by lane, until now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timeline {
    /// Names of the lanes.
    pub lanes: Vec<String>,
    /// The spans, in no order.
    pub spans: Vec<Span>,
    /// The present moment, in microseconds since the timeline's begin.
    pub now_us: u64,
    /// Number of lanes and spans without room.
    pub left_out: u64,
}

/// A span of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Span {
    /// Index of the lane.
    pub lane: u32,
    /// Line within the lane, from 0; spans of one line do not overlap.
    pub line: u32,
    /// Begin, in microseconds since the timeline's begin.
    pub begin_us: u64,
    /// End, in the same unit.
    pub end_us: u64,
    /// Number of the first thing in the span: spans of one number have one colour.
    pub first: u64,
    /// Number of things in the span.
    pub count: u64,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Cell {
    /// No value, or none that is known.
    Nothing,
    /// A text, at most [`TEXT_BYTES_MAX`] bytes. A peer may have chosen it.
    Text(String),
    /// A number of things.
    Count(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A number of things a second, from 0 to [`RATE_MAX`]; any other becomes [`Cell::Nothing`].
    Rate(f64),
    /// A duration in microseconds.
    Micros(u64),
    /// A part of a whole, from 0 to 1.
    Share(f64),
    /// A state, and its name for people.
    State(State, String),
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum State {
    /// It rests, and could go on.
    Idle,
    /// It goes on.
    Busy,
    /// It waits for something.
    Waits,
    /// Something is wrong with it.
    Trouble,
    /// It is gone.
    Gone,
}

impl Report {
    /// Adds a section, or counts it if there is no room.
    pub fn add(&mut self, section: Section) {
        push(&mut self.sections, section, SECTIONS_MAX, &mut self.left_out);
    }

    /// Cuts a report of a peer to the limits, all of it to [`REPORT_BYTES_MAX`]. The sections and facts have the first
    /// claim to the room, then tables, then the latest spans. The rest is counted.
    #[must_use]
    pub fn bounded(self) -> Report {
        let mut room = Room(REPORT_BYTES_MAX);
        let mut report =
            Report { version: self.version, left_out: self.left_out, ..Report::default() };
        let (mut tables, mut timelines) = (Vec::new(), Vec::new());
        for section in self.sections {
            let mut kept = Section::new(&section.kind, &section.name);
            if report.sections.len() >= SECTIONS_MAX || !room.takes([&kept.kind, &kept.name]) {
                add_one(&mut report.left_out);
                continue;
            }
            kept.left_out = section.left_out;
            section.facts.into_iter().for_each(|fact| kept.bounded_fact(fact, &mut room));
            report.sections.push(kept);
            tables.push(section.tables);
            timelines.push(section.timeline);
        }
        for (kept, tables) in report.sections.iter_mut().zip(tables) {
            tables.into_iter().for_each(|table| kept.bounded_table(table, &mut room));
        }
        for (kept, timeline) in report.sections.iter_mut().zip(timelines) {
            kept.timeline = timeline.map(|timeline| timeline.bounded(&mut room));
        }
        report
    }
}

/// Bytes that are left for a report.
struct Room(usize);

impl Room {
    /// Takes a thing with these texts, if there is room.
    fn takes<'a>(&mut self, texts: impl IntoIterator<Item = &'a String>) -> bool {
        self.takes_bytes(texts.into_iter().fold(THING_BYTES, |bytes, text| bytes + text.len()))
    }

    fn takes_bytes(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

impl Section {
    /// Makes a section of this kind, as a word for people, about the thing of this name.
    #[must_use]
    pub fn new(kind: &str, name: &str) -> Section {
        Section { kind: short(kind), name: short(name), ..Section::default() }
    }

    /// Adds a value, or counts it if there is no room.
    #[must_use]
    pub fn fact(mut self, name: &str, value: Cell) -> Section {
        let fact = Fact { name: short(name), value: value.bounded() };
        push(&mut self.facts, fact, PARTS_MAX, &mut self.left_out);
        self
    }

    /// Adds a table, or counts it if there is no room.
    #[must_use]
    pub fn table(mut self, table: Table) -> Section {
        push(&mut self.tables, table, PARTS_MAX, &mut self.left_out);
        self
    }

    /// Sets the timeline.
    #[must_use]
    pub fn timeline(mut self, timeline: Timeline) -> Section {
        self.timeline = Some(timeline);
        self
    }

    fn bounded_fact(&mut self, Fact { name, value }: Fact, room: &mut Room) {
        let fact = Fact { name: shortened(name), value: value.bounded() };
        if self.facts.len() < PARTS_MAX
            && room.takes([&fact.name].into_iter().chain(fact.value.words()))
        {
            self.facts.push(fact);
        } else {
            add_one(&mut self.left_out);
        }
    }

    fn bounded_table(&mut self, table: Table, room: &mut Room) {
        let has_place = self.tables.len() < PARTS_MAX;
        match has_place.then(|| table.bounded(room)).flatten() {
            Some(table) => self.tables.push(table),
            None => add_one(&mut self.left_out),
        }
    }
}

impl Table {
    /// Makes a table with these columns, at most [`COLUMNS_MAX`].
    #[must_use]
    pub fn new(name: &str, columns: &[&str]) -> Table {
        let columns = columns.iter().take(COLUMNS_MAX).map(|column| short(column)).collect();
        Table { name: short(name), columns, ..Table::default() }
    }

    /// Adds a row, or counts it if there is no room. Cells that are missing are [`Cell::Nothing`], and those beyond
    /// the columns are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        if self.rows.len() >= ROWS_MAX {
            return add_one(&mut self.left_out);
        }
        let row = self.of_columns(cells);
        self.rows.push(row);
    }

    /// Makes a row with a cell for each column.
    fn of_columns(&self, cells: impl IntoIterator<Item = Cell>) -> Vec<Cell> {
        let cells = cells.into_iter().take(self.columns.len()).map(Cell::bounded);
        let mut row: Vec<Cell> = cells.collect();
        row.resize(self.columns.len(), Cell::Nothing);
        row
    }

    /// Cuts a table; `None` if not even its head has room.
    fn bounded(self, room: &mut Room) -> Option<Table> {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let mut table = Table { left_out: self.left_out, ..Table::new(&self.name, &columns) };
        let names = table.columns.iter().map(|name| THING_BYTES + name.len()).sum::<usize>();
        if !room.takes_bytes(THING_BYTES + table.name.len() + names) {
            return None;
        }
        for row in self.rows {
            let row = table.of_columns(row);
            let bytes = row.iter().fold(THING_BYTES, |bytes, cell| {
                bytes + THING_BYTES + cell.words().map_or(0, String::len)
            });
            if table.rows.len() < ROWS_MAX && room.takes_bytes(bytes) {
                table.rows.push(row);
            } else {
                add_one(&mut table.left_out);
            }
        }
        Some(table)
    }
}

impl Timeline {
    /// Makes a timeline with these lanes that ends now, in microseconds since its begin.
    #[must_use]
    pub fn new(lanes: impl IntoIterator<Item = String>, now_us: u64) -> Timeline {
        let mut timeline = Timeline { now_us, ..Timeline::default() };
        for lane in lanes {
            push(&mut timeline.lanes, short(&lane), ROWS_MAX, &mut timeline.left_out);
        }
        timeline
    }

    /// Adds `count` things, of which the first has this number, in a lane and a line of it: from `begin_us` to
    /// `end_us`. Counts them if the lane has no room, or they have none.
    pub fn span(
        &mut self,
        (lane, line): (u32, u32),
        (begin_us, end_us): (u64, u64),
        first: u64,
        count: u64,
    ) {
        if lane as usize >= self.lanes.len() || line >= LINES_MAX {
            return add_one(&mut self.left_out);
        }
        let end_us = end_us.max(begin_us);
        let span = Span { lane, line, begin_us, end_us, first, count };
        push(&mut self.spans, span, SPANS_MAX, &mut self.left_out);
    }

    fn bounded(self, room: &mut Room) -> Timeline {
        let Timeline { lanes, mut spans, now_us, left_out } = self;
        let mut timeline = Timeline { now_us, left_out, ..Timeline::default() };
        for lane in lanes {
            let lane = shortened(lane);
            if timeline.lanes.len() < ROWS_MAX && room.takes([&lane]) {
                timeline.lanes.push(lane);
            } else {
                add_one(&mut timeline.left_out);
            }
        }
        // The latest have the first claim.
        spans.sort_unstable_by_key(|span| std::cmp::Reverse(span.end_us));
        for Span { lane, line, begin_us, end_us, first, count } in spans {
            let kept = timeline.spans.len();
            // In memory a span is as large as that.
            if room.0 < size_of::<Span>() {
                add_one(&mut timeline.left_out);
                continue;
            }
            timeline.span((lane, line), (begin_us, end_us), first, count);
            if timeline.spans.len() > kept {
                room.takes_bytes(size_of::<Span>());
            }
        }
        timeline
    }
}

impl Cell {
    /// Makes a text, cut to [`TEXT_BYTES_MAX`] bytes.
    #[must_use]
    pub fn text(text: &str) -> Cell {
        Cell::Text(short(text))
    }

    /// Makes a state with its name for people, cut to [`TEXT_BYTES_MAX`] bytes.
    #[must_use]
    pub fn state(state: State, name: &str) -> Cell {
        Cell::State(state, short(name))
    }

    /// Returns its text, if it has one.
    fn words(&self) -> Option<&String> {
        match self {
            Cell::Text(text) | Cell::State(_, text) => Some(text),
            _ => None,
        }
    }

    fn bounded(self) -> Cell {
        match self {
            Cell::Text(text) => Cell::Text(shortened(text)),
            Cell::State(state, name) => Cell::State(state, shortened(name)),
            Cell::Rate(rate) if !(0.0..=RATE_MAX).contains(&rate) => Cell::Nothing,
            Cell::Share(share) if !share.is_finite() => Cell::Nothing,
            Cell::Share(share) => Cell::Share(share.clamp(0.0, 1.0)),
            other => other,
        }
    }
}

fn push<T>(into: &mut Vec<T>, what: T, count_max: usize, left_out: &mut u64) {
    if into.len() < count_max {
        into.push(what);
    } else {
        add_one(left_out);
    }
}

/// Counts one thing more; a peer may have counted before.
fn add_one(count: &mut u64) {
    *count = count.saturating_add(1);
}

fn short(text: &str) -> String {
    cut(text, TEXT_BYTES_MAX).to_owned()
}

fn shortened(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX { text } else { short(&text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_counted() {
        let mut table = Table::new("rows", &["number", "name"]);
        for number in 0..ROWS_MAX as u64 + 3 {
            table.row([Cell::Count(number)]);
        }
        assert_eq!((table.rows.len(), table.left_out), (ROWS_MAX, 3));
        assert_eq!(table.rows[1], [Cell::Count(1), Cell::Nothing]);
        let mut timeline = Timeline::new((0..2).map(|lane| lane.to_string()), 9);
        for at in 0..SPANS_MAX as u64 + 2 {
            timeline.span((1, 0), (at, at + 1), at, 1);
        }
        timeline.span((2, 0), (0, 1), 0, 1);
        assert_eq!((timeline.spans.len(), timeline.left_out), (SPANS_MAX, 3));
        let mut section = Section::new("thing", &"n".repeat(TEXT_BYTES_MAX + 9));
        for _ in 0..PARTS_MAX + 1 {
            section = section.fact("a", Cell::Nothing).table(Table::default());
        }
        assert_eq!((section.name.len(), section.left_out), (TEXT_BYTES_MAX, 2));
        let mut report = Report::default();
        (0..SECTIONS_MAX + 4).for_each(|_| report.add(section.clone()));
        assert_eq!((report.sections.len(), report.left_out), (SECTIONS_MAX, 4));
    }

    #[test]
    fn a_report_of_a_peer_is_cut_to_the_limits() {
        let long = "ü".repeat(TEXT_BYTES_MAX);
        let mut rows = vec![Vec::new(); ROWS_MAX + 1];
        rows[0] = vec![Cell::Text(long.clone()); 2 * COLUMNS_MAX];
        let columns = vec![long.clone(); COLUMNS_MAX + 1];
        let table = Table { columns, rows, ..Table::default() };
        let lanes = vec![long.clone(); ROWS_MAX + 1];
        let timeline = Timeline { lanes, left_out: 1, ..Timeline::default() };
        let fact = Fact { name: long.clone(), value: Cell::Share(f64::INFINITY) };
        let mut tables = vec![Table::default(); PARTS_MAX + 1];
        tables[0] = table;
        let mut sections = vec![Section::default(); SECTIONS_MAX + 1];
        sections[0] =
            Section { tables, facts: vec![fact], timeline: Some(timeline), ..Section::default() };
        let report = Report { version: 7, sections, left_out: u64::MAX }.bounded();
        assert_eq!((report.version, report.sections.len()), (7, SECTIONS_MAX));
        assert_eq!(report.left_out, u64::MAX);
        let section = &report.sections[0];
        assert_eq!(section.tables.len() as u64 + section.left_out, PARTS_MAX as u64 + 1);
        assert_eq!(section.facts[0].value, Cell::Nothing);
        assert!(section.facts[0].name.len() <= TEXT_BYTES_MAX);
        let table = &section.tables[0];
        assert_eq!((table.columns.len(), table.rows[0].len()), (COLUMNS_MAX, COLUMNS_MAX));
        assert_eq!(table.rows.len() as u64 + table.left_out, ROWS_MAX as u64 + 1);
        let timeline = section.timeline.as_ref().unwrap();
        assert_eq!(timeline.lanes.len() as u64 + timeline.left_out, ROWS_MAX as u64 + 2);
    }

    /// Each limit is kept, and together they would be hundreds of MiB.
    #[test]
    fn the_limits_do_not_multiply() {
        let mut table = Table::new("t", &["c"; COLUMNS_MAX]);
        for _ in 0..ROWS_MAX {
            table.row(vec![Cell::text(&"x".repeat(TEXT_BYTES_MAX)); COLUMNS_MAX]);
        }
        let section = Section::new("thing", "").fact("first", Cell::Count(1)).table(table);
        let report = Report { sections: vec![section; SECTIONS_MAX], ..Report::default() };
        let report = report.bounded();
        let is_named = |section: &Section| {
            section.facts == [Fact { name: "first".into(), value: Cell::Count(1) }]
        };
        assert!(report.sections.len() == SECTIONS_MAX && report.sections.iter().all(is_named));
        let bytes = format!("{report:?}").len();
        assert!((REPORT_BYTES_MAX / 2..3 * REPORT_BYTES_MAX).contains(&bytes), "{bytes}");
        let table = &report.sections[0].tables[0];
        assert_eq!(table.rows.len() as u64 + table.left_out, ROWS_MAX as u64);
        let last = report.sections.last().unwrap();
        assert_eq!((last.tables.len(), last.left_out), (0, 1));
    }

    #[test]
    fn the_latest_spans_stay_where_there_is_no_room_for_all() {
        let mut timeline = Timeline::new(["lane".to_owned()], 9);
        (0..SPANS_MAX as u64).for_each(|at| timeline.span((0, 0), (at, at + 1), at, 1));
        timeline.span((0, LINES_MAX), (0, 1), 0, 1);
        let report =
            Report { sections: vec![Section::default().timeline(timeline)], ..Report::default() };
        let report = report.bounded();
        let timeline = report.sections[0].timeline.as_ref().unwrap();
        assert_eq!(timeline.spans.len() as u64 + timeline.left_out, SPANS_MAX as u64 + 1);
        let spans = timeline.spans.iter().map(|span| span.first);
        let first = SPANS_MAX as u64 - timeline.spans.len() as u64;
        assert!(first > 0 && spans.rev().eq(first..SPANS_MAX as u64), "{first}");
    }

    #[test]
    fn what_is_no_rate_is_nothing() {
        let rates = [f64::NAN, f64::INFINITY, -1.0, f64::MAX];
        for value in rates.map(Cell::Rate).into_iter().chain([Cell::Share(f64::NAN)]) {
            let section =
                Section { facts: vec![Fact { name: String::new(), value }], ..Section::default() };
            let report = Report { sections: vec![section], ..Report::default() }.bounded();
            assert_eq!(report.sections[0].facts[0].value, Cell::Nothing);
        }
    }
}
