//! The body of a `POST /parameter`.

use serde::{Deserialize, Serialize};

use super::control::check;
use super::problem::Parameters;

/// A source as its client gives it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Given {
    x: f64,
    y: f64,
    strength: f64,
}

impl Given {
    /// Reads JSON, or the fields of a form: `x=0.4&y=0.35&strength=100`.
    ///
    /// # Errors
    /// The body is something else, or a number is not allowed; the text says what is.
    pub(crate) fn parse(body: &[u8], is_json: bool) -> Result<Given, String> {
        let given = if is_json {
            let allowed = r#"allowed is {"x": 0.4, "y": 0.35, "strength": 100}"#;
            serde_json::from_slice(body).map_err(|error| format!("{error}: {allowed}"))?
        } else {
            let allowed = "allowed are three numbers, as x=0.4&y=0.35&strength=100, or JSON";
            form(body).ok_or_else(|| allowed.to_owned())?
        };
        check(&given.into())?;
        Ok(given)
    }

    pub(crate) fn to_json(self) -> String {
        let json = serde_json::to_string(&self).expect("three finite numbers are JSON");
        json + "\n"
    }
}

/// Reads the three fields, each once, in any order.
fn form(body: &[u8]) -> Option<Given> {
    let mut numbers = [None; 3];
    for field in std::str::from_utf8(body).ok()?.trim_end().split('&') {
        let (name, number) = field.split_once('=')?;
        let at = ["x", "y", "strength"].iter().position(|it| *it == name)?;
        let before = numbers[at].replace(number.parse().ok()?);
        if before.is_some() {
            return None;
        }
    }
    let [Some(x), Some(y), Some(strength)] = numbers else { return None };
    Some(Given { x, y, strength })
}

impl From<Given> for Parameters {
    fn from(Given { x, y, strength }: Given) -> Parameters {
        Parameters { x, y, strength }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_and_json_say_the_same() {
        let form = Given::parse(b"y=0.5&strength=1e2&x=1.25", false);
        assert_eq!(form, Ok(Given { x: 1.25, y: 0.5, strength: 100.0 }));
        assert_eq!(Given::parse(br#"{"x":1.25,"y":0.5,"strength":100}"#, true), form);
    }

    #[test]
    fn other_bodies_are_refused_with_what_is_allowed() {
        for (body, is_json) in [
            ("", false),
            ("x=1&y=1", false),
            ("x=1&y=1&strength=1&x=1", false),
            ("x=1&y=1&strength=much", false),
            ("x=1&y=1&strength=1&more=1", false),
            ("x=1.25&y=0.1&strength=1", false),
            ("x=nan&y=0.1&strength=1", false),
            ("x=1&y=inf&strength=1", false),
            ("x=1&y=0.3&strength=0", false),
            ("x=1&y=0.3&strength=1", true),
            (r#"{"x":1,"y":0.3}"#, true),
            (r#"{"x":1,"y":0.3,"strength":1,"more":1}"#, true),
            (r#"{"x":1,"y":-0.3,"strength":1}"#, true),
        ] {
            let told = Given::parse(body.as_bytes(), is_json).unwrap_err();
            assert!(told.contains("allowed"), "{body}: {told}");
        }
    }
}
