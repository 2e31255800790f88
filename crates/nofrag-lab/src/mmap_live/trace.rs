//! Random operations on slots, each slot a mapping.
//!
//! The plain trace is that of docs/sources/mmap.md#trace: fill the slots, then replace a random one, again and again.
//! The mixed trace does that in most turns, and in the others every operation that can split, join or cover areas.

use crate::apparatus::probe::{Kind, MapAt, Width};
use nofrag::mmap::Protection;
use serde::Deserialize;

use super::twin::{Trouble, Twin};

/// The generator of docs/sources/mmap.md#rnd: a 64-bit xorshift.
#[derive(Clone, Debug)]
pub(super) struct Draws(u64);

/// Seed of the published comparisons.
pub(super) const PUBLISHED_SEED: u64 = 88_172_645_463_325_252;

impl Draws {
    /// Draws from `seed` on; zero, on which the generator would stand still, means the published one.
    pub(super) fn new(seed: u64) -> Draws {
        Draws(if seed == 0 { PUBLISHED_SEED } else { seed })
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`, by remainder, as published.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns the bytes of a whole number of pages, at most `bytes`, which is a positive multiple of a page.
    fn pages_within(&mut self, bytes: u64) -> u64 {
        PAGE * (1 + self.below(bytes / PAGE))
    }
}

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// The kinds of turns in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Style {
    Plain,
    /// Replacements, and operations that split, join or cover areas.
    Mixed,
}

/// A mapping that a slot holds: all of it is mapped, and no two slots overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    bytes: u64,
}

impl Piece {
    fn end(self) -> u64 {
        self.start + self.bytes
    }
}

/// The slots and the operations on them.
pub(super) struct Trace<'a> {
    twin: &'a mut Twin,
    style: Style,
    width: Width,
    draws: Draws,
    slots: Vec<Option<Piece>>,
    /// Number of mappings whose length is a multiple of a huge page.
    pub(super) huge: u64,
}

/// Turns of the mixed trace, each with its number in a hundred; the rest are replacements.
const TURNS: [(u64, Turn); 9] = [
    (6, Turn::Cut),
    (6, Turn::Protect),
    (5, Turn::Cover),
    (4, Turn::Refill),
    (4, Turn::Hint),
    (3, Turn::Unless),
    (5, Turn::Low),
    (2, Turn::Above),
    (2, Turn::Span),
];

/// A turn of the mixed trace other than a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Unmaps the head, the tail or the middle of a mapping.
    Cut,
    /// Changes the protection of a part of a mapping.
    Protect,
    /// Maps over a part of a mapping, and perhaps over its successors.
    Cover,
    /// Unmaps a mapping and maps a part of the hole.
    Refill,
    /// Maps at a hint: the place of a former mapping, of a present one, or any.
    Hint,
    /// Maps at an address only if the range is free.
    Unless,
    /// Maps in the low 2 GiB.
    Low,
    /// Maps above the low 4 GiB.
    Above,
    /// Unmaps from within a mapping far into its successors, holes included.
    Span,
}

impl<'a> Trace<'a> {
    pub(super) fn new(
        twin: &'a mut Twin,
        style: Style,
        width: Width,
        seed: u64,
        slots: usize,
    ) -> Trace<'a> {
        let draws = Draws::new(seed);
        Trace { twin, style, width, draws, slots: vec![None; slots], huge: 0 }
    }

    /// Maps single pages that do not merge until the process has `areas` areas.
    pub(super) fn crowd(&mut self, areas: usize) -> Result<(), Trouble> {
        for protection in [Protection::NONE, Protection::READ].into_iter().cycle() {
            if self.twin.model().area_count() >= areas {
                break;
            }
            self.twin.map(MapAt::Anywhere, Kind::Plain, PAGE, protection)?;
        }
        Ok(())
    }

    /// Fills the slots, then takes turns until `operations` were made.
    pub(super) fn run(&mut self, operations: u64) -> Result<(), Trouble> {
        let end = self.twin.operations() + operations;
        for slot in 0..self.slots.len() {
            if self.twin.operations() < end {
                self.fill(slot, MapAt::Anywhere)?;
            }
        }
        while self.twin.operations() < end {
            match self.turn() {
                None => self.replace()?,
                Some(turn) => self.take(turn)?,
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Option<Turn> {
        if self.style == Style::Plain {
            return None;
        }
        let mut drawn = self.draws.below(100);
        for (share, turn) in TURNS {
            if drawn < share {
                return Some(turn);
            }
            drawn -= share;
        }
        None
    }

    fn take(&mut self, turn: Turn) -> Result<(), Trouble> {
        match turn {
            Turn::Cut => self.cut(),
            Turn::Protect => self.protect(),
            Turn::Cover => self.cover(),
            Turn::Refill => self.refill(),
            Turn::Hint => self.hint(),
            Turn::Unless => self.unless(),
            Turn::Low | Turn::Above if self.width == Width::Bits32 => self.replace(),
            Turn::Low => self.replace_in(MapAt::Low),
            Turn::Above => self.replace_in(MapAt::Above4G),
            Turn::Span => self.span(),
        }
    }

    /// Takes the turn of the published trace: replaces a mapping by one at any address.
    fn replace(&mut self) -> Result<(), Trouble> {
        self.replace_in(MapAt::Anywhere)
    }

    fn replace_in(&mut self, at: MapAt) -> Result<(), Trouble> {
        let slot = self.slot();
        if self.empty(slot)? { self.fill(slot, at) } else { Ok(()) }
    }

    fn slot(&mut self) -> usize {
        self.draws.below(self.slots.len() as u64) as usize
    }

    /// Empties a slot; returns whether it is empty now. At the limit of areas the kernel may refuse.
    fn empty(&mut self, slot: usize) -> Result<bool, Trouble> {
        let Some(piece) = self.slots[slot] else { return Ok(true) };
        let empty = self.twin.unmap(piece.start, piece.bytes)?;
        if empty {
            self.slots[slot] = None;
        }
        Ok(empty)
    }

    /// Maps a drawn length and gives it to `slot`, which is empty.
    fn fill(&mut self, slot: usize, at: MapAt) -> Result<(), Trouble> {
        let bytes = self.length();
        let protection = self.protection();
        self.huge += u64::from(bytes.is_multiple_of(2 * MIB));
        let kind = self.kind();
        let start = self.twin.map(at, kind, bytes, protection)?;
        self.slots[slot] = start.map(|start| Piece { start, bytes });
        Ok(())
    }

    /// Draws a published length; in the mixed trace a few are so long that they may find no place.
    fn length(&mut self) -> u64 {
        let drawn = self.draws.below(100);
        match drawn {
            _ if drawn < 60 => PAGE * (1 + self.draws.below(64)),
            _ if drawn < 80 => MIB * (1 + self.draws.below(16)),
            _ if drawn < 95 => 2 * MIB * (1 + self.draws.below(8)),
            99 if self.style == Style::Mixed && self.draws.below(8) == 0 => {
                let most = match self.width {
                    Width::Bits64 => 1 << 46,
                    Width::Bits32 => 1 << 30,
                };
                self.draws.pages_within(most)
            }
            _ => PAGE * (1 + self.draws.below(5000)),
        }
    }

    fn protection(&mut self) -> Protection {
        match self.style {
            Style::Mixed if self.draws.below(8) == 0 => Protection::READ,
            _ => Protection::NONE,
        }
    }

    /// Draws the kind of a mapping. In the mixed trace a few are stacks, which keep others at a distance.
    fn kind(&mut self) -> Kind {
        match self.style {
            Style::Mixed if self.draws.below(16) == 0 => Kind::Stack,
            _ => Kind::Plain,
        }
    }

    /// Draws a slot, and a part of the mapping in it; returns slot, mapping and part, or `None` if the slot is empty.
    fn part(&mut self) -> Option<(usize, Piece, Piece)> {
        let slot = self.slot();
        let whole = self.slots[slot]?;
        let bytes = self.draws.pages_within(whole.bytes);
        let start = match self.draws.below(3) {
            0 => whole.start,
            1 => whole.end() - bytes,
            _ => whole.start + PAGE * self.draws.below((whole.bytes - bytes) / PAGE + 1),
        };
        Some((slot, whole, Piece { start, bytes }))
    }

    /// Unmaps a part. The piece before it stays in the slot; the piece behind it goes to another slot, or is unmapped,
    /// too.
    fn cut(&mut self) -> Result<(), Trouble> {
        let Some((slot, whole, part)) = self.part() else { return Ok(()) };
        if !self.twin.unmap(part.start, part.bytes)? {
            return Ok(());
        }
        let piece = |start, end| (start < end).then_some(Piece { start, bytes: end - start });
        let (before, after) = (piece(whole.start, part.start), piece(part.end(), whole.end()));
        self.slots[slot] = before.or(after);
        if let (Some(_), Some(after)) = (before, after) {
            let other = self.slot();
            if other != slot && self.empty(other)? {
                self.slots[other] = Some(after);
            } else {
                self.twin.unmap(after.start, after.bytes)?;
            }
        }
        Ok(())
    }

    fn protect(&mut self) -> Result<(), Trouble> {
        let Some((_, _, part)) = self.part() else { return Ok(()) };
        let protection = match self.draws.below(2) {
            0 => Protection::NONE,
            _ => Protection::READ,
        };
        self.twin.protect(part.start, part.bytes, protection)
    }

    fn cover(&mut self) -> Result<(), Trouble> {
        let Some((slot, _, part)) = self.part() else { return Ok(()) };
        let part = self.reach(slot, part);
        let (kind, protection) = (self.kind(), self.protection());
        if self.twin.map(MapAt::Fixed(part.start), kind, part.bytes, protection)?.is_some() {
            self.take_away(part);
            let piece = self.slots[slot];
            self.slots[slot] = Some(match piece {
                // The covered part belongs to the slot again.
                Some(piece) if piece.end() == part.start => {
                    Piece { start: piece.start, bytes: piece.bytes + part.bytes }
                }
                _ => part,
            });
        }
        Ok(())
    }

    fn span(&mut self) -> Result<(), Trouble> {
        let Some((slot, _, part)) = self.part() else { return Ok(()) };
        let part = self.reach(slot, part);
        if self.twin.unmap(part.start, part.bytes)? {
            self.take_away(part);
        }
        Ok(())
    }

    /// Extends `part` beyond the end of its slot, unless an area that the probe needs is there.
    fn reach(&mut self, slot: usize, part: Piece) -> Piece {
        let whole = self.slots[slot].expect("a part is one of a mapping");
        let end = whole.end() + self.draws.pages_within(8 * MIB);
        let end = if self.twin.is_own(part.start, end) { whole.end() } else { end };
        Piece { start: part.start, bytes: end - part.start }
    }

    /// Removes the range `gone` from all slots; it begins in the mapping of one, and ends at or beyond that mapping's
    /// end.
    fn take_away(&mut self, gone: Piece) {
        for slot in &mut self.slots {
            let Some(piece) = *slot else { continue };
            if piece.end() <= gone.start || gone.end() <= piece.start {
                continue;
            }
            *slot = if piece.start < gone.start {
                Some(Piece { start: piece.start, bytes: gone.start - piece.start })
            } else if gone.end() < piece.end() {
                Some(Piece { start: gone.end(), bytes: piece.end() - gone.end() })
            } else {
                None
            };
        }
    }

    fn refill(&mut self) -> Result<(), Trouble> {
        let Some((slot, _, part)) = self.part() else { return Ok(()) };
        if !self.empty(slot)? {
            return Ok(());
        }
        let (kind, protection) = (self.kind(), self.protection());
        let start = self.twin.map(MapAt::Fixed(part.start), kind, part.bytes, protection)?;
        self.slots[slot] = start.map(|_| part);
        Ok(())
    }

    fn hint(&mut self) -> Result<(), Trouble> {
        let slot = self.slot();
        let Some(old) = self.slots[slot] else { return Ok(()) };
        if !self.empty(slot)? {
            return Ok(());
        }
        let bound = match self.width {
            // Some hints lie above the space.
            Width::Bits64 => 5 << 45,
            Width::Bits32 => 1 << 32,
        };
        let hint = match self.draws.below(4) {
            0 => old.start,
            1 => old.start + self.draws.below(old.bytes),
            2 => self.draws.below(bound),
            _ => match self.part() {
                Some((_, _, part)) => part.start,
                None => old.start,
            },
        };
        self.fill(slot, MapAt::Hint(hint))
    }

    fn unless(&mut self) -> Result<(), Trouble> {
        let Some((slot, _, part)) = self.part() else { return Ok(()) };
        if self.draws.below(2) == 0 {
            // The range is taken: the kernel refuses, and nothing changes.
            self.twin.map(MapAt::Unless(part.start), Kind::Plain, part.bytes, Protection::NONE)?;
            return Ok(());
        }
        if !self.empty(slot)? {
            return Ok(());
        }
        let start =
            self.twin.map(MapAt::Unless(part.start), Kind::Plain, part.bytes, Protection::NONE)?;
        self.slots[slot] = start.map(|_| part);
        Ok(())
    }
}
