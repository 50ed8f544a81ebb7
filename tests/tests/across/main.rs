//! The tests that cross the crates, in one binary.
#![allow(clippy::unwrap_used)] // the helpers are tests too

mod cancel;
mod cascade;
mod cluster_options;
mod convolution;
mod echo;
mod errors;
mod example;
mod farm;
#[cfg(target_os = "linux")]
mod farm_choice;
mod farm_cluster;
#[cfg(target_os = "linux")]
mod farm_enemies;
mod farm_home;
mod farm_journal;
mod farm_once;
mod farm_progress;
mod farm_reduced;
mod farm_shared;
mod farm_skeletons;
mod farm_streams;
mod farm_timeouts;
#[cfg(target_os = "linux")]
mod farm_tree;
mod farm_waits;
mod fft2d;
mod filters;
mod floors;
mod guide_of_simulation;
mod heat;
mod histogram;
mod kmeans;
#[cfg(unix)]
mod kv;
mod linda;
mod mandelbrot;
#[cfg(unix)]
mod mishaps;
mod models;
mod multiblock;
mod nodes;
#[cfg(target_os = "linux")]
mod nodes_faults;
#[cfg(target_os = "linux")]
mod nodes_ssh;
#[cfg(target_os = "linux")]
mod nodes_ssh_ends;
mod parsort;
mod picture;
mod pipeline;
mod pure;
mod pvm;
mod raytracer;
mod redistribute;
mod rooms;
#[cfg(unix)]
mod service;
mod sr;
mod stages;
#[cfg(unix)]
mod steering;
mod streamstats;
#[cfg(unix)]
mod telemetry;
mod types;
mod virtual_array;
mod virtual_arrays;
mod virtual_arrays_attach;
mod virtual_arrays_ends;
mod virtual_arrays_exchange;
mod virtual_arrays_faults;
mod virtual_cluster;
mod virtual_deltas;
mod virtual_examples;
mod virtual_farms;
mod virtual_faults;
mod virtual_flows;
mod virtual_flows_faults;
mod virtual_groups;
mod virtual_groups_bounds;
mod virtual_groups_calls;
mod virtual_groups_deaths;
mod virtual_groups_ends;
mod virtual_groups_forming;
mod virtual_groups_random;
mod virtual_ranks;
mod virtual_time;
mod wordcount;
