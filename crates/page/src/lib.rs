//! A live page of a running program, for a browser: members, links, channels, calls, farms, collectives and arrays
//! under way, what waits for whom, warnings.
//!
//! ```text
//!   browser ◀── events, at most 5 a second ── Page ◀── Node::explain, Node::report     this node
//!                                               ◀── watch "chunkcomm.page", 1 a second  the other members of its cluster
//! ```
//!
//! The page knows nodes, clusters and the typed [report](chunkcomm::report) of layers; it shows every layer that fills
//! that. Nothing is gathered while nobody looks.
//!
//! | to | call |
//! |---|---|
//! | let the environment decide | [`from_env`], on every node |
//! | serve the page | [`Page::serve`] |
//! | let the page of another member show this node | [`Page::join`] |
//!
//! ```no_run
//! # async fn example(node: chunkcomm::Node) -> Result<(), Box<dyn std::error::Error>> {
//! // With CHUNKCOMM_PAGE=127.0.0.1:8080 it prints the address to open. Keep it while the program runs.
//! let _page = chunkcomm_page::from_env(&node)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Who may look
//!
//! Everybody who has the address that the page prints: behind its `#` is a token that was made for this run. The page
//! keeps it for its tab, takes it out of the address, and sends it as a bearer; a cookie would be sent to all ports of the
//! machine. States without the token are refused, and so is each request with another `Host` or origin than the page's:
//! a page of another site or port, or a name that somebody has bound to this machine. A page listens on loopback alone:
//! from another machine it is reached by `ssh -L`. Texts of peers never become markup, and what a peer reports is bounded.
//!
//! # Cost
//!
//! A thread that waits. While somebody looks it gathers five times a second, in a cluster once a second at each other
//! member. A slow browser skips states, one that takes nothing for 30 s is gone, and a hidden tab does not look. At most
//! [`VIEWERS_MAX`] look at a time.
//!
//! # Prometheus
//!
//! `/metrics` has the counters of all links that the page knows, with the names of the feature `metrics` of `chunkcomm`
//! and a label `node`. It wants the token as a bearer: `Authorization: Bearer TOKEN`.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `serve` | yes | The page. |
//! | `terminal` | no | The program `chunkcomm-top`, which shows the page of an address in a terminal. |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "serve")]
mod door;
#[cfg(feature = "serve")]
mod error;
#[cfg(feature = "serve")]
mod events;
#[cfg(feature = "serve")]
mod gather;
#[cfg(feature = "serve")]
mod guard;
#[cfg(feature = "serve")]
mod hub;
#[cfg(feature = "serve")]
mod log;
#[cfg(feature = "serve")]
mod members;
#[cfg(feature = "serve")]
mod metrics;
#[cfg(feature = "serve")]
mod page;
#[cfg(feature = "serve")]
mod server;
#[cfg(feature = "serve")]
mod state;

#[cfg(feature = "serve")]
pub use error::PageError;
#[cfg(feature = "serve")]
pub use hub::{PageStats, VIEWERS_MAX};
#[cfg(feature = "serve")]
pub use page::{PAGE_VARIABLE, Page, from_env};
