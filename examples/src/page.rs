//! `--page`: the live page of a program, behind the feature `page`.

use std::error::Error;

use chunkcomm::Node;

use crate::cluster_options::ClusterOptions;
use crate::lan::Refused;

/// Checks `--page`, and notes its address for the node of this program.
///
/// # Errors
/// The program was built without the feature, or runs in virtual time.
pub(crate) fn want(options: &ClusterOptions) -> Result<(), Refused> {
    let Some(address) = &options.page else { return Ok(()) };
    if !cfg!(feature = "page") {
        let text = "this program was built without the page: add --features chunkcomm-examples/page to cargo's command";
        return Err(Refused(text.to_owned()));
    }
    if options.lan.spec().is_some() {
        return Err(Refused("--page is for the real network: allowed with --lan real".to_owned()));
    }
    shown::want(address);
    Ok(())
}

/// Shows this node, if the command line or the environment says so.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn show(node: &Node) -> Result<(), Box<dyn Error>> {
    shown::show(node)
}

/// Ends the page: browsers keep its last state.
pub(crate) fn end() {
    shown::end();
}

#[cfg(feature = "page")]
mod shown {
    use std::error::Error;
    use std::sync::{Mutex, PoisonError};

    use chunkcomm::{Node, host};
    use chunkcomm_page::{Page, from_env};

    /// The address of the command line.
    static WANTED: Mutex<Option<String>> = Mutex::new(None);

    static SHOWN: Mutex<Option<Page>> = Mutex::new(None);

    pub(super) fn want(address: &str) {
        *WANTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(address.to_owned());
    }

    pub(super) fn show(node: &Node) -> Result<(), Box<dyn Error>> {
        if host::is_virtual() {
            return Ok(());
        }
        let wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let page = match wanted {
            Some(address) => Some(Page::at(node, &address)?),
            None => from_env(node)?,
        };
        let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if page.is_some() {
            *shown = page;
        }
        Ok(())
    }

    pub(super) fn end() {
        SHOWN.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

#[cfg(not(feature = "page"))]
mod shown {
    use std::error::Error;

    use chunkcomm::Node;

    pub(super) fn want(_address: &str) {}

    pub(super) fn show(_node: &Node) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    pub(super) fn end() {}
}
