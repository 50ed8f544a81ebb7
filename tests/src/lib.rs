//! Tests that cross the crates, and the samples of the documents, which are compiled here.

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]

pub mod farm_tasks;

/// The service of the guide of simulations.
#[path = "../tests/across/tickets/service.rs"]
#[allow(clippy::unwrap_used)] // as the guide shows it
pub mod tickets;

/// The samples of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/channels.md")]
mod guide_of_channels {}

#[cfg(all(doctest, unix))]
#[doc = include_str!("../../docs/guide/services.md")]
mod guide_of_services {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/clusters.md")]
mod guide_of_clusters {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/farms.md")]
mod guide_of_farms {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/farms-reference.md")]
mod reference_of_farms {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/pipelines.md")]
mod guide_of_pipelines {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/collectives.md")]
mod guide_of_collectives {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/arrays.md")]
mod guide_of_arrays {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/operations.md")]
mod guide_of_operations {}

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/simulation.md")]
mod guide_of_simulation {}
