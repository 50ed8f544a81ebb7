//! Tuning: the controllers that adapt a link to its traffic, and the constants that they were
//! tuned with.
//!
//! | controller | decides | from |
//! |---|---|---|
//! | [`packet_size`] | size of a full packet | packets that left, time of small writes |
//! | [`pace`] | bytes of bulk that may be on their way | acknowledgements and their times |
//! | [`flush`] | whether a packet leaves now | bytes that wait, their age, marks of the user |
//! | [`shares`] | order of the channels in a packet | bytes that each channel got |
//! | [`watching`] | whether a driver looks on or sleeps | bytes of each read, messages written |
//! | [`buffers`] | size of a reading buffer | bytes of each read |
//! | [`rings`] | size of a channel's ring | size of full packets, room that a message needs |
//!
//! Each is asked at its own moment: the rings by the producer of a message, the buffers and the
//! watch by a driver that reads, the others by a driver that writes. So each has its own typed
//! methods.
//!
//! [`constants`] has each tuned number with its reason. The chapter `docs/tuning.md` says how
//! each controller decides, and how to measure a link without it.

pub mod buffers;
pub mod constants;
pub mod flush;
pub mod pace;
pub mod packet_size;
pub mod rings;
pub mod shares;
pub mod sharing;
pub mod watching;
#[doc(hidden)]
pub mod without;
