//! What a scraper asks over HTTP: the head of a request (RFC 9112), as far as it matters here.

use thiserror::Error;

use super::Format;

/// More headers than this are refused.
const MOST_HEADERS: usize = 64;

/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its method, in capitals.
    pub method: String,
    /// What it asks for, without the question behind it: `/metrics`.
    pub path: String,
    /// The form of the metrics that it accepts.
    pub format: Format,
}

/// These bytes begin no request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no request of HTTP: {why}")]
pub struct Malformed {
    why: String,
}

impl Request {
    /// The request that these bytes begin with; `None` while the end of its head is missing.
    ///
    /// # Errors
    /// [`Malformed`] if no more bytes would make them one, or if it has too many headers.
    pub fn parse(head: &[u8]) -> Result<Option<Request>, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(head).map_err(|why| Malformed { why: why.to_string() })?;
        let (httparse::Status::Complete(_), Some(method), Some(target)) =
            (status, request.method, request.path)
        else {
            return Ok(None);
        };
        let accept = request.headers.iter().filter(|it| it.name.eq_ignore_ascii_case("accept"));
        let accept: Vec<_> = accept.map(|it| String::from_utf8_lossy(it.value)).collect();
        Ok(Some(Request {
            method: method.to_owned(),
            path: path(target).to_owned(),
            format: Format::accepted(&accept.join(",")),
        }))
    }
}

/// The path in a request's target, which may be a whole address (RFC 9112, 3.2.2).
fn path(target: &str) -> &str {
    let rest = ["http://", "https://"].into_iter().find_map(|scheme| {
        let begin = target.get(..scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then(|| &target[scheme.len()..])
    });
    let path = match rest {
        None => target,
        Some(rest) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
    };
    match path.split('?').next() {
        None | Some("") => "/",
        Some(path) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: Option<(&str, &str, Format)>) {
        let expected = expected.map(|(method, path, format)| Request {
            method: method.to_owned(),
            path: path.to_owned(),
            format,
        });
        assert_eq!(Request::parse(head.as_bytes()), Ok(expected), "{head:?}");
    }

    #[test]
    fn requests() {
        let open = "GET /metrics?a=b HTTP/1.1\r\naccept: application/openmetrics-text\r\n\r\n";
        check(open, Some(("GET", "/metrics", Format::OpenMetrics)));
        check("POST / HTTP/1.0\r\n\r\nbody", Some(("POST", "/", Format::Prometheus)));
        let two = "GET /metrics HTTP/1.1\r\nAccept: text/html\r\nAccept: application/openmetrics-text\r\n\r\n";
        check(two, Some(("GET", "/metrics", Format::OpenMetrics)));
        for part in ["", "GET", "GET / HTTP/1.1\r\nHost: x\r\n"] {
            check(part, None);
        }
        for bad in ["\0\r\n\r\n", "hello\r\n\r\n", "GET / HTTP/2.0\r\n\r\n"] {
            assert!(Request::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
        let why = Request::parse(many.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("too many headers"), "{why}");
    }

    /// Whoever asks through a proxy names the whole address.
    #[test]
    fn whole_addresses_have_a_path() {
        for (target, expected) in [
            ("/metrics", "/metrics"),
            ("http://host:9/metrics?x", "/metrics"),
            ("HTTP://host/", "/"),
            ("https://host", "/"),
            ("http://host?x=/y", "/"),
            ("*", "*"),
            ("?x", "/"),
            ("h\u{e4}ttp", "h\u{e4}ttp"),
        ] {
            assert_eq!(path(target), expected, "{target}");
        }
    }

    proptest::proptest! {
        /// As the fuzz target `http`: whatever comes, there is an answer, and a request has a method and a path.
        #[test]
        fn any_bytes(mut head in proptest::collection::vec(proptest::num::u8::ANY, 0..300), at in 0..60_usize) {
            let open = *b"GET http://h/metrics?q HTTP/1.1\r\nAccept: text/plain;q=0.3,\r\n\r\n";
            // Bytes alone are hardly ever a request: some are one, but for a few bytes.
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
