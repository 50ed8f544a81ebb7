//! [`Event`], in JSON and in messages.

use serde::{Deserialize, Serialize};

/// An event, which the service takes and the collector writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    /// Name of the sender.
    pub(crate) source: String,
    /// Name of the event.
    pub(crate) name: String,
    /// Figure, in the unit that the event's name implies.
    pub(crate) value: f64,
}

/// Reads the event of a JSON object, or the events of an array.
///
/// # Errors
/// The text is neither; the error has the line and column.
pub(crate) fn parse(json: &[u8]) -> Result<Vec<Event>, serde_json::Error> {
    if json.trim_ascii_start().starts_with(b"[") {
        serde_json::from_slice(json)
    } else {
        serde_json::from_slice(json).map(|event| vec![event])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_many() {
        let one = r#"{"source": "door", "name": "opened", "value": 1}"#;
        let event = Event { source: "door".to_owned(), name: "opened".to_owned(), value: 1.0 };
        assert_eq!(parse(one.as_bytes()).unwrap(), std::slice::from_ref(&event));
        let many = format!("\n[{one}, {one}]");
        assert_eq!(parse(many.as_bytes()).unwrap(), [event.clone(), event]);
        assert_eq!(parse(b"[]").unwrap(), []);
        for (wrong, told) in [
            ("", "EOF while parsing"),
            ("{}", "missing field `source`"),
            (r#"{"source": 1}"#, "expected a string at line 1 column 12"),
            (r#"{"source": "a", "when": 1}"#, "unknown field `when`"),
            ("[{}]", "missing field `source`"),
        ] {
            let error = parse(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }
}
