//! What the flags of a request for pages (`gfp_t`) stand for, as far as they decide here.
//!
//! The bits of `gfp_t` have moved between kernels, their names have not. So a name stands for flags (`GfpFlags`), and
//! the bits of one kernel for what its own names say ([`GfpBits`]); what the flags mean is said once, in the core's
//! terms.

use nofrag::page::{Migratetype, RequestFlags, ZoneKind};

use crate::trace::FlagTable;

/// One flag of a request, as far as it decides where pages come from and what happens when there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is `__GFP_` and its name")]
#[non_exhaustive]
pub enum GfpFlag {
    Dma,
    HighMem,
    Dma32,
    Movable,
    Reclaimable,
    High,
    Io,
    Fs,
    DirectReclaim,
    KswapdReclaim,
    NoWarn,
    RetryMayFail,
    NoFail,
    NoRetry,
    MemAlloc,
    ThisNode,
    Zero,
}

use GfpFlag::{
    DirectReclaim, Dma, Dma32, Fs, High, HighMem, Io, KswapdReclaim, MemAlloc, Movable, NoFail,
    NoRetry, NoWarn, Reclaimable, RetryMayFail, ThisNode, Zero,
};

/// What the kernel's names stand for; names that decide nothing here are not in the table. Of what is in one zone's
/// name there are two: kernels print `GFP_DMA` for the bit that they define as `__GFP_DMA`.
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
    ("__GFP_DMA", &[Dma]),
    ("__GFP_HIGHMEM", &[HighMem]),
    ("__GFP_DMA32", &[Dma32]),
    ("__GFP_MOVABLE", &[Movable]),
    ("__GFP_RECLAIMABLE", &[Reclaimable]),
    ("__GFP_HIGH", &[High]),
    ("__GFP_IO", &[Io]),
    ("__GFP_FS", &[Fs]),
    ("__GFP_DIRECT_RECLAIM", &[DirectReclaim]),
    ("__GFP_KSWAPD_RECLAIM", &[KswapdReclaim]),
    ("__GFP_NOWARN", &[NoWarn]),
    ("__GFP_RETRY_MAYFAIL", &[RetryMayFail]),
    ("__GFP_REPEAT", &[RetryMayFail]),
    ("__GFP_NOFAIL", &[NoFail]),
    ("__GFP_NORETRY", &[NoRetry]),
    ("__GFP_MEMALLOC", &[MemAlloc]),
    ("__GFP_THISNODE", &[ThisNode]),
    ("__GFP_ZERO", &[Zero]),
];

/// A set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GfpFlags(u32);

impl GfpFlags {
    /// Of these.
    #[must_use]
    pub fn of(flags: &[GfpFlag]) -> GfpFlags {
        GfpFlags(flags.iter().fold(0, |set, &flag| set | 1 << flag as u32))
    }

    /// What the kernel's name stands for, such as `GFP_KERNEL` or `__GFP_HIGH`; nothing if it decides nothing here.
    #[must_use]
    pub fn named(name: &str) -> GfpFlags {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map_or(GfpFlags::default(), |(_, flags)| GfpFlags::of(flags))
    }

    /// What is in one of the two.
    #[must_use]
    pub fn with(self, other: GfpFlags) -> GfpFlags {
        GfpFlags(self.0 | other.0)
    }

    /// Whether the flag is in it.
    #[must_use]
    pub fn has(self, flag: GfpFlag) -> bool {
        self.0 & (1 << flag as u32) != 0
    }

    /// The highest zone that the request can use.
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

    /// The type of its pages.
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

    /// What it allows and demands, in the core's terms.
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
            // Movable pages may borrow from CMA.
            (Movable, RequestFlags::CMA),
        ];
        let set = table.into_iter().filter(|&(flag, _)| self.has(flag));
        set.fold(RequestFlags::NONE, |flags, (_, each)| flags.with(each))
    }
}

/// The bits of one kernel's `gfp_t` that decide something here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GfpBits(Vec<(u64, GfpFlags)>);

impl GfpBits {
    /// By the names that the kernel gives them. One without a name in the table it does not have.
    #[must_use]
    pub fn new(table: &FlagTable) -> GfpBits {
        let named = table.entries().map(|(bits, name)| (bits, GfpFlags::named(name)));
        let mut named: Vec<_> =
            named.filter(|&(bits, flags)| bits != 0 && flags != GfpFlags::default()).collect();
        named.sort_by_key(|(bits, _)| bits.count_ones());
        let mut known = GfpBits::default();
        for (bits, flags) in named {
            // A name of several bits says nothing new where each of them has a name.
            let before = known.flags(bits);
            if before.with(flags) != before {
                known.0.push((bits, flags));
            }
        }
        known
    }

    /// The flags of a request. O(names).
    #[must_use]
    pub fn flags(&self, gfp: u64) -> GfpFlags {
        let set = self.0.iter().filter(|(bits, _)| gfp & bits == *bits);
        set.fold(GfpFlags::default(), |sum, (_, flags)| sum.with(*flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Linux 6.1 prints; it has no `__GFP_DMA`.
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
