//! `/proc/kpageflags`: the use of each page frame.
//!
//! Both files have eight bytes for each frame, from frame 0 on: a set of bits, whose numbers are the kernel's promise
//! to user space (admin-guide/mm/pagemap), and the number of the frame's mappings. [`PageMap`] reads the files in
//! place; a host of 24 GiB has 50 MB of them.
//!
//! Every page of a free block carries `BUDDY`, but order and type are not given. The orders
//! follow from the first law of the buddies, that a page is free at one order only, the largest possible:
//! [`PageMap::free_blocks`]. The files are not read at one moment, so single blocks may be off. Pages on per-CPU lists
//! are not marked free.
//!
//! Source: docs/sources/trace.md#page-flags, #t6.

use std::ops::Range;

use serde::Serialize;

/// The flags that the kernel shows for one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageFlags(pub u64);

// The names are the kernel's: admin-guide/mm/pagemap.
impl PageFlags {
    pub const LOCKED: PageFlags = PageFlags(1);
    pub const REFERENCED: PageFlags = PageFlags(1 << 2);
    pub const UPTODATE: PageFlags = PageFlags(1 << 3);
    pub const DIRTY: PageFlags = PageFlags(1 << 4);
    pub const LRU: PageFlags = PageFlags(1 << 5);
    pub const ACTIVE: PageFlags = PageFlags(1 << 6);
    pub const SLAB: PageFlags = PageFlags(1 << 7);
    pub const WRITEBACK: PageFlags = PageFlags(1 << 8);
    pub const RECLAIM: PageFlags = PageFlags(1 << 9);
    pub const BUDDY: PageFlags = PageFlags(1 << 10);
    pub const MMAP: PageFlags = PageFlags(1 << 11);
    pub const ANON: PageFlags = PageFlags(1 << 12);
    pub const SWAPCACHE: PageFlags = PageFlags(1 << 13);
    pub const SWAPBACKED: PageFlags = PageFlags(1 << 14);
    pub const COMPOUND_HEAD: PageFlags = PageFlags(1 << 15);
    pub const COMPOUND_TAIL: PageFlags = PageFlags(1 << 16);
    pub const HUGE: PageFlags = PageFlags(1 << 17);
    pub const UNEVICTABLE: PageFlags = PageFlags(1 << 18);
    pub const HWPOISON: PageFlags = PageFlags(1 << 19);
    pub const NOPAGE: PageFlags = PageFlags(1 << 20);
    pub const KSM: PageFlags = PageFlags(1 << 21);
    pub const THP: PageFlags = PageFlags(1 << 22);
    pub const OFFLINE: PageFlags = PageFlags(1 << 23);
    pub const ZERO_PAGE: PageFlags = PageFlags(1 << 24);
    pub const IDLE: PageFlags = PageFlags(1 << 25);
    pub const PGTABLE: PageFlags = PageFlags(1 << 26);
    pub const RESERVED: PageFlags = PageFlags(1 << 32);

    /// Returns true if every flag of `other` is set.
    #[must_use]
    pub const fn has(self, other: PageFlags) -> bool {
        self.0 & other.0 == other.0
    }

    const fn has_any(self, others: &[PageFlags]) -> bool {
        let mut index = 0;
        while index < others.len() {
            if self.has(others[index]) {
                return true;
            }
            index += 1;
        }
        false
    }

    /// Returns the use of the frame, as far as its own flags show it. Tails of compound pages carry flags of their head
    /// on some kernels and not on others; [`PageMap::uses`] gives them the use of their head.
    #[must_use]
    pub const fn usage(self) -> FrameUse {
        if self.has(PageFlags::NOPAGE) {
            FrameUse::NoPage
        } else if self.has(PageFlags::OFFLINE) {
            FrameUse::Offline
        } else if self.has_any(&[PageFlags::RESERVED, PageFlags::HWPOISON]) {
            FrameUse::Reserved
        } else if self.has(PageFlags::BUDDY) {
            FrameUse::Free
        } else if self.has(PageFlags::HUGE) {
            FrameUse::HugeTlb
        } else if self.has(PageFlags::SLAB) {
            FrameUse::Slab
        } else if self.has(PageFlags::PGTABLE) {
            FrameUse::PageTable
        } else if self.has_any(&[PageFlags::ANON, PageFlags::KSM]) {
            FrameUse::Anon
        } else if self.has(PageFlags::ZERO_PAGE) {
            FrameUse::Kernel
        } else if self.has(PageFlags::SWAPBACKED) {
            FrameUse::Shmem
        } else if self.has_any(&[PageFlags::LRU, PageFlags::MMAP, PageFlags::UNEVICTABLE]) {
            FrameUse::File
        } else {
            FrameUse::Kernel
        }
    }
}

impl PageFlags {
    /// Returns the use of the frame behind one with the use `before`: only the head of a compound page shows the use of
    /// its tails, which follow it; but a free page has no tails.
    #[must_use]
    pub(crate) fn usage_behind(self, before: Option<FrameUse>) -> FrameUse {
        let own = self.usage();
        let is_tail = self.has(PageFlags::COMPOUND_TAIL) && own != FrameUse::Free;
        match before {
            Some(head) if is_tail && head != FrameUse::Free => head,
            _ => own,
        }
    }
}

/// The use of a frame. One name for each use that a policy treats differently.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
#[non_exhaustive]
#[strum(const_into_str)]
pub enum FrameUse {
    /// In a free block of the buddies.
    #[strum(serialize = "free")]
    Free,
    /// Page cache of a file: can be moved, and dropped.
    #[strum(serialize = "page cache")]
    File,
    /// Shared memory or tmpfs: can be moved, and dropped only with swap.
    #[strum(serialize = "shared memory")]
    Shmem,
    /// Memory of a process: can be moved, and dropped only with swap.
    #[strum(serialize = "processes")]
    Anon,
    #[strum(serialize = "slab")]
    Slab,
    /// Page tables of a process.
    #[strum(serialize = "page tables")]
    PageTable,
    /// A page of hugetlbfs, given out or in its pool.
    #[strum(serialize = "hugetlbfs")]
    HugeTlb,
    /// Locked memory of a process, where `vm.compact_unevictable_allowed` is 0: it may not be moved.
    #[strum(serialize = "locked memory")]
    Locked,
    /// Any other memory of the kernel, and free pages on per-CPU lists, which look the same.
    #[strum(serialize = "other kernel memory")]
    Kernel,
    /// Never handed out: firmware, the kernel's image, the map of frames itself, broken memory.
    #[strum(serialize = "reserved")]
    Reserved,
    /// Given back to a hypervisor, or taken offline.
    #[strum(serialize = "offline")]
    Offline,
    /// No memory at this frame.
    #[strum(serialize = "no memory")]
    NoPage,
}

impl FrameUse {
    pub const ALL: &[FrameUse] = <FrameUse as strum::VariantArray>::VARIANTS;
    pub const COUNT: usize = FrameUse::ALL.len();

    /// Returns the index of the use into a table with a row per use.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns true if compaction can move the frame's contents.
    #[must_use]
    pub const fn is_movable(self) -> bool {
        matches!(self, FrameUse::File | FrameUse::Shmem | FrameUse::Anon)
    }

    /// Returns true if the allocator manages the frame: it is free, or was handed out.
    #[must_use]
    pub const fn is_managed(self) -> bool {
        !matches!(self, FrameUse::Reserved | FrameUse::Offline | FrameUse::NoPage)
    }
}

const WORD: usize = size_of::<u64>();

/// Returns the number at place `index` of a file of eight-byte numbers.
fn number(bytes: &[u8], index: u64) -> Option<u64> {
    let at = usize::try_from(index).ok()?.checked_mul(WORD)?;
    let bytes = bytes.get(at..at.checked_add(WORD)?)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// The flags of all frames. Nothing is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMap<'a> {
    flags: &'a [u8],
}

impl<'a> PageMap<'a> {
    /// Makes a map from the bytes of `kpageflags`.
    #[must_use]
    pub const fn new(flags: &'a [u8]) -> PageMap<'a> {
        PageMap { flags }
    }

    /// Returns the number of frames with flags: frame 0 to before this number.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        (self.flags.len() / WORD) as u64
    }

    /// Returns the flags of a frame; `None` behind the last.
    #[must_use]
    pub fn flags(&self, pfn: u64) -> Option<PageFlags> {
        number(self.flags, pfn).map(PageFlags)
    }

    /// Returns the use of each frame of a range, in order; frames behind the last are left out. Tails of a compound
    /// page have the use of its head. O(frames).
    pub fn uses(&self, range: Range<u64>) -> impl Iterator<Item = (u64, FrameUse)> + use<'a> {
        let map = *self;
        let end = range.end.min(map.frames());
        // A range may begin inside a compound page.
        let mut head = map.head_use(range.start);
        (range.start..end).filter_map(move |pfn| {
            let usage = map.flags(pfn)?.usage_behind(head);
            head = Some(usage);
            Some((pfn, usage))
        })
    }

    /// Returns the use of the head of the compound page of which `pfn` is a tail; `None` if it is not a tail.
    fn head_use(&self, pfn: u64) -> Option<FrameUse> {
        /// Frames of the largest compound pages, 1 GiB.
        const FARTHEST: u64 = 1 << 18;
        if !self.flags(pfn)?.has(PageFlags::COMPOUND_TAIL) {
            return None;
        }
        let nearest = (pfn.saturating_sub(FARTHEST)..pfn).rev();
        let mut flags = nearest.filter_map(|pfn| self.flags(pfn));
        flags.find(|flags| !flags.has(PageFlags::COMPOUND_TAIL)).map(PageFlags::usage)
    }

    /// Returns the number of frames of a range for each use, by [`FrameUse::index`]. O(frames).
    #[must_use]
    pub fn count_uses(&self, range: Range<u64>) -> [u64; FrameUse::COUNT] {
        let mut counts = [0; FrameUse::COUNT];
        self.uses(range).for_each(|(_, usage)| counts[usage.index()] += 1);
        counts
    }

    /// Returns the free blocks of a range of frames, which must not reach beyond a zone: first frame and order, in
    /// ascending order. Each run of free frames is cut into the largest aligned blocks of at most `largest`. O(frames).
    pub fn free_blocks(
        &self,
        range: Range<u64>,
        largest: u32,
    ) -> impl Iterator<Item = (u64, u32)> + use<'a> {
        let map = *self;
        let mut at = range.start;
        let mut run_end = at;
        let is_free = move |pfn: u64| {
            pfn < range.end && map.flags(pfn).is_some_and(|flags| flags.usage() == FrameUse::Free)
        };
        let last = range.end.min(map.frames());
        std::iter::from_fn(move || {
            if at >= run_end {
                at = (at..last).find(|&pfn| is_free(pfn))?;
                run_end = (at..last).find(|&pfn| !is_free(pfn)).unwrap_or(last);
            }
            let aligned = if at == 0 { u32::MAX } else { at.trailing_zeros() };
            let order = aligned.min((run_end - at).ilog2()).min(largest);
            let block = (at, order);
            at += 1 << order;
            Some(block)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts free frames beside compound pages: there are as many as the free blocks have.
    #[test]
    fn free_frames_have_no_tails() {
        let free_head = PageFlags(PageFlags::BUDDY.0 | PageFlags::COMPOUND_HEAD.0);
        let free_tail = PageFlags(PageFlags::BUDDY.0 | PageFlags::COMPOUND_TAIL.0);
        let slab = PageFlags(PageFlags::SLAB.0 | PageFlags::COMPOUND_HEAD.0);
        let bytes = bytes(&[free_head, PageFlags::COMPOUND_TAIL, slab, free_tail]);
        let map = PageMap::new(&bytes);
        let blocks: u64 = map.free_blocks(0..4, 10).map(|(_, order)| 1 << order).sum();
        assert_eq!(map.count_uses(0..4)[FrameUse::Free.index()], 2);
        assert_eq!(blocks, 2);
    }

    fn bytes(flags: &[PageFlags]) -> Vec<u8> {
        flags.iter().flat_map(|flags| flags.0.to_le_bytes()).collect()
    }

    /// Returns the flags of frames drawn as letters: `f` free, `h` head of a slab, `t` bare tail, `a` anonymous, `.` no
    /// flags.
    fn draw(text: &str) -> Vec<u8> {
        let flags: Vec<PageFlags> = text
            .chars()
            .map(|letter| match letter {
                'f' => PageFlags::BUDDY,
                'h' => PageFlags(PageFlags::SLAB.0 | PageFlags::COMPOUND_HEAD.0),
                't' => PageFlags::COMPOUND_TAIL,
                'a' => PageFlags(PageFlags::ANON.0 | PageFlags::LRU.0 | PageFlags::SWAPBACKED.0),
                _ => PageFlags::default(),
            })
            .collect();
        bytes(&flags)
    }

    fn check_blocks(text: &str, range: Range<u64>, blocks: &[(u64, u32)]) {
        let bytes = draw(text);
        let map = PageMap::new(&bytes);
        assert_eq!(map.free_blocks(range, 3).collect::<Vec<_>>(), blocks, "{text}");
    }

    /// Checks that a run of free frames is cut into the largest blocks that are aligned to their size
    /// (docs/sources/trace.md#t6).
    #[test]
    fn orders_of_free_blocks_follow_from_their_places() {
        check_blocks("ffff.fff", 0..8, &[(0, 2), (5, 0), (6, 1)]);
        check_blocks(".ffffffff.......", 0..16, &[(1, 0), (2, 1), (4, 2), (8, 0)]);
        check_blocks("ffffffffffffffff", 0..16, &[(0, 3), (8, 3)]);
        check_blocks("ffffffffffffffff", 2..7, &[(2, 1), (4, 1), (6, 0)]);
        check_blocks("ff", 0..99, &[(0, 1)]);
        check_blocks("", 0..99, &[]);
    }

    #[test]
    fn tails_are_what_their_head_is() {
        let bytes = draw("htta.tf");
        let map = PageMap::new(&bytes);
        let uses = |range| map.uses(range).map(|(_, usage)| usage).collect::<Vec<_>>();
        use FrameUse::{Anon, Free, Kernel, Slab};
        assert_eq!(uses(0..9), [Slab, Slab, Slab, Anon, Kernel, Kernel, Free]);
        assert_eq!(uses(2..4), [Slab, Anon]);
        assert_eq!(map.count_uses(0..7)[Slab.index()], 3);
    }

    #[test]
    fn uses_by_their_flags() {
        let of = |bits: &[u32]| PageFlags(bits.iter().fold(0, |set, bit| set | 1 << bit)).usage();
        assert_eq!(of(&[3, 5]), FrameUse::File);
        assert_eq!(of(&[2, 3, 4, 5, 14]), FrameUse::Shmem);
        assert_eq!(of(&[3, 5, 11, 12, 14]), FrameUse::Anon);
        assert_eq!(
            (of(&[7, 15]), of(&[26]), of(&[17, 15])),
            (FrameUse::Slab, FrameUse::PageTable, FrameUse::HugeTlb)
        );
        assert_eq!(
            (of(&[32, 35]), of(&[20]), of(&[23])),
            (FrameUse::Reserved, FrameUse::NoPage, FrameUse::Offline)
        );
        assert_eq!(
            (of(&[]), of(&[10]), of(&[24, 32])),
            (FrameUse::Kernel, FrameUse::Free, FrameUse::Reserved)
        );
    }

    #[test]
    fn a_file_that_ends_early() {
        let flags = draw("fff");
        let map = PageMap::new(&flags[..20]);
        assert_eq!(map.frames(), 2);
        assert_eq!((map.flags(2), map.flags(u64::MAX), map.uses(2..2).count()), (None, None, 0));
    }
}
