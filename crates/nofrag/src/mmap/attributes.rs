//! The attributes of an area, and the rules by which two neighbours merge (docs/sources/mmap.md#merge-rule).

use crate::units::{PageCount, Vpn};

/// Permitted accesses to an area's memory. Bits may be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protection(pub u8);

impl Protection {
    /// No access: a reservation or a guard.
    pub const NONE: Protection = Protection(0);
    pub const READ: Protection = Protection(1);
    pub const READ_WRITE: Protection = Protection(3);
    pub const READ_EXECUTE: Protection = Protection(5);
}

/// Properties in which areas differ, beside protection. Bits may be joined with [`with`](Self::with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AreaFlags(pub u32);

impl AreaFlags {
    pub const NONE: AreaFlags = AreaFlags(0);
    /// Shared with other processes (`MAP_SHARED`).
    pub const SHARED: AreaFlags = AreaFlags(1);
    /// `VM_IO`: device memory; never merges.
    pub const IO: AreaFlags = AreaFlags(1 << 1);
    /// Never grows, never merges (`VM_DONTEXPAND`).
    pub const DONT_EXPAND: AreaFlags = AreaFlags(1 << 2);
    /// `VM_PFNMAP`: page frames without bookkeeping; never merges.
    pub const PFN_MAP: AreaFlags = AreaFlags(1 << 3);
    /// `VM_MIXEDMAP`: areas with this flag never merge.
    pub const MIXED_MAP: AreaFlags = AreaFlags(1 << 4);
    /// Grows down when the page below is touched: a stack.
    pub const GROWS_DOWN: AreaFlags = AreaFlags(1 << 5);
    /// Grows up: the mirror image of [`GROWS_DOWN`](Self::GROWS_DOWN).
    pub const GROWS_UP: AreaFlags = AreaFlags(1 << 6);
    /// A shadow stack, with a guard of one page below.
    pub const SHADOW_STACK: AreaFlags = AreaFlags(1 << 7);
    /// `VM_SOFTDIRTY`: the one flag of Linux in which areas that merge may differ.
    pub const SOFT_DIRTY: AreaFlags = AreaFlags(1 << 8);
    /// Locked into memory by `mlock`.
    pub const LOCKED: AreaFlags = AreaFlags(1 << 9);
    /// No swap space is reserved (`MAP_NORESERVE`).
    pub const NO_RESERVE: AreaFlags = AreaFlags(1 << 10);
    /// The driver behind the area has a `close` hook, which must be called when the area vanishes: a neighbour never
    /// takes it in.
    pub const CLOSE_HOOK: AreaFlags = AreaFlags(1 << 11);
    /// Never merges, for a reason that Linux does not have: the history of the area is unknown.
    pub const OPAQUE: AreaFlags = AreaFlags(1 << 12);

    const UNMERGEABLE: AreaFlags = AreaFlags(
        Self::IO.0 | Self::DONT_EXPAND.0 | Self::PFN_MAP.0 | Self::MIXED_MAP.0 | Self::OPAQUE.0,
    );

    /// Returns the flags of both sets together.
    #[must_use]
    pub const fn with(self, other: AreaFlags) -> AreaFlags {
        AreaFlags(self.0 | other.0)
    }

    /// Returns this set without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: AreaFlags) -> AreaFlags {
        AreaFlags(self.0 & !other.0)
    }

    /// Returns true if any flag of `other` is set.
    #[must_use]
    pub const fn any_of(self, other: AreaFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// The source of an area's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backing {
    /// No source: memory of its own.
    #[default]
    Anonymous,
    /// The file with this number.
    File(u64),
}

/// The chain that Linux keeps for an area whose anonymous memory has been touched (`anon_vma`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnonChain {
    #[default]
    Untouched,
    /// Touched; the chain is known to no other process.
    Own(u64),
    /// Touched, and shared with a parent or child by fork.
    Shared(u64),
}

impl AnonChain {
    /// Returns what a fork makes of the chain: one of this process alone becomes a shared one.
    pub(super) fn shared(self) -> AnonChain {
        match self {
            AnonChain::Own(chain) => AnonChain::Shared(chain),
            AnonChain::Untouched | AnonChain::Shared(_) => self,
        }
    }
}

/// All properties that decide whether two adjacent areas are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    pub protection: Protection,
    pub flags: AreaFlags,
    pub backing: Backing,
    /// The page of the backing object that the first page of the area shows. Of anonymous memory
    /// [`AddressSpace::map`](super::AddressSpace::map) sets it to the page's own number, as Linux does.
    pub offset: u64,
    pub chain: AnonChain,
    /// A number for the memory policy; 0 is the default one.
    pub memory_policy: u32,
    /// A number for the userfaultfd context; 0 is none.
    pub userfault: u32,
    /// A number for the name that `PR_SET_VMA_ANON_NAME` gave; 0 is none.
    pub name: u32,
}

/// Reason why two adjacent areas stay two; one that is named after an attribute says that they differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MergeBlocker {
    /// One of the two never merges: device memory, `DONTEXPAND`, page frames.
    Special,
    Protection,
    Flags,
    /// They show different files, or a file and anonymous memory.
    Backing,
    /// They show the same file, but not pages that follow each other.
    Offset,
    MemoryPolicy,
    Userfault,
    Name,
    /// Both were touched while they were two areas, or only one was, and a fork shared its memory.
    Chain,
    /// One of the two has a close hook, and may be the part that would vanish.
    CloseHook,
}

impl Attributes {
    /// Returns the attributes of private anonymous memory with this protection.
    #[must_use]
    pub const fn anonymous(protection: Protection) -> Attributes {
        Attributes {
            protection,
            flags: AreaFlags::NONE,
            backing: Backing::Anonymous,
            offset: 0,
            chain: AnonChain::Untouched,
            memory_policy: 0,
            userfault: 0,
            name: 0,
        }
    }

    /// Returns the same attributes with these flags added.
    #[must_use]
    pub const fn with(self, flags: AreaFlags) -> Attributes {
        Attributes { flags: self.flags.with(flags), ..self }
    }

    /// Returns the number of guard pages below an area with these attributes: `stack_gap` below a stack, one below a
    /// shadow stack, else none.
    #[inline]
    pub(super) fn guard_below(&self, stack_gap: PageCount) -> u64 {
        if self.flags.any_of(AreaFlags::GROWS_DOWN) {
            stack_gap.0
        } else if self.flags.any_of(AreaFlags::SHADOW_STACK) {
            1
        } else {
            0
        }
    }

    /// Returns the attributes of an area that begins at `start` with the offset relative to the address: in this form
    /// the offsets of mergeable neighbours are equal.
    pub(super) fn based(self, start: Vpn) -> Attributes {
        Attributes { offset: self.offset.wrapping_sub(start.0), ..self }
    }

    /// Returns the attributes of the part of an area that begins at `start`; the inverse of [`based`](Self::based).
    pub(super) fn at(self, start: Vpn) -> Attributes {
        Attributes { offset: self.offset.wrapping_add(start.0), ..self }
    }

    /// Returns true if an area with these attributes never merges with anything.
    pub(super) fn is_special(&self) -> bool {
        self.flags.any_of(AreaFlags::UNMERGEABLE)
    }

    /// Returns true if the area's driver must be told when the area vanishes.
    pub(super) fn has_close_hook(&self) -> bool {
        self.flags.any_of(AreaFlags::CLOSE_HOOK)
    }

    /// Returns the reason why an area with these attributes stays apart from one with those of `above` that begins
    /// where it ends, the first in the order of [`MergeBlocker`]; `None` if they can merge. Both are
    /// [`based`](Self::based).
    pub(super) fn blocker(&self, above: &Attributes) -> Option<MergeBlocker> {
        let hooked = self.has_close_hook() || above.has_close_hook();
        self.difference(above).or(hooked.then_some(MergeBlocker::CloseHook))
    }

    /// Returns the [`blocker`](Self::blocker) without regard to close hooks, since a hook counts only if its area is
    /// the one that vanishes.
    pub(super) fn difference(&self, above: &Attributes) -> Option<MergeBlocker> {
        let plain = |attributes: &Attributes| {
            attributes.flags.without(AreaFlags::SOFT_DIRTY.with(AreaFlags::CLOSE_HOOK))
        };
        let chains_agree = match (self.chain, above.chain) {
            (AnonChain::Untouched, AnonChain::Shared(_))
            | (AnonChain::Shared(_), AnonChain::Untouched) => false,
            (AnonChain::Untouched, _) | (_, AnonChain::Untouched) => true,
            (one, other) => one == other,
        };
        if self.is_special() || above.is_special() {
            Some(MergeBlocker::Special)
        } else if self.protection != above.protection {
            Some(MergeBlocker::Protection)
        } else if plain(self) != plain(above) {
            Some(MergeBlocker::Flags)
        } else if self.backing != above.backing {
            Some(MergeBlocker::Backing)
        } else if self.offset != above.offset {
            Some(MergeBlocker::Offset)
        } else if self.memory_policy != above.memory_policy {
            Some(MergeBlocker::MemoryPolicy)
        } else if self.userfault != above.userfault {
            Some(MergeBlocker::Userfault)
        } else if self.name != above.name {
            Some(MergeBlocker::Name)
        } else if !chains_agree {
            Some(MergeBlocker::Chain)
        } else {
            None
        }
    }

    /// Returns the same attributes with the chain of `other`, if they have none: the attributes of two areas that
    /// merge.
    pub(super) fn joined_by(self, other: &Attributes) -> Attributes {
        match self.chain {
            AnonChain::Untouched => Attributes { chain: other.chain, ..self },
            AnonChain::Own(_) | AnonChain::Shared(_) => self,
        }
    }

    /// Returns true if the first write would give the area a chain: it is memory of its own that was never written to.
    pub(super) fn awaits_touch(&self) -> bool {
        self.chain == AnonChain::Untouched && !self.flags.any_of(AreaFlags::SHARED)
    }
}

/// The neighbours with which a range merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Alone,
    /// The area that ends where the range begins.
    Below,
    /// The area that begins where the range ends.
    Above,
    /// Both areas, which become one.
    Both,
}

/// The extent of a range that merges, which decides if a record vanishes when a neighbour takes the range in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// The range is a new mapping, or a whole area: its record vanishes if a neighbour takes it in.
    Whole,
    /// The range is a part of an area that stays.
    Part,
}

/// Decides with which of its neighbours, if it touches any, a range merges; all attributes are based.
///
/// A range that could join both neighbours joins the lower one only, if their chains differ or the upper one, which
/// would vanish, has a close hook.
pub(super) fn join(
    below: Option<&Attributes>,
    range: &Attributes,
    merging: Merging,
    above: Option<&Attributes>,
) -> Join {
    if merging == Merging::Whole && range.has_close_hook() {
        return Join::Alone;
    }
    let below = below.filter(|below| below.difference(range).is_none());
    let above = above.filter(|above| range.difference(above).is_none());
    match (below, above) {
        (None, None) => Join::Alone,
        (None, Some(_)) => Join::Above,
        (Some(_), None) => Join::Below,
        (Some(below), Some(above)) => {
            let bridges = below.difference(above).is_none() && !above.has_close_hook();
            if bridges { Join::Both } else { Join::Below }
        }
    }
}
