//! The user that called this command by sudo, and going on as that user.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// The user that called sudo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    user: Uid,
    group: Gid,
}

impl Caller {
    /// Returns user and group that called this command by sudo, if root runs it.
    pub(crate) fn of_sudo() -> Option<Caller> {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        let (user, group) = number("SUDO_UID").zip(number("SUDO_GID"))?;
        // The number that stands for no user would leave things as they are.
        let caller = [user, group].iter().all(|&number| number != u32::MAX);
        let caller = caller.then(|| (Uid::from_raw(user), Gid::from_raw(group)));
        let (user, group) = caller.filter(|(user, _)| geteuid().is_root() && !user.is_root())?;
        Some(Caller { user, group })
    }

    /// Gives this process the rights of the caller alone, with no way back, also for programs that it starts, setuid or
    /// not. So files that it writes belong to the caller, and are written only where the caller may write, wherever a
    /// path leads.
    ///
    /// # Errors
    /// If any of this could not be done, or threads exist already, which would keep their rights.
    pub(crate) fn become_for_good(self) -> io::Result<()> {
        let Caller { user, group } = self;
        nofrag_host::source::end_reader();
        let threads = fs::read_dir("/proc/self/task")?.count();
        if threads != 1 {
            return Err(io::Error::other(format!("{threads} threads have root's rights")));
        }
        set_no_new_privs(true)?;
        set_thread_groups(&[group])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        const NONE: CapabilitySets = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        clear_ambient_capability_set()?;
        set_capabilities(None, NONE)?;
        let regained = set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok()
            || set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).is_ok()
            || capabilities(None)? != NONE;
        match regained {
            true => Err(io::Error::other("root's rights could be had again")),
            false => Ok(()),
        }
    }

    /// Returns the variables that a command of the caller finds in its environment where sudo has put root's: name and
    /// home.
    pub(crate) fn environment(self) -> Vec<(OsString, OsString)> {
        let users = fs::read("/etc/passwd").unwrap_or_default();
        let known = of_passwd(&String::from_utf8_lossy(&users), self.user.as_raw());
        let (name, home) = match known {
            Some((name, home)) => (Some(name.into()), Some(home.into())),
            None => (env::var_os("SUDO_USER"), None),
        };
        let pairs = [("USER", name.clone()), ("LOGNAME", name), ("HOME", home)];
        pairs.into_iter().filter_map(|(key, value)| Some((key.into(), value?))).collect()
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "user {}", self.user.as_raw())
    }
}

/// Returns name and home of a user, from `/etc/passwd`.
fn of_passwd(text: &str, user: u32) -> Option<(String, String)> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, _] = fields[..] else { return None };
        (number.parse() == Ok(user)).then(|| (name.to_owned(), home.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_and_a_home() {
        let text =
            "root:x:0:0:root:/root:/bin/sh\nodd line\nme:x:1000:1000:M,,:/somewhere/me:/bin/sh\n";
        let expected = Some(("me".to_owned(), "/somewhere/me".to_owned()));
        assert_eq!(of_passwd(text, 1000), expected);
        assert_eq!(of_passwd(text, 1001), None);
    }

    /// Checks that the change of user is refused: other threads of the process, such as those of the tests, would keep
    /// their rights.
    #[test]
    fn a_process_with_threads_does_not_change_half_of_itself() {
        let caller = Caller { user: Uid::from_raw(65_534), group: Gid::from_raw(65_534) };
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| caller.become_for_good()).join().unwrap();
            assert!(refused.unwrap_err().to_string().contains("threads"));
        });
        assert!(fs::metadata("/proc/self").is_ok());
    }
}
