//! Requests of scrapers over HTTP, from arbitrary bytes.

use nofrag_host::metrics::{Format, Request};

/// Reads `data` as the head of a request. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let whole = Request::parse(data);
    // What a client prefers is one of two forms, whatever it writes.
    let _ = Format::accepted(&String::from_utf8_lossy(data));
    // A server reads as much as has come: no part of a request is another one, and none of a good one is malformed.
    for length in (0..data.len()).step_by(1 + data.len() / 64) {
        match (Request::parse(&data[..length]), &whole) {
            (Ok(None), _) => {}
            (Ok(Some(early)), Ok(Some(request))) => assert_eq!(&early, request),
            (Ok(Some(_)), _) => panic!("a request of {length} bytes is none with more behind it"),
            (Err(_), Err(_)) => {}
            (Err(why), Ok(_)) => panic!("{length} bytes are refused, more are not: {why}"),
        }
    }
    if let Ok(Some(request)) = whole {
        assert!(!request.method.is_empty() && !request.path.is_empty(), "{request:?}");
        assert!(!request.path.contains('?'), "{request:?}");
    }
}
