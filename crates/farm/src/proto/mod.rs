//! Pure parts of a farm: bytes, times and events go in, decisions come out. Nothing here uses a
//! socket, a task, a lock or a clock; a test of the workspace checks this.
//!
//! Reading order:
//!
//! - [`ledger`]: which worker holds which tasks. [`order`]: results in the order of their tasks.
//!   [`parts`]: results in any order.
//! - [`wire`]: messages of farmer and worker. [`split`]: answers that are too large.
//! - [`pace`]: how much work a worker holds. [`placement`]: where a worker runs a task. [`width`]:
//!   number of begun tasks of a worker. [`home`]: whether the farmer's node works too.
//! - [`tree`]: which node works below which.
//! - [`record`]: a journal's bytes. [`handover`]: results for the next farmer.
//! - [`waiting`]: time that a worker's threads wait. [`timeline`]: which worker had which tasks
//!   when. [`progress`]: fractions of tasks that are done.
//! - [`once`]: values that one worker computes for all.

pub(crate) mod handover;
pub(crate) mod home;
pub(crate) mod ledger;
pub(crate) mod once;
pub(crate) mod order;
pub(crate) mod pace;
pub(crate) mod parts;
pub(crate) mod placement;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod split;
pub(crate) mod timeline;
pub(crate) mod tree;
pub(crate) mod waiting;
pub(crate) mod width;
pub(crate) mod wire;
