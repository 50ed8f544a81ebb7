//! The switch between what only Linux offers and the portable ways.

use std::env;

/// Variable that, set to 1, turns off everything that only Linux offers, so that the portable ways
/// are taken (and tested) on Linux too.
pub const PORTABLE_VARIABLE: &str = "CHUNKCOMM_PORTABLE";

/// Whether only portable means are to be used: on other systems than Linux, and where
/// [`PORTABLE_VARIABLE`] is set to 1.
///
/// For programs that have a way of their own for Linux and a portable one: with this, one switch
/// chooses for all of them.
#[must_use]
pub fn portable_only() -> bool {
    cfg!(not(target_os = "linux")) || env::var_os(PORTABLE_VARIABLE).is_some_and(|set| set == "1")
}
