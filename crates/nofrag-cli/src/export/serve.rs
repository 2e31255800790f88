//! Metrics over HTTP.
//!
//! Few clients ask, seldom, for one page: a thread for each connection reads the question and writes the answer, and
//! one thread, that of the command, makes it. Each connection has [`PATIENCE`] to ask and to read; so a client that
//! does neither keeps nobody else waiting, as it did with `tiny_http`, which has no such limit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use nofrag_host::metrics::{self, Format};

use super::{Exporter, TICK};
use crate::stop::Stop;

/// How long a client may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at a time; more are refused.
const MOST_CONNECTIONS: usize = 64;
/// The longest head of a request.
const MOST_HEAD: usize = 8 << 10;
const MOST_HEADERS: usize = 64;

const PAGE: &str = "<!DOCTYPE html><title>nofrag</title><p>nofrag: what is fragmented on this host, \
                    as <a href=\"/metrics\">metrics</a> for Prometheus.\n";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What a client asks.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    method: String,
    path: String,
    /// The form that it accepts.
    format: Format,
}

/// What it is told.
#[derive(Debug)]
struct Answer {
    /// The status with its words.
    status: &'static str,
    content_type: &'static str,
    body: String,
}

/// A question, and where its answer goes.
struct Asked {
    question: Question,
    reply: Sender<Answer>,
}

/// Serves until a signal comes.
pub(super) fn serve(exporter: &mut Exporter, address: SocketAddr, stop: &Stop) -> Result<()> {
    let listener = TcpListener::bind(address).map_err(|why| {
        anyhow!("{address}: {why}: choose another address with --listen, or end what uses this one")
    })?;
    let address = listener.local_addr().unwrap_or(address);
    eprintln!("nofrag: metrics at http://{address}/metrics; Ctrl-C ends it");
    if !address.ip().is_loopback() {
        eprintln!("nofrag: whoever reaches {address} may read them");
    }
    // Read once before anybody asks, so that what is missing is said at the start.
    exporter.families()?;
    exporter.tell_missing();
    let (sender, questions) = mpsc::channel();
    thread::spawn(move || accept(&listener, &sender));
    while !stop.is_asked() {
        match questions.recv_timeout(TICK) {
            // A client that has gone away is no error.
            Ok(asked) => drop(asked.reply.send(answer(exporter, &asked.question)?)),
            Err(RecvTimeoutError::Timeout) => exporter.count()?,
            Err(RecvTimeoutError::Disconnected) => bail!("{address}: nobody listens any more"),
        }
    }
    Ok(())
}

/// Takes connections for ever.
fn accept(listener: &TcpListener, questions: &Sender<Asked>) {
    let under_way = Arc::new(());
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Too many files are open, most likely: soon there are fewer.
            thread::sleep(TICK);
            continue;
        };
        if Arc::strong_count(&under_way) > MOST_CONNECTIONS {
            let _ = write_answer(&mut stream, &plain("503 Service Unavailable"), "GET");
            continue;
        }
        let (token, questions) = (Arc::clone(&under_way), questions.clone());
        thread::spawn(move || {
            // A client that goes away, or is too slow, is no error.
            let _ = converse(&mut stream, &questions);
            drop(token);
        });
    }
}

/// One question and its answer.
fn converse(stream: &mut TcpStream, questions: &Sender<Asked>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(question) = read_question(stream)? else {
        write_answer(stream, &plain("400 Bad Request"), "GET")?;
        return hang_up(stream);
    };
    let method = question.method.clone();
    let (reply, answer) = mpsc::channel();
    let sent = questions.send(Asked { question, reply });
    // Without an answer the command has come to its end.
    let Ok(answer) =
        sent.map_err(io::Error::other).and_then(|()| answer.recv().map_err(io::Error::other))
    else {
        return Ok(());
    };
    write_answer(stream, &answer, &method)?;
    hang_up(stream)
}

/// The question; `None` for what is none.
fn read_question(stream: &mut impl Read) -> io::Result<Option<Question>> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < MOST_HEAD && began.elapsed() < PATIENCE {
        let read = stream.read(&mut part)?;
        if read == 0 {
            break;
        }
        head.extend_from_slice(&part[..read]);
        match parse(&head) {
            Ok(None) => {}
            Ok(question) => return Ok(question),
            Err(_) => break,
        }
    }
    Ok(None)
}

/// The question in a head; `None` while its end is missing.
fn parse(head: &[u8]) -> Result<Option<Question>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(head)?.is_partial() {
        return Ok(None);
    }
    let accept = request.headers.iter().find(|each| each.name.eq_ignore_ascii_case("accept"));
    let accept = accept.map(|header| String::from_utf8_lossy(header.value));
    Ok(Some(Question {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned(),
        format: Format::accepted(accept.as_deref().unwrap_or_default()),
    }))
}

fn answer(exporter: &mut Exporter, question: &Question) -> Result<Answer> {
    if !matches!(question.method.as_str(), "GET" | "HEAD") {
        return Ok(plain("405 Method Not Allowed"));
    }
    Ok(match question.path.as_str() {
        "/metrics" => Answer {
            status: "200 OK",
            content_type: question.format.content_type(),
            body: metrics::text(&exporter.families()?, question.format),
        },
        "/" => Answer {
            status: "200 OK",
            content_type: "text/html; charset=utf-8",
            body: PAGE.to_owned(),
        },
        _ => plain("404 Not Found"),
    })
}

fn plain(status: &'static str) -> Answer {
    let body = format!("{status}; GET /metrics has the metrics\n");
    Answer { status, content_type: PLAIN, body }
}

fn write_answer(stream: &mut impl Write, answer: &Answer, method: &str) -> io::Result<()> {
    let Answer { status, content_type, body } = answer;
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nAllow: GET, HEAD\r\n\
         Connection: close\r\n\r\n"
    );
    if method != "HEAD" {
        text += body;
    }
    stream.write_all(text.as_bytes())
}

/// Waits until the client has read everything: what it still sends would else make the kernel throw the answer away.
fn hang_up(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream.take(MOST_HEAD as u64), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_question(head: &str, expected: Option<(&str, &str, Format)>) {
        let question = read_question(&mut head.as_bytes()).unwrap();
        let expected = expected.map(|(method, path, format)| Question {
            method: method.to_owned(),
            path: path.to_owned(),
            format,
        });
        assert_eq!(question, expected, "{head:?}");
    }

    #[test]
    fn questions() {
        let open = "GET /metrics?a=b HTTP/1.1\r\naccept: application/openmetrics-text\r\n\r\n";
        check_question(open, Some(("GET", "/metrics", Format::OpenMetrics)));
        check_question("POST / HTTP/1.0\r\n\r\nbody", Some(("POST", "/", Format::Prometheus)));
        for bad in ["", "GET", "GET / HTTP/1.1\r\nHost: x\r\n", "\0\r\n\r\n", "hello\r\n\r\n"] {
            check_question(bad, None);
        }
        let endless = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(2 * MOST_HEAD));
        check_question(&endless, None);
        check_question(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100)), None);
    }
}
