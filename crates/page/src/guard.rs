//! The check of requests: those that a page of another site makes are refused, and states need the token of the run.
//!
//! | a request | is |
//! |---|---|
//! | with another `Host` than a name of loopback | refused: a stranger may have bound the name to this machine |
//! | with another `Origin` | refused: a page of another site makes it |
//! | with `Sec-Fetch-Site` of another origin | refused, unless somebody follows a link to the page |
//! | for what the program does, without the token | refused |
//!
//! The token comes as a bearer alone. A cookie would be sent to every port of the host, and so to servers of other users;
//! the part of an address behind `#` is sent to nobody.

use axum::http::{HeaderMap, HeaderValue, Method, header};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Bytes of a token: 16, as hexadecimal digits.
const TOKEN_BYTES: usize = 16;

/// The token of a run, and the names of its page.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    token: String,
    /// Values of `Host` that are the page's, with any port: `ssh -L` may have given it another one.
    hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Method,
    Host,
    Origin,
    Token,
}

impl Refused {
    /// Returns the words for whoever asked.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Refused::Method => "only GET is answered here\n",
            Refused::Host => {
                "this is not the page's address: open the one that the program printed\n"
            }
            Refused::Origin => "pages of other sites get nothing here\n",
            Refused::Token => {
                "the token of this run is missing: open the address that the program printed\n"
            }
        }
    }
}

impl Guard {
    /// Makes a token for a page at `address`.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Guard> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let token = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let own = match address.ip() {
            IpAddr::V4(own) => own.to_string(),
            IpAddr::V6(own) => format!("[{own}]"),
        };
        let hosts = vec![own, "localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        Ok(Guard { token, hosts })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Checks where a request comes from.
    pub(crate) fn check_origin(
        &self,
        method: &Method,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<(), Refused> {
        if method != Method::GET {
            return Err(Refused::Method);
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        let host =
            hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
        let host = host.filter(|host| self.hosts.iter().any(|own| is_host(host, own)));
        let host = host.ok_or(Refused::Host)?;
        let is_own =
            |origin: &HeaderValue| origin.as_bytes() == format!("http://{host}").as_bytes();
        let all = |name: &str, is_fine: &dyn Fn(&HeaderValue) -> bool| {
            headers.get_all(name).iter().all(is_fine)
        };
        let follows_link = path == "/"
            && all("sec-fetch-mode", &|mode| mode == "navigate")
            && all("sec-fetch-dest", &|what| what == "document");
        let is_same = |site: &HeaderValue| site == "same-origin" || site == "none" || follows_link;
        if all("origin", &is_own) && all("sec-fetch-site", &is_same) {
            Ok(())
        } else {
            Err(Refused::Origin)
        }
    }

    /// Checks the token of a request.
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let given = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let given = given.and_then(|it| it.strip_prefix("Bearer ")).map(str::trim);
        match given {
            Some(given) if same(given.as_bytes(), self.token.as_bytes()) => Ok(()),
            _ => Err(Refused::Token),
        }
    }
}

/// Whether a value of `Host` is this name, with a port or without.
fn is_host(given: &str, name: &str) -> bool {
    let Some((head, port)) = given.split_at_checked(name.len()) else { return false };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    head.eq_ignore_ascii_case(name)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Returns the value of a name in a query, as it stands there.
pub(crate) fn value<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    query?.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Compares in a time that does not depend on where the two differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: (&str, &str) = ("host", "127.0.0.1:8080");

    fn guard() -> Guard {
        Guard::new("127.0.0.1:8080".parse().unwrap()).unwrap()
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_token_comes_as_a_bearer() {
        let guard = guard();
        let token = guard.token().to_owned();
        assert_eq!(token.len(), 2 * TOKEN_BYTES);
        let check = |name: &'static str, value: &str| guard.check_token(&headers(&[(name, value)]));
        assert_eq!(check("authorization", &format!("Bearer {token}")), Ok(()));
        for (name, value) in [
            ("host", "127.0.0.1:8080"),
            ("cookie", &*format!("chunkcomm-page-8080={token}")),
            ("authorization", &token),
            ("authorization", &format!("Bearer {}", &token[1..])),
            ("authorization", "Bearer "),
        ] {
            assert_eq!(check(name, value), Err(Refused::Token), "{name}: {value}");
        }
    }

    #[test]
    fn a_rebound_name_is_refused_and_another_port_of_a_tunnel_is_not() {
        let guard = guard();
        let check = |lines: &[_]| guard.check_origin(&Method::GET, &headers(lines), "/");
        for own in ["127.0.0.1:8080", "127.0.0.1", "127.0.0.1:9000", "LOCALHOST:9000", "[::1]:9000"]
        {
            assert_eq!(check(&[("host", own)]), Ok(()), "{own}");
        }
        for other in [
            "evil.example:8080",
            "",
            "127.0.0.1:8080.evil.example",
            "127.0.0.1.evil.example",
            "localhost:",
            "127.0.0.1:80:80",
            "127.0.0.2:8080",
        ] {
            assert_eq!(check(&[("host", other)]), Err(Refused::Host), "{other}");
        }
        assert_eq!(check(&[]), Err(Refused::Host));
        assert_eq!(check(&[HOST, HOST]), Err(Refused::Host));
        let post = guard.check_origin(&Method::POST, &headers(&[HOST]), "/");
        assert_eq!(post, Err(Refused::Method));
    }

    /// Also a page of another port of this machine, where the server is another user's.
    #[test]
    fn pages_of_other_sites_and_ports_are_refused() {
        let guard = guard();
        let check = |lines: &[_], path| guard.check_origin(&Method::GET, &headers(lines), path);
        assert_eq!(check(&[HOST, ("origin", "http://127.0.0.1:8080")], "/events"), Ok(()));
        for origin in
            ["http://evil.example", "null", "https://127.0.0.1:8080", "http://127.0.0.1:8081"]
        {
            assert_eq!(check(&[HOST, ("origin", origin)], "/"), Err(Refused::Origin), "{origin}");
        }
        for site in ["same-origin", "none"] {
            assert_eq!(check(&[HOST, ("sec-fetch-site", site)], "/events"), Ok(()), "{site}");
        }
        for site in ["same-site", "cross-site", "anything"] {
            let of = |mode, what| {
                [HOST, ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", what)]
            };
            assert_eq!(check(&of("navigate", "document"), "/"), Ok(()), "{site}");
            for (lines, path) in [
                (of("navigate", "document"), "/state.json"),
                (of("navigate", "iframe"), "/"),
                (of("no-cors", "script"), "/page.js"),
                (of("cors", "empty"), "/"),
            ] {
                assert_eq!(check(&lines, path), Err(Refused::Origin), "{lines:?} {path}");
            }
        }
    }
}
