//! Spans of time as text in the Trace Event Format of Chrome, which Perfetto
//! (<https://ui.perfetto.dev>) and `chrome://tracing` show.
//!
//! The viewer shows *processes*, each with *threads* below it, and the spans of a thread in one line.
//! Both are only numbers with names. Times are nanoseconds since any moment; the text has
//! microseconds with three decimal places.

use std::fmt::{self, Display, Write};

/// A list of trace events in the making.
///
/// ```
/// use chunkcomm_proto::trace::TraceEvents;
///
/// let mut events = TraceEvents::new();
/// events.name_process(1, "host");
/// events.name_thread(1, 2, "core 1");
/// events.span((1, 2), 1_500, 250, "computing", &[("tasks", &7)]);
/// let json = events.finish();
/// assert!(json.contains(r#""ts":1.500,"dur":0.250,"name":"computing","args":{"tasks":7}"#));
/// ```
#[derive(Debug, Clone)]
pub struct TraceEvents {
    text: String,
    is_empty: bool,
}

impl TraceEvents {
    /// Returns a list without events.
    #[must_use]
    pub fn new() -> TraceEvents {
        let text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n".to_owned();
        TraceEvents { text, is_empty: true }
    }

    /// Names a process.
    pub fn name_process(&mut self, process: u32, name: &str) {
        self.name("process_name", (process, 0), name);
    }

    /// Names a thread of a process. Threads stand in the order of their numbers.
    pub fn name_thread(&mut self, process: u32, thread: usize, name: &str) {
        self.name("thread_name", (process, thread), name);
    }

    /// Adds a span of a thread, by process and thread, from `begin_ns` on. The viewer shows its
    /// details when it is selected; each shows as JSON: numbers, [`Micros`] and [`Quoted`] do.
    pub fn span(
        &mut self,
        at: (u32, usize),
        begin_ns: u64,
        lasts_ns: u64,
        name: &str,
        details: &[(&str, &dyn Display)],
    ) {
        let (begin, lasts) = (Micros(begin_ns), Micros(lasts_ns));
        self.begin("X", at);
        self.add(format_args!(",\"ts\":{begin},\"dur\":{lasts},\"name\":{}", Quoted(name)));
        let mut before = ",\"args\":{";
        for (key, value) in details {
            self.add(format_args!("{before}{}:{value}", Quoted(key)));
            before = ",";
        }
        self.add(format_args!("{}", if details.is_empty() { "}" } else { "}}" }));
    }

    /// Adds a note on the whole list at this time, below a process.
    pub fn note(&mut self, process: u32, at_ns: u64, text: &str) {
        self.begin("i", (process, 0));
        self.add(format_args!(",\"s\":\"g\",\"ts\":{},\"name\":{}}}", Micros(at_ns), Quoted(text)));
    }

    /// Ends the list; returns its JSON.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push_str("\n]}\n");
        self.text
    }

    fn name(&mut self, kind: &str, at: (u32, usize), name: &str) {
        self.begin("M", at);
        self.add(format_args!(",\"name\":\"{kind}\",\"args\":{{\"name\":{}}}}}", Quoted(name)));
    }

    fn begin(&mut self, phase: &str, (process, thread): (u32, usize)) {
        let before = if std::mem::take(&mut self.is_empty) { "" } else { ",\n" };
        self.add(format_args!("{before}{{\"ph\":\"{phase}\",\"pid\":{process},\"tid\":{thread}"));
    }

    fn add(&mut self, part: fmt::Arguments<'_>) {
        self.text.write_fmt(part).expect("a string takes everything");
    }
}

impl Default for TraceEvents {
    fn default() -> TraceEvents {
        TraceEvents::new()
    }
}

/// Nanoseconds, shown as microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Micros(pub u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// A text, shown as a string of JSON.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_one_list_of_json() {
        let mut events = TraceEvents::new();
        events.name_process(3, "a \"quoted\" \\ name\n");
        events.name_thread(3, 1, "core 0");
        events.span((3, 1), 1_002_003, 40, "idle", &[]);
        events.span((3, 1), 5, 0, "task", &[("first", &7), ("of", &Quoted("f"))]);
        events.note(3, 9, "the end");
        let expected = r#"{"displayTimeUnit":"ns","traceEvents":[
{"ph":"M","pid":3,"tid":0,"name":"process_name","args":{"name":"a \"quoted\" \\ name\u000a"}},
{"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"core 0"}},
{"ph":"X","pid":3,"tid":1,"ts":1002.003,"dur":0.040,"name":"idle"},
{"ph":"X","pid":3,"tid":1,"ts":0.005,"dur":0.000,"name":"task","args":{"first":7,"of":"f"}},
{"ph":"i","pid":3,"tid":0,"s":"g","ts":0.009,"name":"the end"}
]}
"#;
        assert_eq!(events.finish(), expected);
    }
}
