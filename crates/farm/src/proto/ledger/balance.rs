//! Tasks that go from one worker to another: tasks not begun, and copies of a silent worker's
//! tasks.

use super::Ledger;
use super::piece::Key;
use super::worker::Worker;

/// Multiple of the mean time of a task after which a worker without an answer is silent, at least
/// [`SILENCE_NS_MIN`]. (Spark duplicates at 1.5 times the median.)
const SILENCE: f64 = 1.5;
pub(super) const SILENCE_NS_MIN: f64 = 250e6;

/// Time after which a worker is silent before any task was answered: 5 s. It also holds for a piece
/// that was at a death or is already copied, since each copy may cost one more worker.
pub(super) const SILENCE_NS_LONG: f64 = 5e9;

/// Age of a worker's last sign of life from which it may be stopped: 2 s. It is asked each second.
pub(super) const SIGN_NS: f64 = 2e9;

/// Estimated work that is worth its way to another worker, in nanoseconds: 500 us.
const WORTH_NS: f64 = 500e3;

impl Ledger {
    /// Returns a worker to ask for tasks that it has not begun, and their number, when another has
    /// no task. At most one worker is asked for each idle one.
    pub(crate) fn poll_victim(&mut self, now_ns: u64) -> Option<(usize, u64)> {
        if self.has_open() || !(self.ended || self.dry) {
            return None;
        }
        let idle = self.workers.iter().filter(|worker| worker.is_idle()).count();
        let asked = self.workers.iter().filter(|worker| worker.is_to_give(now_ns)).count();
        let victim = self.victim().filter(|_| idle > asked)?;
        Some((victim, self.ask(victim, u64::MAX, now_ns)))
    }

    /// Returns a worker to ask for tasks that it has not begun, and their number, for the farmer
    /// above. The number is at most `count`. The worker keeps a half, so that it is not the next
    /// one without tasks.
    pub(crate) fn poll_spare(&mut self, count: u64, now_ns: u64) -> Option<(usize, u64)> {
        let victim = self.victim().filter(|_| count > 0)?;
        Some((victim, self.ask(victim, count, now_ns)))
    }

    /// Returns the worker with most work that it cannot have begun, if that is worth its way.
    fn victim(&self) -> Option<usize> {
        let worth = |worker: &Worker| worker.spare() as f64 * worker.task_ns.unwrap_or(f64::MAX);
        let may = |worker: &Worker| {
            let hears =
                worker.joined && !worker.stalled && worker.asked_ns.is_none() && !worker.barren;
            hears && worker.spare() > 0 && worth(worker) > WORTH_NS
        };
        let able = (0..self.workers.len()).filter(|&at| may(&self.workers[at]));
        able.max_by(|&a, &b| worth(&self.workers[a]).total_cmp(&worth(&self.workers[b])))
    }

    /// Notes that a worker is asked for a half of its spare tasks, or `count`; returns their
    /// number. Until it returns some or gets a piece, it is not asked again.
    fn ask(&mut self, worker: usize, count: u64, now_ns: u64) -> u64 {
        let slot = &mut self.workers[worker];
        (slot.asked_ns, slot.barren) = (Some(now_ns), true);
        slot.spare().div_ceil(2).min(count)
    }

    /// Whether a worker has no task while others hold some.
    pub(crate) fn is_in_tail(&self) -> bool {
        (self.ended || self.dry) && self.unanswered > 0 && self.any_idle()
    }

    /// Gives a copy of a silent worker's piece to a worker without tasks. Returns that worker, the
    /// piece's first task and number, and its message.
    pub(crate) fn poll_straggler(&mut self, now_ns: u64) -> Option<(usize, u64, u32, &[u8])> {
        if !self.is_in_tail() || self.has_open() {
            return None;
        }
        let patience = match self.answered {
            0 => SILENCE_NS_LONG,
            answered => (SILENCE * self.busy_ns / answered as f64).max(SILENCE_NS_MIN),
        };
        let silence = |at: usize| now_ns.saturating_sub(self.workers[at].heard_ns) as f64;
        // The worker that was heard last is most likely alive.
        let able = |worker: &Worker| worker.is_idle() && worker.gets_copies;
        let able = (0..self.workers.len()).filter(|&at| able(&self.workers[at]));
        let idle = able.max_by_key(|&at| self.workers[at].heard_ns)?;
        let all_silent = |key: &Key| {
            let piece = &self.pieces[*key];
            let is_costly = piece.deaths > 0 || piece.holders[1].is_some();
            let patience = if is_costly { patience.max(SILENCE_NS_LONG) } else { patience };
            piece.holders.iter().flatten().all(|&holder| {
                let holder = holder as usize;
                silence(holder) > patience && self.workers[holder].is_alive(now_ns)
            })
        };
        let held = self.workers.iter().filter(|worker| worker.joined).flat_map(|it| &it.pieces);
        let key = held.copied().find(all_silent)?;
        if let [_, Some(second)] = self.pieces[key].holders {
            self.let_go(key, second as usize);
            self.workers[second as usize].owes = true;
        }
        self.mishaps.copied += u64::from(self.pieces[key].count);
        self.pieces[key].rewrite();
        self.hold(idle, key, now_ns);
        let piece = &self.pieces[key];
        Some((idle, piece.first, piece.count, &piece.message))
    }
}
