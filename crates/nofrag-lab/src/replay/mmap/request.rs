//! A mapping's request, from the call and from the search for its place.

use nofrag::mmap::{AreaFlags, Attributes, Backing, HugePages, MapFlags, Placement, Protection};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};

/// Bytes of a page, as a shift.
pub(super) const PAGE: u32 = 12;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;

/// Bits of the flags of `mmap(2)`.
const MAP_SHARED: u64 = 1;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
/// Flag of `vm_unmapped_area` for a search that goes downwards.
const TOP_DOWN: u64 = 1;

/// A call of `mmap`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) addr: u64,
    pub(super) length: u64,
    pub(super) protection: u64,
    pub(super) flags: u64,
    pub(super) offset: u64,
}

/// A search, as `vm_unmapped_area` tells it, in bytes and addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    pub(super) addr: i64,
    pub(super) flags: u64,
    pub(super) length: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) align_mask: u64,
    pub(super) align_offset: u64,
}

/// A mapping to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapRequest {
    /// The pages at which the kernel put it.
    pub(super) recorded: Span,
    pub(super) attributes: Attributes,
    pub(super) flags: MapFlags,
    /// The address that the caller would have liked; another mapping had it.
    pub(super) hint: Option<Vpn>,
    /// Offset of the mapping in its file in bytes, if the kernel looked for room to align the mapping to the file's
    /// huge pages; 0 for shared anonymous memory.
    pub(super) huge_offset: Option<u64>,
}

impl Asked {
    pub(super) fn is_fixed(&self) -> bool {
        self.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0
    }

    fn is_anonymous(&self) -> bool {
        self.flags & MAP_ANONYMOUS != 0
    }

    /// Returns the mapping's attributes. A file never merges: the call does not tell which one it is, and files seldom
    /// do.
    pub(super) fn attributes(&self) -> Attributes {
        let shared = if self.flags & MAP_SHARED != 0 { AreaFlags::SHARED } else { AreaFlags::NONE };
        let plain = Attributes::anonymous(Protection((self.protection & 7) as u8)).with(shared);
        if self.is_anonymous() {
            return plain;
        }
        let offset = self.offset >> PAGE;
        Attributes { backing: Backing::File(0), offset, ..plain.with(AreaFlags::OPAQUE) }
    }
}

impl Search {
    pub(super) fn is_downward(&self) -> bool {
        self.flags & TOP_DOWN != 0
    }

    /// Returns the mapping that the search was for. The kernel searches for a huge page more than is mapped where it
    /// wants to align to one, and aligns the room that it finds; without the call, that is inferred by the kernel's
    /// rules. `None` for numbers that cannot be a search.
    pub(super) fn wanted(
        &self,
        asked: Option<&Asked>,
        rules: Option<Placement>,
    ) -> Option<MapRequest> {
        let found = u64::try_from(self.addr).ok()?;
        let (length, attributes, huge_offset) = match asked {
            Some(asked) => {
                let length = asked.length.checked_next_multiple_of(1 << PAGE)?;
                let padded = self.length == length.checked_add(HUGE)?;
                // Without padding the search's own length holds: another call may stand between the two.
                let length = if padded { length } else { self.length };
                let offset = if asked.is_anonymous() { 0 } else { asked.offset };
                (length, asked.attributes(), padded.then_some(offset))
            }
            None => {
                let padded = self.is_padded(rules);
                let length = if padded { self.length - HUGE } else { self.length };
                let attributes = Attributes::anonymous(Protection::READ_WRITE);
                (length, attributes, padded.then_some(0))
            }
        };
        let start = huge_offset.map_or(found, |offset| self.aligned(found, offset));
        let align = (self.align_mask >> PAGE).checked_add(1)?;
        Some(MapRequest {
            recorded: pages_of(start, length)?,
            attributes,
            flags: MapFlags {
                align: if align.is_power_of_two() { align } else { 1 },
                offset: self.align_offset >> PAGE,
                ..MapFlags::default()
            },
            hint: asked.map(|asked| Vpn(asked.addr >> PAGE)).filter(|hint| hint.0 != 0),
            // The placements align private anonymous memory by themselves.
            huge_offset: huge_offset.filter(|_| {
                attributes.backing != Backing::Anonymous
                    || attributes.flags.any_of(AreaFlags::SHARED)
            }),
        })
    }

    /// Returns true if the length contains a huge page more than is mapped, by the rules of the kernel.
    fn is_padded(&self, rules: Option<Placement>) -> bool {
        let Some(Placement::MapleTree(huge) | Placement::MapleTreeGuarded(huge)) = rules else {
            return false;
        };
        let fits = self.align_mask == 0 && self.length >= 2 * HUGE;
        match huge {
            HugePages::AllSizes => fits,
            HugePages::Multiples => fits && self.length.is_multiple_of(HUGE),
            _ => false,
        }
    }

    /// Returns the mapping's address in the room that was found.
    fn aligned(&self, found: u64, offset: u64) -> u64 {
        align_in(found, offset, HUGE, self.is_downward())
    }
}

/// Returns the place, in room of one unit more than is needed that begins at `found`, whose distance to `offset` is a
/// multiple of a unit: the lowest place, or the highest where searches go downwards and both ends will do.
fn align_in(found: u64, offset: u64, unit: u64, downward: bool) -> u64 {
    match offset.wrapping_sub(found) & (unit - 1) {
        0 if downward => found.saturating_add(unit),
        distance => found.saturating_add(distance),
    }
}

/// Aligns as [`align_in`], downwards and in pages; `offset` in bytes.
pub(super) fn aligned_page(found: Vpn, offset: u64) -> Vpn {
    Vpn(align_in(found.0, offset >> PAGE, HUGE >> PAGE, true))
}

pub(super) const HUGE_PAGES: PageCount = PageCount(HUGE >> PAGE);

/// Returns the pages of a range of bytes; `None` for an empty or impossible one.
pub(super) fn pages_of(start: u64, length: u64) -> Option<Span> {
    let end = start.checked_add(length)?;
    Span::new(start >> PAGE, end.div_ceil(1 << PAGE)).ok()
}
