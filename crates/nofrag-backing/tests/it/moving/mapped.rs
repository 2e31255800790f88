//! Areas whose frames are exchanged under their writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::units::Order;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::{Frames, FramesConfig};
use nofrag_backing::mapped::{Mapped, MappedConfig, Mobility, VmallocArea, VmallocRequest};
use nofrag_backing::moving::userfaultfd::Features;
use nofrag_backing::moving::{Handles, MappedMover};
use rustix::io::Errno;

use super::userfaultfd;

const MEMORY: u64 = 16 << 20;
const PAGES: u64 = 4;

/// Memory full of areas of movable frames, of which one in four is kept.
struct Ground {
    mapped: Arc<Mapped>,
    owner: CpuId,
    areas: Vec<VmallocArea>,
}

impl Ground {
    fn new() -> Ground {
        let frames = Arc::new(Frames::new(&FramesConfig::new(MEMORY)).unwrap());
        Ground::over(frames)
    }

    fn over(frames: Arc<Frames>) -> Ground {
        let owner = frames.owners().by_rank(0).unwrap();
        let mapped = Arc::new(Mapped::new(frames, &MappedConfig::new(8 * MEMORY)).unwrap());
        let request = VmallocRequest::new(PAGES << 12).mobility(Mobility::Movable);
        let all: Vec<_> = std::iter::from_fn(|| mapped.vmalloc(owner, &request).ok()).collect();
        let (kept, freed): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(index, _)| index % 4 == 0);
        freed.into_iter().for_each(|(_, area)| mapped.vfree(owner, area).unwrap());
        mapped.settle();
        mapped.frames().drain();
        Ground { mapped, owner, areas: kept.into_iter().map(|(_, area)| area).collect() }
    }

    /// Returns the first word of a page of an area.
    fn word(&self, area: usize, page: u64) -> &AtomicU64 {
        let start = self.areas[area].start();
        let at = self.mapped.address(nofrag::units::Vpn(start.0 + page)).unwrap();
        // SAFETY: the area lives as long as the ground, and all access is atomic.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn whole_blocks(&self) -> u64 {
        self.mapped.frames().stats().obtainable(Order::PAGEBLOCK)
    }

    /// Counts up a word of each page until it is stopped, and checks that no write is lost; returns the number of
    /// rounds.
    fn count_up(&self, stop: &AtomicBool) -> u64 {
        let mut rounds = 0;
        while !stop.load(Ordering::Relaxed) {
            for area in 0..self.areas.len() {
                for page in 0..PAGES {
                    let word = self.word(area, page);
                    assert_eq!(word.load(Ordering::Relaxed), rounds, "a write was lost");
                    word.store(rounds + 1, Ordering::Relaxed);
                }
            }
            rounds += 1;
        }
        rounds
    }
}

#[test]
fn areas_are_brought_together_under_their_writers() {
    let Some(_) = userfaultfd(Features::WRITE_PROTECT_SHARED) else { return };
    let ground = Ground::new();
    let _mover = MappedMover::new(Arc::clone(&ground.mapped)).unwrap();
    let before = ground.whole_blocks();
    let stop = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| ground.count_up(&stop));
        let landed = ground.mapped.frames().compact();
        assert!(landed.moved > 0 && landed.stayed == 0, "{landed:?}");
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    for area in 0..ground.areas.len() {
        (0..PAGES).for_each(|page| {
            assert_eq!(ground.word(area, page).load(Ordering::Relaxed), rounds);
        });
    }
    assert!(ground.whole_blocks() > before + 3, "{before} to {}", ground.whole_blocks());
    ground.mapped.check().unwrap();
}

#[test]
fn what_the_system_refuses_stays_where_it_is() {
    let Some(_) = userfaultfd(Features::WRITE_PROTECT_SHARED) else { return };
    let ground = Ground::new();
    let mover = MappedMover::new(Arc::clone(&ground.mapped)).unwrap();
    (0..ground.areas.len()).for_each(|area| ground.word(area, 1).store(3, Ordering::Relaxed));
    for call in [Call::Mmap, Call::UserfaultfdRequest] {
        let armed = faults::inject([Fault::always(call, Errno::NOMEM)]);
        assert_eq!(ground.mapped.frames().compact().moved, 0);
        drop(armed);
        ground.mapped.check().unwrap();
    }
    assert!(ground.mapped.frames().compact().moved > 0);
    drop(mover);
    assert_eq!(ground.mapped.frames().compact().moved, 0, "nobody moves them any more");
    let stop = AtomicBool::new(true);
    assert_eq!(ground.count_up(&stop), 0);
    for area in 0..ground.areas.len() {
        assert_eq!(ground.word(area, 1).load(Ordering::Relaxed), 3);
    }
    let Ground { mapped, owner, areas } = ground;
    areas.into_iter().for_each(|area| mapped.vfree(owner, area).unwrap());
    mapped.settle();
    mapped.check().unwrap();
}

#[test]
fn areas_and_handles_share_frames() {
    let Some(_) = userfaultfd(Features::WRITE_PROTECT_SHARED) else { return };
    let frames = Arc::new(Frames::new(&FramesConfig::new(MEMORY)).unwrap());
    let ground = Ground::over(Arc::clone(&frames));
    // SAFETY: blocks of the ground's areas and of these handles are given back through these alone.
    let handles = unsafe { Handles::over(frames, 2000) }.unwrap();
    let handles = Arc::new(handles);
    let taken: Vec<_> =
        (0..500).map(|_| handles.alloc(ground.owner, Order::ZERO).unwrap()).collect();
    for (&handle, value) in taken.iter().zip(1..) {
        handles.pin(handle).unwrap()[7].store(value, Ordering::Relaxed);
    }
    let (some, rest) = taken.split_at(100);
    rest.iter().step_by(2).for_each(|&handle| handles.free(ground.owner, handle).unwrap());
    let mover =
        MappedMover::with_handles(Arc::clone(&ground.mapped), Arc::clone(&handles)).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while ground.mapped.frames().compact().moved > 0 && Instant::now() < end {}
    handles.check().unwrap();
    ground.mapped.check().unwrap();
    for (&handle, value) in some.iter().zip(1..) {
        assert_eq!(handles.pin(handle).unwrap()[7].load(Ordering::Relaxed), value);
    }
    drop(mover);
}
