//! Owners of pages: page cache, slab caches, a stream of short-lived blocks, and processes. They give pages back
//! ([`Reclaim`]) and let them be moved ([`Migrate`]) when the allocator asks.
//!
//! Reclaim can take pages of files, and inodes of files without pages that nobody has open, with the objects that
//! belong to them. Short-lived blocks go only by themselves, and process memory not at all, as the machine has no swap.
//! Compaction can move pages of files, dirty or not (XFS has an operation for it), and small pages of processes.
//!
//! A page just written is dirty until the disk has written it, one after the other in the order of writing. Reclaim
//! that may not write passes dirty pages by; else it writes them at the disk's cost. As writers wait for the disk at 20
//! % of memory, and the LRU list is in the same order, dirty pages are seldom at its end.

use std::collections::VecDeque;
use std::ops::Range;

use nofrag::cpu::CpuId;
use nofrag::page::{
    Lru as Walked, Migrate, Migratetype, PageRequest, Reclaim, ReclaimRequest, Reclaimed,
};
use nofrag::units::{Order, Pfn};

use super::Owns;
use super::cache::{FILE_PAGES, FilePart, Files};
use super::contents::{Contents, FrameNumber, Holds, LruZone};
use super::costs::Costs;
use super::heard::{Heard, Pages};
use super::load::Load;
use super::real::RealMemory;
use super::reclaim::{TakesBack, reclaim};
use super::slab::{SlabId, SlabKind, Slabs};
use crate::random::Random;

/// A need for memory, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A slab object for the file with this number.
    Part(u32, FilePart),
    /// A block that the kernel holds from the start on.
    Boot(Order, Migratetype),
    /// The block in which the kernel keeps track of pages that are being written to disk.
    Writeback,
    /// A directory entry without a file.
    SpareDentry,
    /// A page of a file, by its number among all pages of files.
    Page(u32),
    Transient(Order),
    /// A small page of a process.
    Base,
    Huge(PageRequest),
}

impl Want {
    fn slab(self) -> Option<SlabKind> {
        match self {
            Want::Part(_, part) => Some(part.slab()),
            Want::SpareDentry => Some(SlabKind::Dentry),
            _ => None,
        }
    }
}

/// All owners of pages together.
///
/// Always true:
/// 1. A page of a file in memory is in one frame, which holds that page, is on one LRU list once, and may be moved.
/// 2. A file with pages in memory has an inode and the objects that go with it, and one with several pages a radix
///    node.
/// 3. A file with an inode is on the list of inodes once.
#[derive(Debug)]
pub(crate) struct Owner {
    contents: Contents,
    files: Files,
    slabs: Slabs,
    /// Files with inodes, in no order.
    inodes: Vec<u32>,
    spare_dentries: Vec<SlabId>,
    transients: VecDeque<FrameNumber>,
    most_transients: usize,
    writeback: VecDeque<FrameNumber>,
    most_writeback: usize,
    /// First frame of each block of a process, by its place.
    process: Vec<FrameNumber>,
    disk: Disk,
    burst: u64,
    /// Pages reclaimed since the shrinker ran.
    owed: u64,
    walked: Walked,
    random: Random,
    costs: Costs,
    /// The CPU that works now; its lists get freed pages.
    cpu: CpuId,
    /// Virtual time spent since the last call of [`take_spent`](Owns::take_spent).
    spent: u64,
    /// Real memory behind the frames; `None` in a simulated run.
    pub(crate) memory: Option<RealMemory>,
    pub(crate) load: Load,
}

/// The queue of pages that wait to be written to disk.
#[derive(Debug)]
struct Disk {
    dirty: VecDeque<u32>,
    /// The time at which the first of them is written; when none waits, that of the last one.
    done: u64,
}

impl Owner {
    pub(crate) fn new(
        zones: &[LruZone],
        files: u32,
        load: Load,
        walked: Walked,
        costs: Costs,
        cpu: CpuId,
        random: Random,
    ) -> Owner {
        let mix = &load.mix;
        Owner {
            contents: Contents::new(zones, walked),
            files: Files::new(files),
            slabs: Slabs::new(mix.slab_orders),
            inodes: Vec::new(),
            spare_dentries: Vec::new(),
            transients: VecDeque::with_capacity(mix.transients + 1),
            most_transients: mix.transients,
            writeback: VecDeque::with_capacity(mix.writeback + 1),
            most_writeback: mix.writeback,
            process: Vec::new(),
            disk: Disk { dirty: VecDeque::new(), done: 0 },
            burst: mix.burst,
            owed: 0,
            walked,
            random,
            costs,
            cpu,
            spent: 0,
            memory: None,
            load,
        }
    }

    /// Returns the time at which no more than `limit` pages will be dirty; `None` if that is so now.
    pub(crate) fn written_at(&self, limit: u64) -> Option<u64> {
        let dirty = self.disk.dirty.len() as u64;
        let more = dirty.checked_sub(limit + 1)?;
        Some(self.disk.done + more * self.costs.disk_write)
    }

    /// Opens a file for one more thread; adds the objects that it lacks to `wants`, in reverse order of need.
    pub(crate) fn open(&mut self, number: u32, wants: &mut Vec<Want>) {
        let file = self.files.file_mut(number);
        file.users += 1;
        let parts = FilePart::OF_INODE.into_iter().chain([FilePart::Handle]);
        let missing = parts.filter(|&part| !file.has(part));
        let first = wants.len();
        wants.extend(missing.map(|part| Want::Part(number, part)));
        wants[first..].reverse();
    }

    /// Closes files for one thread.
    pub(crate) fn close(&mut self, pages: &mut Pages, files: Range<u32>) {
        for number in files {
            let file = self.files.file_mut(number);
            file.users -= 1;
            let handle = if file.users == 0 { file.take(FilePart::Handle) } else { None };
            if let Some(handle) = handle {
                self.give_back(pages, handle);
            }
            self.drop_unused_radix_node(pages, number);
        }
    }

    /// Adds to `wants` all that an access to a page of a file needs, in reverse order of need; nothing if the page is
    /// in memory.
    pub(crate) fn wants(&mut self, page: u32, random: &mut Random, wants: &mut Vec<Want>) {
        let file = page / FILE_PAGES;
        if let Some(frame) = self.files.frame(page) {
            // A read alone never brings a page into a younger generation.
            if self.walked == Walked::TwoLists {
                self.contents.touch(frame);
            }
            if let Some(memory) = &mut self.memory {
                memory.read_page(frame, page);
            }
            return;
        }
        let mix = &self.load.mix;
        if random.between(1, 1000) <= mix.transient_chance {
            wants.push(Want::Transient(transient_order(random)));
        }
        let more = u64::from(random.between(1, 1000) <= mix.extra_slab % 1000);
        for _ in 0..mix.extra_slab / 1000 + more {
            wants.push(Want::SpareDentry);
        }
        wants.push(Want::Page(page));
        // The first page of a file is found without a node.
        if !page.is_multiple_of(FILE_PAGES) && !self.files.file(file).has(FilePart::RadixNode) {
            wants.push(Want::Part(file, FilePart::RadixNode));
        }
    }

    /// Serves a want from a slab with room; returns false if it needs pages.
    pub(crate) fn at_hand(&mut self, want: Want) -> bool {
        let Some(slab) = want.slab().and_then(|kind| self.slabs.take(kind)) else { return false };
        self.spent += self.costs.object;
        self.give_object(want, slab);
        true
    }

    /// Returns the request to the allocator for a want.
    pub(crate) fn request(&self, want: Want) -> PageRequest {
        if let Some(kind) = want.slab() {
            return PageRequest::new(self.slabs.order(kind), kind.migratetype());
        }
        match want {
            Want::Transient(order) => PageRequest::new(order, Migratetype::Unmovable),
            Want::Boot(Order::ZERO, Migratetype::Movable) => PageRequest::user(Order::ZERO),
            Want::Boot(order, migratetype) => PageRequest::new(order, migratetype),
            Want::Writeback => PageRequest::new(WRITEBACK_ORDER, Migratetype::Unmovable),
            Want::Huge(request) => request,
            _ => PageRequest::user(Order::ZERO),
        }
    }

    /// Takes the block that was handed out for a want.
    pub(crate) fn fulfil(&mut self, pages: &mut Pages, want: Want, pfn: Pfn) {
        let frame = pfn.0 as FrameNumber;
        assert_eq!(self.contents.holds(frame), Holds::Nothing, "the frame was free");
        if let Some(memory) = &mut self.memory {
            match want {
                Want::Page(page) => memory.write_page(frame, page),
                Want::Base => memory.fault(frame, 1, self.process.len() as u32),
                Want::Huge(request) => {
                    memory.fault(frame, request.order.pages() as usize, self.process.len() as u32);
                }
                Want::Transient(order) | Want::Boot(order, _) => {
                    memory.take_block(frame, order.pages());
                }
                Want::Writeback => memory.take_block(frame, WRITEBACK_ORDER.pages()),
                Want::Part(..) | Want::SpareDentry => {
                    let kind = want.slab().expect("these are objects of slabs");
                    memory.take_block(frame, self.slabs.order(kind).pages());
                }
            }
        }
        if let Some(kind) = want.slab() {
            let slab = self.slabs.add(kind, frame);
            self.contents.set(frame, Holds::Slab(slab.0));
            self.give_object(want, slab);
            return;
        }
        match want {
            Want::Page(page) => {
                self.files.insert(page, frame);
                self.contents.add(frame, page);
                pages.set_movable(pfn, true).expect("it was just handed out");
            }
            Want::Boot(..) => self.contents.set(frame, Holds::Transient),
            Want::Writeback => {
                self.contents.set(frame, Holds::Transient);
                self.writeback.push_back(frame);
                while self.writeback.len() > self.most_writeback {
                    self.end_writeback(pages, 1);
                }
            }
            Want::Transient(_) => {
                self.contents.set(frame, Holds::Transient);
                self.transients.push_back(frame);
                if self.transients.len() > self.most_transients {
                    let oldest = self.transients.pop_front().expect("one was put in");
                    self.release(pages, oldest);
                }
            }
            Want::Base | Want::Huge(_) => {
                self.contents.process_comes();
                self.contents.set(frame, Holds::Process(self.process.len() as u32));
                self.process.push(frame);
                // A huge page stays: compaction does not take folios of its target's size apart.
                if want == Want::Base {
                    pages.set_movable(pfn, true).expect("it was just handed out");
                }
            }
            _ => unreachable!("slab objects were dealt with"),
        }
    }

    /// Marks a page in memory dirty, as it was written to at `now`.
    pub(crate) fn dirty(&mut self, page: u32, now: u64) {
        let frame = self.files.frame(page).expect("a page is in memory while it is written to");
        if self.contents.is_dirty(frame) {
            return;
        }
        self.contents.set_dirty(frame);
        if self.disk.dirty.is_empty() {
            self.disk.done = self.disk.done.max(now) + self.costs.disk_write;
        }
        self.disk.dirty.push_back(page);
    }

    /// Frees the memory of all processes.
    pub(crate) fn end_processes(&mut self, pages: &mut Pages) {
        if let Some(memory) = &mut self.memory {
            memory.end_of_process(&self.process);
        }
        for frame in std::mem::take(&mut self.process) {
            self.release(pages, frame);
        }
    }

    /// Frees the oldest blocks of pages under writeback, except for a few that stay on because a little of them is
    /// still in use.
    fn end_writeback(&mut self, pages: &mut Pages, blocks: usize) {
        for _ in 0..blocks {
            let Some(oldest) = self.writeback.pop_front() else { return };
            if self.random.between(1, self.costs.writeback_kept) == 1 {
                self.writeback.push_back(oldest);
            } else {
                self.release(pages, oldest);
            }
        }
    }

    /// Frees the blocks of pages under writeback when everything is written, except for a few that stay on.
    pub(crate) fn synced(&mut self, pages: &mut Pages) {
        self.end_writeback(pages, self.writeback.len());
    }

    /// Frees the last short-lived blocks.
    pub(crate) fn end_transients(&mut self, pages: &mut Pages) {
        let writeback = std::mem::take(&mut self.writeback);
        for frame in writeback.into_iter().chain(std::mem::take(&mut self.transients)) {
            self.release(pages, frame);
        }
    }

    /// Deletes every file, and drops the spare objects of slab caches.
    pub(crate) fn delete_files(&mut self, pages: &mut Pages) {
        for page in 0..self.files.len() * FILE_PAGES {
            if let Some(frame) = self.files.frame(page) {
                self.spent += self.costs.delete_page;
                self.drop_page(pages, frame, page);
            }
        }
        for file in std::mem::take(&mut self.inodes) {
            self.drop_inode(pages, file);
        }
        for dentry in std::mem::take(&mut self.spare_dentries) {
            self.give_back(pages, dentry);
        }
    }

    fn give_object(&mut self, want: Want, slab: SlabId) {
        match want {
            Want::Part(file, part) => {
                self.files.file_mut(file).put(part, slab);
                if part == FilePart::Inode {
                    self.inodes.push(file);
                }
            }
            Want::SpareDentry => self.spare_dentries.push(slab),
            _ => unreachable!("these are all that are objects"),
        }
    }

    fn release(&mut self, pages: &mut Pages, frame: FrameNumber) {
        self.contents.set(frame, Holds::Nothing);
        self.spent += self.costs.free;
        if let Some(memory) = &mut self.memory {
            memory.give_back(frame);
        }
        pages.free(self.cpu, Pfn(u64::from(frame))).expect("the owner frees what it was given");
    }

    /// Gives an object back to its slab; returns the number of pages that this freed.
    fn give_back(&mut self, pages: &mut Pages, object: SlabId) -> u64 {
        self.spent += self.costs.object;
        let Some((frame, order)) = self.slabs.give_back(object) else { return 0 };
        self.release(pages, frame);
        order.pages()
    }

    fn drop_page(&mut self, pages: &mut Pages, frame: FrameNumber, page: u32) {
        if let Some(memory) = &mut self.memory {
            memory.read_page(frame, page);
        }
        self.contents.remove(frame);
        self.files.remove(page);
        self.release(pages, frame);
        self.drop_unused_radix_node(pages, page / FILE_PAGES);
    }

    fn drop_unused_radix_node(&mut self, pages: &mut Pages, number: u32) {
        let file = self.files.file_mut(number);
        let unused = file.cached == 0 && file.users == 0;
        if unused && let Some(node) = file.take(FilePart::RadixNode) {
            self.give_back(pages, node);
        }
    }

    /// Frees the inode of a file that is off the list of inodes, and the objects that go with it; returns the number of
    /// pages that this freed.
    fn drop_inode(&mut self, pages: &mut Pages, number: u32) -> u64 {
        let objects = FilePart::OF_INODE.map(|part| self.files.file_mut(number).take(part));
        objects.into_iter().flatten().map(|object| self.give_back(pages, object)).sum()
    }

    /// Looks at some inodes and directory entries at random, and frees those that nobody needs; returns the number of
    /// pages that this freed.
    fn shrink_inodes(&mut self, pages: &mut Pages) -> u64 {
        let mut freed = 0;
        for _ in 0..(self.burst / 3).max(1) {
            let objects = self.inodes.len() + self.spare_dentries.len();
            if objects == 0 {
                break;
            }
            self.spent += self.costs.shrink_object;
            let index = self.random.index(objects);
            if let Some(spare) = index.checked_sub(self.inodes.len()) {
                let dentry = self.spare_dentries.swap_remove(spare);
                freed += self.give_back(pages, dentry);
                continue;
            }
            let file = self.files.file(self.inodes[index]);
            if file.cached == 0 && file.users == 0 {
                let file = self.inodes.swap_remove(index);
                freed += self.drop_inode(pages, file);
            }
        }
        freed
    }
}

impl Owns<Heard> for Owner {
    fn turn(&mut self, cpu: CpuId, now: u64) {
        self.cpu = cpu;
        while self.disk.done <= now {
            let Some(page) = self.disk.dirty.pop_front() else { break };
            if let Some(frame) = self.files.frame(page) {
                self.contents.set_clean(frame);
            }
            if !self.disk.dirty.is_empty() {
                self.disk.done += self.costs.disk_write;
            }
        }
    }

    fn take_spent(&mut self) -> u64 {
        std::mem::take(&mut self.spent)
    }
}

impl TakesBack<Heard> for Owner {
    fn reclaimable(&self, wanted: &ReclaimRequest) -> u64 {
        self.contents.cached(wanted)
    }

    fn oldest(&self, wanted: &ReclaimRequest) -> Option<FrameNumber> {
        self.contents.oldest(wanted)
    }

    fn take_back(&mut self, pages: &mut Pages, frame: FrameNumber, wanted: &ReclaimRequest) -> u64 {
        let Holds::Cache(page) = self.contents.holds(frame) else {
            unreachable!("only pages of files are on the LRU lists");
        };
        self.spent += self.costs.reclaim_scan;
        let dirty = self.contents.is_dirty(frame);
        if dirty && !wanted.may.write {
            self.contents.rotate(frame);
            return 0;
        }
        self.spent += self.costs.reclaim_page + if dirty { self.costs.disk_write } else { 0 };
        self.drop_page(pages, frame, page);
        1
    }

    fn shrink(&mut self, pages: &mut Pages, _: &ReclaimRequest, done: Reclaimed) -> u64 {
        self.owed += done.pages;
        let mut freed = 0;
        while self.owed >= self.burst {
            self.owed -= self.burst;
            freed += self.shrink_inodes(pages);
        }
        freed
    }
}

impl Reclaim<Heard> for Owner {
    fn reclaim(&mut self, pages: &mut Pages, wanted: ReclaimRequest) -> Reclaimed {
        reclaim(self, pages, &wanted)
    }
}

impl Migrate for Owner {
    fn migrate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        let (from, to) = (from.0 as FrameNumber, to.0 as FrameNumber);
        if order != Order::ZERO {
            return false;
        }
        match self.contents.holds(from) {
            Holds::Cache(page) => {
                self.contents.relocate(from, to);
                self.files.relocate(page, to);
            }
            Holds::Process(place) => {
                self.contents.set(from, Holds::Nothing);
                self.contents.set(to, Holds::Process(place));
                self.process[place as usize] = to;
            }
            Holds::Nothing | Holds::Slab(_) | Holds::Transient => return false,
        }
        if let Some(memory) = &mut self.memory {
            memory.relocate(from, to);
        }
        self.spent += self.costs.migrate_page;
        true
    }
}

/// The order of the blocks in which the kernel keeps track of pages under writeback: kernels' workers take such blocks.
const WRITEBACK_ORDER: Order = Order::COSTLY;

/// Draws the order of a short-lived block: five of eight are single pages; orders 1 to 3 share the rest.
fn transient_order(random: &mut Random) -> Order {
    let order = [0, 0, 0, 0, 0, 1, 2, 3][random.index(8)];
    Order::new(order).expect("it is below 10")
}

#[cfg(test)]
impl Owner {
    pub(crate) fn is_cached(&self, page: u32) -> bool {
        self.files.frame(page).is_some()
    }

    pub(crate) fn inodes(&self) -> usize {
        self.inodes.len()
    }

    /// Returns the number of blocks that pages under writeback hold.
    pub(crate) fn writeback(&self) -> usize {
        self.writeback.len()
    }

    /// Verifies every law; panics with the number of the broken one.
    pub(crate) fn check(&self, allocator: &Pages) {
        let listed = self.contents.listed();
        let mut times = vec![0u8; self.contents.frame_count()];
        listed.iter().for_each(|&frame| times[frame as usize] += 1);
        let mut cached = 0;
        for page in 0..self.files.len() * FILE_PAGES {
            let Some(frame) = self.files.frame(page) else { continue };
            cached += 1;
            assert_eq!(self.contents.holds(frame), Holds::Cache(page), "law 1");
            assert_eq!(times[frame as usize], 1, "law 1: page {page}");
            let file = self.files.file(page / FILE_PAGES);
            assert!(FilePart::OF_INODE.iter().all(|&part| file.has(part)), "law 2: page {page}");
            assert!(file.cached < 2 || file.has(FilePart::RadixNode), "law 2: page {page}");
        }
        assert_eq!(listed.len(), cached, "law 1");
        let mut inodes = self.inodes.clone();
        inodes.sort_unstable();
        let with_inode =
            (0..self.files.len()).filter(|&file| self.files.file(file).has(FilePart::Inode));
        assert!(with_inode.eq(inodes), "law 3");
        let held: u64 = SlabKind::ALL.iter().map(|&kind| self.slabs.pages(kind)).sum();
        let free: u64 = allocator.zones().map(|zone| zone.free.0).sum();
        let managed: u64 = allocator.zones().map(|zone| zone.managed.0).sum();
        assert!(free + held + cached as u64 <= managed, "no page is held twice");
    }
}
