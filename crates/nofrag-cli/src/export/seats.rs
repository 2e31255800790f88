//! The connections of the server, and their bound.
//!
//! There are few seats. When another client comes, the client with most seats loses its oldest one: all seats may be
//! one client's while no other asks, and keeping them, even by coming back again and again, keeps no client out. A
//! scraper asks within a moment of its coming, so it is served before its seat could be the oldest.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections under way, oldest first.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    taken: Mutex<Vec<Arc<Seat>>>,
}

/// One connection, with its client.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) stream: TcpStream,
    client: IpAddr,
    is_lost: AtomicBool,
}

impl Seat {
    /// Returns true if another connection has taken the seat.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

impl Seats {
    /// Returns room for `most` connections.
    pub(super) fn new(most: usize) -> Seats {
        Seats { most, taken: Mutex::new(Vec::new()) }
    }

    /// Returns a seat for this connection, if need be that of another, which is closed.
    pub(super) fn take(&self, stream: TcpStream, from: IpAddr) -> Arc<Seat> {
        let seat = Seat { stream, client: client(from), is_lost: AtomicBool::new(false) };
        let seat = Arc::new(seat);
        let mut taken = self.lock();
        if taken.len() >= self.most {
            let at = longest_of_the_greediest(&taken);
            let lost = taken.remove(at);
            lost.is_lost.store(true, Ordering::Relaxed);
            // A thread that waits for it wakes up; a connection that has ended already is not an error.
            let _ = lost.stream.shutdown(Shutdown::Both);
        }
        taken.push(Arc::clone(&seat));
        seat
    }

    /// Leaves a seat, if it is not lost yet.
    pub(super) fn leave(&self, seat: &Arc<Seat>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, seat));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the client of a connection: a host on IPv6 has a network of 64 bits to call from.
fn client(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Returns the place of the oldest seat of the client with most; the first of equals.
fn longest_of_the_greediest(taken: &[Arc<Seat>]) -> usize {
    let mut held: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for seat in taken {
        *held.entry(seat.client).or_default() += 1;
    }
    let most = held.values().copied().max();
    let is_of = |seat: &Arc<Seat>| held.get(&seat.client).copied() == most;
    taken.iter().position(is_of).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn whoever_has_most_loses_the_oldest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seats = Seats::new(4);
        let come =
            |from: &str| seats.take(TcpStream::connect(address).unwrap(), from.parse().unwrap());
        let modest = come("10.0.0.1");
        let greedy: Vec<_> = (0..3).map(|_| come("10.0.0.2")).collect();
        let newcomer = come("10.0.0.3");
        assert!(greedy[0].is_lost(), "the first of the greedy one makes room");
        let kept = [&modest, &greedy[1], &greedy[2], &newcomer];
        assert!(kept.iter().all(|seat| !seat.is_lost()));

        // The client comes back, and pays for it itself.
        let again = come("10.0.0.2");
        assert!(greedy[1].is_lost() && !again.is_lost() && !modest.is_lost());
        seats.leave(&newcomer);
        seats.leave(&greedy[0]);
        assert_eq!(seats.lock().len(), 3);
    }

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let of = |text: &str| client(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
