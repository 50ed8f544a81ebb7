//! The page as a browser has it: a real headless Chromium, which is skipped with a reason where it is missing, and plain
//! requests over a socket.
//!
//! `CHUNKCOMM_PAGE_DEMO=SECONDS cargo test -p chunkcomm-page --test page` keeps a farm running, to look at.

mod browser;

use browser::Browser;
use chunkcomm::{Node, channel};
use chunkcomm_cluster::{Function, Registry};
use chunkcomm_farm::{Farm, serve_if_started};
use chunkcomm_page::{Page, PageError};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

type Outcome = Result<(), Box<dyn Error>>;

/// Names the folder for pictures of the page, as base64.
const PICTURES_VARIABLE: &str = "CHUNKCOMM_PAGE_PICTURES";

/// Number of workers of the farm.
const WORKERS: usize = 4;

fn main() -> Outcome {
    let mut registry = Registry::new();
    let nap = registry.register("nap", |ms: u64| {
        std::thread::sleep(Duration::from_millis(ms));
        ms
    });
    serve_if_started(&registry);

    let runtime = Runtime::new()?;
    if let Some(seconds) = std::env::var("CHUNKCOMM_PAGE_DEMO").ok().and_then(|it| it.parse().ok())
    {
        return runtime.block_on(demo(registry, nap, Duration::from_secs(seconds)));
    }
    for (name, test) in [
        ("strangers_are_refused", strangers as fn(&Runtime) -> Outcome),
        ("silent_sockets_do_not_lock_the_page", silent),
        ("nothing_is_gathered_while_nobody_looks", idle),
        ("a_stopped_viewer_costs_nothing", stopped_viewer),
        ("a_watched_page_does_not_keep_the_node", node_ends),
        ("a_blocked_program_is_shown_as_that", blocked),
    ] {
        told(name, test(&runtime))?;
    }
    let tests = [
        ("names_never_become_markup", markup as Test),
        ("the_token_stays_in_the_tab", token),
        ("nonsense_of_a_member_leaves_the_others", nonsense),
        ("a_hidden_tab_does_not_look", hidden),
        ("an_open_page_keeps_its_last_state", end),
        ("members_are_chosen_by_the_keyboard", keyboard),
        ("a_thousand_members_stay_legible", thousand),
    ];
    let last = "a_killed_worker_is_shown";
    let Some(program) = browser::program() else {
        for name in tests.iter().map(|it| it.0).chain([last]) {
            println!("test {name} ... skipped: chromium is not installed");
        }
        return Ok(());
    };
    let mut browser = Browser::start(&program)?;
    for (name, test) in tests {
        told(name, test(&runtime, &mut browser))?;
    }
    told(last, runtime.block_on(farm_with_a_death(registry, nap, browser)))
}

/// A test in a browser.
type Test = fn(&Runtime, &mut Browser) -> Outcome;

fn told(name: &str, outcome: Outcome) -> Outcome {
    outcome.map_err(|error| format!("{name}: {error}"))?;
    println!("test {name} ... ok");
    Ok(())
}

type Nap = Function<u64, u64>;

async fn demo(registry: Registry, nap: Nap, time: Duration) -> Outcome {
    let mut farm = Farm::builder(registry).workers(WORKERS).start().await?;
    let page = Page::at(farm.node(), "127.0.0.1:0")?;
    let kill = farm.workers()[1].pid;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(6)).await;
        kill.map(kill_process)
    });
    let count = time.as_millis() as u64 * WORKERS as u64 / 275;
    farm.run(&nap, (0..count).map(|at| 50 + 450 * (at * 7919 % 100) / 100)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(page);
    tokio::time::sleep(Duration::from_secs(5)).await;
    farm.finish(Duration::from_secs(5)).await?;
    Ok(())
}

fn kill_process(pid: u32) {
    let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A page of a node without peers.
fn page(runtime: &Runtime) -> Result<(Node, Page, String), Box<dyn Error>> {
    let node =
        runtime.block_on(Node::builder().name("here").listen("127.0.0.1:0".parse()?).build())?;
    let page = Page::serve(&node, loopback())?;
    let url = page.url().ok_or("no address")?;
    Ok((node, page, url))
}

/// Splits an address into that of the socket and the token.
fn parts(url: &str) -> Result<(String, String), Box<dyn Error>> {
    let rest = url.strip_prefix("http://").ok_or("no http")?;
    let (host, token) = rest.split_once("/#").ok_or("no token")?;
    Ok((host.to_owned(), token.to_owned()))
}

/// Makes a request, and returns status, head and body.
fn ask(address: &str, lines: &str) -> Result<(u16, String), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("{lines}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, text))
}

fn expect(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Returns a request for a path of the page, with the token.
fn get(path: &str, host: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}")
}

/// Looks at a page, and reads nothing.
fn look(host: &str, token: &str) -> Result<TcpStream, Box<dyn Error>> {
    let mut stream = TcpStream::connect(host)?;
    stream.write_all((get("/events", host, token) + "\r\n\r\n").as_bytes())?;
    Ok(stream)
}

fn strangers(runtime: &Runtime) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    let plain =
        |path: &str, host: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}{more}");
    let status = |lines: &str| ask(&host, lines).map(|it| it.0);
    for path in ["/state.json", "/events", "/metrics", "/other"] {
        expect(status(&plain(path, &host, ""))? == 401, "a state needs the token")?;
        expect(status(&get(path, &host, "0000"))? == 401, "another token")?;
        let path = format!("{path}?token={token}");
        expect(status(&plain(&path, &host, ""))? == 401, "an address is no place for the token")?;
        let cookie = format!("\r\nCookie: chunkcomm-page-token={token}");
        expect(status(&plain(&path, &host, &cookie))? == 401, "nor is a cookie")?;
    }
    let good = get("/state.json", &host, &token);
    expect(status(&get("/state.json", "evil.example", &token))? == 421, "a rebound name")?;
    for more in ["Origin: http://evil.example", "Sec-Fetch-Site: same-site"] {
        expect(status(&format!("{good}\r\n{more}"))? == 403, "a page of another site")?;
    }
    let post = format!("POST /state.json HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0");
    expect(status(&post)? == 405, "only GET")?;
    // The page itself holds nothing.
    for path in ["/", "/page.js", "/page.css"] {
        let (status, text) = ask(&host, &plain(path, &host, ""))?;
        let head = text.to_lowercase();
        let policy = "content-security-policy: default-src 'none'; script-src 'self'";
        expect(status == 200 && head.contains(policy), &text)?;
        expect(!head.contains("set-cookie") && !text.contains(&token), "a file has the token")?;
    }
    expect(status(&good)? == 200, "the bearer is enough")?;
    let (status, text) = ask(&host, &get("/metrics", &host, &token))?;
    expect(status == 200 && text.contains("# TYPE chunkcomm_messages_sent_total counter"), &text)?;
    let beyond = Page::serve(&node, SocketAddr::from(([0, 0, 0, 0], 0)));
    expect(matches!(beyond, Err(PageError::BeyondLoopback { .. })), "beyond loopback")
}

/// More connections than the page has, of somebody without the token.
fn silent(runtime: &Runtime) -> Outcome {
    let (_node, _page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    let sockets = (0..200).map(|_| TcpStream::connect(&host)).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    let (status, _) = ask(&host, &get("/state.json", &host, &token))?;
    expect(status == 200 && begun.elapsed() < Duration::from_secs(8), "the page is locked")?;
    drop(sockets);
    Ok(())
}

fn idle(runtime: &Runtime) -> Outcome {
    let (_node, page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    std::thread::sleep(Duration::from_millis(600));
    expect(page.stats().gathered == 0, "it gathered before anybody looked")?;
    let stream = look(&host, &token)?;
    until("nothing is gathered for a viewer", || page.stats().gathered >= 3)?;
    drop(stream);
    until("the viewer is still there", || page.stats().viewers == 0)?;
    let gathered = page.stats().gathered;
    std::thread::sleep(Duration::from_millis(600));
    expect(page.stats().gathered <= gathered + 1, "it gathers for nobody")
}

/// A program that drops its last handle has ended, though somebody looks.
fn node_ends(runtime: &Runtime) -> Outcome {
    let (node, page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    let weak = node.downgrade();
    let _stream = look(&host, &token)?;
    until("nothing is gathered for a viewer", || page.stats().gathered >= 2)?;
    drop(node);
    until("the page keeps the node", || weak.upgrade().is_none())?;
    let (status, text) = ask(&host, &get("/state.json", &host, &token))?;
    expect(status == 200 && text.contains("\"ended\":true"), &text)
}

/// A node on a runtime whose only thread does something else: all of its links do not answer.
fn blocked(runtime: &Runtime) -> Outcome {
    let own = Builder::new_current_thread().enable_all().build()?;
    let listening = async {
        Node::builder()
            .name("here")
            .listen("127.0.0.1:0".parse()?)
            .build()
            .await
            .map_err(Box::<dyn Error>::from)
    };
    let node = own.block_on(listening)?;
    let (stop, stopped) = mpsc::channel::<()>();
    let page = Page::serve(&node, loopback())?;
    let url = page.url().ok_or("no address")?;
    let (host, token) = parts(&url)?;
    let (goes_on, turn) = oneshot::channel::<()>();
    let running = std::thread::spawn(move || {
        let _ = own.block_on(turn);
        // Blocked until the test ends.
        let _ = stopped.recv();
    });
    let peers = runtime.block_on(peers(&node, 5, "peer"))?;
    let _ = goes_on.send(());
    std::thread::sleep(Duration::from_millis(100));
    let (status, text) = ask(&host, &get("/state.json", &host, &token))?;
    drop(stop);
    running.join().map_err(|_| "it panicked")?;
    drop(peers);
    let stuck = text.matches("\"state\":\"its driver does not run").count();
    expect(status == 200 && stuck == 5, &text)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Outcome {
    let begun = Instant::now();
    while !holds() {
        expect(begun.elapsed() < Duration::from_secs(20), what)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A viewer that reads nothing: the page hands it what the socket takes, and no more.
fn stopped_viewer(runtime: &Runtime) -> Outcome {
    let (node, page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    // States of some hundred KB, five a second.
    let peers = runtime.block_on(peers(&node, 80, "a"))?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4 << 10)?;
        socket.connect(host.parse().map_err(io::Error::other)?).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    (&stream).write_all((get("/events", &host, &token) + "\r\n\r\n").as_bytes())?;
    until("nothing is sent", || page.stats().sent > 0)?;
    let mut last = (page.stats().sent, Instant::now());
    until("a viewer that does not read gets ever more", || {
        if page.stats().sent != last.0 {
            last = (page.stats().sent, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(2)
    })?;
    let gathered = page.stats().gathered;
    // Another viewer is not held up.
    let (status, _) = ask(&host, &get("/state.json", &host, &token))?;
    expect(status == 200, "another viewer waits for the stopped one")?;
    until("the page stands still", || page.stats().gathered > gathered + 2)?;
    drop((stream, peers));
    Ok(())
}

/// Connects this number of nodes to a node.
async fn peers(to: &Node, count: usize, name: &str) -> Result<Vec<Node>, Box<dyn Error>> {
    let mut nodes = Vec::new();
    for at in 0..count {
        let node = Node::builder().name(format!("{name}-{at:04}")).quiet().build().await?;
        node.connect(&to.addresses()[0]).await?;
        nodes.push(node);
    }
    Ok(nodes)
}

const WINDOW: (u32, u32) = (1000, 800);

const IS_LIVE: &str = "document.body.dataset.live === 'live'";

fn markup(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    browser.open(&url, WINDOW)?;
    let peer = runtime.block_on(async {
        let name = "<script>a()</script><img src=x>";
        let peer = Node::builder().name(name).quiet().build().await?;
        let to = peer.connect(&node.addresses()[0]).await?;
        let mut sender = peer.open::<u64>(&to, channel("<b>channel</b>")).await?;
        sender.send(&1).await?;
        Ok::<_, Box<dyn Error>>((peer, sender))
    })?;
    browser.until(IS_LIVE)?;
    browser.until(
        "document.getElementById('links').innerText.includes('<script>a()</script><img src=x>')",
    )?;
    let made = "document.querySelectorAll('img, b, main script').length";
    expect(browser.value(made)? == 0, "a name has become markup")?;
    drop(peer);
    Ok(())
}

/// The token is in no cookie and no address; a tab keeps it when it loads the page again.
fn token(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (_node, page, url) = page(runtime)?;
    browser.open(&url, WINDOW)?;
    browser.until(IS_LIVE)?;
    expect(browser.value("location.href + document.cookie")? == url_without(&url), "the token")?;
    browser.value("location.reload()")?;
    browser.until(IS_LIVE)?;
    // Without the token there is nothing to see, until the address comes.
    browser.value("sessionStorage.clear(); location.reload()")?;
    browser
        .until("document.getElementById('live-text').textContent.startsWith('open the addr')")?;
    let hash = url.split_once('#').ok_or("no token")?.1;
    browser.value(&format!("location.hash = '{hash}'"))?;
    browser.until(IS_LIVE)?;
    drop(page);
    Ok(())
}

fn url_without(url: &str) -> String {
    url.split('#').next().unwrap_or_default().to_owned()
}

/// A state with a member, a section and a link of which nothing is as it should be: the others are shown.
fn nonsense(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 3, "peer"))?;
    browser.open(&url, WINDOW)?;
    browser.until("document.querySelectorAll('.tile').length === 4")?;
    let shown = browser.value(
        "(() => { stream.abort(); stream = null; const state = structuredClone(last); \
         Object.assign(state.members[1], { messages: null, bytes: null, why: null, name: 7, host: {}, age_ms: 'x' }); \
         const good = { kind: 'farm', name: 'good', facts: [{ name: 'a', value: { Rate: null } }], tables: [], timeline: null }; \
         const bad = [null, {}, { kind: 'x', facts: [{ name: 'a', value: 7 }], tables: [{ columns: ['a'], rows: [[null]] }] }]; \
         state.sections = [...bad, good].map((it) => [state.here, it]); \
         state.node.links[0].rates = null; state.node.links[1].flushes = null; \
         take(state); return document.body.innerText; })()",
    )?;
    let shown = shown.as_str().ok_or("no text")?;
    for text in ["peer-0001", "peer-0002", "farm good", "cannot be shown"] {
        expect(shown.contains(text), &format!("{text} is not in {shown}"))?;
    }
    drop(peers);
    Ok(())
}

fn hidden(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (_node, page, url) = page(runtime)?;
    browser.open(&url, WINDOW)?;
    browser.until(IS_LIVE)?;
    let hide = |is_hidden| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.value(&hide(true))?;
    until("a hidden tab looks", || page.stats().viewers == 0)?;
    browser.until("document.getElementById('live-text').textContent.startsWith('paused')")?;
    browser.value(&hide(false))?;
    browser.until(IS_LIVE)?;
    expect(page.stats().viewers == 1, "nobody looks")
}

fn end(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (node, page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 3, "peer"))?;
    browser.open(&url, WINDOW)?;
    browser.until("document.getElementById('grid').innerText.includes('peer-0002')")?;
    let begun = Instant::now();
    drop(page);
    expect(begun.elapsed() < Duration::from_secs(1), "the end waits for the browser")?;
    browser.until("document.body.dataset.live === 'ended'")?;
    let shown = browser.value("document.getElementById('grid').innerText")?;
    expect(shown.as_str().is_some_and(|it| it.contains("peer-0002")), "the last state is gone")?;
    let told = browser.value("document.getElementById('live-text').textContent")?;
    expect(told.as_str().is_some_and(|it| it.starts_with("ended at ")), &told.to_string())?;
    drop(peers);
    Ok(())
}

/// Another member is chosen by the keyboard alone.
fn keyboard(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (node, page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 5, "peer"))?;
    browser.open(&url, WINDOW)?;
    browser.until("document.querySelectorAll('.tile').length === 6")?;
    browser.value("document.querySelector('.tile[tabindex=\"0\"]').focus()")?;
    let press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}))";
    browser.value(press)?;
    browser.until("document.activeElement.textContent.includes('peer-0004')")?;
    // The next states leave the focus where it is.
    let sent = page.stats().sent;
    until("no more states", || page.stats().sent > sent + 3)?;
    browser.until("document.activeElement.textContent.includes('peer-0004')")?;
    drop(peers);
    Ok(())
}

/// Twenty nodes, each of which stands for fifty members.
fn thousand(runtime: &Runtime, browser: &mut Browser) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 19, "member"))?;
    browser.open(&url, WINDOW)?;
    browser.until("document.querySelectorAll('.tile').length === 20")?;
    browser.value(
        "(() => { stream.abort(); stream = null; const state = structuredClone(last); \
         const copy = (it, at) => ({ ...it, key: it.key + at, name: 'member-' + String(at).padStart(4, '0') }); \
         state.members = [...Array(1000).keys()].map((at) => at ? copy(state.members[at % 20], at) : state.members[0]); \
         take(state); })()",
    )?;
    expect(browser.value("document.querySelectorAll('.tile').length")? == 1000, "a thousand")?;
    for (width, height) in [(400, 800), (1600, 1000)] {
        browser.resize(width, height)?;
        browser.until(&format!("innerWidth === {width}"))?;
        save(browser, &format!("thousand-{width}"), (width, height), false)?;
        let scrolls = "(() => { const grid = document.getElementById('grid'); grid.scrollTop = 1e6; \
                       return grid.scrollTop > 0 && grid.scrollHeight > grid.clientHeight; })()";
        expect(browser.value(scrolls)? == true, "the grid does not scroll")?;
        let fits = "document.documentElement.scrollWidth <= innerWidth";
        expect(browser.value(fits)? == true, &format!("it is wider than {width} pixels"))?;
        let legible =
            "[...document.querySelectorAll('.tile .name')].every((it) => it.clientWidth > 60)";
        expect(
            browser.value(legible)? == true,
            &format!("the names have no room at {width} pixels"),
        )?;
    }
    drop(peers);
    Ok(())
}

/// Writes a picture, if somebody wants it.
fn save(browser: &mut Browser, name: &str, (width, height): (u32, u32), is_dark: bool) -> Outcome {
    let Some(folder) = std::env::var_os(PICTURES_VARIABLE) else { return Ok(()) };
    let picture = browser.picture(width, height, is_dark)?;
    Ok(std::fs::write(std::path::Path::new(&folder).join(format!("{name}.base64")), picture)?)
}

/// A farm of four workers, of which one is killed: the page shows it within a second of the death, by the page's clock
/// and the time of the node's event.
async fn farm_with_a_death(registry: Registry, nap: Nap, mut browser: Browser) -> Outcome {
    let mut farm = Farm::builder(registry).workers(WORKERS).start().await?;
    let page = Page::serve(farm.node(), loopback())?;
    let url = page.url().ok_or("no address")?;
    let pid = farm.workers()[2].pid.ok_or("no process")?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Stop(Arc::clone(&stop));
    let looking = std::thread::spawn(move || {
        let _stopping = stopping;
        see_death(&mut browser, &url, pid).map_err(|error| error.to_string())
    });
    // It runs as long as somebody looks.
    let tasks = (0_u64..).map_while(|_| (!stop.load(Ordering::Relaxed)).then_some(100));
    farm.run(&nap, tasks).await?;
    tokio::task::spawn_blocking(move || looking.join()).await?.map_err(|_| "it panicked")??;
    drop(page);
    farm.finish(Duration::from_secs(5)).await?;
    Ok(())
}

/// Ends the run by its drop.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn see_death(browser: &mut Browser, url: &str, pid: u32) -> Outcome {
    browser.open(url, (1600, 1000))?;
    let workers = "[...document.querySelectorAll('#sections tbody tr')]";
    browser.until(&format!(
        "{workers}.filter((it) => it.innerText.includes('works')).length === {WORKERS}"
    ))?;
    let lost = format!(
        "{workers}.some((it) => it.innerText.includes('process {pid})') && it.innerText.includes('SIGKILL'))"
    );
    let deaths = "[...document.querySelectorAll('#sections dl div')].some((it) => /^deaths\\s+1$/.test(it.innerText.trim()))";
    browser.value(&format!(
        "globalThis.seen = 0; setInterval(() => {{ if (!seen && {lost} && {deaths}) seen = Date.now(); }}, 20)"
    ))?;
    kill_process(pid);
    browser.until("seen > 0")?;
    let took = browser.value(
        "seen - last.events.findLast((it) => it.kind === 'gone' || it.kind === 'cut off').at_ms",
    )?;
    println!("the death was on the page after {took} ms");
    expect(took.as_f64().is_some_and(|it| it < 1000.0), "a death is shown after over a second")?;
    browser.until("document.querySelector('canvas').width > 100")?;
    if std::env::var_os(PICTURES_VARIABLE).is_none() {
        return Ok(());
    }
    std::thread::sleep(Duration::from_secs(2));
    for (name, size, is_dark) in [
        ("light", (1600, 1300), false),
        ("dark", (1600, 1300), true),
        ("narrow", (400, 1600), false),
    ] {
        save(browser, name, size, is_dark)?;
    }
    Ok(())
}
