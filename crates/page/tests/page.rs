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
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

type Outcome = Result<(), Box<dyn Error>>;

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
        ("nothing_is_gathered_while_nobody_looks", idle),
        ("names_never_become_markup", markup),
        ("a_stopped_viewer_costs_nothing", stopped_viewer),
        ("an_open_page_keeps_its_last_state", end),
        ("members_are_chosen_by_the_keyboard", keyboard),
        ("a_thousand_members_stay_legible", thousand),
    ] {
        test(&runtime).map_err(|error| format!("{name}: {error}"))?;
        println!("test {name} ... ok");
    }
    let farm = farm_with_a_death(registry, nap);
    runtime.block_on(farm).map_err(|error| format!("a_killed_worker_is_shown: {error}"))?;
    println!("test a_killed_worker_is_shown ... ok");
    Ok(())
}

type Nap = Function<u64, u64>;

async fn demo(registry: Registry, nap: Nap, time: Duration) -> Outcome {
    let mut farm = Farm::builder(registry).workers(WORKERS).start().await?;
    let page = Page::at(farm.node(), "127.0.0.1:8765")?;
    let kill = farm.workers()[1].pid;
    std::fs::write(
        std::env::temp_dir().join("chunkcomm-page-url"),
        page.url().unwrap_or_default(),
    )?;
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
    let (host, token) = rest.split_once("/?token=").ok_or("no token")?;
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

fn strangers(runtime: &Runtime) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    let get =
        |path: &str, host: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}{more}");
    let with_token = format!("/state.json?token={token}");
    let status = |lines: &str| ask(&host, lines).map(|it| it.0);
    expect(status(&get("/", &host, ""))? == 403, "the page needs the token")?;
    expect(status(&get("/state.json", &host, ""))? == 403, "so does a state")?;
    expect(status(&get("/?token=0000", &host, ""))? == 403, "another token")?;
    expect(status(&get(&with_token, "evil.example", ""))? == 421, "a rebound name")?;
    let of_site = "\r\nOrigin: http://evil.example";
    expect(status(&get(&with_token, &host, of_site))? == 403, "a page of another site")?;
    let post = format!("POST {with_token} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0");
    expect(status(&post)? == 405, "only GET")?;
    let (status, text) = ask(&host, &get(&format!("/?token={token}"), &host, ""))?;
    let head = text.to_lowercase();
    expect(status == 200 && head.contains("httponly; samesite=strict"), &text)?;
    expect(head.contains("content-security-policy: default-src 'none'; script-src 'self'"), &text)?;
    let cookie = format!(
        "\r\nCookie: chunkcomm-page-{}={token}",
        host.rsplit(':').next().unwrap_or_default()
    );
    expect(ask(&host, &get("/state.json", &host, &cookie))?.0 == 200, "the cookie is enough")?;
    let bearer = format!("\r\nAuthorization: Bearer {token}");
    let (status, text) = ask(&host, &get("/metrics", &host, &bearer))?;
    expect(status == 200 && text.contains("# TYPE chunkcomm_messages_sent_total counter"), &text)?;
    let beyond = Page::serve(&node, SocketAddr::from(([0, 0, 0, 0], 0)));
    expect(matches!(beyond, Err(PageError::BeyondLoopback { .. })), "beyond loopback")
}

fn idle(runtime: &Runtime) -> Outcome {
    let (_node, page, url) = page(runtime)?;
    let (host, token) = parts(&url)?;
    std::thread::sleep(Duration::from_millis(600));
    expect(page.stats().gathered == 0, "it gathered before anybody looked")?;
    let lines = format!("GET /events?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut stream = TcpStream::connect(&host)?;
    stream.write_all(lines.as_bytes())?;
    until("nothing is gathered for a viewer", || page.stats().gathered >= 3)?;
    drop(stream);
    until("the viewer is still there", || page.stats().viewers == 0)?;
    let gathered = page.stats().gathered;
    std::thread::sleep(Duration::from_millis(600));
    expect(page.stats().gathered <= gathered + 1, "it gathers for nobody")
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
    // States of some hundred KB, which no socket takes for long.
    let peers = runtime.block_on(peers(&node, 300, "a"))?;
    let mut stream = TcpStream::connect(&host)?;
    stream.write_all(
        format!("GET /events?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
    )?;
    until("nothing is sent", || page.stats().sent > 0)?;
    let mut last = (page.stats().sent, Instant::now());
    until("a viewer that does not read gets ever more", || {
        if page.stats().sent != last.0 {
            last = (page.stats().sent, Instant::now());
        }
        last.1.elapsed() > Duration::from_secs(4)
    })?;
    let gathered = page.stats().gathered;
    // Another viewer is not held up.
    let (status, _) =
        ask(&host, &format!("GET /state.json?token={token} HTTP/1.1\r\nHost: {host}"))?;
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

fn markup(runtime: &Runtime) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let Some(mut browser) = Browser::open(&url, 1000, 800)? else { return Ok(()) };
    let peer = runtime.block_on(async {
        let name = "<script>a()</script><img src=x>";
        let peer = Node::builder().name(name).quiet().build().await?;
        let to = peer.connect(&node.addresses()[0]).await?;
        let mut sender = peer.open::<u64>(&to, channel("<b>channel</b>")).await?;
        sender.send(&1).await?;
        Ok::<_, Box<dyn Error>>((peer, sender))
    })?;
    browser.until("document.body.dataset.live === 'live'")?;
    browser.until(
        "document.getElementById('links').innerText.includes('<script>a()</script><img src=x>')",
    )?;
    let made = "document.querySelectorAll('img, b, main script').length";
    expect(browser.value(made)? == 0, "a name has become markup")?;
    // The token stays in the cookie alone, which no script reads.
    expect(browser.value("location.search + document.cookie")? == "", "the token is in reach")?;
    drop(peer);
    Ok(())
}

fn end(runtime: &Runtime) -> Outcome {
    let (node, page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 3, "peer"))?;
    let Some(mut browser) = Browser::open(&url, 1000, 800)? else { return Ok(()) };
    browser.until("document.getElementById('grid').innerText.includes('peer-0002')")?;
    let begun = Instant::now();
    drop(page);
    expect(begun.elapsed() < Duration::from_millis(100), "the end waits for the browser")?;
    browser.until("document.body.dataset.live === 'ended'")?;
    let shown = browser.value("document.getElementById('grid').innerText")?;
    expect(shown.as_str().is_some_and(|it| it.contains("peer-0002")), "the last state is gone")?;
    let told = browser.value("document.getElementById('live-text').textContent")?;
    expect(told.as_str().is_some_and(|it| it.starts_with("ended at ")), &told.to_string())?;
    drop(peers);
    Ok(())
}

/// Another member is chosen by the keyboard alone.
fn keyboard(runtime: &Runtime) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 5, "peer"))?;
    let Some(mut browser) = Browser::open(&url, 1000, 800)? else { return Ok(()) };
    browser.until("document.querySelectorAll('.tile').length === 6")?;
    browser.value("document.querySelector('.tile[tabindex=\"0\"]').focus()")?;
    let press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'End', bubbles: true}))";
    browser.value(press)?;
    browser.until("document.activeElement.textContent.includes('peer-0004')")?;
    // The next states leave the focus where it is.
    std::thread::sleep(Duration::from_millis(700));
    browser.until("document.activeElement.textContent.includes('peer-0004')")?;
    drop(peers);
    Ok(())
}

fn thousand(runtime: &Runtime) -> Outcome {
    let (node, _page, url) = page(runtime)?;
    let peers = runtime.block_on(peers(&node, 999, "member"))?;
    for (width, height) in [(400, 800), (1600, 1000)] {
        let Some(mut browser) = Browser::open(&url, width, height)? else { return Ok(()) };
        browser.until("document.querySelectorAll('.tile').length === 1000")?;
        save(&mut browser, &format!("thousand-{width}"), (width, height), false)?;
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

/// Writes a picture where `CHUNKCOMM_PAGE_PICTURES` names a folder, as base64.
fn save(browser: &mut Browser, name: &str, (width, height): (u32, u32), is_dark: bool) -> Outcome {
    let Some(folder) = std::env::var_os("CHUNKCOMM_PAGE_PICTURES") else { return Ok(()) };
    let picture = browser.picture(width, height, is_dark)?;
    Ok(std::fs::write(std::path::Path::new(&folder).join(format!("{name}.base64")), picture)?)
}

/// A farm of four workers, of which one is killed: the page shows both within a second.
async fn farm_with_a_death(registry: Registry, nap: Nap) -> Outcome {
    let mut farm = Farm::builder(registry).workers(WORKERS).start().await?;
    let page = Page::serve(farm.node(), loopback())?;
    let url = page.url().ok_or("no address")?;
    let pid = farm.workers()[2].pid.ok_or("no process")?;
    let looking = std::thread::spawn(move || look(&url, pid).map_err(|error| error.to_string()));
    farm.run(&nap, vec![100_u64; 500]).await?;
    tokio::task::spawn_blocking(move || looking.join()).await?.map_err(|_| "it panicked")??;
    drop(page);
    farm.finish(Duration::from_secs(5)).await?;
    Ok(())
}

fn look(url: &str, pid: u32) -> Outcome {
    let Some(mut browser) = Browser::open(url, 1600, 1000)? else { return Ok(()) };
    let workers = "[...document.querySelectorAll('#sections tbody tr')]";
    browser.until(&format!(
        "{workers}.filter((it) => it.innerText.includes('works')).length === {WORKERS}"
    ))?;
    kill_process(pid);
    let killed = Instant::now();
    browser.until(&format!(
        "{workers}.some((it) => it.innerText.includes('process {pid})') && it.innerText.includes('SIGKILL'))"
    ))?;
    let deaths = "[...document.querySelectorAll('#sections dl div')].some((it) => /^deaths\\s+1$/.test(it.innerText.trim()))";
    browser.until(deaths)?;
    let took = killed.elapsed();
    println!("the death was on the page after {took:?}");
    expect(took < Duration::from_secs(1), "a death is shown after more than a second")?;
    browser.until("document.querySelector('canvas').width > 100")?;
    std::thread::sleep(Duration::from_secs(2));
    for (name, size, is_dark) in [
        ("light", (1600, 1300), false),
        ("dark", (1600, 1300), true),
        ("narrow", (400, 1600), false),
    ] {
        save(&mut browser, name, size, is_dark)?;
    }
    Ok(())
}
