//! The head of a scraper's HTTP request (RFC 9112), as far as it matters here.

use thiserror::Error;

use super::Format;

/// Most headers of a request; one with more is refused.
const MOST_HEADERS: usize = 64;

/// An HTTP request, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method, in capitals.
    pub method: String,
    /// The path of the target, without the query: `/metrics`.
    pub path: String,
    /// Name of the server that the client means, without the port: a name, an address, or an IPv6 address in brackets.
    /// A browser always sends it; HTTP/1.0 need not.
    pub host: Option<String>,
    /// The form of the metrics that the client accepts.
    pub format: Format,
}

/// The error for bytes that cannot begin a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no request of HTTP: {why}")]
pub struct Malformed {
    why: String,
}

impl Request {
    /// Parses the request at the start of `head`; returns `None` while the end of its head is missing.
    ///
    /// # Errors
    /// [`Malformed`] if no further bytes could make a request of `head`, if there are too many headers, or if the
    /// request does not name its host exactly once (RFC 9112, 3.2).
    pub fn parse(head: &[u8]) -> Result<Option<Request>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(head).map_err(|why| Malformed { why: why.to_string() })?;
        let (httparse::Status::Complete(_), Some(method), Some(target)) =
            (status, request.method, request.path)
        else {
            return Ok(None);
        };
        let all = |name: &str| -> Vec<_> {
            let headers = request.headers.iter().filter(|it| it.name.eq_ignore_ascii_case(name));
            headers.map(|it| String::from_utf8_lossy(it.value)).collect()
        };
        let hosts = all("host");
        let host = match hosts.as_slice() {
            [] if request.version == Some(0) => None,
            [one] => Some(one.as_ref()),
            _ => return Err(Malformed { why: format!("{} lines `Host`", hosts.len()) }),
        };
        let (authority, path) = parts(target);
        Ok(Some(Request {
            method: method.to_owned(),
            path: path.to_owned(),
            // A target that is a whole address replaces the `Host` header.
            host: authority.or(host).map(|authority| without_port(authority).to_owned()),
            format: Format::accepted(&all("accept").join(",")),
        }))
    }
}

/// Splits the target of a request into authority and path: the target may be a whole address (RFC 9112, 3.2.2).
fn parts(target: &str) -> (Option<&str>, &str) {
    let rest = ["http://", "https://"].into_iter().find_map(|scheme| {
        let begin = target.get(..scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then(|| &target[scheme.len()..])
    });
    let (authority, path) = match rest {
        None => (None, target),
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(authority), path)
        }
    };
    match path.split('?').next() {
        None | Some("") => (authority, "/"),
        Some(path) => (authority, path),
    }
}

/// Returns the host of an authority (RFC 3986, 3.2), without the port; an IPv6 address stays in its brackets.
fn without_port(authority: &str) -> &str {
    let authority = authority.trim();
    let end = match authority.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(bracket) => bracket + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    &authority[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: Option<(&str, &str, Option<&str>, Format)>) {
        let expected = expected.map(|(method, path, host, format)| Request {
            method: method.to_owned(),
            path: path.to_owned(),
            host: host.map(str::to_owned),
            format,
        });
        assert_eq!(Request::parse(head.as_bytes()), Ok(expected), "{head:?}");
    }

    #[test]
    fn requests() {
        let open = "GET /metrics?a=b HTTP/1.1\r\nhost: h:1\r\naccept: application/openmetrics-text\r\n\r\n";
        check(open, Some(("GET", "/metrics", Some("h"), Format::OpenMetrics)));
        check("POST / HTTP/1.0\r\n\r\nbody", Some(("POST", "/", None, Format::Prometheus)));
        let two = "GET /metrics HTTP/1.0\r\nAccept: text/html\r\nAccept: application/openmetrics-text\r\n\r\n";
        check(two, Some(("GET", "/metrics", None, Format::OpenMetrics)));
        let whole = "GET http://a:9/metrics HTTP/1.1\r\nHost: b\r\n\r\n";
        check(whole, Some(("GET", "/metrics", Some("a"), Format::Prometheus)));
        for part in ["", "GET", "GET / HTTP/1.1\r\nHost: x\r\n"] {
            check(part, None);
        }
        let bad = [
            "\0\r\n\r\n",
            "hello\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        ];
        for bad in bad {
            assert!(Request::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
        let why = Request::parse(many.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("too many headers"), "{why}");
    }

    /// Splits targets that are whole addresses, as a client behind a proxy sends them.
    #[test]
    fn whole_addresses_have_a_path() {
        for (target, expected) in [
            ("/metrics", (None, "/metrics")),
            ("http://host:9/metrics?x", (Some("host:9"), "/metrics")),
            ("HTTP://host/", (Some("host"), "/")),
            ("https://host", (Some("host"), "/")),
            ("http://host?x=/y", (Some("host"), "/")),
            ("*", (None, "*")),
            ("?x", (None, "/")),
            ("h\u{e4}ttp", (None, "h\u{e4}ttp")),
        ] {
            assert_eq!(parts(target), expected, "{target}");
        }
    }

    #[test]
    fn ports_are_not_part_of_a_name() {
        for (authority, expected) in [
            ("localhost", "localhost"),
            (" localhost:19909 ", "localhost"),
            ("10.0.0.7:", "10.0.0.7"),
            ("[::1]:19909", "[::1]"),
            ("[::1]", "[::1]"),
            ("[::1", "["),
            ("", ""),
        ] {
            assert_eq!(without_port(authority), expected, "{authority:?}");
        }
    }

    proptest::proptest! {
        /// Parses any bytes, as the fuzz target `http` does: nothing panics, and a request has a method and a path.
        #[test]
        fn any_bytes(mut head in proptest::collection::vec(proptest::num::u8::ANY, 0..300), at in 0..60_usize) {
            let open = *b"GET http://h/metrics?q HTTP/1.1\r\nHost: [::1]:9\r\nAccept: text/plain;q=0.3,\r\n\r\n";
            // Random bytes are hardly ever a request: some of the inputs are a request with a few bytes changed.
            if head.len() % 2 == 0 {
                let odd = head.iter().copied().take(3).collect::<Vec<_>>();
                head = open.to_vec();
                head.splice(at..at, odd);
            }
            if let Ok(Some(request)) = Request::parse(&head) {
                proptest::prop_assert!(!request.method.is_empty() && !request.path.is_empty());
                proptest::prop_assert!(!request.path.contains('?'));
            }
        }
    }
}
