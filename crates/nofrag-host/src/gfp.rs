//! The flags of a request for pages (`gfp_t`), as far as they decide where its pages come from.
//!
//! The bits of `gfp_t` have moved between kernels; their names have not. So a name stands for flags ([`GfpFlags`]), and
//! the bits of one kernel stand for the flags that this kernel's names give them ([`GfpBits`]). The flags are
//! translated in one place into the terms of the core.

use nofrag::page::{Migratetype, RequestFlags, ZoneKind};

use crate::trace::FlagTable;

/// Declares the flags: each with its name of the kernel's.
macro_rules! flags {
    ($($flag:ident $name:literal;)*) => {
        /// One flag of a request, as far as it decides where pages come from and what happens when no page is free.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        // Each is `__GFP_` and its name.
        #[non_exhaustive]
        pub enum GfpFlag { $($flag),* }

        use GfpFlag::{$($flag),*};

        const FLAGS: &[(&str, &[GfpFlag])] = &[$(($name, &[$flag])),*];
    };
}

flags! {
    Dma "__GFP_DMA";
    HighMem "__GFP_HIGHMEM";
    Dma32 "__GFP_DMA32";
    Movable "__GFP_MOVABLE";
    Reclaimable "__GFP_RECLAIMABLE";
    High "__GFP_HIGH";
    Io "__GFP_IO";
    Fs "__GFP_FS";
    DirectReclaim "__GFP_DIRECT_RECLAIM";
    KswapdReclaim "__GFP_KSWAPD_RECLAIM";
    NoWarn "__GFP_NOWARN";
    RetryMayFail "__GFP_RETRY_MAYFAIL";
    NoFail "__GFP_NOFAIL";
    NoRetry "__GFP_NORETRY";
    MemAlloc "__GFP_MEMALLOC";
    NoMemAlloc "__GFP_NOMEMALLOC";
    ThisNode "__GFP_THISNODE";
    Zero "__GFP_ZERO";
}

/// The flags that each other name of the kernel's stands for; names that decide nothing here are not in the table. The
/// bit of a zone has two names: kernels print `GFP_DMA` for the bit that they define as `__GFP_DMA`.
const NAMES: &[(&str, &[GfpFlag])] = &[
    ("GFP_KERNEL", &[DirectReclaim, KswapdReclaim, Io, Fs]),
    ("GFP_KERNEL_ACCOUNT", &[DirectReclaim, KswapdReclaim, Io, Fs]),
    ("GFP_TEMPORARY", &[DirectReclaim, KswapdReclaim, Io, Fs, Reclaimable]),
    ("GFP_USER", &[DirectReclaim, KswapdReclaim, Io, Fs]),
    ("GFP_HIGHUSER", &[DirectReclaim, KswapdReclaim, Io, Fs, HighMem]),
    ("GFP_HIGHUSER_MOVABLE", &[DirectReclaim, KswapdReclaim, Io, Fs, HighMem, Movable]),
    ("GFP_TRANSHUGE", &[DirectReclaim, Io, Fs, HighMem, Movable, NoWarn]),
    ("GFP_TRANSHUGE_LIGHT", &[Io, Fs, HighMem, Movable, NoWarn]),
    ("GFP_NOFS", &[DirectReclaim, KswapdReclaim, Io]),
    ("GFP_NOIO", &[DirectReclaim, KswapdReclaim]),
    ("GFP_ATOMIC", &[High, KswapdReclaim]),
    ("GFP_NOWAIT", &[KswapdReclaim]),
    ("GFP_DMA", &[Dma]),
    ("GFP_DMA32", &[Dma32]),
    ("__GFP_RECLAIM", &[DirectReclaim, KswapdReclaim]),
    ("__GFP_WAIT", &[DirectReclaim, KswapdReclaim]),
    ("__GFP_REPEAT", &[RetryMayFail]),
];

/// A set of [`GfpFlag`]s, independent of any kernel's bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GfpFlags(u32);

impl GfpFlags {
    /// Returns the set of `flags`.
    #[must_use]
    pub fn of(flags: &[GfpFlag]) -> GfpFlags {
        GfpFlags(flags.iter().fold(0, |set, &flag| set | 1 << flag as u32))
    }

    /// Returns the flags of a name of the kernel's, such as `GFP_KERNEL` or `__GFP_HIGH`; the empty set for a name that
    /// decides nothing here.
    #[must_use]
    pub fn named(name: &str) -> GfpFlags {
        let known = FLAGS.iter().chain(NAMES).find(|(known, _)| *known == name);
        known.map_or(GfpFlags::default(), |(_, flags)| GfpFlags::of(flags))
    }

    /// Returns the union of the two sets.
    #[must_use]
    pub fn with(self, other: GfpFlags) -> GfpFlags {
        GfpFlags(self.0 | other.0)
    }

    /// Returns true if `flag` is in the set.
    #[must_use]
    pub fn has(self, flag: GfpFlag) -> bool {
        self.0 & (1 << flag as u32) != 0
    }

    /// Returns the highest zone that the request can use.
    #[must_use]
    pub fn zone(self) -> ZoneKind {
        if self.has(Dma) {
            ZoneKind::Dma
        } else if self.has(Dma32) {
            ZoneKind::Dma32
        } else if self.has(HighMem) {
            if self.has(Movable) { ZoneKind::Movable } else { ZoneKind::HighMem }
        } else {
            ZoneKind::Normal
        }
    }

    /// Returns the migratetype of the requested pages.
    #[must_use]
    pub fn migratetype(self) -> Migratetype {
        if self.has(Movable) {
            Migratetype::Movable
        } else if self.has(Reclaimable) {
            Migratetype::Reclaimable
        } else {
            Migratetype::Unmovable
        }
    }

    /// Returns what the request allows and demands, in the terms of the core.
    #[must_use]
    pub fn request_flags(self) -> RequestFlags {
        let table = [
            (DirectReclaim, RequestFlags::DIRECT_RECLAIM),
            (KswapdReclaim, RequestFlags::KSWAPD_RECLAIM),
            (High, RequestFlags::HIGH),
            (NoRetry, RequestFlags::NO_RETRY),
            (RetryMayFail, RequestFlags::RETRY_MAYFAIL),
            (ThisNode, RequestFlags::THIS_NODE),
            (MemAlloc, RequestFlags::MEMALLOC),
            (NoMemAlloc, RequestFlags::NO_MEMALLOC),
            // Movable pages may borrow from CMA.
            (Movable, RequestFlags::CMA),
        ];
        let set = table.into_iter().filter(|&(flag, _)| self.has(flag));
        set.fold(RequestFlags::NONE, |flags, (_, each)| flags.with(each))
    }
}

/// The bits of one kernel's `gfp_t` with the flags that they stand for; bits that decide nothing here are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GfpBits(Vec<(u64, GfpFlags)>);

impl GfpBits {
    /// Reads the bits from a kernel's own table of names. A flag without a name in the table does not exist in that
    /// kernel.
    #[must_use]
    pub fn new(table: &FlagTable) -> GfpBits {
        let named = table.entries().map(|(bits, name)| (bits, GfpFlags::named(name)));
        let mut named: Vec<_> =
            named.filter(|&(bits, flags)| bits != 0 && flags != GfpFlags::default()).collect();
        named.sort_by_key(|(bits, _)| bits.count_ones());
        let mut known = GfpBits::default();
        for (bits, flags) in named {
            // A name of several bits adds nothing where each of the bits has a name.
            let before = known.flags(bits);
            if before.with(flags) != before {
                known.0.push((bits, flags));
            }
        }
        known
    }

    /// Returns the flags of a request, from its bits `gfp` as this kernel numbers them. O(names).
    #[must_use]
    pub fn flags(&self, gfp: u64) -> GfpFlags {
        let set = self.0.iter().filter(|(bits, _)| gfp & bits == *bits);
        set.fold(GfpFlags::default(), |sum, (_, flags)| sum.with(*flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags as Linux 6.1 prints them; it has no `__GFP_DMA`.
    const PRINTED_BY_6_1: &str = r#""flags=%s", __print_flags(REC->gfp_flags, "|",
        { 0x400u|0x800u|0x40u|0x80u, "GFP_KERNEL"}, { 0x800u, "GFP_NOWAIT"}, { 0x01u, "GFP_DMA"},
        { 0x02u, "__GFP_HIGHMEM"}, { 0x04u, "GFP_DMA32"}, { 0x20u, "__GFP_HIGH"}, { 0x08u, "__GFP_MOVABLE"},
        { 0x400u|0x800u, "__GFP_RECLAIM"}, { 0x400u, "__GFP_DIRECT_RECLAIM"}, { 0x800u, "__GFP_KSWAPD_RECLAIM"})"#;

    #[test]
    fn zones_by_the_names_that_a_kernel_prints() {
        let printed = FlagTable::from_print_fmt(PRINTED_BY_6_1).unwrap();
        for table in [printed, FlagTable::default()] {
            let bits = GfpBits::new(&table);
            let zone = |gfp| bits.flags(gfp).zone();
            assert_eq!(
                [0xcc1, 0xcc4, 0xcc0].map(zone),
                [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal]
            );
            assert_eq!([0xcc2, 0xcca].map(zone), [ZoneKind::HighMem, ZoneKind::Movable]);
            let waits = |gfp| bits.flags(gfp).request_flags();
            assert_eq!(waits(0xcc0), RequestFlags::RECLAIM);
            assert_eq!(waits(0x820), RequestFlags::HIGH.with(RequestFlags::KSWAPD_RECLAIM));
        }
    }

    #[test]
    fn bits_mean_what_their_names_do() {
        let table = FlagTable::default();
        let bits = GfpBits::new(&table);
        for (name, flags) in NAMES {
            let Some(value) = table.bits(name) else { continue };
            let flags = GfpFlags::of(flags);
            assert_eq!(bits.flags(value).with(flags), bits.flags(value), "{name}");
        }
        let singles = bits.0.iter().all(|(bits, _)| bits.is_power_of_two());
        assert!(singles, "this table has a name for each bit: {bits:?}");
    }
}
