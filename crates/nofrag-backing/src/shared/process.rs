//! Who a process is, and whether it still lives.
//!
//! A process number alone is reused; number and start time together are not. Both fit into one word, so that a process
//! is attached by one compare-exchange, and none is ever half attached.
//!
//! Both are told as the reader's namespaces see them, of process numbers and of time; who shares a table shares these.
//! What is read in `/proc` counts only if that is of our own namespace. A process that executes another program
//! (`execve`) keeps number and start time, so that what it held stays held until it ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::error::{SharedError, to};
use super::words;
use crate::sys;

/// Process numbers lie below 2^22 (`PID_MAX_LIMIT`); what remains holds ticks since boot for a thousand centuries.
const NUMBER_BITS: u32 = 22;

const PROC: &str = "/proc";

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
        // Not by number, which is another process's where `/proc` is of another namespace.
        let started = started(Path::new(PROC), "self");
        let started = started.ok_or(Errno::NOENT).map_err(to("read /proc/self/stat"))?;
        Ok(Identity::new(getpid(), started))
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
        let began = started_by_number(Path::new(PROC), number);
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

/// When the process with this number began. Nothing if numbers in `proc` are of another namespace than ours.
fn started_by_number(proc: &Path, number: Pid) -> Option<u64> {
    let own = fs::read_link(proc.join("self")).ok()?;
    (own.as_os_str() == getpid().to_string().as_str()).then_some(())?;
    started(proc, &number.to_string())
}

/// When the process with this name in `proc` began, in ticks since boot: field 22 of its `stat`.
fn started(proc: &Path, name: &str) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(name).join("stat")).ok()?;
    // The name may hold anything, also spaces and parentheses; what follows its last parenthesis is numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Which namespaces of process numbers and of time these are.
pub(crate) fn namespace() -> Result<u64, SharedError> {
    namespace_in(&Path::new(PROC).join("self/ns"))
}

fn namespace_in(names: &Path) -> Result<u64, SharedError> {
    let name = |of: &str| fs::metadata(names.join(of)).map(|named| named.ino());
    let error = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let numbers = name("pid").map_err(error).map_err(to("look at /proc/self/ns/pid"))?;
    let times = match name("time") {
        Ok(times) => times,
        // Before Linux 5.6 all have one time.
        Err(why) if why.kind() == ErrorKind::NotFound => 0,
        Err(why) => return Err(to("look at /proc/self/ns/time")(error(why))),
    };
    Ok(words::mix(&[numbers, times]))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::faults::{self, Call, Fault};

    fn of(child: &std::process::Child) -> Identity {
        let number = Pid::from_child(child);
        Identity::new(number, started_by_number(Path::new(PROC), number).unwrap())
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

    /// Made by hand, what `/proc` looks like.
    fn proc_where_we_are(number: u32) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(number.to_string(), proc.path().join("self")).unwrap();
        for (process, began) in [(number, 700), (number + 1, 800)] {
            let name = proc.path().join(process.to_string());
            fs::create_dir(&name).unwrap();
            let stat = format!("{process} (a) b) S {}{began} 9 9", "1 ".repeat(18));
            fs::write(name.join("stat"), stat).unwrap();
        }
        proc
    }

    #[test]
    fn numbers_of_another_namespace_are_not_believed() {
        let own = std::process::id();
        let ours = proc_where_we_are(own);
        let number = |number: u32| Pid::from_raw(number.cast_signed()).unwrap();
        assert_eq!(started_by_number(ours.path(), number(own)), Some(700));
        assert_eq!(started_by_number(ours.path(), number(own + 1)), Some(800));
        // Our number is another process's there, and its start time not ours.
        let others = proc_where_we_are(own - 1);
        assert_eq!(started_by_number(others.path(), number(own)), None);
        assert_eq!(started(others.path(), "self"), Some(700));
    }

    #[test]
    fn who_has_another_time_has_another_namespace() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(first.path().join("pid"), "").unwrap();
        fs::hard_link(first.path().join("pid"), second.path().join("pid")).unwrap();
        let both = || [first.path(), second.path()].map(|names| namespace_in(names).unwrap());
        assert_eq!(both()[0], both()[1], "before Linux 5.6 there is no such file");
        for names in [&first, &second] {
            fs::write(names.path().join("time"), "").unwrap();
        }
        assert_ne!(both()[0], both()[1]);
        assert!(namespace_in(&first.path().join("none")).is_err());
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
