//! The names for which the server answers.
//!
//! Any page that a browser shows may have its own name lead to a loopback address, ask there, and read the answer as if
//! it were its own (DNS rebinding). The question then names the page's host: so only names that no stranger can have
//! lead here get an answer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The names of a server.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The address on which it listens.
    address: IpAddr,
    names: Vec<String>,
}

impl Names {
    /// Returns the names of a server that listens at `address` and is also called `more`.
    pub(super) fn new(address: SocketAddr, more: &[String]) -> Names {
        let address = address.ip().to_canonical();
        let mut names = more.to_vec();
        if !address.is_loopback() {
            // Scrapers on other hosts know this one by its name.
            names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
        }
        Names { address, names }
    }

    /// Returns true if a question for `host` is one for this server. A client that names no host is not a browser.
    pub(super) fn have(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return true };
        if let Some(address) = address(host) {
            // An address cannot be made to lead elsewhere: pages from there are this server's own. Behind 0.0.0.0 are
            // addresses that this host does not know, such as that of a container's host.
            return address.is_loopback()
                || self.address.is_unspecified()
                || address == self.address;
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        let is = |name: &String| host.eq_ignore_ascii_case(name);
        host.eq_ignore_ascii_case("localhost") || self.names.iter().any(is)
    }
}

fn address(host: &str) -> Option<IpAddr> {
    let brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match brackets {
        Some(inner) => IpAddr::V6(inner.parse::<Ipv6Addr>().ok()?),
        None => host.parse().ok()?,
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, good: &[&str], bad: &[&str]) {
        let names = Names::new(listen.parse().unwrap(), &["Metrics.example".to_owned()]);
        for host in good {
            assert!(names.have(Some(host)), "{host:?} at {listen}");
        }
        for host in bad {
            assert!(!names.have(Some(host)), "{host:?} at {listen}");
        }
        assert!(names.have(None));
    }

    #[test]
    fn foreign_names_get_nothing() {
        let always =
            ["localhost", "LocalHost.", "127.0.0.1", "127.8.9.9", "[::1]", "metrics.example"];
        let never = [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
            "[",
            "[]",
            ".",
        ];
        for listen in ["127.0.0.1:1", "[::1]:1", "10.0.0.7:1", "0.0.0.0:1", "[::]:1"] {
            check(listen, &always, &never);
        }
        check("127.0.0.1:1", &[], &["10.0.0.7", "[fe80::1]"]);
        check("10.0.0.7:1", &["10.0.0.7", "[::ffff:10.0.0.7]"], &["10.0.0.8"]);
        check("[::]:1", &["10.0.0.8", "[fe80::1]"], &[]);
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        check("10.0.0.7:1", &[&own], &[]);
    }
}
