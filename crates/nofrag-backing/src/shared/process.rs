//! Who a process is, and whether it still lives.
//!
//! A process number alone is reused; number and start time together are not. Both fit into one word, so that a process
//! is attached by one compare-exchange, and none is ever half attached.

use std::fs;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::error::{SharedError, to};
use crate::sys;

/// Process numbers lie below 2^22 (`PID_MAX_LIMIT`); what remains holds ticks since boot for a thousand centuries.
const NUMBER_BITS: u32 = 22;

/// A process that cannot be taken for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64);

/// What can be said of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It has ended: nothing that it held is in use.
    Dead,
    /// It lives, or the system would not say.
    MayLive,
}

impl Identity {
    /// This process.
    pub(crate) fn own() -> Result<Identity, SharedError> {
        let number = getpid();
        let started = started(number).ok_or(Errno::NOENT).map_err(to("read /proc/self/stat"))?;
        Ok(Identity::new(number, started))
    }

    fn new(number: Pid, started: u64) -> Identity {
        Identity(number.as_raw_nonzero().get().cast_unsigned() as u64 | started << NUMBER_BITS)
    }

    /// As it stands in a table; zero is nobody.
    pub(crate) fn from_word(word: u64) -> Option<Identity> {
        (word != 0).then_some(Identity(word))
    }

    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    /// The number that the system gave it.
    pub(crate) fn number(self) -> u32 {
        (self.0 & ((1 << NUMBER_BITS) - 1)) as u32
    }

    /// Whether it has ended. Says so only when the system does: a descriptor of the process (`pidfd`) is taken first,
    /// so that the number cannot pass to another while its start time is read.
    pub(crate) fn life(self) -> Life {
        let Some(number) = Pid::from_raw(self.number().cast_signed()) else {
            return Life::Dead;
        };
        let process = match sys::pidfd_open(number) {
            Ok(process) => process,
            // No such process; or a thread of another one has the number now.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Life::Dead,
            Err(_) => return Life::MayLive,
        };
        let began = started(number);
        // Readable once all its threads have ended, though nobody may have waited for it yet.
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut ended, Some(&at_once)) {
            Ok(1..) => Life::Dead,
            // It lived after the time was read, so the time is that of the descriptor's process.
            Ok(0) if began.is_some_and(|began| Identity::new(number, began) != self) => Life::Dead,
            _ => Life::MayLive,
        }
    }
}

/// When the process began, in ticks since boot: field 22 of its `stat`.
fn started(number: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name may hold anything, also spaces and parentheses; what follows its last parenthesis is numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Which namespace of process numbers this is.
pub(crate) fn namespace() -> Result<u64, SharedError> {
    let named = rustix::fs::stat("/proc/self/ns/pid").map_err(to("look at /proc/self/ns/pid"))?;
    Ok(named.st_ino)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::faults::{self, Call, Fault};

    fn of(child: &std::process::Child) -> Identity {
        let number = Pid::from_child(child);
        Identity::new(number, started(number).unwrap())
    }

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn the_living_and_the_dead_are_told_apart() {
        assert_eq!(Identity::own().unwrap().life(), Life::MayLive);
        let mut child = sleeper();
        let identity = of(&child);
        assert_eq!(identity.life(), Life::MayLive);
        child.kill().unwrap();
        // Nobody has waited for it yet: its number is taken, and it is dead all the same, in a moment.
        while identity.life() == Life::MayLive {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(identity.life(), Life::Dead);
    }

    #[test]
    fn a_number_that_passed_to_another_process_is_not_it() {
        let mut child = sleeper();
        let Identity(word) = of(&child);
        let earlier = Identity(word - (1 << NUMBER_BITS));
        assert_eq!(earlier.number(), child.id());
        assert_eq!(earlier.life(), Life::Dead);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn whoever_the_system_does_not_speak_of_may_live() {
        let mut child = sleeper();
        let identity = of(&child);
        child.kill().unwrap();
        child.wait().unwrap();
        for error in [Errno::MFILE, Errno::PERM, Errno::NOSYS] {
            let _armed = faults::inject([Fault::once(Call::PidfdOpen, error)]);
            assert_eq!(identity.life(), Life::MayLive, "{error}");
        }
        assert_eq!(identity.life(), Life::Dead);
    }
}
