//! Residents that move: memory in pieces becomes whole, and nothing is lost on the way.

use std::sync::{Arc, Mutex, Weak};

use nofrag::check::Check;
use nofrag::page::{Migratetype, MoveResults, Moves, ReclaimRequest, Reclaimed};
use nofrag::units::{Pfn, Vpn};
use nofrag_backing::frames::{Effort, FrameBlock, FrameRequest, Frames, Residents, Sharing, Use};

use super::{BOTH, check_stamp, frames, order, owner, plain};

/// A resident that owns pages, each with a stamp, and knows their places.
#[derive(Debug)]
struct Tenant {
    frames: Arc<Frames>,
    pages: Mutex<Vec<(FrameBlock, u64)>>,
    habit: Habit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Plain,
    /// Gives each page back right after it was moved, before the allocator knows of the move.
    FreesWhatMoved,
    /// Gives a page back on demand.
    Reclaims,
}

impl Residents for Tenant {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        let mut results = MoveResults::default();
        let mut pages = self.pages.lock().unwrap();
        for (index, pair) in moves.pairs().iter().enumerate() {
            let found = pages.iter().position(|(block, _)| block.pfn == pair.from);
            let Some(at) = found else { continue };
            let from = self.frames.address(pair.from).unwrap();
            let to = self.frames.address(pair.to).unwrap();
            let bytes = pages[at].0.bytes();
            // SAFETY: the source is a block of this tenant, whose lock is held; the target is set aside for it.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            self.frames.moved(pair.from, pair.to).unwrap();
            pages[at].0.pfn = pair.to;
            results.0 |= 1 << index;
            if self.habit == Habit::FreesWhatMoved {
                let (block, _) = pages.swap_remove(at);
                self.frames.free(owner(&self.frames, 0), block.pfn).unwrap();
                assert!(self.frames.free(owner(&self.frames, 0), block.pfn).is_err());
            }
        }
        results
    }

    fn reclaim(&self, wanted: ReclaimRequest) -> Reclaimed {
        if self.habit != Habit::Reclaims {
            return Reclaimed::default();
        }
        let mut pages = self.pages.lock().unwrap();
        let left = pages.len().saturating_sub(wanted.pages as usize);
        let given = pages.split_off(left);
        let here = owner(&self.frames, 0);
        given.iter().for_each(|(block, _)| self.frames.free(here, block.pfn).unwrap());
        Reclaimed { pages: given.len() as u64, scanned: given.len() as u64, left: left as u64 }
    }
}

/// Returns a tenant of every `one_in`th page, stamped, with all others free.
fn scattered(sharing: Sharing, habit: Habit, one_in: usize) -> Arc<Tenant> {
    let frames = Arc::new(frames(8, 1, sharing));
    let here = owner(&frames, 0);
    let all: Vec<_> = std::iter::from_fn(|| frames.alloc(here, plain(0)).ok()).collect();
    let mut pages = Vec::new();
    for block in all {
        if (block.pfn.0 as usize).is_multiple_of(one_in) {
            let stamp = 1000 + block.pfn.0;
            write_stamp(&frames, block, stamp);
            frames.set_use(block.pfn, Use::Handle { id: block.pfn.0 as u32 }).unwrap();
            pages.push((block, stamp));
        } else {
            frames.free(here, block.pfn).unwrap();
        }
    }
    let tenant = Arc::new(Tenant { frames, pages: Mutex::new(pages), habit });
    let residents: Weak<dyn Residents> = Arc::downgrade(&tenant) as Weak<dyn Residents>;
    tenant.frames.register(residents);
    tenant
}

/// Writes a stamp that does not depend on the frame.
fn write_stamp(frames: &Frames, block: FrameBlock, stamp: u64) {
    let at = frames.address(block.pfn).unwrap().cast::<u64>();
    // SAFETY: the block is the test's, whose one thread alone uses it.
    unsafe { at.write(stamp) };
}

fn check_pages(tenant: &Tenant) {
    for &(block, stamp) in tenant.pages.lock().unwrap().iter() {
        let at = tenant.frames.address(block.pfn).unwrap().cast::<u64>();
        // SAFETY: the block is the test's, whose one thread alone uses it.
        assert_eq!(unsafe { at.read() }, stamp, "{block:?}");
    }
    tenant.frames.check().unwrap();
}

fn huge() -> FrameRequest {
    FrameRequest::new(order(9), Migratetype::Movable).fill(nofrag_backing::frames::Fill::Anything)
}

#[test]
fn a_large_block_is_made_where_there_was_none() {
    for sharing in BOTH {
        let tenant = scattered(sharing, Habit::Plain, 4);
        let (frames, here) = (&tenant.frames, owner(&tenant.frames, 0));
        assert!(frames.alloc(here, huge().effort(Effort::AtHand)).is_err(), "it is in pieces");
        let block = frames.alloc(here, huge()).expect("three quarters are free");
        check_pages(&tenant);
        super::stamp(frames, block, 5);
        check_pages(&tenant);
        check_stamp(frames, block, 5);
        for &(block, _) in tenant.pages.lock().unwrap().iter() {
            assert!(matches!(frames.use_of(block.pfn), Some(Use::Handle { .. })), "it goes along");
        }
    }
}

#[test]
fn compaction_makes_all_blocks_that_can_be_made() {
    for sharing in BOTH {
        let tenant = scattered(sharing, Habit::Plain, 5);
        let landed = tenant.frames.compact();
        assert!(landed.moved > 0, "{landed:?}");
        check_pages(&tenant);
        tenant.frames.drain();
        assert_eq!(tenant.frames.stats().obtainable(order(9)), 3, "a fifth is in use, of four");
    }
}

#[test]
fn a_page_may_be_given_back_before_its_move_is_reported() {
    let tenant = scattered(Sharing::Lock, Habit::FreesWhatMoved, 4);
    let (frames, here) = (&tenant.frames, owner(&tenant.frames, 0));
    let before = tenant.pages.lock().unwrap().len() as u64;
    let block = frames.alloc(here, huge()).expect("three quarters are free");
    let left = tenant.pages.lock().unwrap().len() as u64;
    assert!(left < before, "some were moved");
    check_pages(&tenant);
    assert_eq!(frames.stats().free.0, frames.len().0 - left - block.order.pages());
}

#[test]
fn residents_give_back_when_nothing_is_free() {
    let tenant = scattered(Sharing::Lock, Habit::Reclaims, 1);
    let (frames, here) = (&tenant.frames, owner(&tenant.frames, 0));
    assert_eq!(frames.stats().free.0, 0);
    assert!(frames.alloc(here, plain(0)).is_err());
    let page = FrameRequest::new(order(0), Migratetype::Unmovable);
    frames.alloc(here, page).expect("the tenant gives pages back");
    check_pages(&tenant);
}

#[test]
fn what_is_pinned_stays() {
    let tenant = scattered(Sharing::Lock, Habit::Plain, 4);
    let frames = &tenant.frames;
    let names: Vec<_> = tenant.pages.lock().unwrap().iter().map(|(block, _)| block.pfn).collect();
    names.iter().for_each(|&pfn| frames.set_use(pfn, Use::Pinned).unwrap());
    assert!(frames.alloc(owner(frames, 0), huge()).is_err());
    assert!(names.iter().all(|&pfn| frames.use_of(pfn) == Some(Use::Pinned)));
    frames.set_use(names[0], Use::Mapped { vpn: Vpn(1) }).unwrap();
    check_pages(&tenant);
}

#[test]
fn a_move_to_a_block_in_use_is_refused() {
    let tenant = scattered(Sharing::Lock, Habit::Plain, 4);
    let frames = &tenant.frames;
    assert!(frames.moved(Pfn(0), Pfn(4)).is_err(), "it is taken");
    assert!(frames.moved(Pfn(1), Pfn(2)).is_err(), "nothing is there to move");
    assert!(frames.moved(Pfn(0), Pfn(u64::MAX)).is_err(), "there is no such frame");
    check_pages(&tenant);
}

/// A resident that panics when its moves are done.
#[derive(Debug)]
struct Panicking(Arc<Tenant>);

impl Residents for Panicking {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        self.0.move_frames(moves);
        panic!("on purpose")
    }
}

#[test]
fn a_resident_that_panics_loses_no_frames() {
    for sharing in BOTH {
        let tenant = scattered(sharing, Habit::Plain, 4);
        let (frames, here) = (&tenant.frames, owner(&tenant.frames, 0));
        let free = frames.stats().free;
        let panicking = Arc::new(Panicking(Arc::clone(&tenant)));
        frames.register(Arc::downgrade(&panicking) as Weak<dyn Residents>);
        let compact = || assert_eq!(frames.compact().moved, 0);
        let take = || assert!(frames.alloc(here, huge()).is_err());
        for act in [&compact as &dyn Fn(), &take] {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            assert!(caught.is_err(), "who asked hears of it");
            assert_eq!(frames.stats().free, free, "nothing is lost, nor handed out");
            check_pages(&tenant);
        }
        frames.register(Arc::downgrade(&tenant) as Weak<dyn Residents>);
        frames.alloc(here, huge()).expect("nothing stands in the way");
        check_pages(&tenant);
    }
}

/// A resident that reports blocks at the targets of others.
#[derive(Debug)]
struct Confused(Arc<Frames>);

impl Residents for Confused {
    fn move_frames(&self, moves: &Moves) -> MoveResults {
        for two in moves.pairs().windows(2) {
            assert!(self.0.moved(two[0].from, two[1].to).is_err(), "it was asked for of another");
        }
        MoveResults::default()
    }
}

#[test]
fn a_block_takes_no_place_but_its_own() {
    let tenant = scattered(Sharing::Lock, Habit::Plain, 4);
    let confused = Arc::new(Confused(Arc::clone(&tenant.frames)));
    tenant.frames.register(Arc::downgrade(&confused) as Weak<dyn Residents>);
    assert_eq!(tenant.frames.compact().moved, 0);
    check_pages(&tenant);
}
