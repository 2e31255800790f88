//! The flags of a request, read from `mode:0x40cc0(GFP_KERNEL|__GFP_COMP)`.
//!
//! The bits of `gfp_t` have moved between kernels, their names have not: where a report has names, the names count.
//! Reports before 4.6 have numbers alone, in two layouts: one of 4.4 and 4.5, and one of earlier kernels.

use serde::Serialize;

use crate::gfp::GfpFlag::{
    self, DirectReclaim, Dma, Dma32, Fs, High, HighMem, Io, KswapdReclaim, MemAlloc, Movable,
    NoFail, NoRetry, NoWarn, Reclaimable, RetryMayFail, ThisNode,
};
use crate::gfp::GfpFlags;

/// Flags of each bit that means the same until 4.5.
const BITS: &[(u64, &[GfpFlag])] = &[
    (0x1, &[Dma]),
    (0x2, &[HighMem]),
    (0x4, &[Dma32]),
    (0x8, &[Movable]),
    (0x40, &[Io]),
    (0x80, &[Fs]),
    (0x200, &[NoWarn]),
    (0x400, &[RetryMayFail]),
    (0x800, &[NoFail]),
    (0x1000, &[NoRetry]),
    (0x2000, &[MemAlloc]),
    (0x4_0000, &[ThisNode]),
];

/// Flags of the other bits before 4.4, where one bit stood for both ways of reclaim.
const BITS_UNTIL_4_3: &[(u64, &[GfpFlag])] = &[
    (0x10, &[DirectReclaim, KswapdReclaim]),
    (0x20, &[High, KswapdReclaim]),
    (0x8_0000, &[Reclaimable]),
];

/// Flags of the other bits in 4.4 and 4.5.
const BITS_OF_4_4: &[(u64, &[GfpFlag])] = &[
    (0x10, &[Reclaimable]),
    (0x20, &[High]),
    (0x40_0000, &[DirectReclaim]),
    (0x200_0000, &[KswapdReclaim]),
];

/// Bits that only the layout of 4.4 has.
const ONLY_IN_4_4: u64 = 0x240_0000;

/// The flags of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mode {
    /// The number, where the report has one.
    pub bits: Option<u64>,
    /// The names as printed, such as `GFP_KERNEL|__GFP_COMP`; empty in reports before 4.6.
    pub names: String,
    #[serde(skip)]
    pub flags: GfpFlags,
}

impl Mode {
    /// Parses `0x40cc0(GFP_KERNEL|__GFP_COMP)`, `0x40d0` or bare names; `None` if the text is none of these.
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
        let all = |sum: GfpFlags, flags| sum.with(flags);
        let flags = match bits {
            Some(bits) if names.is_empty() => {
                let is_4_4 = bits & ONLY_IN_4_4 != 0;
                let layout = if is_4_4 { BITS_OF_4_4 } else { BITS_UNTIL_4_3 };
                let set = BITS.iter().chain(layout).filter(|(bit, _)| bits & bit != 0);
                set.map(|(_, flags)| GfpFlags::of(flags)).fold(GfpFlags::default(), all)
            }
            _ => names
                .split('|')
                .map(|name| GfpFlags::named(name.trim()))
                .fold(GfpFlags::default(), all),
        };
        Some(Mode { bits, names: names.to_owned(), flags })
    }
}

/// Writes the mode as the kernel prints it: names, or the number where there are none.
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
    use nofrag::page::{Migratetype, ZoneKind};

    use super::*;

    fn mode(text: &str) -> Mode {
        Mode::parse(text).expect("a mode")
    }

    /// Returns the answers of the flags of a mode: may it wait, may it use a part of the reserve; its zone and
    /// migratetype.
    fn meaning(text: &str) -> (bool, bool, ZoneKind, Migratetype) {
        let flags = mode(text).flags;
        let has = |flag| flags.has(flag);
        (has(GfpFlag::DirectReclaim), has(GfpFlag::High), flags.zone(), flags.migratetype())
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
