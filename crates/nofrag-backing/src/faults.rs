//! Making system calls fail on purpose, and counting those that are made.
//!
//! A program that embeds this crate can be tested for the refusals of a kernel: [`inject`] makes chosen calls of this
//! thread fail, as often as wanted, without making them. And a claim that something needs no system call can be tested
//! by counting ([`made`]). Both belong to the calling thread, so tests may run side by side; a background machine is
//! tested by stepping it on the test's own thread.
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
    /// `mmap`, with a file or without.
    Mmap,
    Munmap,
    Mremap,
    Mprotect,
    /// `madvise`, with any advice.
    Madvise,
    ProcessMadvise,
    MemfdCreate,
    Ftruncate,
    /// `fallocate`, also to punch a hole.
    Fallocate,
    /// `fcntl` that adds seals (`F_ADD_SEALS`).
    Seal,
    /// `userfaultfd`, or the open of its device.
    Userfaultfd,
    /// Any request to a userfaultfd.
    UserfaultfdRequest,
    Stat,
}

impl Call {
    /// The number of kinds of calls.
    pub const COUNT: usize = 13;

    /// All kinds of calls, in the order of their numbers.
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

/// A plan to let calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub call: Call,
    /// Number of calls that are let through first.
    pub after: u32,
    /// Number of calls that fail then.
    pub times: u32,
    pub error: Errno,
}

impl Fault {
    /// Returns a plan by which the next call fails.
    #[must_use]
    pub const fn once(call: Call, error: Errno) -> Fault {
        Fault { call, after: 0, times: 1, error }
    }

    /// Returns a plan by which all calls fail from now on.
    #[must_use]
    pub const fn always(call: Call, error: Errno) -> Fault {
        Fault { call, after: 0, times: u32::MAX, error }
    }
}

/// A guard: while it lives, the planned calls fail in the thread that made it.
#[must_use = "dropping it lets every call through again"]
#[derive(Debug)]
pub struct Armed {
    plan: u64,
    /// Makes the guard stay in its thread.
    here: PhantomData<*const ()>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        // A plan that was injected later belongs to another guard.
        if self.plan == PLANS.get() {
            PLAN.with_borrow_mut(Vec::clear);
            ARMED.set(false);
        }
    }
}

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    /// Number of plans that were injected.
    static PLANS: Cell<u64> = const { Cell::new(0) };
    static PLAN: RefCell<Vec<Fault>> = const { RefCell::new(Vec::new()) };
    static MADE: [Cell<u64>; Call::COUNT] = const { [const { Cell::new(0) }; Call::COUNT] };
}

/// Makes calls of this thread fail until the result is dropped. An earlier plan is replaced, and dropping its guard
/// ends nothing then.
pub fn inject(faults: impl IntoIterator<Item = Fault>) -> Armed {
    PLAN.set(faults.into_iter().collect());
    ARMED.set(true);
    PLANS.set(PLANS.get() + 1);
    Armed { plan: PLANS.get(), here: PhantomData }
}

/// The number of calls of each kind that a thread has made. Those that were made to fail count too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls([u64; Call::COUNT]);

impl Calls {
    /// Returns the number of calls of one kind.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        self.0[call as usize]
    }

    /// Returns the number of calls of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the calls that were made since `earlier`.
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

/// Returns the calls that this thread has made so far.
#[must_use]
pub fn made() -> Calls {
    MADE.with(|made| Calls(std::array::from_fn(|call| made[call].get())))
}

/// Counts a call, and refuses it if a plan says so. This crate asks before every call; so may code beside it whose own
/// calls are to be counted and refused with them.
///
/// # Errors
/// The error of the plan.
#[inline]
pub fn before(call: Call) -> Result<(), Errno> {
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
