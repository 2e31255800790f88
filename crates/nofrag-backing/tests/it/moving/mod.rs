//! Memory that moves while it is used.

mod forks;
mod handles;
mod mapped;
mod runs;
mod signals;

use nofrag_backing::moving::userfaultfd::{Features, OpenError, Userfaultfd};

/// Opens a userfaultfd with `features`, if this system allows tests to have one; prints why not.
pub(crate) fn userfaultfd(features: Features) -> Option<Userfaultfd> {
    match Userfaultfd::open(features) {
        Ok(descriptor) => Some(descriptor),
        Err(why @ (OpenError::NotAllowed(_) | OpenError::NotBuilt | OpenError::Missing { .. })) => {
            eprintln!("skipped: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}
