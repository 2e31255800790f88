//! What a request allows and demands, read from `mode:0x40cc0(GFP_KERNEL|__GFP_COMP)`.
//!
//! The bits of `gfp_t` have moved between kernels, their names have not: where a report has names, the names count.
//! Reports before 4.6 have numbers alone; these come in two layouts, that of 4.4 and 4.5 and the one before.

use nofrag::page::{Migratetype, RequestFlags, ZoneKind};
use serde::Serialize;

/// One flag of a request, as far as it decides where pages come from and what happens when there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Flag {
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
}

use Flag::{
    DirectReclaim, Dma, Dma32, Fs, High, HighMem, Io, KswapdReclaim, MemAlloc, Movable, NoFail,
    NoRetry, NoWarn, Reclaimable, RetryMayFail, ThisNode,
};

/// What the kernel's names stand for; names that decide nothing here are not in the table.
const NAMES: &[(&str, &[Flag])] = &[
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
];

/// What the bits stood for before 4.4: one bit for both ways of reclaim.
const BITS_UNTIL_4_3: &[(u64, &[Flag])] = &[
    (0x1, &[Dma]),
    (0x2, &[HighMem]),
    (0x4, &[Dma32]),
    (0x8, &[Movable]),
    (0x10, &[DirectReclaim, KswapdReclaim]),
    (0x20, &[High, KswapdReclaim]),
    (0x40, &[Io]),
    (0x80, &[Fs]),
    (0x200, &[NoWarn]),
    (0x400, &[RetryMayFail]),
    (0x800, &[NoFail]),
    (0x1000, &[NoRetry]),
    (0x2000, &[MemAlloc]),
    (0x40000, &[ThisNode]),
    (0x80000, &[Reclaimable]),
];

/// The bits of 4.4 and 4.5.
const BITS_OF_4_4: &[(u64, &[Flag])] = &[
    (0x1, &[Dma]),
    (0x2, &[HighMem]),
    (0x4, &[Dma32]),
    (0x8, &[Movable]),
    (0x10, &[Reclaimable]),
    (0x20, &[High]),
    (0x40, &[Io]),
    (0x80, &[Fs]),
    (0x200, &[NoWarn]),
    (0x400, &[RetryMayFail]),
    (0x800, &[NoFail]),
    (0x1000, &[NoRetry]),
    (0x2000, &[MemAlloc]),
    (0x4_0000, &[ThisNode]),
    (0x40_0000, &[DirectReclaim]),
    (0x200_0000, &[KswapdReclaim]),
];

/// Bits that only the layout of 4.4 has.
const ONLY_IN_4_4: u64 = 0x240_0000;

/// The flags of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mode {
    /// The number, where one is printed.
    pub bits: Option<u64>,
    /// The names as printed, such as `GFP_KERNEL|__GFP_COMP`; empty in reports before 4.6.
    pub names: String,
    #[serde(skip)]
    flags: u32,
}

impl Mode {
    /// Reads `0x40cc0(GFP_KERNEL|__GFP_COMP)`, `0x40d0` or bare names; `None` if it is none of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Mode> {
        let (number, names) = match text.split_once('(') {
            Some((number, names)) => (number, names.split(')').next().unwrap_or("")),
            None if text.starts_with("0x") || text.starts_with("0X") => (text, ""),
            None => ("", text),
        };
        let digits = number.trim().trim_start_matches("0x").trim_start_matches("0X");
        let bits = u64::from_str_radix(digits, 16).ok();
        if bits.is_none() && names.is_empty() {
            return None;
        }
        let mut mode = Mode { bits, names: names.to_owned(), flags: 0 };
        match bits {
            Some(bits) if names.is_empty() => {
                let is_4_4 = bits & ONLY_IN_4_4 != 0;
                let layout = if is_4_4 { BITS_OF_4_4 } else { BITS_UNTIL_4_3 };
                let set = layout.iter().filter(|(bit, _)| bits & bit != 0);
                set.for_each(|(_, flags)| mode.add(flags));
            }
            _ => {
                for name in names.split('|') {
                    let known = NAMES.iter().find(|(known, _)| *known == name.trim());
                    known.into_iter().for_each(|(_, flags)| mode.add(flags));
                }
            }
        }
        Some(mode)
    }

    fn add(&mut self, flags: &[Flag]) {
        flags.iter().for_each(|&flag| self.flags |= 1 << flag as u32);
    }

    fn has(&self, flag: Flag) -> bool {
        self.flags & (1 << flag as u32) != 0
    }

    /// The caller may wait while memory is freed.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.has(Flag::DirectReclaim)
    }

    /// It may use a part of the reserve (`__GFP_HIGH`).
    #[must_use]
    pub fn is_high(&self) -> bool {
        self.has(Flag::High)
    }

    /// It must not give up (`__GFP_NOFAIL`).
    #[must_use]
    pub fn must_not_fail(&self) -> bool {
        self.has(Flag::NoFail)
    }

    /// It tries once and has something else to do when that fails (`__GFP_NORETRY`).
    #[must_use]
    pub fn gives_up_early(&self) -> bool {
        self.has(Flag::NoRetry)
    }

    /// The highest zone that it can use.
    #[must_use]
    pub fn zone(&self) -> ZoneKind {
        if self.has(Flag::Dma) {
            ZoneKind::Dma
        } else if self.has(Flag::Dma32) {
            ZoneKind::Dma32
        } else if self.has(Flag::HighMem) {
            if self.has(Flag::Movable) { ZoneKind::Movable } else { ZoneKind::HighMem }
        } else {
            ZoneKind::Normal
        }
    }

    /// The type of its pages.
    #[must_use]
    pub fn migratetype(&self) -> Migratetype {
        if self.has(Flag::Movable) {
            Migratetype::Movable
        } else if self.has(Flag::Reclaimable) {
            Migratetype::Reclaimable
        } else {
            Migratetype::Unmovable
        }
    }

    /// What it allows and demands, in the core's terms.
    #[must_use]
    pub fn request_flags(&self) -> RequestFlags {
        let table = [
            (Flag::DirectReclaim, RequestFlags::DIRECT_RECLAIM),
            (Flag::KswapdReclaim, RequestFlags::KSWAPD_RECLAIM),
            (Flag::High, RequestFlags::HIGH),
            (Flag::NoRetry, RequestFlags::NO_RETRY),
            (Flag::RetryMayFail, RequestFlags::RETRY_MAYFAIL),
            (Flag::ThisNode, RequestFlags::THIS_NODE),
            (Flag::MemAlloc, RequestFlags::MEMALLOC),
            // Movable pages may borrow from CMA.
            (Flag::Movable, RequestFlags::CMA),
        ];
        let set = table.into_iter().filter(|&(flag, _)| self.has(flag));
        set.fold(RequestFlags::NONE, |flags, (_, each)| flags.with(each))
    }
}

/// As the kernel prints it: names, or the number where there are none.
impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bits {
            Some(bits) if self.names.is_empty() => write!(f, "{bits:#x}"),
            _ => f.write_str(&self.names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(text: &str) -> Mode {
        Mode::parse(text).expect("a mode")
    }

    /// Whether it may wait, whether it may use the reserve, the highest zone and the type.
    fn meaning(text: &str) -> (bool, bool, ZoneKind, Migratetype) {
        let mode = mode(text);
        (mode.may_wait(), mode.is_high(), mode.zone(), mode.migratetype())
    }

    #[test]
    fn names_count_more_than_bits() {
        use Migratetype::{Movable, Unmovable};
        let kernel = (true, false, ZoneKind::Normal, Unmovable);
        assert_eq!(meaning("0x40cc0(GFP_KERNEL|__GFP_COMP)"), kernel);
        assert_eq!(meaning("0x26040c0(GFP_KERNEL|__GFP_COMP|__GFP_NOTRACK)"), kernel);
        let atomic = (false, true, ZoneKind::Normal, Unmovable);
        assert_eq!(meaning("0x820(GFP_ATOMIC)"), atomic);
        assert_eq!(meaning("0x1080020(GFP_ATOMIC)"), atomic);
        assert_eq!(
            meaning("GFP_HIGHUSER_MOVABLE|__GFP_ZERO"),
            (true, false, ZoneKind::Movable, Movable)
        );
        assert_eq!(meaning("0xcc4(GFP_KERNEL|GFP_DMA32)").2, ZoneKind::Dma32);
    }

    #[test]
    fn numbers_of_old_kernels() {
        assert_eq!(meaning("0x40d0"), (true, false, ZoneKind::Normal, Migratetype::Unmovable));
        assert_eq!(meaning("0x20"), (false, true, ZoneKind::Normal, Migratetype::Unmovable));
        assert_eq!(meaning("0x24040c0"), (true, false, ZoneKind::Normal, Migratetype::Unmovable));
        assert_eq!(meaning("0x2080020"), (false, true, ZoneKind::Normal, Migratetype::Unmovable));
        assert_eq!(meaning("0x280da"), (true, false, ZoneKind::Movable, Migratetype::Movable));
    }

    #[test]
    fn what_is_no_mode() {
        assert_eq!((Mode::parse(""), Mode::parse("0xzz"), Mode::parse("()")), (None, None, None));
        assert_eq!(mode("0x0").to_string(), "0x0");
        assert_eq!(mode("0xcc0(GFP_KERNEL").to_string(), "GFP_KERNEL");
    }
}
