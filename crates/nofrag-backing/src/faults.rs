//! Making system calls fail on purpose, and counting those that are made.
//!
//! Whoever embeds this crate can ask what its program does when the kernel refuses: [`inject`] makes chosen calls of
//! this thread fail, as often as wanted, without making them. And whoever claims that something needs no system call
//! can count ([`made`]). Both belong to the calling thread, so tests may run side by side; background work is tested
//! by stepping its machine on the test's own thread.
//!
//! ```
//! use nofrag_backing::faults::{self, Call, Fault};
//! use rustix::io::Errno;
//!
//! let armed = faults::inject([Fault::once(Call::Mmap, Errno::NOMEM)]);
//! // the next mapping that this thread asks for is refused
//! drop(armed);
//! ```

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::AddAssign;

use rustix::io::Errno;

/// A system call on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// `mmap`, of any kind.
    Mmap,
    /// `munmap`.
    Munmap,
    /// `mremap`.
    Mremap,
    /// `mprotect`.
    Mprotect,
    /// `madvise`, whatever the advice.
    Madvise,
    /// `process_madvise`.
    ProcessMadvise,
    /// `memfd_create`.
    MemfdCreate,
    /// `ftruncate`.
    Ftruncate,
    /// `fallocate`, also to punch a hole.
    Fallocate,
    /// `fcntl` with `F_ADD_SEALS`.
    Seal,
    /// `userfaultfd`, or the open of its device.
    Userfaultfd,
    /// Any request to a userfaultfd.
    UserfaultfdRequest,
    /// `fstat`.
    Stat,
}

impl Call {
    /// How many there are.
    pub const COUNT: usize = 13;

    /// All of them.
    pub const ALL: [Call; Call::COUNT] = [
        Call::Mmap,
        Call::Munmap,
        Call::Mremap,
        Call::Mprotect,
        Call::Madvise,
        Call::ProcessMadvise,
        Call::MemfdCreate,
        Call::Ftruncate,
        Call::Fallocate,
        Call::Seal,
        Call::Userfaultfd,
        Call::UserfaultfdRequest,
        Call::Stat,
    ];
}

/// Calls that shall fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which call.
    pub call: Call,
    /// So many are let through first.
    pub after: u32,
    /// So many fail then.
    pub times: u32,
    /// With this error.
    pub error: Errno,
}

impl Fault {
    /// The next one fails.
    #[must_use]
    pub const fn once(call: Call, error: Errno) -> Fault {
        Fault { call, after: 0, times: 1, error }
    }

    /// All fail from now on.
    #[must_use]
    pub const fn always(call: Call, error: Errno) -> Fault {
        Fault { call, after: 0, times: u32::MAX, error }
    }
}

/// While it lives, the calls that were named fail in the thread that made it.
#[must_use = "dropping it lets every call through again"]
#[derive(Debug)]
pub struct Armed {
    plan: u64,
    /// Belongs to its thread.
    here: PhantomData<*const ()>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        // What was injected later is another's.
        if self.plan == PLANS.get() {
            PLAN.with_borrow_mut(Vec::clear);
            ARMED.set(false);
        }
    }
}

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    /// How often something was injected.
    static PLANS: Cell<u64> = const { Cell::new(0) };
    static PLAN: RefCell<Vec<Fault>> = const { RefCell::new(Vec::new()) };
    static MADE: [Cell<u64>; Call::COUNT] = const { [const { Cell::new(0) }; Call::COUNT] };
}

/// Makes calls of this thread fail until the result is dropped. What was injected before is replaced, and who drops the
/// result of that takes nothing back.
pub fn inject(faults: impl IntoIterator<Item = Fault>) -> Armed {
    PLAN.set(faults.into_iter().collect());
    ARMED.set(true);
    PLANS.set(PLANS.get() + 1);
    Armed { plan: PLANS.get(), here: PhantomData }
}

/// How many calls of each kind a thread has made. Those that were made to fail count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls([u64; Call::COUNT]);

impl Calls {
    /// Of one kind.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize]
    }

    /// Of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Calls) -> Calls {
        let mut calls = *self;
        calls.0.iter_mut().zip(earlier.0).for_each(|(now, then)| *now -= then);
        calls
    }
}

impl AddAssign for Calls {
    fn add_assign(&mut self, more: Calls) {
        self.0.iter_mut().zip(more.0).for_each(|(sum, more)| *sum += more);
    }
}

/// What this thread has made so far.
#[must_use]
pub fn made() -> Calls {
    MADE.with(|made| Calls(std::array::from_fn(|call| made[call].get())))
}

/// To be asked before every call.
#[inline]
pub(crate) fn before(call: Call) -> Result<(), Errno> {
    MADE.with(|made| made[call as usize].set(made[call as usize].get() + 1));
    if ARMED.get() { refused(call) } else { Ok(()) }
}

#[cold]
fn refused(call: Call) -> Result<(), Errno> {
    PLAN.with_borrow_mut(|plan| {
        let live = |fault: &&mut Fault| fault.call == call && fault.times > 0;
        match plan.iter_mut().find(live) {
            Some(fault) if fault.after > 0 => {
                fault.after -= 1;
                Ok(())
            }
            Some(fault) => {
                fault.times = if fault.times == u32::MAX { u32::MAX } else { fault.times - 1 };
                Err(fault.error)
            }
            None => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_plan_that_ends_leaves_the_newer_one() {
        let older = inject([Fault::always(Call::Mmap, Errno::NOMEM)]);
        let newer = inject([Fault::always(Call::Stat, Errno::IO)]);
        drop(older);
        assert_eq!((before(Call::Stat), before(Call::Mmap)), (Err(Errno::IO), Ok(())));
        drop(newer);
        assert_eq!(before(Call::Stat), Ok(()));
    }
}
