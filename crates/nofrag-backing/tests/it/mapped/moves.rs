//! Frames that are exchanged under the user of an area.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nofrag::check::Check;
use nofrag::page::{Migratetype, Move, MoveResults, Moves, ReclaimRequest, Reclaimed};
use nofrag::units::{Order, Pfn, Vpn};
use nofrag_backing::faults::{self, Call};
use nofrag_backing::frames::{Effort, Fill, FrameRequest, Residents, Use};
use nofrag_backing::mapped::{Mapped, Mobility, Relocation, VmallocArea, VmallocRequest};

use super::{owner, pages, seen, space, stamp};

/// A mover of frames to which no thread writes meanwhile: it copies, and maps over.
#[derive(Debug)]
struct Quiet(Arc<Mapped>);

fn copy_and_map_over(relocation: &Relocation<'_>) -> bool {
    let Relocation { at, bytes, from, to, file, offset } = *relocation;
    // SAFETY: the area shows the source, to which no thread writes; the target was set aside for it.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
    map_over(at, bytes, file, offset)
}

fn map_over(at: *mut u8, bytes: usize, file: BorrowedFd<'_>, offset: u64) -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let (both, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: the range belongs to an area that is locked against its end, and shows the same contents as before.
    unsafe { mmap(at.cast(), bytes, both, flags, file, offset) }.is_ok()
}

impl Residents for Quiet {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        let mut results = MoveResults::default();
        for (index, pair) in moves.pairs().iter().enumerate() {
            results.0 |= u32::from(self.0.relocate(*pair, copy_and_map_over)) << index;
        }
        results
    }

    fn reclaim(&self, _: ReclaimRequest) -> Reclaimed {
        self.0.settle();
        Reclaimed::default()
    }
}

/// Makes areas of movable frames all over memory, in each pageblock some, and their mover.
fn in_pieces(mib: u64) -> (Arc<Mapped>, Arc<Quiet>, Vec<VmallocArea>) {
    let mapped = Arc::new(space(mib, 8 * mib));
    let here = owner(&mapped, 0);
    let request = VmallocRequest::new(4 * 4096).mobility(Mobility::Movable).fill(Fill::Anything);
    let all: Vec<_> = std::iter::from_fn(|| mapped.vmalloc(here, &request).ok()).collect();
    let mut kept = Vec::new();
    for (index, area) in all.into_iter().enumerate() {
        if index % 4 == 0 {
            pages(&area).for_each(|vpn| stamp(&mapped, vpn, index as u64));
            kept.push(area);
        } else {
            mapped.vfree(here, area).unwrap();
        }
    }
    mapped.settle();
    mapped.frames().drain();
    let quiet = Arc::new(Quiet(Arc::clone(&mapped)));
    mapped.frames().register(Arc::downgrade(&quiet) as Weak<dyn Residents>);
    (mapped, quiet, kept)
}

fn check_areas(mapped: &Mapped, areas: &[VmallocArea]) {
    for (index, area) in areas.iter().enumerate() {
        pages(area).for_each(|vpn| assert_eq!(seen(mapped, vpn), (4 * index as u64, vpn.0)));
        for block in mapped.blocks(area.start()) {
            assert!(matches!(mapped.frames().use_of(block.pfn), Some(Use::Mapped { .. })));
        }
    }
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn memory_in_pieces_becomes_whole_under_its_users() {
    let (mapped, _quiet, areas) = in_pieces(8);
    let whole = FrameRequest::new(Order::PAGEBLOCK, Migratetype::Movable).fill(Fill::Anything);
    let here = owner(&mapped, 0);
    assert!(mapped.frames().alloc(here, whole.effort(Effort::AtHand)).is_err());
    let block = mapped.frames().alloc(here, whole).expect("three quarters are free");
    check_areas(&mapped, &areas);
    crate::frames::stamp(mapped.frames(), block, 1);
    check_areas(&mapped, &areas);
    let landed = mapped.frames().compact();
    assert!(landed.moved > 0, "{landed:?}");
    check_areas(&mapped, &areas);
    for area in areas {
        mapped.vfree(here, area).unwrap();
    }
    mapped.settle();
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn what_is_pinned_is_not_exchanged() {
    let (mapped, _quiet, areas) = in_pieces(8);
    areas.iter().for_each(|area| mapped.set_mobility(area, Mobility::Pinned));
    assert_eq!(mapped.frames().compact().moved, 0);
    areas.iter().for_each(|area| mapped.set_mobility(area, Mobility::Movable));
    assert!(mapped.frames().compact().moved > 0);
    check_areas(&mapped, &areas);
}

#[test]
fn a_move_that_nobody_asked_for_is_refused() {
    let (mapped, _quiet, areas) = in_pieces(8);
    let from = mapped.blocks(areas[0].start())[0];
    let free = (0..).map(Pfn).find(|&pfn| mapped.frames().block(pfn).is_none()).unwrap();
    for to in [free, from.pfn, mapped.blocks(areas[1].start())[0].pfn, Pfn(u64::MAX)] {
        let pair = Move { from: from.pfn, to, order: from.order };
        assert!(!mapped.relocate(pair, |_| panic!("it was not set aside")), "{to}");
    }
    check_areas(&mapped, &areas);
}

/// A resident that carries out other moves than those that it is asked for, and panics in the last one.
#[derive(Debug)]
struct Confused(Arc<Mapped>);

impl Residents for Confused {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        for two in moves.pairs().windows(2) {
            let pair = Move { to: two[1].to, ..two[0] };
            assert!(!self.0.relocate(pair, |_| true), "it was set aside for another");
        }
        self.0.relocate(moves.pairs()[0], |_| panic!("half way"));
        MoveResults::default()
    }
}

/// Moves a block to the target of another one, which is refused, and panics in an exchange: the books stay right. Such
/// a target was taken for the block's own, and the panic that followed left books that were wrong; so did a panic of
/// the function that exchanges: two mappings stayed booked.
#[test]
fn a_confused_resident_confuses_nobody_else() {
    let (mapped, _quiet, areas) = in_pieces(8);
    let confused = Arc::new(Confused(Arc::clone(&mapped)));
    mapped.frames().register(Arc::downgrade(&confused) as Weak<dyn Residents>);
    let before = mapped.mappings();
    let compact = || mapped.frames().compact();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(compact)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"half way"));
    assert_eq!(mapped.mappings(), before);
    check_areas(&mapped, &areas);
}

/// gfxreconstruct PR 1161: between `munmap` and `mmap` another thread faults, or maps. Readers of areas that are moved,
/// of areas beside those that come and go, never do.
/// Source: docs/sources/backing.md#gfxr-1161-window.
#[test]
fn gfxr_1161_window() {
    let (mapped, _quiet, areas) = in_pieces(8);
    let stop = AtomicBool::new(false);
    let before = faults::made();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (index, area) in areas.iter().enumerate() {
                    for vpn in pages(area) {
                        assert_eq!(seen(&mapped, vpn), (4 * index as u64, vpn.0));
                    }
                }
            }
        });
        let here = owner(&mapped, 1);
        let mut moved = 0;
        for round in 0..30 {
            let beside = mapped.vmalloc(here, &VmallocRequest::new(64 * 4096)).unwrap();
            moved += mapped.frames().compact().moved;
            mapped.vfree(here, beside).unwrap();
            if round % 4 == 0 {
                mapped.settle();
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(moved > 0, "something moved under the reader");
    });
    assert_eq!(faults::made().since(&before).of(Call::Munmap), 0);
    check_areas(&mapped, &areas);
}

/// After a move the area shows the new frame; other references to the old one still read that.
/// Source: docs/sources/backing.md#oracle-5.
#[test]
fn after_a_move_the_area_shows_the_new_frame_and_aliases_the_old() {
    let (mapped, _quiet, areas) = in_pieces(8);
    let old: Vec<_> = areas.iter().map(|area| mapped.blocks(area.start())[0]).collect();
    assert!(mapped.frames().compact().moved > 0);
    let moved = |&at: &usize| mapped.blocks(areas[at].start())[0] != old[at];
    let moved = (0..areas.len()).find(moved).expect("it says so");
    let alias = mapped.frames().address(old[moved].pfn).unwrap().cast::<u64>();
    // SAFETY: a read of the window; the frame is free, and no thread writes to it.
    assert_eq!(unsafe { alias.read() }, 4 * moved as u64, "the old frame is as it was");
    stamp(&mapped, areas[moved].start(), 0xbeef);
    assert_eq!(seen(&mapped, areas[moved].start()).0, 0xbeef);
    // SAFETY: as above.
    assert_eq!(unsafe { alias.read() }, 4 * moved as u64, "and does not change with the new one");
}

/// A block that two areas show has two users, of which a move would tell one.
#[test]
fn a_block_that_is_mapped_twice_is_not_moved() {
    let (mapped, _quiet, areas) = in_pieces(8);
    let here = owner(&mapped, 0);
    let twice: Vec<_> = areas
        .iter()
        .map(|area| mapped.map_ram(here, &mapped.blocks(area.start())).unwrap())
        .collect();
    assert_eq!(mapped.frames().compact().moved, 0);
    check_areas(&mapped, &areas);
    for area in twice {
        mapped.unmap_ram(here, area).unwrap();
    }
    mapped.settle();
    assert!(mapped.frames().compact().moved > 0, "now each is mapped once");
    check_areas(&mapped, &areas);
}

/// A block whose use names another page than the one where it is mapped is not moved: the use is checked again at that
/// page.
#[test]
fn a_block_that_says_it_stands_elsewhere_is_not_moved() {
    let (mapped, _quiet, areas) = in_pieces(8);
    for area in &areas {
        for block in mapped.blocks(area.start()) {
            let last = Vpn(area.start().0 + area.pages().0 - 1);
            let elsewhere = if mapped.frames().use_of(block.pfn) == Some(Use::Mapped { vpn: last })
            {
                area.start()
            } else {
                last
            };
            mapped.frames().set_use(block.pfn, Use::Mapped { vpn: elsewhere }).unwrap();
        }
    }
    assert_eq!(mapped.frames().compact().moved, 0);
    assert_eq!(mapped.check(), Ok(()));
}
