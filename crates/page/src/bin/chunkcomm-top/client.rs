//! The states of a page, over its own connection.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longest state that is taken: 64 MiB.
const STATE_BYTES_MAX: u64 = 64 << 20;

/// Longest time without a byte from the page.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How an address looks.
const LIKE: &str = "http://127.0.0.1:8080/#...";

/// A page: its socket's address and its token.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    host: String,
    token: String,
}

/// States as they come.
pub(crate) struct States(BufReader<TcpStream>);

/// Splits an address into that of the socket, and the token behind it.
pub(crate) fn parts(address: &str) -> (&str, Option<&str>) {
    let rest = address.strip_prefix("http://").unwrap_or(address);
    let (host, token) =
        rest.split_once('#').map_or((rest, None), |(host, token)| (host, Some(token)));
    (host.trim_end_matches('/'), token)
}

fn wrong(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl Client {
    /// Takes the address that a program printed; the token may have come apart from it.
    pub(crate) fn new(address: &str, token: Option<&str>) -> io::Result<Client> {
        let (host, behind) = parts(address);
        let token = token.map(|token| parts(token).1.unwrap_or(token)).or(behind);
        let is_plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
        let Some(token) = token.filter(|token| is_plain(token) && is_plain(host)) else {
            // Without the token.
            let text = format!(
                "{host:?} is not the address of a page, or has no token: it is like {LIKE}"
            );
            return Err(wrong(text));
        };
        Ok(Client { host: host.to_owned(), token: token.to_owned() })
    }

    /// Asks for a path, and reads the head of the answer.
    fn ask(&self, path: &str) -> io::Result<BufReader<TcpStream>> {
        let Client { host, token } = self;
        let mut stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        // The older version has no chunks.
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
        )?;
        let mut answer = BufReader::new(stream);
        let status = line(&mut answer)?;
        let is_ok = status.split(' ').nth(1) == Some("200");
        while !line(&mut answer)?.is_empty() {}
        if !is_ok {
            let mut why = String::new();
            answer.take(500).read_to_string(&mut why)?;
            return Err(wrong(format!("{host} refuses: {}", why.trim())));
        }
        Ok(answer)
    }

    /// Returns the present state.
    pub(crate) fn state(&self) -> io::Result<Value> {
        let mut text = String::new();
        self.ask("/state.json")?.take(STATE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Returns the states as they come.
    pub(crate) fn states(&self) -> io::Result<States> {
        Ok(States(self.ask("/events")?))
    }
}

impl States {
    /// Waits for the next state; `None` after the last one.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        loop {
            let mut text = String::new();
            if self.0.by_ref().take(STATE_BYTES_MAX).read_line(&mut text)? == 0 {
                return Ok(None);
            }
            if let Some(json) = text.strip_prefix("data: ") {
                return Ok(Some(serde_json::from_str(json)?));
            }
        }
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(64 << 10).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_token() {
        let given = |address: &str, token| {
            Client::new(address, token).map(|it| (it.host, it.token)).map_err(|it| it.to_string())
        };
        let expected = Ok(("127.0.0.1:80".to_owned(), "ab".to_owned()));
        for good in ["http://127.0.0.1:80/#ab", "127.0.0.1:80#ab"] {
            assert_eq!(given(good, None), expected);
        }
        for apart in ["ab", "http://127.0.0.1:80/#ab"] {
            assert_eq!(given("http://127.0.0.1:80/", Some(apart)), expected);
        }
        for bad in ["http://127.0.0.1:80/", "", "#ab", "127.0.0.1:80/#", "127.0.0.1:80/#a\r\nb"] {
            let error = given(bad, None).unwrap_err();
            assert!(error.contains("is not the address") && !error.contains("ab"), "{error}");
        }
    }
}
