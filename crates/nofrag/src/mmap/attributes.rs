//! What an area is, and when two neighbours are one (docs/sources/mmap.md#merge-rule).

use crate::units::{PageCount, Vpn};

/// Who may do what with an area's memory. Bits may be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protection(pub u8);

impl Protection {
    /// No access: a reservation or a guard.
    pub const NONE: Protection = Protection(0);
    /// Read.
    pub const READ: Protection = Protection(1);
    /// Read and write.
    pub const READ_WRITE: Protection = Protection(3);
    /// Read and execute.
    pub const READ_EXECUTE: Protection = Protection(5);
}

/// What else distinguishes areas. Bits may be joined with [`with`](Self::with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AreaFlags(pub u32);

impl AreaFlags {
    /// Nothing special.
    pub const NONE: AreaFlags = AreaFlags(0);
    /// `MAP_SHARED`.
    pub const SHARED: AreaFlags = AreaFlags(1);
    /// `VM_IO`: device memory; never merges.
    pub const IO: AreaFlags = AreaFlags(1 << 1);
    /// `VM_DONTEXPAND`: never merges.
    pub const DONT_EXPAND: AreaFlags = AreaFlags(1 << 2);
    /// `VM_PFNMAP`: page frames without bookkeeping; never merges.
    pub const PFN_MAP: AreaFlags = AreaFlags(1 << 3);
    /// `VM_MIXEDMAP`: never merges.
    pub const MIXED_MAP: AreaFlags = AreaFlags(1 << 4);
    /// Grows down when the page below is touched: a stack.
    pub const GROWS_DOWN: AreaFlags = AreaFlags(1 << 5);
    /// Grows up.
    pub const GROWS_UP: AreaFlags = AreaFlags(1 << 6);
    /// A shadow stack, with a guard of one page below.
    pub const SHADOW_STACK: AreaFlags = AreaFlags(1 << 7);
    /// `VM_SOFTDIRTY`: the one flag in which areas that merge may differ.
    pub const SOFT_DIRTY: AreaFlags = AreaFlags(1 << 8);
    /// `mlock`.
    pub const LOCKED: AreaFlags = AreaFlags(1 << 9);
    /// `MAP_NORESERVE`.
    pub const NO_RESERVE: AreaFlags = AreaFlags(1 << 10);
    /// The driver behind the area wants to hear when it vanishes (`close`): a neighbour never takes it in.
    pub const CLOSE_HOOK: AreaFlags = AreaFlags(1 << 11);
    /// Never merges, for no reason of Linux's: areas whose history is unknown.
    pub const OPAQUE: AreaFlags = AreaFlags(1 << 12);

    const UNMERGEABLE: AreaFlags = AreaFlags(
        Self::IO.0 | Self::DONT_EXPAND.0 | Self::PFN_MAP.0 | Self::MIXED_MAP.0 | Self::OPAQUE.0,
    );

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: AreaFlags) -> AreaFlags {
        AreaFlags(self.0 | other.0)
    }

    /// This set without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: AreaFlags) -> AreaFlags {
        AreaFlags(self.0 & !other.0)
    }

    /// Whether any flag of `other` is set.
    #[must_use]
    pub const fn any_of(self, other: AreaFlags) -> bool {
        self.0 & other.0 != 0
    }
}

/// What holds an area's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Nothing: memory of its own.
    #[default]
    Anonymous,
    /// The file with this number.
    File(u64),
}

/// The chain that Linux keeps for an area whose anonymous memory has been touched (`anon_vma`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AnonChain {
    /// Not touched yet.
    #[default]
    Untouched,
    /// Touched; this is its chain, known to no other process.
    Own(u64),
    /// Touched, and shared with a parent or child by fork.
    Shared(u64),
}

impl AnonChain {
    /// The same chain after a fork.
    pub(super) fn shared(self) -> AnonChain {
        match self {
            AnonChain::Own(chain) => AnonChain::Shared(chain),
            AnonChain::Untouched | AnonChain::Shared(_) => self,
        }
    }
}

/// Everything that decides whether two adjacent areas are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Who may do what.
    pub protection: Protection,
    /// What else distinguishes it.
    pub flags: AreaFlags,
    /// What holds the content.
    pub backing: Backing,
    /// The page of the backing object that the first page of the area shows. Of anonymous memory
    /// [`AddressSpace::map`](super::AddressSpace::map) sets it to the page's own number, as Linux does.
    pub offset: u64,
    /// The chain of touched anonymous memory.
    pub chain: AnonChain,
    /// A number for the memory policy; 0 is the default one.
    pub memory_policy: u32,
    /// A number for the userfaultfd context; 0 is none.
    pub userfault: u32,
    /// A number for the name that `PR_SET_VMA_ANON_NAME` gave; 0 is none.
    pub name: u32,
}

/// Why two adjacent areas stay two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MergeBlocker {
    /// One of them never merges: device memory, `DONTEXPAND`, page frames.
    Special,
    /// Other protection.
    Protection,
    /// Other flags.
    Flags,
    /// Other file, or file beside anonymous memory.
    Backing,
    /// The same file, but not the pages that follow.
    Offset,
    /// Other memory policy.
    MemoryPolicy,
    /// Other userfaultfd context.
    Userfault,
    /// Other name.
    Name,
    /// Both were touched while they were two areas.
    Chain,
    /// One of them has a close hook, and may be the part that would vanish.
    CloseHook,
}

impl Attributes {
    /// Private anonymous memory with this protection.
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

    /// The same with these flags added.
    #[must_use]
    pub const fn with(self, flags: AreaFlags) -> Attributes {
        Attributes { flags: self.flags.with(flags), ..self }
    }

    /// How many pages below such an area are to stay free, where `stack_gap` are below a stack.
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

    /// What an area with these attributes that begins at `start` has in common with all its mergeable neighbours: the
    /// offset relative to the address.
    pub(super) fn based(self, start: Vpn) -> Attributes {
        Attributes { offset: self.offset.wrapping_sub(start.0), ..self }
    }

    /// The attributes of the part of an area that begins at `start`; the inverse of [`based`](Self::based).
    pub(super) fn at(self, start: Vpn) -> Attributes {
        Attributes { offset: self.offset.wrapping_add(start.0), ..self }
    }

    /// Whether an area with these attributes never merges with anything.
    pub(super) fn is_special(&self) -> bool {
        self.flags.any_of(AreaFlags::UNMERGEABLE)
    }

    /// Whether its driver wants to hear when it vanishes.
    pub(super) fn has_close_hook(&self) -> bool {
        self.flags.any_of(AreaFlags::CLOSE_HOOK)
    }

    /// What keeps an area with these attributes, which ends where one with those of `above` begins, apart from it;
    /// both are [`based`](Self::based). The first blocker in the order of [`MergeBlocker`].
    pub(super) fn blocker(&self, above: &Attributes) -> Option<MergeBlocker> {
        let hooked = self.has_close_hook() || above.has_close_hook();
        self.difference(above).or(hooked.then_some(MergeBlocker::CloseHook))
    }

    /// As [`blocker`](Self::blocker), close hooks aside: whether one counts depends on which part vanishes.
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

    /// The same with the chain of `other`, if it has none itself: what becomes of two areas that merge.
    pub(super) fn joined_by(self, other: &Attributes) -> Attributes {
        match self.chain {
            AnonChain::Untouched => Attributes { chain: other.chain, ..self },
            AnonChain::Own(_) | AnonChain::Shared(_) => self,
        }
    }

    /// Whether the first write would give it a chain: memory of its own that nobody has written to.
    pub(super) fn awaits_touch(&self) -> bool {
        self.chain == AnonChain::Untouched && !self.flags.any_of(AreaFlags::SHARED)
    }
}

/// With whom a range merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// Nobody.
    Alone,
    /// The area that ends where it begins.
    Below,
    /// The area that begins where it ends.
    Above,
    /// Both, which become one area.
    Both,
}

/// What becomes of the record of the range that merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// It is a new mapping, or a whole area: a neighbour that takes it in makes it vanish.
    Whole,
    /// It is a part of an area that stays.
    Part,
}

/// Decides with which of its neighbours, if it touches any, a range merges; all attributes are based.
///
/// A bridge whose ends differ in their chains joins the lower one only. The upper neighbour vanishes in a bridge.
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
