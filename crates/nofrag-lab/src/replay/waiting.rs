//! Processes that wait for a huge page, while others go on.
//!
//! A caller that compacts for itself takes long: in guests of 6.1 to 7.2 as long as thousands of faults are, in which
//! others were served, many of them out of what the caller had just made free. So a request that is not served
//! at once becomes a [`Waiter`] with a clock of its own. Later requests of its process wait behind it, and so does
//! whatever names a block of theirs. They are made as soon as it is answered: the process is late then, and does not
//! stay so.

use std::collections::VecDeque;

use foldhash::HashMap;
use nofrag::cpu::CpuId;
use nofrag::page::{Attempt, Next, RequestFlags};

use super::request::Request;
use super::spans::FrameIndex;
use super::standin::Ticket;
use super::step::Step;

/// The most processes that wait at a time; what others ask for is answered at once.
const MOST: usize = 256;

/// Use of the block, or of its refusal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// The block stands for the one at `frame` that the recorded kernel served. If it is refused, it is asked for once
    /// more with the flags `second`.
    Adopt { frame: FrameIndex, second: Option<RequestFlags> },
    /// The recorded kernel refused it: single pages may follow in its place.
    StandIn { place: Option<Ticket> },
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) pid: i32,
    pub(super) cpu: CpuId,
    /// The time of its next action.
    pub(super) at: u64,
    pub(super) request: Request,
    pub(super) attempt: Box<Attempt>,
    /// The action that it was asked for and takes at that time; `None` at first.
    pub(super) next: Option<Next>,
    /// Its place among the pauses of the host.
    pub(super) place: Option<usize>,
    pub(super) then: Then,
    /// Steps that were put off.
    pub(super) later: VecDeque<Step>,
}

/// All requests under way: one of a process at most.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiters: Vec<Waiter>,
    /// By traced frame: steps that name it and were put off.
    named: HashMap<FrameIndex, Named>,
}

/// Steps that name a frame: all of them wait behind one process.
#[derive(Clone, Copy, Debug)]
struct Named {
    behind: i32,
    count: u32,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiters.len() >= MOST
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        debug_assert!(self.of(waiter.pid).is_none());
        self.waiters.push(waiter);
    }

    /// Returns the request of the process that is under way.
    pub(super) fn of(&mut self, pid: i32) -> Option<&mut Waiter> {
        self.waiters.iter_mut().find(|waiter| waiter.pid == pid)
    }

    /// Returns the number of the waiter that acts first, and the time; `None` if none waits.
    pub(super) fn next(&self) -> Option<(usize, u64)> {
        let dues = self.waiters.iter().map(|waiter| waiter.at).enumerate();
        dues.min_by_key(|(_, at)| *at)
    }

    /// Takes a waiter out; its later steps are then to be [taken up](Self::take_up) one by one.
    pub(super) fn take(&mut self, number: usize) -> Waiter {
        self.waiters.remove(number)
    }

    /// Puts a step off if it has to wait: a request of a process that waits, or what names a block that such requests
    /// name. Returns false if it has not.
    pub(super) fn puts_off(&mut self, step: &Step) -> bool {
        let named = step.what.names().find_map(|frame| self.named.get(&frame));
        let own = step.what.is_request().then_some(step.pid);
        let behind = named.map(|named| named.behind).or(own);
        let Some(waiter) = behind.and_then(|pid| self.of(pid)) else { return false };
        let behind = waiter.pid;
        waiter.later.push_back(*step);
        for frame in step.what.names() {
            self.named.entry(frame).or_insert(Named { behind, count: 0 }).count += 1;
        }
        true
    }

    /// Takes the next of the steps that were put off.
    pub(super) fn take_up(&mut self, later: &mut VecDeque<Step>) -> Option<Step> {
        let step = later.pop_front()?;
        for frame in step.what.names() {
            let named = self.named.get_mut(&frame).expect("it was named when it was put off");
            named.count -= 1;
            if named.count == 0 {
                self.named.remove(&frame);
            }
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use nofrag::page::{
        FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig, PageRequest,
        ZoneKind,
    };
    use nofrag::units::{Nanos, Order, PageCount};

    use super::super::request::Use;
    use super::super::step::{By, What};
    use super::*;

    fn request(order: Order) -> Request {
        Request {
            order,
            migratetype: Migratetype::Movable,
            zone: ZoneKind::Movable,
            flags: RequestFlags::NONE,
            used: Use::Movable,
            node: None,
        }
    }

    fn step(pid: i32, what: What) -> Step {
        Step { at: 0, cpu: 0, pid, what }
    }

    fn page(pid: i32, frame: FrameIndex) -> Step {
        step(pid, What::Alloc { frame, request: request(Order::ZERO), place: None })
    }

    fn free(frame: FrameIndex) -> Step {
        step(0, What::Free { frame, by: By::User })
    }

    /// Processes that wait, in the order of `pids`, each with its number as its time.
    fn waiting(pids: &[i32]) -> Waiting {
        let map = MemoryMap::uma(PageCount(1 << 12), 0, 1).expect("a map");
        let cpu = map.cpus().by_rank(0).expect("it has a CPU");
        let config = PageConfig::new(map, FragmentationPolicy::LINUX_6_1);
        let mut pages = PageAllocator::new(&config).expect("an allocator");
        let mut waiting = Waiting::default();
        while pages.alloc(Nanos(0), cpu, PageRequest::user(Order::ZERO)).is_ok() {}
        for &pid in pids {
            let wanted = PageRequest::user(Order::PAGEBLOCK);
            let attempt = pages.alloc(Nanos(0), cpu, wanted).expect_err("nothing is free");
            waiting.push(Waiter {
                pid,
                cpu,
                at: pid as u64,
                request: request(Order::PAGEBLOCK),
                attempt: Box::new(attempt),
                next: None,
                place: None,
                then: Then::StandIn { place: None },
                later: VecDeque::new(),
            });
        }
        waiting
    }

    #[test]
    fn requests_of_a_process_wait_behind_its_own_and_others_go_on() {
        let mut waiting = waiting(&[7, 3]);
        assert_eq!(waiting.next(), Some((1, 3)));
        assert!(waiting.puts_off(&page(7, 10)));
        assert!(waiting.puts_off(&step(7, What::PlaceEnds { of: 1 })));
        assert!(!waiting.puts_off(&page(8, 11)), "it does not wait");
        assert!(!waiting.puts_off(&step(7, What::Free { frame: 12, by: By::User })), "no request");
        let mut waiter = waiting.take(0);
        assert_eq!(waiter.later.len(), 2);
        assert_eq!(waiting.take_up(&mut waiter.later), Some(page(7, 10)));
        assert!(!waiting.puts_off(&page(7, 13)), "it waits no more");
    }

    #[test]
    fn steps_that_name_a_frame_stay_in_order() {
        let mut waiting = waiting(&[7, 3]);
        assert!(!waiting.puts_off(&free(10)));
        assert!(waiting.puts_off(&page(7, 10)));
        assert!(waiting.puts_off(&free(10)), "not before it is there");
        assert!(waiting.puts_off(&page(3, 10)), "behind the process that had the frame before");
        let split = step(0, What::Split { frame: 8, from: Order::COSTLY, to: Order::ZERO });
        assert!(waiting.puts_off(&split), "a block around it");
        let mut later = waiting.take(0).later;
        assert_eq!(later, [page(7, 10), free(10), page(3, 10), split]);
        for _ in 0..4 {
            assert!(waiting.take_up(&mut later).is_some());
        }
        assert!(waiting.named.is_empty());
        assert!(!waiting.puts_off(&free(10)));
        assert!(waiting.puts_off(&page(3, 10)), "now as a request of its own process");
    }
}
