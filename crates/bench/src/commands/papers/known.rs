//! Figures of runs in virtual time that several runs of a paper need: made once, since they never differ.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::Failure;

type Figures = Arc<Mutex<Option<Vec<f64>>>>;

static KNOWN: Mutex<BTreeMap<String, Figures>> = Mutex::new(BTreeMap::new());

/// Returns the figures of this name; the first caller makes them, and others wait for that.
///
/// # Errors
/// If they cannot be made.
pub(super) fn known(
    name: String,
    make: impl FnOnce() -> Result<Vec<f64>, Failure>,
) -> Result<Vec<f64>, Failure> {
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let figures = Arc::clone(all.entry(name).or_default());
    drop(all);
    let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
    if figures.is_none() {
        *figures = Some(make()?);
    }
    Ok(figures.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_made_once_and_after_a_failure_again() {
        let name = || "figures_are_made_once".to_owned();
        assert!(known(name(), || Err(Failure::broken("making", "a failure"))).is_err());
        assert_eq!(known(name(), || Ok(vec![1.0])).unwrap(), [1.0]);
        assert_eq!(known(name(), || Ok(vec![2.0])).unwrap(), [1.0]);
        assert_eq!(known("other".to_owned(), || Ok(vec![2.0])).unwrap(), [2.0]);
    }
}
