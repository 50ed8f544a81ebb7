//! Events and spans that the library logs.

use std::sync::{Arc, Mutex, OnceLock};
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

/// A subscriber that keeps events and spans, each as a line, and a line for each time that a span
/// is entered.
#[derive(Clone, Default, Debug)]
pub struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    /// Takes the events of this thread from now on, as long as the guard lives.
    pub fn listen(&self) -> DefaultGuard {
        // With only one dispatcher, the first thread that comes to a callsite decides for all
        // threads whether it is of interest, even a thread without a dispatcher.
        static OTHER: OnceLock<Dispatch> = OnceLock::new();
        OTHER.get_or_init(|| Dispatch::new(Events::default()));
        tracing::subscriber::set_default(self.clone())
    }

    /// Returns the number of lines that have all these words.
    pub fn count(&self, words: &[&str]) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("chunkcomm")
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut line = Line(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.0.lock().unwrap().push(line.0);
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _span: &tracing::span::Id) {
        self.0.lock().unwrap().push("enter".to_owned());
    }
    fn exit(&self, _span: &tracing::span::Id) {}
}
