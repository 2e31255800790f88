//! Random operations on a heap that refuses at random: a refusal changes nothing, every law holds after it, the same
//! operation succeeds or fails otherwise once there is memory, and in the end all space comes back.
//!
//! Refused is what the operation itself asks for, not what this driver needs to look at the outcome. Memory that a
//! structure takes without being able to fail ends the process, which is how it is found.

use std::fmt::Debug;

use arbitrary::{Arbitrary, Unstructured};
use nofrag::check::Check;
use nofrag::cpu::{CpuId, CpuSet};
use nofrag::mmap::{
    AddressSpace, AreaRecord, Attributes, Direction, FixedError, Layout, MapError, MapFlags,
    MoveError, Placement, ProtectError, Protection, RemapTarget, SpaceConfig, UnmapError,
};
use nofrag::ranges::{
    AddSpanError, AlignRule, AllocError, Config, Fit, FreeError, Index, RangeAllocator,
    RelocateError, Request, Span, TakeError,
};
use nofrag::units::{PageCount, Vpn};
use nofrag::vmap::{
    Area, AreaError, AreaKind, AreaRequest, AreaState, Budget, GroupError, MapRamError, RamArea,
    VmapConfig, VmapPolicy, VmapSpace, Wait,
};

use crate::memory::refusing_at_random;
use crate::steps;

/// So many steps of one input are run.
const MOST_STEPS: usize = 300;

/// Runs the operations in `data` on the structure that its first byte chooses, on a heap as stingy as its second one
/// says; panics when a promise is broken.
pub fn run(data: &[u8]) {
    let [choice, odds, rest @ ..] = data else { return };
    let heap = Heap { odds: *odds, draw: u64::from(*choice) << 8 | u64::from(*odds) };
    match choice % 3 {
        0 => ranges(choice / 3, heap, rest),
        1 => areas(choice / 3, heap, rest),
        _ => mappings(choice / 3, heap, rest),
    }
}

/// How often requests are refused, of 256, and where chance stands.
struct Heap {
    odds: u8,
    draw: u64,
}

/// An error that says whether memory was refused.
trait Refusal: Debug {
    fn is_refusal(&self) -> bool;
}

macro_rules! refusal {
    ($($error:ty: $refused:pat,)+) => {
        $(impl Refusal for $error {
            fn is_refusal(&self) -> bool {
                matches!(self, $refused)
            }
        })+
    };
}

refusal! {
    AllocError: AllocError::OutOfMetadata,
    TakeError: TakeError::OutOfMetadata,
    FreeError: FreeError::OutOfMetadata,
    AddSpanError: AddSpanError::OutOfMetadata,
    RelocateError: RelocateError::OutOfMetadata | RelocateError::NoPlace(AllocError::OutOfMetadata),
    AreaError: AreaError::OutOfMetadata,
    GroupError: GroupError::OutOfMetadata,
    MapRamError<()>: MapRamError::OutOfMetadata,
    MapError: MapError::OutOfMetadata,
    FixedError: FixedError::OutOfMetadata,
    UnmapError: UnmapError::OutOfMetadata,
    ProtectError: ProtectError::OutOfMetadata,
    MoveError: MoveError::OutOfMetadata | MoveError::NoPlace(MapError::OutOfMetadata),
}

impl Heap {
    /// Does `operation`, which the heap may refuse; then once more with memory, if it was refused.
    fn attempt<S: Check, T, E: Refusal, L: PartialEq + Debug>(
        &mut self,
        subject: &mut S,
        list: impl Fn(&S) -> L,
        operation: impl Fn(&mut S) -> Result<T, E>,
    ) -> Result<T, E> {
        steps::count();
        let before = list(subject);
        self.draw = self.draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let said = refusing_at_random(self.draw, self.odds, || operation(subject));
        check(subject);
        let refused = said.as_ref().is_err_and(Refusal::is_refusal);
        if !refused {
            return said;
        }
        assert_eq!(list(subject), before, "a refusal has changed something");
        let said = operation(subject);
        check(subject);
        let again = said.as_ref().is_err_and(Refusal::is_refusal);
        assert!(!again, "it was refused although there is memory");
        said
    }
}

fn check(subject: &impl Check) {
    if let Err(violation) = subject.check() {
        panic!("{violation}");
    }
}

/// One operation; what the numbers mean depends on the structure.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Step {
    kind: u8,
    at: u16,
    size: u8,
    to: u16,
    how: u8,
}

fn steps_in(data: &[u8]) -> impl Iterator<Item = Step> {
    let mut input = Unstructured::new(data);
    let next = move || if input.is_empty() { None } else { Step::arbitrary(&mut input).ok() };
    std::iter::from_fn(next).take(MOST_STEPS)
}

/// A span of the small spaces here; sizes are mostly small.
fn span(at: u16, size: u8) -> Option<Span> {
    let pages = if size < 200 { u64::from(size % 20) } else { u64::from(size) };
    Span::sized(u64::from(at % 2048), pages).ok()
}

fn ranges(choice: u8, mut heap: Heap, data: &[u8]) {
    let index = match choice % 4 {
        0 | 1 => Index::WideBlocks,
        2 => Index::CachedScan,
        _ => Index::AugmentedTree(AlignRule::Padded),
    };
    let size_index = choice.is_multiple_of(4);
    let mut allocator = RangeAllocator::new(Config { index, size_index, ..Config::default() });
    let mut own: Vec<Span> = Vec::new();
    let holes = |allocator: &RangeAllocator| allocator.iter_free().collect::<Vec<_>>();
    for step in steps_in(data) {
        let named = span(step.at, step.size);
        let held = (!own.is_empty()).then(|| usize::from(step.at) % own.len().max(1));
        match (step.kind % 8, named, held) {
            (0 | 1, ..) => {
                let fit = if step.how % 4 == 3 && size_index { Fit::Best } else { Fit::Lowest };
                let align = 1 << (step.how % 5);
                let request = Request::new(u64::from(step.size % 40)).align(align).fit(fit);
                own.extend(heap.attempt(&mut allocator, holes, |it| it.alloc(&request)));
            }
            (2, Some(named), _) => {
                let taken = heap.attempt(&mut allocator, holes, |it| it.alloc_at(named));
                own.extend(taken.map(|()| named));
            }
            (3 | 4, _, Some(at)) => {
                let span = own.swap_remove(at);
                // A part in the middle makes a hole of its own; the rest follows.
                let cut = Span::new(span.start() + 1, span.end().saturating_sub(1));
                let parts = match cut {
                    Ok(middle) if step.how.is_multiple_of(2) => {
                        let first = Span::new(span.start(), middle.start());
                        let last = Span::new(middle.end(), span.end());
                        [Some(middle), first.ok(), last.ok()]
                    }
                    _ => [Some(span), None, None],
                };
                for part in parts.into_iter().flatten() {
                    let freed = heap.attempt(&mut allocator, holes, |it| it.free(part));
                    assert_eq!(freed, Ok(()), "{part:?} was allocated");
                }
            }
            (5, Some(named), _) => {
                let _ = heap.attempt(&mut allocator, holes, |it| it.add_span(named));
            }
            (6, Some(named), _) => {
                let _ = heap.attempt(&mut allocator, holes, |it| it.remove_span(named));
            }
            (7, _, Some(at)) => own[at] = relocate(&mut allocator, &mut heap, step, own[at]),
            _ => {}
        }
    }
    own.into_iter().for_each(|span| assert_eq!(allocator.free(span), Ok(())));
    let stats = allocator.stats();
    assert_eq!(stats.free, stats.total, "numbers are lost");
}

/// Moves a span, or begins to and changes its mind; where it is then.
fn relocate(allocator: &mut RangeAllocator, heap: &mut Heap, step: Step, from: Span) -> Span {
    let holes = |allocator: &RangeAllocator| allocator.iter_free().collect::<Vec<_>>();
    let Ok(to) = Span::sized(u64::from(step.to % 2048), from.len()) else { return from };
    let moved = heap.attempt(allocator, holes, |it| it.relocate_to(from, to));
    let Ok(moved) = moved else { return from };
    let keep = step.how.is_multiple_of(2);
    let end = |allocator: &mut RangeAllocator, moved| {
        if keep { allocator.commit(moved) } else { allocator.rollback(moved) }
    };
    let ended = refusing_at_random(step.to.into(), heap.odds, || end(allocator, moved));
    check(allocator);
    if let Err((moved, why)) = ended {
        // Refused, it stays pending, and is ended with memory.
        assert_eq!(why, FreeError::OutOfMetadata);
        assert!(end(allocator, moved).is_ok(), "there is memory");
        check(allocator);
    }
    if keep { to } else { from }
}

fn areas(choice: u8, mut heap: Heap, data: &[u8]) {
    let presets: Vec<_> = VmapPolicy::presets().collect();
    let policy = presets[usize::from(choice) % presets.len()].policy;
    let cpus = CpuSet::first(2).expect("there is memory enough");
    let span = Span::new(0x100, 0x100 + 4096).expect("the space is not empty");
    let config = VmapConfig { span, cpus, policy };
    let mut space = VmapSpace::new(config, (), ()).expect("the policy is sound");
    let cpu = |space: &VmapSpace<()>, byte: u8| -> CpuId {
        space.cpus().by_rank(usize::from(byte % 2)).expect("there are two")
    };
    let busy = |space: &VmapSpace<()>| {
        let records = space.areas().expect("there is memory enough");
        // A request that found no memory may have given back blocks in which nobody has a mapping.
        let held = records
            .into_iter()
            .filter(|record| record.state == AreaState::Busy && record.kind != AreaKind::Block);
        let busy: Vec<Area> = held.map(|record| record.area).collect();
        (busy, space.block_stats().live_pages)
    };
    let (mut own, mut small) = (Vec::<Area>::new(), Vec::<(CpuId, RamArea)>::new());
    for step in steps_in(data) {
        let cpu = cpu(&space, step.how);
        match step.kind % 8 {
            0 | 1 => {
                let wait = if step.how < 128 { Wait::MayReclaim } else { Wait::Never };
                let request = AreaRequest::new(u64::from(step.size % 64)).wait(wait);
                let request = request.align(1 << (step.to % 6));
                own.extend(heap.attempt(&mut space, busy, |it| it.alloc(cpu, &request)));
            }
            2 | 3 if !own.is_empty() => {
                let area = own.swap_remove(usize::from(step.at) % own.len());
                free_area(&space, heap.odds, step, cpu, area);
            }
            4 => {
                let pages = u64::from(step.size % 48);
                let map = |it: &mut VmapSpace<()>| map_ram(it, cpu, pages);
                let mapped = heap.attempt(&mut space, busy, map);
                small.extend(mapped.map(|area| (cpu, area)));
            }
            5 if !small.is_empty() => {
                let (_, area) = small.swap_remove(usize::from(step.at) % small.len());
                steps::count();
                let unmap = || space.unmap_ram(cpu, area);
                assert_eq!(refusing_at_random(step.to.into(), heap.odds, unmap), Ok(()));
                check(&space);
            }
            6 => {
                let sizes = [u64::from(step.size % 16) + 1, 3];
                let group = |it: &mut VmapSpace<()>| it.alloc_group(cpu, &[0, 32], &sizes, 1);
                if let Ok(base) = heap.attempt(&mut space, busy, group) {
                    let piece = |offset| space.find(Vpn(base.0 + offset)).expect("it is an area");
                    own.extend([piece(0), piece(32)]);
                }
            }
            7 => purge(&space, heap.odds, step),
            _ => {}
        }
    }
    let by = cpu(&space, 0);
    all_comes_back(&space, by, own, small);
}

fn all_comes_back(space: &VmapSpace<()>, by: CpuId, own: Vec<Area>, small: Vec<(CpuId, RamArea)>) {
    small.into_iter().for_each(|(_, area)| assert_eq!(space.unmap_ram(by, area), Ok(())));
    own.into_iter().for_each(|area| assert_eq!(space.free(by, area.start), Ok(area)));
    space.purge_all();
    assert_eq!(space.stats().largest_hole, space.span().len(), "pages are lost");
}

/// Nobody can do anything about a free that is refused, so none is.
fn free_area(space: &VmapSpace<()>, odds: u8, step: Step, cpu: CpuId, area: Area) {
    steps::count();
    let free = || match step.how < 128 {
        true => space.free(cpu, area.start),
        false => space.free_deferred(cpu, area.start),
    };
    assert_eq!(refusing_at_random(step.to.into(), odds, free), Ok(area));
    check(space);
}

fn purge(space: &VmapSpace<()>, odds: u8, step: Step) {
    steps::count();
    let purge = || match step.how < 64 {
        true => space.purge_all(),
        false => space.step(Budget { areas: step.size.into() }),
    };
    refusing_at_random(step.to.into(), odds, purge);
    check(space);
}

/// A mapping of few pages.
fn map_ram(space: &VmapSpace<()>, cpu: CpuId, pages: u64) -> Result<RamArea, MapRamError<()>> {
    match space.map_ram(cpu, pages, &()) {
        Ok(area) => Ok(area),
        Err(MapRamError::OutOfMetadata) => Err(MapRamError::OutOfMetadata),
        Err(_) => Err(MapRamError::WouldBlock),
    }
}

fn mappings(choice: u8, mut heap: Heap, data: &[u8]) {
    let placements: Vec<_> = Placement::presets().collect();
    let placement = placements[usize::from(choice / 2) % placements.len()].placement;
    let direction = if choice.is_multiple_of(2) { Direction::Up } else { Direction::Down };
    let window = Span::new(16, 16 + 4096).expect("the window has pages");
    let layout = Layout::window(window, direction);
    let config = SpaceConfig { map_limit: 200, ..SpaceConfig::new(layout, placement) };
    let mut space = AddressSpace::new(config);
    let areas = |space: &AddressSpace| space.areas().collect::<Vec<AreaRecord>>();
    for step in steps_in(data) {
        let protection = Protection(step.how % 8);
        let attributes = Attributes::anonymous(protection);
        let (at, pages) =
            (Vpn(16 + u64::from(step.at % 4096)), PageCount(u64::from(step.size % 40)));
        let it = &mut space;
        match step.kind % 8 {
            0 | 1 => {
                let map =
                    |it: &mut AddressSpace| it.map(pages, attributes, None, MapFlags::default());
                let _ = heap.attempt(it, areas, map);
            }
            2 => {
                let _ = heap.attempt(it, areas, |it| it.map_fixed(at, pages, attributes));
            }
            3 => {
                let _ = heap.attempt(it, areas, |it| it.map_fixed_noreplace(at, pages, attributes));
            }
            4 => {
                let _ = heap.attempt(it, areas, |it| it.unmap(at, pages));
            }
            5 => {
                let _ = heap.attempt(it, areas, |it| it.protect(at, pages, protection));
            }
            6 => {
                let target = match step.how % 3 {
                    0 => RemapTarget::InPlace,
                    1 => RemapTarget::MayMove,
                    _ => RemapTarget::To(Vpn(16 + u64::from(step.to % 4096))),
                };
                let new_pages = PageCount(u64::from(step.to % 50));
                let _ = heap.attempt(it, areas, |it| it.remap(at, pages, new_pages, target));
            }
            _ => {
                let to = Vpn(16 + u64::from(step.to % 4096));
                let begun = heap.attempt(it, areas, |it| it.begin_move_to(at, pages, to));
                let Ok(pending) = begun else { continue };
                let keep = step.how.is_multiple_of(2);
                let end = |it: &mut AddressSpace, pending| {
                    if keep { it.commit_move(pending) } else { it.rollback_move(pending) }
                };
                let ended = refusing_at_random(step.to.into(), heap.odds, || end(it, pending));
                check(it);
                if let Err((pending, why)) = ended {
                    assert!(why.is_refusal() || keep, "{why}");
                    if end(it, pending).is_err() {
                        panic!("there is memory");
                    }
                    check(it);
                }
            }
        }
    }
    let everything = PageCount(window.len());
    assert_eq!(space.unmap(Vpn(window.start()), everything), Ok(()));
    assert_eq!(space.area_count(), 0, "areas are left");
}
