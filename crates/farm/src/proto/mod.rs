//! Pure parts of a farm: bytes, times and events go in, decisions come out. Nothing here uses a
//! socket, a task, a lock or a clock; a test of the workspace checks this.
//!
//! Reading order: [`ledger`] (which worker holds which tasks), [`order`] (results in the order of
//! their tasks), [`wire`] (messages of farmer and worker), [`pace`] (how much work a worker holds),
//! [`placement`] (where a worker runs a task), [`record`] (a journal's bytes), [`tree`] (which node
//! works below which), [`split`] (answers that are too large), [`parts`] (results in any order),
//! [`width`] (number of begun tasks of a worker), [`handover`] (results for the next farmer),
//! [`waiting`] (time that a worker's threads wait), [`timeline`] (which worker had which tasks
//! when), [`progress`] (fractions of tasks that are done), [`once`] (values that a worker computes
//! for all), [`home`] (whether the farmer's node works, too).

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
