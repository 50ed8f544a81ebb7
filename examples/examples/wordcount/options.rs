//! The command line of the program.

use std::path::PathBuf;

use chunkcomm_examples::cluster_options::ClusterOptions;
use chunkcomm_examples::command_line::numbers;
use clap::Parser;

#[derive(Parser)]
#[command(
    name = "wordcount",
    about = "Counts the words of text files on the nodes of a cluster; rank 0 has the files"
)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) cluster: ClusterOptions,

    /// Text files and folders; of a folder all files below it, except hidden ones and links
    #[arg(required_unless_present = "explain_launch", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Number of most frequent words to print
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = numbers::<usize>(0..=1_000_000))]
    pub(crate) top: usize,

    /// Skip the comparison with a sequential count, which takes longer than all else
    #[arg(long)]
    pub(crate) no_check: bool,
}
