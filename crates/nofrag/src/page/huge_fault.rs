//! The requests of a fault in memory that may be huge: by the setting `transparent_hugepage/defrag`, by the program's
//! advice, and by version.
//!
//! All requests are for movable memory of a process, without reserves. The setting adds who may reclaim:
//!
//! | setting | not advised | `MADV_HUGEPAGE` |
//! |---|---|---|
//! | `always` | caller, without retry | caller |
//! | `defer` | kswapd | kswapd |
//! | `defer+madvise` | kswapd | caller |
//! | `madvise` (default) | nobody | caller |
//! | `never` | nobody | nobody |
//!
//! Since 5.4 there are two tries, unless the memory policy interleaves: one on the local node that is not to be
//! retried, and then, only if the caller may reclaim, one with the flags of the table on all nodes. A machine with one
//! node makes both. khugepaged and `MADV_COLLAPSE` ask like advised memory under `madvise`.
//!
//! Rules: docs/sources/pages.md#huge-fault-flags, pages.md#huge-fault-tries; the settings are in
//! Documentation/admin-guide/mm/transhuge.rst.

use super::policy::HugeTries;
use super::request::{PageRequest, RequestFlags};
use crate::units::Order;

/// The setting `transparent_hugepage/defrag`: who may reclaim for a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugeDefrag {
    /// Callers may reclaim, without retry unless the memory was advised.
    Always,
    /// Only kswapd may reclaim, never the caller.
    Defer,
    /// Callers may reclaim where it was advised, kswapd elsewhere.
    DeferMadvise,
    /// Callers may reclaim where it was advised, nobody elsewhere: the default.
    #[default]
    Madvise,
    /// Nobody may reclaim for a huge page.
    Never,
}

/// Advice of the program for the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    Unadvised,
    /// The program has advised `MADV_HUGEPAGE`.
    HugePage,
}

/// The requests of one fault, in the order in which they are made: each if the one before was not served.
///
/// ```
/// use nofrag::page::{Advice, HugeDefrag, HugeFault, HugeTries, RequestFlags};
///
/// let fault = HugeFault::new(HugeDefrag::Madvise, Advice::HugePage, HugeTries::LocalThenAll);
/// let local = RequestFlags::DIRECT_RECLAIM.with(RequestFlags::THIS_NODE).with(RequestFlags::NO_RETRY);
/// let flags: Vec<_> = fault.map(|request| request.flags).collect();
/// assert_eq!(flags, [local, RequestFlags::DIRECT_RECLAIM]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeFault {
    tries: [Option<RequestFlags>; 2],
}

impl HugeFault {
    /// Returns the requests of a fault under a setting, an advice, and the rules of a version.
    #[must_use]
    pub const fn new(defrag: HugeDefrag, advice: Advice, tries: HugeTries) -> HugeFault {
        let plain = flags(defrag, advice);
        let local = plain.with(RequestFlags::THIS_NODE);
        let tries = match tries {
            HugeTries::All => [Some(plain), None],
            HugeTries::Local => [Some(local), None],
            HugeTries::LocalThenAll => {
                let may_reclaim = plain.has(RequestFlags::DIRECT_RECLAIM);
                let first = local.with(RequestFlags::NO_RETRY);
                [Some(first), if may_reclaim { Some(plain) } else { None }]
            }
        };
        HugeFault { tries }
    }
}

impl Iterator for HugeFault {
    type Item = PageRequest;

    fn next(&mut self) -> Option<PageRequest> {
        let [first, second] = self.tries;
        self.tries = [second, None];
        first.map(|flags| PageRequest::user(Order::PAGEBLOCK).flags(flags))
    }
}

/// Returns the flags that say who may reclaim for a huge page, and how hard.
const fn flags(defrag: HugeDefrag, advice: Advice) -> RequestFlags {
    use Advice::{HugePage, Unadvised};
    use HugeDefrag::{Always, Defer, DeferMadvise, Madvise, Never};
    match (defrag, advice) {
        (Always, Unadvised) => RequestFlags::DIRECT_RECLAIM.with(RequestFlags::NO_RETRY),
        (Always | DeferMadvise | Madvise, HugePage) => RequestFlags::DIRECT_RECLAIM,
        (Defer, _) | (DeferMadvise, Unadvised) => RequestFlags::KSWAPD_RECLAIM,
        (Madvise, Unadvised) | (Never, _) => RequestFlags::NONE,
    }
}
