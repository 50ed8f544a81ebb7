//! A page, as the program holds it.

use crate::error::PageError;
use crate::gather::{Gatherer, THERE, WATCH};
use crate::guard::Guard;
use crate::hub::{Hub, PageStats};
use crate::server;
use crate::state::NodeState;
use chunkcomm::Node;
use chunkcomm::layer::WeakNode;
use chunkcomm::watch::WatchSender;
use chunkcomm_cluster::Cluster;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Environment variable that [`from_env`] reads: `CHUNKCOMM_PAGE`.
pub const PAGE_VARIABLE: &str = "CHUNKCOMM_PAGE";

/// Time between two reports of a member that is watched: 1 s.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// Time in which viewers get the last state when the page ends. The program does not wait for it.
const LAST: Duration = Duration::from_secs(2);

/// A page that is served, or a node that the page of another member shows. It ends when this is dropped; what browsers
/// show last stays there.
#[must_use = "a page ends when it is dropped"]
pub struct Page {
    hub: Option<Arc<Hub>>,
    address: Option<SocketAddr>,
    /// Ends the thread by its drop.
    _stop: Option<oneshot::Sender<()>>,
    joined: Option<Joined>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        f.debug_struct("Page").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Ends the reports of a node by its drop.
struct Joined(AbortHandle);

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Page {
    /// Serves a page about this node at an address of loopback; port 0 takes a free one. In a cluster it shows the
    /// members that [join](Page::join), too. It does not keep the node; while it shows other members, their channels do, until
    /// the node is closed or nobody looks.
    ///
    /// The page has a thread of its own, so that it shows a program whose runtime is blocked.
    ///
    /// # Errors
    ///
    /// - [`PageError::BeyondLoopback`]: other machines reach the address.
    /// - [`PageError::Listen`]: the address cannot be had.
    /// - [`PageError::System`]: there is no thread, or there are no random numbers.
    pub fn serve(node: &Node, address: SocketAddr) -> Result<Page, PageError> {
        if !address.ip().is_loopback() {
            return Err(PageError::BeyondLoopback { address });
        }
        let failed = |error: io::Error| PageError::Listen { address, error: Arc::new(error) };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let failed = |error: io::Error| PageError::System(Arc::new(error));
        let guard = Guard::new(address).map_err(failed)?;
        let hub = Arc::new(Hub::new(node.downgrade(), guard));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let (events, changes) = (node.events(), Cluster::of(node).map(|it| it.changes()));
        let served = Arc::clone(&hub);
        let serve = move || {
            runtime.block_on(async {
                let noting = served.note_events(events, changes);
                let serving = server::serve(listener, &served);
                let gathering = served.gather_for_viewers();
                tokio::select! {
                    _ = stopped => {}
                    // Each of them ends with the node; its last state is shown until the page ends.
                    ((), (), ()) = async { tokio::join!(noting, serving, gathering) } => {}
                }
                served.end();
                let _ = tokio::time::timeout(LAST, server::last_word(&served)).await;
            });
        };
        std::thread::Builder::new()
            .name("chunkcomm-page".to_owned())
            .spawn(serve)
            .map_err(failed)?;
        Ok(Page { hub: Some(hub), address: Some(address), _stop: Some(stop), joined: None })
    }

    /// Lets pages of other members of the cluster show this node. It gathers once a second while one of them has
    /// viewers.
    ///
    /// # Errors
    ///
    /// [`PageError::Join`]: the node is closed, or has joined already.
    pub fn join(node: &Node) -> Result<Page, PageError> {
        let publisher = node.publish(WATCH, NodeState::default()).map_err(PageError::Join)?;
        let task = node.runtime().spawn(report(node.downgrade(), publisher));
        let joined = Some(Joined(task.abort_handle()));
        Ok(Page { hub: None, address: None, _stop: None, joined })
    }

    /// Returns the address to open in a browser, with the token behind `#`, which browsers send to nobody; `None` if no page is served here.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        let (hub, address) = (self.hub.as_ref()?, self.address?);
        Some(format!("http://{address}/#{}", hub.guard.token()))
    }

    /// Returns the counts of the page.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        self.hub.as_ref().map(|hub| hub.stats()).unwrap_or_default()
    }

    /// Whether the page of another member may show this node.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.joined.is_some()
    }
}

/// Reports while somebody watches, until the node is gone.
async fn report(node: WeakNode, publisher: WatchSender<NodeState>) {
    loop {
        publisher.watched().await;
        let mut gatherer = Gatherer::new(THERE);
        while publisher.receiver_count() > 0 {
            let Some(node) = node.upgrade() else { return };
            let state = gatherer.gather(&node).await;
            drop(node);
            // It is bounded, and has texts and numbers alone.
            let _ = publisher.send_replace(state.bounded());
            tokio::time::sleep(REPORTED_EVERY).await;
        }
    }
}

/// Serves a page if the environment says so, and prints its address to standard error.
///
/// | `CHUNKCOMM_PAGE` | at rank 0, or without a cluster | at other members |
/// |---|---|---|
/// | is not set, or empty | nothing | nothing |
/// | an address: `127.0.0.1:8080`; port 0 takes a free one | serves the page | lets rank 0 show the node |
///
/// Call it on each node, after it has joined its cluster, and keep the page while the program runs.
///
/// # Errors
///
/// [`PageError::Address`] if the variable is no address, and those of [`Page::serve`] and [`Page::join`].
pub fn from_env(node: &Node) -> Result<Option<Page>, PageError> {
    let Some(given) = std::env::var_os(PAGE_VARIABLE).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let given = given.to_string_lossy();
    Page::at(node, &given).map(Some)
}

impl Page {
    /// Serves a page at this address at rank 0 or without a cluster, and prints its own address; lets rank 0 show the
    /// node at other members.
    ///
    /// # Errors
    ///
    /// As [`from_env`].
    pub fn at(node: &Node, address: &str) -> Result<Page, PageError> {
        let parsed = address.parse().ok();
        let parsed = parsed.ok_or_else(|| PageError::Address { given: address.to_owned() })?;
        if Cluster::of(node).is_some_and(|cluster| cluster.rank() != 0) {
            return Page::join(node);
        }
        let page = Page::serve(node, parsed)?;
        if let Some(url) = page.url() {
            eprintln!("the page of this run: {url}");
        }
        Ok(page)
    }
}
