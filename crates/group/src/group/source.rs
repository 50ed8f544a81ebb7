//! Sources of events: each has a waker of its own, and is looked at when that has been woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use super::shared::Shared;

/// A source of events, which are taken in one look.
pub(super) struct Source {
    flag: Arc<Flag>,
    waker: Waker,
}

struct Flag {
    has_news: AtomicBool,
    /// Whether it is a channel of words, for which calls wait.
    is_channel: bool,
    shared: Arc<Shared>,
}

impl Source {
    /// Makes one that is to be looked at.
    pub(super) fn new(shared: &Arc<Shared>, is_channel: bool) -> Source {
        let shared = Arc::clone(shared);
        let flag = Arc::new(Flag { has_news: AtomicBool::new(true), is_channel, shared });
        let waker = Waker::from(Arc::clone(&flag));
        Source { flag, waker }
    }

    /// Whether it is to be looked at.
    pub(super) fn has_news(&self) -> bool {
        self.flag.has_news.load(Ordering::Relaxed)
    }

    /// Whether it is to be looked at, once.
    pub(super) fn take_news(&self) -> bool {
        // Most have none, and a load costs less.
        self.has_news() && self.flag.has_news.swap(false, Ordering::AcqRel)
    }

    /// Lets it be looked at.
    pub(super) fn note(&self) {
        self.flag.has_news.store(true, Ordering::Release);
    }

    /// Returns the context in which it is looked at.
    pub(super) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_news.store(true, Ordering::Release);
        if self.is_channel {
            self.shared.hear();
        } else {
            self.shared.wake_by_ref();
        }
    }
}
