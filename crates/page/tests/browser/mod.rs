//! A headless Chromium, driven over its debugging socket.

use serde_json::{Value, json};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error>;

/// Time in which the browser is to answer, and an expression to become true.
const WITHIN: Duration = Duration::from_secs(30);

/// Time in which the browser is to start: the machine may have other work.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// A browser with one tab, which ends with it.
pub(crate) struct Browser {
    process: Child,
    socket: TcpStream,
    asked: u64,
    /// After the process.
    _profile: Profile,
}

/// The browser's folder, which is removed with it.
struct Profile(PathBuf);

impl Drop for Profile {
    fn drop(&mut self) {
        // Processes of the browser that are ending may still write there.
        for _ in 0..40 {
            if std::fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("{} could not be removed", self.0.display());
    }
}

/// Returns the program, where it is installed.
pub(crate) fn program() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&paths).map(|it| it.join("chromium"));
    programs.find(|it| it.is_file())
}

impl Browser {
    /// Starts the browser. It needs neither a display nor the rights of its sandbox.
    pub(crate) fn start(program: &Path) -> Result<Browser, Failure> {
        let mut unique = [0; 8];
        getrandom::fill(&mut unique).map_err(io::Error::other)?;
        let name = format!("chunkcomm-page-{:016x}", u64::from_le_bytes(unique));
        let profile = Profile(std::env::temp_dir().join(name));
        std::fs::create_dir(&profile.0)?;
        let mut process = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-breakpad",
                "--disable-dev-shm-usage",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .arg("about:blank")
            .env("HOME", &profile.0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let begun = Instant::now();
        loop {
            match connect(&profile.0) {
                Ok(socket) => return Ok(Browser { process, socket, asked: 0, _profile: profile }),
                Err(error) if begun.elapsed() > STARTS_WITHIN => {
                    let _ = process.kill();
                    let _ = process.wait();
                    return Err(format!("chromium does not answer: {error}").into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Opens an address in a window of this size.
    pub(crate) fn open(&mut self, url: &str, (width, height): (u32, u32)) -> Result<(), Failure> {
        self.resize(width, height)?;
        let answer = self.call("Page.navigate", &json!({ "url": url }))?;
        match answer["errorText"].as_str() {
            Some(error) => Err(error.into()),
            None => self.until("typeof connect === 'function'"),
        }
    }

    pub(crate) fn resize(&mut self, width: u32, height: u32) -> Result<(), Failure> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Result<Value, Failure> {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &asked)?;
        if !answer["exceptionDetails"].is_null() {
            return Err(format!("{expression}: {}", answer["exceptionDetails"]).into());
        }
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        // The document may not be there yet.
        let expression = &format!("document.readyState === 'complete' && ({expression})");
        while !matches!(self.value(expression), Ok(Value::Bool(true))) {
            if begun.elapsed() > WITHIN {
                let text = self.value("document.body.innerText")?;
                return Err(format!("{expression} does not become true: {text}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Shows the page at another size, light or dark, and writes a picture of it as base64.
    pub(crate) fn picture(
        &mut self,
        width: u32,
        height: u32,
        is_dark: bool,
    ) -> Result<String, Failure> {
        self.resize(width, height)?;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media)?;
        std::thread::sleep(Duration::from_millis(500));
        let mut answer = self.call("Page.captureScreenshot", &json!({}))?;
        match answer["data"].take() {
            Value::String(data) => Ok(data),
            _ => Err("there is no picture".into()),
        }
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, Failure> {
        self.asked += 1;
        let asked = json!({ "id": self.asked, "method": method, "params": parameters }).to_string();
        // A text in one frame, whose mask is zero.
        let mut frame = vec![0x81, 0x80 | 127];
        frame.extend((asked.len() as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(asked.as_bytes());
        self.socket.write_all(&frame)?;
        loop {
            let mut answer: Value = serde_json::from_slice(&self.message()?)?;
            if answer["id"] == self.asked {
                return match answer["error"].is_null() {
                    true => Ok(answer["result"].take()),
                    false => Err(answer["error"].to_string().into()),
                };
            }
        }
    }

    fn message(&mut self) -> Result<Vec<u8>, Failure> {
        let mut message = Vec::new();
        loop {
            let mut head = [0; 2];
            self.socket.read_exact(&mut head)?;
            let mut length = u64::from(head[1] & 0x7f);
            if length == 126 {
                let mut bytes = [0; 2];
                self.socket.read_exact(&mut bytes)?;
                length = u16::from_be_bytes(bytes).into();
            } else if length == 127 {
                let mut bytes = [0; 8];
                self.socket.read_exact(&mut bytes)?;
                length = u64::from_be_bytes(bytes);
            }
            let begin = message.len();
            message.resize(begin + usize::try_from(length)?, 0);
            self.socket.read_exact(&mut message[begin..])?;
            if head[0] & 0x80 != 0 {
                return Ok(message);
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.call("Browser.close", &json!({}));
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Connects to the debugging socket of the page.
fn connect(profile: &Path) -> Result<TcpStream, Failure> {
    let text = std::fs::read_to_string(profile.join("DevToolsActivePort"))?;
    let port: u16 = text.lines().next().ok_or("no port")?.parse()?;
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(WITHIN))?;
    write!(
        stream,
        "GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    )?;
    let head = head(&mut stream)?.to_lowercase();
    let length =
        head.lines().find_map(|it| it.strip_prefix("content-length:")).ok_or("no length")?;
    let mut list = vec![0; length.trim().parse()?];
    stream.read_exact(&mut list)?;
    let list: Value = serde_json::from_slice(&list)?;
    let pages = list.as_array().ok_or("no list")?;
    let page = pages.iter().find(|it| it["type"] == "page").ok_or("no page")?;
    let address = page["webSocketDebuggerUrl"].as_str().ok_or("no socket")?;
    let path = address.splitn(4, '/').nth(3).ok_or("no path")?;
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(WITHIN))?;
    let key = "AAAAAAAAAAAAAAAAAAAAAA==";
    write!(
        socket,
        "GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )?;
    let head = self::head(&mut socket)?;
    if head.starts_with("HTTP/1.1 101") { Ok(socket) } else { Err(head.into()) }
}

/// Reads the head of an answer, byte by byte.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
