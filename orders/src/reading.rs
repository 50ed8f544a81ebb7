//! Pages that are filled, waited for, and given up.

use std::ops::Range;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::pages::{Never, Pages};
use crate::settings::Missing;
use crate::sys::Region;

/// Longer than a model runs.
const LONG: Duration = Duration::from_secs(3600);

struct Input {
    pages: Pages,
    /// The value of each page. Its loads and stores put nothing else in order.
    values: Vec<AtomicU32>,
}

impl Input {
    fn new(count: usize) -> Arc<Self> {
        let region = std::sync::Arc::new(Region { pages: count });
        let pages = Pages::new(region, LONG, Missing::Unfilled).unwrap();
        Arc::new(Self { pages, values: (0..count).map(|_| AtomicU32::new(0)).collect() })
    }

    /// Fills those of the pages that were not given, as an engine does.
    fn fill(&self, pages: Range<usize>) {
        let claimed = self.pages.claim(pages);
        if !claimed.is_empty() {
            for page in claimed.clone() {
                self.values[page].store(1, Ordering::Relaxed);
            }
            self.pages.opened(claimed);
        }
    }

    fn value(&self, page: usize) -> u32 {
        self.values[page].load(Ordering::Relaxed)
    }
}

#[test]
fn a_wait_ends_when_all_has_come_however_soon_the_end_follows() {
    loom::model(|| {
        let input = Input::new(2);
        let filler = {
            let input = input.clone();
            thread::spawn(move || {
                input.fill(1..2);
                input.fill(0..1);
                input.pages.end();
            })
        };
        assert_eq!(input.pages.wait(0..2, LONG), Ok(()));
        assert_eq!((input.value(0), input.value(1)), (1, 1));
        filler.join().unwrap();
    });
}

#[test]
fn a_wait_for_a_page_that_never_comes_ends_with_the_filler() {
    loom::model(|| {
        let input = Input::new(2);
        let filler = {
            let input = input.clone();
            thread::spawn(move || {
                input.fill(0..1);
                input.pages.end();
            })
        };
        assert_eq!(input.pages.wait(0..2, LONG), Err(Never::Ended));
        filler.join().unwrap();
    });
}

/// A reader that got a page without its data would see it change.
#[test]
fn a_page_that_was_given_is_not_filled_and_its_reason_is_known() {
    loom::model(|| {
        let input = Input::new(2);
        let filler = {
            let input = input.clone();
            thread::spawn(move || input.fill(0..2))
        };
        let guard = {
            let input = input.clone();
            thread::spawn(move || input.pages.give_up(1, Never::Late).then(|| input.value(1)))
        };
        assert!(matches!(input.pages.gave(), None | Some(Never::Late)));
        let given = guard.join().unwrap();
        filler.join().unwrap();
        assert_eq!(input.value(0), 1, "the page before it comes");
        match given {
            Some(seen) => assert_eq!((seen, input.value(1)), (0, 0)),
            None => assert_eq!((input.pages.is_there(1), input.value(1)), (true, 1)),
        }
        assert_eq!(input.pages.gave().is_some(), given.is_some());
    });
}

#[test]
fn when_all_is_given_up_nothing_more_is_written() {
    loom::model(|| {
        let input = Input::new(2);
        let filler = {
            let input = input.clone();
            thread::spawn(move || input.fill(0..2))
        };
        input.pages.give_up_all();
        let seen = [0, 1].map(|page| (input.pages.is_there(page), input.value(page)));
        filler.join().unwrap();
        for (page, (is_there, value)) in seen.into_iter().enumerate() {
            assert_eq!((value, input.value(page)), (u32::from(is_there), u32::from(is_there)));
        }
    });
}
