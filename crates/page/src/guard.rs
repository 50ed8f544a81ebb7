//! The check of requests: the token of the run, by cookie, bearer or address, from the origin of the page.
//!
//! | a request | is |
//! |---|---|
//! | with another `Host` than the page's addresses | refused: its name may have been bound to this machine by a stranger |
//! | with another `Origin` | refused: a page of another site makes it |
//! | without the token | refused |

use axum::http::{HeaderMap, HeaderValue, Method, header};
use std::io;
use std::net::SocketAddr;

/// Bytes of a token: 16, as hexadecimal digits.
const TOKEN_BYTES: usize = 16;

/// The token of a run, and the names of its page.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    token: String,
    /// Values of `Host` that are the page's.
    hosts: Vec<String>,
    cookie: String,
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
        let port = address.port();
        let hosts = vec![address.to_string(), format!("localhost:{port}")];
        // Cookies of a host are those of all its ports.
        Ok(Guard { token, hosts, cookie: format!("chunkcomm-page-{port}") })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Checks a request, whose address has this query.
    pub(crate) fn check(
        &self,
        method: &Method,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<(), Refused> {
        if method != Method::GET {
            return Err(Refused::Method);
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        let host =
            hosts.next().and_then(|host| host.to_str().ok()).filter(|_| hosts.next().is_none());
        let host = host.filter(|host| self.hosts.iter().any(|it| it.eq_ignore_ascii_case(host)));
        let host = host.ok_or(Refused::Host)?;
        let is_own =
            |origin: &HeaderValue| origin.as_bytes() == format!("http://{host}").as_bytes();
        if !headers.get_all(header::ORIGIN).iter().all(is_own) {
            return Err(Refused::Origin);
        }
        let given =
            self.of_cookies(headers).into_iter().chain(of_bearer(headers)).chain(of_query(query));
        if given.into_iter().any(|given| same(given.as_bytes(), self.token.as_bytes())) {
            Ok(())
        } else {
            Err(Refused::Token)
        }
    }

    /// Returns the cookie that keeps the token, for whom the request was not refused.
    pub(crate) fn cookie(&self) -> String {
        format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie, self.token)
    }

    fn of_cookies<'a>(&self, headers: &'a HeaderMap) -> Vec<&'a str> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
        let cookies =
            lines.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
        cookies.filter(|(name, _)| *name == self.cookie).map(|(_, token)| token).collect()
    }
}

fn of_bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

fn of_query(query: Option<&str>) -> Option<&str> {
    value(query, "token")
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
    fn the_token_is_taken_from_cookie_bearer_and_address() {
        let guard = guard();
        let (token, host) = (guard.token().to_owned(), ("host", "127.0.0.1:8080"));
        assert_eq!(token.len(), 2 * TOKEN_BYTES);
        let check =
            |lines: &[_], query: Option<&str>| guard.check(&Method::GET, &headers(lines), query);
        let cookie = format!("a=b; chunkcomm-page-8080={token}; c=d");
        let bearer = format!("Bearer {token}");
        assert_eq!(check(&[host, ("cookie", &cookie)], None), Ok(()));
        assert_eq!(check(&[host, ("authorization", &bearer)], None), Ok(()));
        assert_eq!(check(&[host], Some(&format!("node=a&token={token}"))), Ok(()));
        assert_eq!(check(&[("host", "LOCALHOST:8080")], Some(&format!("token={token}"))), Ok(()));
        let other = format!("chunkcomm-page-8081={token}");
        let short = format!("token={}", &token[1..]);
        for (lines, query) in [
            (&[host][..], None),
            (&[host, ("cookie", &other)], None),
            (&[host, ("authorization", &token)], None),
            (&[host], Some(&*short)),
            (&[host], Some("token=")),
        ] {
            assert_eq!(check(lines, query), Err(Refused::Token), "{lines:?} {query:?}");
        }
        assert!(guard.cookie().ends_with("; HttpOnly; SameSite=Strict; Path=/"));
    }

    /// A stranger's name that leads to this machine, and a page of another site, with the right token.
    #[test]
    fn a_rebound_name_and_another_site_are_refused() {
        let guard = guard();
        let query = format!("token={}", guard.token());
        let check = |lines: &[_]| guard.check(&Method::GET, &headers(lines), Some(&query));
        let host = ("host", "127.0.0.1:8080");
        for other in
            ["evil.example:8080", "127.0.0.1", "127.0.0.1:8081", "", "127.0.0.1:8080.evil.example"]
        {
            assert_eq!(check(&[("host", other)]), Err(Refused::Host), "{other}");
        }
        assert_eq!(check(&[]), Err(Refused::Host));
        assert_eq!(check(&[host, host]), Err(Refused::Host));
        assert_eq!(check(&[host, ("origin", "http://127.0.0.1:8080")]), Ok(()));
        for origin in
            ["http://evil.example", "null", "https://127.0.0.1:8080", "http://127.0.0.1:8081"]
        {
            assert_eq!(check(&[host, ("origin", origin)]), Err(Refused::Origin), "{origin}");
        }
        let post = guard.check(&Method::POST, &headers(&[host]), Some(&query));
        assert_eq!(post, Err(Refused::Method));
    }
}
