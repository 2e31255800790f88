//! The same mappings under other rules of placement.
//!
//! The mappings are put, one after the other, into an empty space under each placement. `maps` shows neither the times
//! of the mappings nor the mappings that are gone, so the replay places the surviving mappings, in the order in which
//! this process's own direction would have made them: from the top if the direction is down, from the bottom if it is
//! up. Four assumptions, none of which favours a placement:
//!
//! 1. Mappings that the kernel or the program put at a fixed place stay there: the program, the heap, the stack, the
//!    areas in the lowest 4 GiB of a 64-bit process, and the areas above the stack.
//! 2. The areas of one call stay one piece: the parts of a file with the memory right behind them for its zeroed data,
//!    a guard of up to 1 MiB with the memory above it, a reservation with the memory below it.
//! 3. A piece that is one area of anonymous memory merges with its neighbours as if nothing had been touched yet, as it
//!    did when it was made. Every other piece merges with nothing.
//! 4. The direction is the process's own for every placement, so that all are compared under the same conditions.
//!
//! A program's own arrangement, as by an allocator that maps more than it needs and cuts the mapping to an alignment,
//! is not repeated.

use nofrag::mmap::{
    AddressSpace, AnonChain, Attributes, Direction, MapFlags, Placement, PlacementPreset,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use serde::Serialize;

use super::blockers::{attributes, file_identity};
use super::room::{OBSTACLE, empty_space, load};
use super::window::{Width, Window, is_inside};
use crate::layout::LayoutError;
use crate::proc_maps::{Access, Area, MapKind};

/// The placements that a replay of mappings tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    None,
    /// All; those that walk through the areas one by one only up to [`MANY_PIECES`] pieces.
    Quick,
    All,
}

/// Number of pieces from which on the placements that walk take seconds: their time grows with the square.
pub const MANY_PIECES: usize = 4096;

/// The same mappings under several placements.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replay {
    /// Number of pieces that were placed anew.
    pub pieces: usize,
    /// Number of areas that stayed in place.
    pub fixed_areas: usize,
    /// The mappings as the process has them.
    pub now: Outcome,
    /// The mappings under each placement, Linux's first, oldest first.
    pub placements: Vec<Replayed>,
    /// Placements that were left out since they would take too long.
    pub left_out: Vec<&'static str>,
}

/// The mappings under one placement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replayed {
    pub name: &'static str,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Pieces for which the placement found no place.
    pub failures: usize,
    /// Areas that the searches walked past, all together; zero for placements that search an index.
    pub visits: u64,
}

/// The layout of the mappings in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Areas, those at fixed places included.
    pub areas: usize,
    /// Holes between the pieces. Open space does not count: the largest hole, and a hole that could take all pieces
    /// again.
    pub holes: usize,
    pub hole_bytes: u64,
    /// Bytes of the pieces and of the holes between them over those of the pieces: the survival ratio of this moment.
    pub ratio: f64,
    /// The largest hole of the space.
    pub largest_hole_bytes: u64,
    /// Of the whole units of 2 MiB that anonymous pieces could hold, the share that lies aligned, so that a huge page
    /// can stand behind it; `null` when no piece is that large.
    pub huge_share: Option<f64>,
}

const HUGE: u64 = 2 << 20;
/// Largest memory without access that is taken for a guard.
pub(super) const GUARD_BYTES: u64 = 1 << 20;

/// The areas of one mapping, without a hole between them.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Place that the mapping has now, in pages.
    span: Span,
    /// Number of areas in the piece.
    parts: usize,
    /// The attributes for merging; [`OBSTACLE`] if the piece does not merge.
    attributes: Attributes,
    /// True if huge pages could stand behind the piece.
    anonymous: bool,
}

/// Places the mappings of a process anew, under each placement.
///
/// # Errors
/// [`LayoutError::OutOfMemory`] when the layout is too large for this machine.
pub fn replay(areas: &[Area], window: &Window, which: Which) -> Result<Replay, LayoutError> {
    let (pieces, fixed) = pieces(areas, window);
    let mut replay = Replay { pieces: pieces.len(), fixed_areas: fixed.len(), ..Replay::default() };
    let Some(span) = hull(pieces.iter().map(|piece| piece.span)) else { return Ok(replay) };
    let top = super::room::page_address(window, Vpn(span.end()));
    let mut now = empty_space(window, top, Placement::FirstFit);
    for area in areas.iter().filter(|area| is_inside(area)) {
        load(&mut now, area, OBSTACLE)?;
    }
    replay.now = outcome(&now, pieces.iter().map(|piece| (piece, piece.span)), window);
    for preset in Placement::presets() {
        if which == Which::None {
            break;
        }
        if which == Which::Quick && pieces.len() > MANY_PIECES && walks(preset.placement) {
            replay.left_out.push(preset.name);
            continue;
        }
        replay.placements.push(replayed(preset, &pieces, &fixed, window, top)?);
    }
    Ok(replay)
}

/// Returns true if a search looks at areas, or at the gaps between them, one by one.
fn walks(placement: Placement) -> bool {
    matches!(
        placement,
        Placement::FirstFit
            | Placement::FirstHole
            | Placement::FreeAreaCache
            | Placement::CoalescingUnmap
            | Placement::CachedHoleSizePosted
            | Placement::CachedHoleSize
            | Placement::CachedHoleSizeRepaired
            | Placement::LastUnmapped
            | Placement::NextFit
            | Placement::BestFit
            | Placement::WorstFit
            | Placement::FewestLostUnits
    )
}

fn replayed(
    preset: PlacementPreset,
    pieces: &[Piece],
    fixed: &[&Area],
    window: &Window,
    top: u64,
) -> Result<Replayed, LayoutError> {
    let mut space = empty_space(window, top, preset.placement);
    for area in fixed.iter().filter(|area| is_inside(area)) {
        load(&mut space, area, OBSTACLE)?;
    }
    let mut placed: Vec<(&Piece, Span)> = Vec::new();
    let mut failures = 0;
    let mut place = |piece| match place(&mut space, piece) {
        Some(span) => placed.push((piece, span)),
        None => failures += 1,
    };
    match window.direction {
        Direction::Up => pieces.iter().for_each(&mut place),
        Direction::Down => pieces.iter().rev().for_each(&mut place),
    }
    let parts_beyond_one: usize = placed.iter().map(|(piece, _)| piece.parts - 1).sum();
    let outcome = outcome(&space, placed.into_iter(), window);
    Ok(Replayed {
        name: preset.name,
        outcome: Outcome { areas: outcome.areas + parts_beyond_one, ..outcome },
        failures,
        visits: space.counters().visits,
    })
}

fn place(space: &mut AddressSpace, piece: &Piece) -> Option<Span> {
    let pages = piece.span.len();
    let start = space.map(PageCount(pages), piece.attributes, None, MapFlags::default()).ok()?;
    Span::sized(start.get(), pages).ok()
}

fn outcome<'a>(
    space: &AddressSpace,
    placed: impl Iterator<Item = (&'a Piece, Span)>,
    window: &Window,
) -> Outcome {
    let page = window.page.bytes();
    let placed: Vec<(&Piece, Span)> = placed.collect();
    let hull = hull(placed.iter().map(|(_, span)| *span));
    let largest = space.holes().max_by_key(|hole| hole.len());
    let mapped: u64 = placed.iter().map(|(_, span)| span.len()).sum();
    let is_open = |hole: &Span| Some(*hole) == largest || hole.len() >= mapped;
    let between = |hole: &Span| hull.is_some_and(|hull| hull.covers(*hole)) && !is_open(hole);
    let (holes, pages) = space
        .holes()
        .filter(between)
        .fold((0, 0), |(holes, pages), hole| (holes + 1, pages + hole.len()));
    let anonymous = || placed.iter().filter(|(piece, _)| piece.anonymous);
    let unit = HUGE / page;
    let possible: u64 = anonymous().map(|(_, span)| span.len() / unit).sum();
    let aligned = |span: &Span| {
        let first = span.start().div_ceil(unit);
        (span.end() / unit).saturating_sub(first)
    };
    let whole: u64 = anonymous().map(|(_, span)| aligned(span)).sum();
    Outcome {
        areas: space.area_count(),
        holes,
        hole_bytes: pages * page,
        ratio: (mapped + pages) as f64 / mapped.max(1) as f64,
        largest_hole_bytes: largest.map_or(0, |hole| hole.len() * page),
        huge_share: (possible > 0).then(|| whole as f64 / possible as f64),
    }
}

fn hull(spans: impl Iterator<Item = Span>) -> Option<Span> {
    spans.reduce(|hull, span| {
        let (start, end) = (hull.start().min(span.start()), hull.end().max(span.end()));
        Span::new(start, end).expect("the hull of spans that are not empty is not empty")
    })
}

/// Returns the mappings whose address placement chose, ascending, and the areas that stay.
fn pieces<'a>(areas: &'a [Area], window: &Window) -> (Vec<Piece>, Vec<&'a Area>) {
    let program = areas.iter().find(|area| area.has_file()).map(file_identity);
    let stack = areas.iter().find(|area| area.kind() == MapKind::Stack).map(|area| area.start);
    let attributes = attributes(areas, window);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut fixed: Vec<&Area> = Vec::new();
    let mut before: Option<(&Area, Belongs)> = None;
    for (area, attributes) in areas.iter().zip(&attributes) {
        let touching = before.filter(|(before, _)| before.end == area.start);
        let is_fixed = is_fixed(area, window, program, stack)
            || touching
                .is_some_and(|(before, to)| to == Belongs::Fixed && is_zeroed_data(before, area));
        if is_fixed {
            fixed.push(area);
            before = Some((area, Belongs::Fixed));
            continue;
        }
        let joins =
            touching.is_some_and(|(before, to)| to == Belongs::Piece && were_one(before, area));
        let (start, end) = (window.page.page_of(area.start), window.page.page_of(area.end));
        match pieces.last_mut().filter(|_| joins) {
            Some(piece) => {
                piece.span =
                    Span::new(piece.span.start(), end.get()).expect("ends above its start");
                piece.parts += 1;
                piece.attributes = OBSTACLE;
            }
            None => pieces.push(Piece {
                span: Span::new(start.get(), end.get()).expect("an area is not empty"),
                parts: 1,
                attributes: fresh(area, attributes),
                anonymous: !area.has_file() && area.kind() != MapKind::Special,
            }),
        }
        before = Some((area, Belongs::Piece));
    }
    (pieces, fixed)
}

/// The list to which the previous area was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belongs {
    Fixed,
    Piece,
}

/// Returns the attributes of an area when its mapping was made: not yet touched, or [`OBSTACLE`] for kinds that do not
/// merge.
fn fresh(area: &Area, attributes: &Attributes) -> Attributes {
    match area.kind() {
        MapKind::Anonymous | MapKind::NoAccess => {
            Attributes { chain: AnonChain::Untouched, ..*attributes }
        }
        MapKind::Heap | MapKind::Stack | MapKind::File | MapKind::Special => OBSTACLE,
    }
}

fn is_fixed(
    area: &Area,
    window: &Window,
    program: Option<((u32, u32), u64, &str)>,
    stack: Option<u64>,
) -> bool {
    const GIB_4: u64 = 1 << 32;
    match area.kind() {
        MapKind::Heap | MapKind::Stack => true,
        MapKind::File if Some(file_identity(area)) == program => true,
        _ if window.width == Width::Bits64 && area.start < GIB_4 => true,
        _ => !is_inside(area) || stack.is_some_and(|stack| area.start > stack),
    }
}

/// Returns true if `above`, which touches `below`, was made by the same call.
fn were_one(below: &Area, above: &Area) -> bool {
    let small = |area: &Area| area.bytes() <= GUARD_BYTES;
    match (below.kind(), above.kind()) {
        (MapKind::File, MapKind::File) => {
            file_identity(below) == file_identity(above) && below.offset < above.offset
        }
        (MapKind::File, _) => is_zeroed_data(below, above),
        (MapKind::Special, MapKind::Special) => true,
        (MapKind::NoAccess, MapKind::Anonymous) => small(below),
        (MapKind::Anonymous, MapKind::NoAccess) => !small(above),
        _ => false,
    }
}

/// Returns true if `above` is the memory for zeroed data (`.bss`) behind the writable part of a program or library in
/// `below`.
fn is_zeroed_data(below: &Area, above: &Area) -> bool {
    let writes = |area: &Area| area.access.has(Access::READ) && area.access.has(Access::WRITE);
    below.has_file() && writes(below) && above.kind() == MapKind::Anonymous && writes(above)
}
