//! The random driver of threads on a space of virtual areas, with a book of the owner of each page: for threads at full
//! speed, and for every interleaving of short programs.

use super::choices::Random;
use super::vmap_support::{StaleBook, TestSpace, cpu, space_of};
use nofrag::check::Check;
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{Area, AreaError, AreaRequest, Budget, CpuHandle, VmapPolicy};
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(not(loom))]
use std::sync::Mutex;

const NOBODY: u32 = 0;

type Handle<'a> = CpuHandle<'a, StaleBook>;

/// Threads that allocate and free, by a handle or by a call, free each other's areas, look up and purge. What is on
/// its way from one to another is modelled with the space; the book is not, so it orders nothing.
pub(crate) struct Town {
    pub(crate) space: TestSpace,
    bounds: Span,
    /// Pages of an area at most.
    most_pages: u64,
    /// For each page the thread that owns it.
    owners: Vec<AtomicU32>,
    /// Areas on their way to a thread that frees them.
    post: Mutex<Vec<(Area, u32)>>,
}

impl Town {
    pub(crate) fn new(policy: VmapPolicy, bounds: Span, cpus: u32, most_pages: u64) -> Town {
        Town {
            space: space_of(policy, bounds, cpus),
            bounds,
            most_pages,
            owners: (0..bounds.len()).map(|_| AtomicU32::new(NOBODY)).collect(),
            post: Mutex::new(Vec::new()),
        }
    }

    fn claim(&self, area: Span, from: u32, to: u32, what: &str) {
        let start = (area.start() - self.bounds.start()) as usize;
        for page in &self.owners[start..start + area.len() as usize] {
            assert_eq!(page.swap(to, Ordering::SeqCst), from, "{what}: {area:?}");
        }
    }

    fn alloc(&self, me: u32, handle: Option<&mut Handle<'_>>, random: &mut Random) {
        let by = cpu(&self.space, me as usize - 1);
        let request =
            AreaRequest::new(1 + random.below(self.most_pages)).align(1 << random.below(3));
        let found = match handle {
            Some(handle) => handle.alloc(&request),
            None => self.space.alloc(by, &request),
        };
        match found {
            Ok(area) => {
                assert!(!self.space.mapper().is_stale(area.span()), "reused before a flush");
                self.claim(area.span(), NOBODY, me, "handed out twice");
                self.post.lock().unwrap().push((area, me));
            }
            Err(AreaError::Exhausted { .. }) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn free(&self, me: u32, handle: Option<&mut Handle<'_>>, random: &mut Random) {
        let by = cpu(&self.space, me as usize - 1);
        let mut post = self.post.lock().unwrap();
        if post.is_empty() {
            return;
        }
        let at = random.below(post.len() as u64) as usize;
        let (area, owner) = post.swap_remove(at);
        drop(post);
        let last = Vpn(area.span().end() - 1);
        assert_eq!(self.space.find(last), Some(area), "a live area is found");
        self.claim(area.span(), owner, NOBODY, "freed by a stranger");
        let freed = match handle {
            Some(handle) => handle.free(area.start),
            None => self.space.free(by, area.start),
        };
        assert_eq!(freed, Ok(area));
    }

    /// Does what the choices say, as thread `me`, from one on.
    pub(crate) fn live(&self, me: u32, mut random: Random, rounds: u64) {
        let mut handle = None;
        for _ in 0..rounds {
            match random.below(41) {
                0..=19 => self.alloc(me, handle.as_mut(), &mut random),
                20..=37 => self.free(me, handle.as_mut(), &mut random),
                40 => {
                    handle = match handle.take() {
                        Some(_) => None,
                        None => self.space.cpu(cpu(&self.space, me as usize - 1)).ok(),
                    };
                }
                38 => drop(self.space.step(Budget { areas: 7 })),
                _ => {
                    let at = self.bounds.start() + random.below(self.bounds.len());
                    let found = self.space.find(Vpn(at));
                    assert!(found.is_none_or(|area| area.span().contains(at)));
                }
            }
        }
    }

    /// Verifies, when all threads have ended, that everything comes back.
    pub(crate) fn close(&self) {
        self.space.check().unwrap_or_else(|broken| panic!("{broken}"));
        for (area, _) in self.post.lock().unwrap().drain(..) {
            self.space.free(cpu(&self.space, 0), area.start).unwrap();
        }
        self.space.purge_all();
        self.space.check().unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(self.space.stats().largest_hole, self.bounds.len(), "pages leaked");
    }
}
