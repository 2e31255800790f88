//! Metrics over HTTP.
//!
//! Few clients ask, seldom, for one page: a thread for each connection reads the question and writes the answer, and
//! one thread, that of the command, makes the answer. Each connection has [`PATIENCE`] to ask and as much to take the
//! answer and hang up, also if it trickles bytes meanwhile, and no client keeps others out (see [`Seats`]); with
//! `tiny_http`, which has neither limit, one did.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use nofrag_host::metrics::{self, Request};

use super::names::Names;
use super::seats::{Seat, Seats};
use super::{Exporter, TICK};
use crate::stop::Stop;

/// Time that a client may take to ask, and then to read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that reading the host may take before a client gets an error: Prometheus waits ten seconds. A file that hangs
/// is given up sooner; this is for a host on which everything is slow.
const ANSWER_WITHIN: Duration = Duration::from_secs(9);
/// Bound on the connections at a time.
const MOST_CONNECTIONS: usize = 64;
/// The longest head of a request.
const MOST_HEAD: usize = 8 << 10;

const PAGE: &str = "<!DOCTYPE html><title>nofrag</title><p>nofrag: what is fragmented on this host, \
                    as <a href=\"/metrics\">metrics</a> for Prometheus.\n";
/// Headers that bind a browser: it takes an answer for its stated type alone, and no other page may show or keep it.
const HARDENING: &str = "X-Content-Type-Options: nosniff\r\n\
                         Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n\
                         Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n";
const PLAIN: &str = "text/plain; charset=utf-8";

/// An answer to a client.
#[derive(Debug)]
struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

/// A question with its connection, and the channel for its answer.
struct Asked {
    question: Request,
    seat: Arc<Seat>,
    reply: Sender<Answer>,
}

/// Serves until a signal comes.
pub(super) fn serve(
    exporter: &mut Exporter,
    address: SocketAddr,
    more_names: &[String],
    stop: &Stop,
) -> Result<()> {
    let listener = TcpListener::bind(address).map_err(|why| {
        anyhow!("{address}: {why}: choose another address with --listen, or end what uses this one")
    })?;
    let address = listener.local_addr().unwrap_or(address);
    eprintln!("nofrag: metrics at http://{address}/metrics; Ctrl-C ends it");
    if !address.ip().is_loopback() {
        eprintln!("nofrag: whoever reaches {address} may read them");
    }
    // Read once before the first question, so that missing data are reported at the start.
    exporter.families()?;
    exporter.tell_missing();
    let names = Names::new(address, more_names);
    let (sender, questions) = mpsc::channel();
    thread::spawn(move || accept(&listener, &sender));
    while !stop.is_asked() {
        match questions.recv_timeout(TICK) {
            // The client no longer waits for the answer.
            Ok(asked) if asked.seat.is_lost() => {}
            // A client that has gone away is not an error.
            Ok(asked) => drop(asked.reply.send(answer(exporter, &names, &asked.question)?)),
            Err(RecvTimeoutError::Timeout) => exporter.count()?,
            Err(RecvTimeoutError::Disconnected) => bail!("{address}: nobody listens any more"),
        }
    }
    Ok(())
}

/// Takes connections for ever, each into a seat and a thread of its own.
fn accept(listener: &TcpListener, questions: &Sender<Asked>) {
    let seats = Arc::new(Seats::new(MOST_CONNECTIONS));
    loop {
        let Ok((stream, client)) = listener.accept() else {
            // Too many files are open, most likely: soon there are fewer.
            thread::sleep(TICK);
            continue;
        };
        let seat = seats.take(stream, client.ip());
        let (own, questions) = (Arc::clone(&seats), questions.clone());
        let thread = thread::Builder::new().spawn({
            let seat = Arc::clone(&seat);
            move || {
                // A client that goes away, or is too slow, is not an error.
                let _ = converse(&seat, &questions, ANSWER_WITHIN);
                own.leave(&seat);
            }
        });
        if thread.is_err() {
            // The connection is closed, as if another had come.
            seats.leave(&seat);
        }
    }
}

/// Reads one question and writes its answer, or an error if there is none `within` a time.
fn converse(seat: &Arc<Seat>, questions: &Sender<Asked>, within: Duration) -> io::Result<()> {
    let stream = &seat.stream;
    let Some(question) = read_question(&mut Timed::new(stream, PATIENCE))? else {
        let mut stream = Timed::new(stream, PATIENCE);
        write_answer(&mut stream, &plain("400 Bad Request"), "GET")?;
        return hang_up(stream);
    };
    let method = question.method.clone();
    let (reply, answer) = mpsc::channel();
    let sent = questions.send(Asked { question, seat: Arc::clone(seat), reply });
    let answer = match sent.map(|()| answer.recv_timeout(within)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(RecvTimeoutError::Timeout)) => slow(within),
        // The command has come to its end, or the seat is lost.
        Ok(Err(RecvTimeoutError::Disconnected)) | Err(_) => return Ok(()),
    };
    let mut stream = Timed::new(stream, PATIENCE);
    write_answer(&mut stream, &answer, &method)?;
    hang_up(stream)
}

/// A connection that ends at a set time, also if bytes come one by one: the timeouts of the socket begin anew with each
/// byte.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn new(stream: &TcpStream, patience: Duration) -> Timed<'_> {
        Timed { stream, until: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Reads a question; `None` if the bytes are not one.
fn read_question(stream: &mut impl Read) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() < MOST_HEAD {
        let read = stream.read(&mut part)?;
        if read == 0 {
            break;
        }
        head.extend_from_slice(&part[..read]);
        match Request::parse(&head) {
            Ok(None) => {}
            Ok(question) => return Ok(question),
            Err(_) => break,
        }
    }
    Ok(None)
}

fn answer(exporter: &mut Exporter, names: &Names, question: &Request) -> Result<Answer> {
    if !names.have(question.host.as_deref()) {
        return Ok(misdirected(question.host.as_deref().unwrap_or_default()));
    }
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

/// Returns the answer for a name that may be a stranger's (RFC 9110, 15.5.20).
fn misdirected(host: &str) -> Answer {
    let status = "421 Misdirected Request";
    let body = format!(
        "{status}; this server does not answer for {host:?}: ask for its address, or start it with that name \
         behind --name\n"
    );
    Answer { status, content_type: PLAIN, body }
}

fn slow(within: Duration) -> Answer {
    let status = "503 Service Unavailable";
    let body = format!("{status}; the host could not be read within {within:?}: ask again later\n");
    Answer { status, content_type: PLAIN, body }
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
         {HARDENING}Connection: close\r\n\r\n"
    );
    if method != "HEAD" {
        text += body;
    }
    stream.write_all(text.as_bytes())
}

/// Waits until the client has read everything: bytes that it still sends would else make the kernel throw the answer
/// away.
fn hang_up(stream: Timed<'_>) -> io::Result<()> {
    stream.stream.shutdown(Shutdown::Write)?;
    io::copy(&mut stream.take(MOST_HEAD as u64), &mut io::sink()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_have_an_end() {
        let question = |head: &str| read_question(&mut head.as_bytes()).unwrap();
        assert_eq!(question("GET /metrics HTTP/1.0\r\n\r\n").unwrap().path, "/metrics");
        for bad in ["", "GET", "GET / HTTP/1.1\r\nHost: x\r\n", "\0\r\n\r\n", "hello\r\n\r\n"] {
            assert_eq!(question(bad), None, "{bad:?}");
        }
        let endless = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(2 * MOST_HEAD));
        assert_eq!(question(&endless), None);
    }

    /// Checks that clients who send byte by byte lose their connections (`trickling_clients`): 64 of them, a byte every
    /// four seconds each, kept every scraper out for hours.
    #[test]
    fn trickling_clients() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let trickle = thread::spawn(move || {
            // The thread ends when the server hangs up; there are bytes enough for minutes.
            while client.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let patience = Duration::from_millis(100);
        let asked = read_question(&mut Timed::new(&server, patience)).unwrap_err();
        let hung_up = hang_up(Timed::new(&server, patience)).unwrap_err();
        for error in [asked, hung_up] {
            let is_late =
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            assert!(is_late, "{error}");
        }
        drop((server, listener));
        trickle.join().unwrap();
    }

    /// Checks that a client that asks while the host cannot be read gets an error, and the next question is not kept
    /// waiting.
    #[test]
    fn a_host_too_slow_to_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let (server, asks) = listener.accept().unwrap();
        let seat = Seats::new(1).take(server, asks.ip());
        let (sender, questions) = mpsc::channel();
        let reader = thread::spawn(move || {
            let mut said = String::new();
            client.read_to_string(&mut said).map(|_| said)
        });
        converse(&seat, &sender, Duration::from_millis(20)).unwrap();
        let said = reader.join().unwrap().unwrap();
        assert!(said.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{said}");
        assert!(said.ends_with("within 20ms: ask again later\n"), "{said}");
        assert_eq!(questions.recv().unwrap().question.path, "/metrics");
    }
}
