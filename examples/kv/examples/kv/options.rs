//! The command line, and the settings of a server.

use chunkcomm::Address;
use chunkcomm::settings::NodeSettings;
use clap::{Parser, Subcommand};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    name = "kv",
    about = "Stores values under keys, on servers that take over for each other"
)]
pub(crate) struct Options {
    /// Address of a server; again for each
    #[arg(long, value_name = "ADDRESS", global = true)]
    #[arg(default_values = ["127.0.0.1:7701", "127.0.0.1:7702"])]
    pub(crate) at: Vec<Address>,
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Subcommand)]
pub(crate) enum Role {
    /// Serves, or stands by until the server that leads has ended
    Serve {
        /// File of settings; variables such as KV__NODE__LISTEN come before it, or suffice
        settings: Option<PathBuf>,
    },
    /// Prints the value of a key
    Get {
        /// The key
        key: String,
    },
    /// Stores a value, and prints the number of the change
    Put {
        /// The key
        key: String,
        /// Its new value
        value: String,
    },
    /// Prints each change once and in order, as NUMBER KEY VALUE
    Follow {
        /// Number of the last change that was seen
        #[arg(long, value_name = "NUMBER", default_value = "0")]
        after: u64,
    },
    /// Counts a key up from its value, and checks each answer
    Count {
        /// The key
        key: String,
        /// The last value
        to: u64,
    },
}

/// Settings of a server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// File of the changes, which all servers share.
    pub(crate) changes: PathBuf,
    /// Address at which others reach this server, if it is not the one it listens at.
    pub(crate) reached_at: Option<String>,
    /// Address of the page `/metrics`.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) node: NodeSettings,
}
