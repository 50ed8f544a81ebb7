//! The part that uses tokio. It moves bytes between a transport and a link's machine, arms
//! one timer and wakes tasks. It decides nothing.
//!
//! Reading order: [`ring`] (place where a message is staged), [`staging`] (the sending end of a
//! channel), [`inbox`] and [`taking`] (the receiving end), [`landing`] (memory that a receiver gives),
//! [`mail`] (commands of the ends to the driver), [`waking`] (running the driver beside them),
//! [`keeping`] (messages that a stream sends again), [`logging`] (those that it stores first),
//! [`large`] (memory of large messages), [`one_copy`] (those that are read from the sender's memory), [`link`] (the driver of one peer), [`reading`] and
//! [`writing`] (its two halves), [`resting`] (when the driver sleeps), [`connection`] (one is lost,
//! another comes), [`channels`] (the table of its channels) with [`backs`] (the ways back of
//! duplexes), [`commands`] and [`events`] (what changes it), [`cycles`] (waits that last), [`opening`]
//! (opens that wait), [`report`] and `metrics` (what others see of it), [`ending`], [`buffers`], [`tasks`], [`wakers`], [`clock`],
//! [`entropy`].

pub(crate) mod backs;
pub(crate) mod buffers;
pub(crate) mod channels;
pub(crate) mod clock;
mod commands;
pub(crate) mod connection;
pub(crate) mod cycles;
pub(crate) mod ending;
pub(crate) mod entropy;
pub(crate) mod events;
pub(crate) mod inbox;
pub(crate) mod keeping;
pub(crate) mod landing;
pub(crate) mod large;
pub(crate) mod link;
pub(crate) mod logging;
pub(crate) mod mail;
pub mod memory;
#[cfg(feature = "metrics")]
mod metrics;
pub(crate) mod one_copy;
pub(crate) mod opening;
pub(crate) mod reading;
mod report;
mod resting;
pub(crate) mod ring;
pub(crate) mod staging;
pub(crate) mod taking;
pub(crate) mod tasks;
pub(crate) mod wakers;
pub(crate) mod waking;
pub(crate) mod writing;
