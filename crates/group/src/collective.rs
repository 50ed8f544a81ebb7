//! Collective calls of a [`Group`](crate::Group).
//!
//! ```text
//!   calls, values    the methods of a group, which make runs
//!   asking           how they make a run, and by which algorithm
//!   pair             calls of two groups that have met
//!   measuring        costs, by which calls choose their algorithms
//!   call             the future of one
//!   foreign          calls whose runs are another crate's: collectives that flow
//!   whole            the run of a call: step by step, with whole messages
//!   flow             its large data: all transfers at once, by regions
//!   op, parts        operators, and data of all ranks
//! ```

pub(crate) mod asking;
pub(crate) mod call;
pub(crate) mod calls;
pub(crate) mod flow;
pub(crate) mod foreign;
mod measuring;
pub(crate) mod op;
pub(crate) mod pair;
pub(crate) mod parts;
mod values;
pub(crate) mod whole;
