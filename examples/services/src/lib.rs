//! Just enough of an HTTP client for the demonstration of the program and for its tests.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A connection that carries requests one after the other.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

/// Answer of the service.
#[derive(Debug)]
pub struct Answer {
    /// Status code, such as 200.
    pub status: u16,
    /// Text of the body.
    pub body: String,
}

impl Client {
    /// Connects to the service.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends a POST request with this body and waits for the answer.
    ///
    /// # Errors
    /// The connection has ended, or the bytes that came are no answer.
    pub fn post(&mut self, path: &str, body: &str) -> io::Result<Answer> {
        let bytes = body.len();
        self.write(&format!(
            "POST {path} HTTP/1.1\r\nHost: telemetry\r\nContent-Length: {bytes}\r\n\r\n{body}"
        ))?;
        self.answer()
    }

    /// Sends a GET request and waits for the answer.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.write(&format!("GET {path} HTTP/1.1\r\nHost: telemetry\r\n\r\n"))?;
        self.answer()
    }

    /// Writes a part of a request.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub fn answer(&mut self) -> io::Result<Answer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut bytes = 0;
        loop {
            let line = self.line()?;
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    bytes = value.trim().parse().map_err(io::Error::other)?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; bytes];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(Answer { status: status.ok_or_else(|| io::Error::other("no status"))?, body })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}
