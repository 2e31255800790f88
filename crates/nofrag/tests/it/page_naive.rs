//! Sets and lists of free blocks under the same requests as a page allocator: too simple to be wrong, and slow.
//!
//! Nothing is linked, counted or remembered: free blocks are a map from frame to order, the lists are vectors in order,
//! and each question is answered by looking at all of them. It knows the fast path, what requests that may not wait do
//! after it, and per-CPU lists of single pages; reclaim and compaction it leaves to others. The rules are those of the
//! kernels' documents, not those of the allocator beside it. The tests and the fuzzer use it alike.

use nofrag::page::{
    FallbackRules, Fixes, FragmentationPolicy, MAX_NODES, MemoryMap, Migratetype, NodeMap,
    PageRequest, PerCpuRules, Relist, RequestFlags, Spread, ZoneKind, ZoneMap,
};
use std::collections::BTreeMap;

pub(crate) const BLOCK: u64 = 512;

/// A free block of the buddy lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeBlock {
    pub(crate) zone: usize,
    pub(crate) order: u8,
    /// The type of its list.
    pub(crate) list: Migratetype,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) order: u8,
    pub(crate) movable: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct NaiveZone {
    pub(crate) node: usize,
    pub(crate) kind: ZoneKind,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) managed: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) boost: u64,
    pub(crate) reserve: [u64; ZoneKind::COUNT],
}

/// The fields of an external fragmentation event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NaiveEvent {
    pub(crate) pfn: u64,
    pub(crate) zone: usize,
    pub(crate) alloc_order: u8,
    pub(crate) fallback_order: u8,
    pub(crate) alloc: Migratetype,
    pub(crate) fallback: Migratetype,
    pub(crate) change_ownership: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NaiveCounts {
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    pub(crate) mistyped: u64,
    pub(crate) boosts: u64,
    pub(crate) spread_given_up: u64,
}

/// The limits of a pass over the zonelist: the watermark that it respects, and `no_fragment` where types must not mix.
#[derive(Clone, Copy, Debug)]
struct Pass {
    mark: Floor,
    no_fragment: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    Low,
    Min,
}

/// Depth to which a bulk refill has sunk under strict lists; it never rises but after a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Own,
    Steal,
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    pub(crate) policy: FragmentationPolicy,
    pub(crate) zones: Vec<NaiveZone>,
    /// For each node its zones and those of others, best first.
    pub(crate) zonelists: Vec<Vec<usize>>,
    cpu_nodes: BTreeMap<u32, usize>,
    /// The types of pageblocks, by number.
    pub(crate) types: BTreeMap<u64, Migratetype>,
    /// Free blocks, by first frame.
    pub(crate) free: BTreeMap<u64, FreeBlock>,
    /// First frames of free blocks, the next to be taken first: by zone, order, type.
    pub(crate) lists: BTreeMap<(usize, u8, Migratetype), Vec<u64>>,
    /// Single pages, the next to be taken first: by zone and CPU, for each type.
    pub(crate) per_cpu: BTreeMap<(usize, u32), [Vec<u64>; 3]>,
    /// Under loose lists, the type of the list to which each page of a per-CPU list goes back.
    goes_back: BTreeMap<u64, Migratetype>,
    /// Blocks in use, by first frame.
    pub(crate) held: BTreeMap<u64, Held>,
    pub(crate) events: Vec<NaiveEvent>,
    pub(crate) counts: NaiveCounts,
    grouping: bool,
}

/// Settings for the pages that are kept free, as the machine was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// Reserve of all zones, `min_free_kbytes`, in pages.
    pub(crate) min_pages: u64,
    /// `watermark_scale_factor`, in 1/10000 of a zone.
    pub(crate) scale_factor: u64,
    pub(crate) ratio: [u64; ZoneKind::COUNT],
}

/// Returns the frames of a zone that may be handed out: those outside holes and reserved ranges.
fn managed(zone: &ZoneMap) -> Vec<u64> {
    let gone = |pfn: u64| {
        let within = |range: &nofrag::page::PfnRange| {
            range.start.0 <= pfn && pfn - range.start.0 < range.pages.0
        };
        zone.holes.iter().chain(&zone.reserved).any(within)
    };
    (0..zone.span.pages.0).map(|n| zone.span.start.0 + n).filter(|&pfn| !gone(pfn)).collect()
}

fn is_low(kind: ZoneKind) -> bool {
    matches!(kind, ZoneKind::Dma | ZoneKind::Dma32 | ZoneKind::Normal)
}

impl Naive {
    /// Returns the model of a machine whose memory is all free.
    pub(crate) fn new(map: &MemoryMap, policy: FragmentationPolicy, marks: Marks) -> Naive {
        let mut model = Naive {
            policy,
            zones: Vec::new(),
            zonelists: Vec::new(),
            cpu_nodes: BTreeMap::new(),
            types: BTreeMap::new(),
            free: BTreeMap::new(),
            lists: BTreeMap::new(),
            per_cpu: BTreeMap::new(),
            goes_back: BTreeMap::new(),
            held: BTreeMap::new(),
            events: Vec::new(),
            counts: NaiveCounts::default(),
            grouping: true,
        };
        for (node, of) in map.nodes().iter().enumerate() {
            model.cpu_nodes.extend(of.cpus.iter().map(|&cpu| (cpu, node)));
            let mut zones: Vec<&ZoneMap> = of.zones.iter().collect();
            zones.sort_by_key(|zone| zone.kind);
            zones.into_iter().for_each(|zone| model.add_zone(node, zone));
        }
        model.set_marks(marks);
        model.zonelists = zonelists(map, &model.zones);
        let beyond: u64 =
            model.zones.iter().map(|zone| zone.managed.saturating_sub(zone.high)).sum();
        model.grouping = beyond >= BLOCK * Migratetype::COUNT as u64;
        model
    }

    fn add_zone(&mut self, node: usize, map: &ZoneMap) {
        let number = self.zones.len();
        let frames = managed(map);
        self.zones.push(NaiveZone {
            node,
            kind: map.kind,
            start: map.span.start.0,
            end: map.span.end().0,
            managed: frames.len() as u64,
            min: 0,
            low: 0,
            high: 0,
            boost: 0,
            reserve: [0; ZoneKind::COUNT],
        });
        let mut rest = &frames[..];
        while let Some(&first) = rest.first() {
            // The largest aligned block that begins here; the lists ascend.
            let whole = |&order: &u8| {
                let pages = 1_u64 << order;
                let last = rest.get(pages as usize - 1);
                first.is_multiple_of(pages) && last == Some(&(first + pages - 1))
            };
            let order = (0..=10).rev().find(whole).expect("a page is a block");
            let block = FreeBlock { zone: number, order, list: Migratetype::Movable };
            self.free.insert(first, block);
            self.lists.entry((number, order, Migratetype::Movable)).or_default().push(first);
            rest = &rest[1 << order..];
        }
    }

    /// Sets watermarks and reserves of all zones; boosts end.
    fn set_marks(&mut self, marks: Marks) {
        let low_pages: u64 =
            self.zones.iter().filter(|zone| is_low(zone.kind)).map(|zone| zone.managed).sum();
        let zones = self.zones.clone();
        for zone in &mut self.zones {
            let share = marks.min_pages * zone.managed / low_pages.max(1);
            let gap = (share / 4).max(zone.managed * marks.scale_factor / 10_000);
            zone.min = if is_low(zone.kind) { share } else { (zone.managed / 1024).clamp(32, 128) };
            zone.low = zone.min + gap;
            zone.high = zone.low + gap;
            zone.boost = 0;
            let ratio = marks.ratio[zone.kind.index()];
            for highest in zone.kind.index() + 1..ZoneKind::COUNT {
                let between = |other: &&NaiveZone| {
                    other.node == zone.node
                        && other.kind > zone.kind
                        && other.kind.index() <= highest
                };
                let above: u64 = zones.iter().filter(between).map(|other| other.managed).sum();
                let kept = ratio != 0 && zone.managed != 0;
                zone.reserve[highest] = if kept { above / ratio } else { 0 };
            }
        }
    }

    /// Returns the free pages of a zone, those of per-CPU lists not included.
    pub(crate) fn free_pages(&self, zone: usize) -> u64 {
        self.free.values().filter(|block| block.zone == zone).map(|block| 1 << block.order).sum()
    }

    /// Returns the number of free blocks of an order and type in a zone.
    pub(crate) fn free_blocks(&self, zone: usize, order: u8, list: Migratetype) -> u64 {
        self.lists.get(&(zone, order, list)).map_or(0, |list| list.len() as u64)
    }

    /// Returns the type of a frame's pageblock.
    pub(crate) fn type_of(&self, pfn: u64) -> Migratetype {
        self.types.get(&(pfn / BLOCK)).copied().unwrap_or(Migratetype::Movable)
    }

    fn retype(&mut self, pfn: u64, order: u8, to: Migratetype) {
        for number in pfn / BLOCK..(pfn + (1_u64 << order)).div_ceil(BLOCK) {
            self.types.insert(number, to);
        }
    }

    fn zone_of(&self, pfn: u64) -> usize {
        let has = |zone: &NaiveZone| zone.start <= pfn && pfn < zone.end;
        self.zones.iter().position(has).expect("the frame lies in a zone")
    }

    /// Returns the number of free blocks on lists of a type that their pageblock does not have.
    pub(crate) fn list_mismatches(&self) -> usize {
        self.free.iter().filter(|(pfn, block)| self.type_of(**pfn) != block.list).count()
    }
}

// The lists.
impl Naive {
    fn first(&self, zone: usize, order: u8, list: Migratetype) -> Option<u64> {
        self.lists.get(&(zone, order, list))?.first().copied()
    }

    fn insert(&mut self, zone: usize, pfn: u64, order: u8, list: Migratetype, end: Relist) {
        self.free.insert(pfn, FreeBlock { zone, order, list });
        let frames = self.lists.entry((zone, order, list)).or_default();
        let at = if end == Relist::Head { 0 } else { frames.len() };
        frames.insert(at, pfn);
    }

    fn remove(&mut self, pfn: u64) -> FreeBlock {
        let block = self.free.remove(&pfn).expect("it is free");
        let list = self.lists.get_mut(&(block.zone, block.order, block.list));
        list.expect("it is listed").retain(|&other| other != pfn);
        block
    }

    fn relist(&mut self, pfn: u64, list: Migratetype) {
        let block = self.remove(pfn);
        self.insert(block.zone, pfn, block.order, list, self.policy.relist);
    }

    fn is_strict(&self) -> bool {
        self.policy.fallback != FallbackRules::Loose
    }

    fn is_free(&self, zone: usize, pfn: u64, order: u8) -> bool {
        self.free.get(&pfn).is_some_and(|block| block.zone == zone && block.order == order)
    }

    /// Frees a block into the lists of a zone.
    fn free_block(&mut self, zone: usize, pfn: u64, order: u8) {
        if self.is_strict() && order == 10 && self.type_of(pfn) != self.type_of(pfn + BLOCK) {
            self.free_block(zone, pfn, 9);
            self.free_block(zone, pfn + BLOCK, 9);
            return;
        }
        self.free_block_as(zone, pfn, order, self.type_of(pfn));
    }

    /// Frees a block into the lists of this type.
    fn free_block_as(&mut self, zone: usize, pfn: u64, order: u8, list: Migratetype) {
        let (mut pfn, mut order) = (pfn, order);
        while order < 10 {
            let buddy = pfn ^ (1 << order);
            if !self.is_free(zone, buddy, order) {
                break;
            }
            let other = self.type_of(buddy);
            if order >= 9 && other != list {
                if !(other.is_mobility() && list.is_mobility()) {
                    break;
                }
                if self.is_strict() {
                    self.retype(buddy, order, list);
                }
            }
            self.remove(buddy);
            pfn = pfn.min(buddy);
            order += 1;
        }
        let parent = pfn & !((2 << order) - 1);
        let likely = order < 9 && self.is_free(zone, parent ^ (2 << order), order + 1);
        self.insert(zone, pfn, order, list, if likely { Relist::Tail } else { Relist::Head });
    }

    /// Takes a free block out and cuts it to `order`; the rest goes to the lists of `list`.
    fn take(&mut self, pfn: u64, order: u8, list: Migratetype) -> u64 {
        let block = self.remove(pfn);
        for half in (order..block.order).rev() {
            self.insert(block.zone, pfn + (1 << half), half, list, Relist::Head);
        }
        pfn
    }

    fn take_smallest(&mut self, zone: usize, order: u8, list: Migratetype) -> Option<u64> {
        let pfn = (order..=10).find_map(|o| self.first(zone, o, list))?;
        Some(self.take(pfn, order, list))
    }
}

// Fallback.
impl Naive {
    fn fallback(&self, zone: usize, order: u8, start: Migratetype) -> Option<(u64, Migratetype)> {
        let of = |list: &Migratetype| Some((self.first(zone, order, *list)?, *list));
        start.fallbacks().iter().find_map(of)
    }

    fn can_steal(&self, order: u8, start: Migratetype) -> bool {
        order >= 4 || start != Migratetype::Movable || !self.grouping
    }

    /// Returns the least order of a free block that a request may take from another type in this pass.
    fn least_order(&self, order: u8, pass: Pass) -> u8 {
        // Kernels with strict lists have the guard.
        let guarded = self.is_strict() || self.policy.fixes.has(Fixes::ORDER_GUARD);
        if pass.no_fragment && !(guarded && order >= 9) { 9 } else { order }
    }

    /// Returns the first frames of the free blocks in the frame's pageblock; `None` if the zone does not hold all of
    /// it.
    fn free_of_block(&self, zone: usize, pfn: u64) -> Option<Vec<u64>> {
        let start = pfn / BLOCK * BLOCK;
        let NaiveZone { start: first, end, .. } = self.zones[zone];
        if start < first || end < start + BLOCK {
            return None;
        }
        Some(self.free.range(start..start + BLOCK).map(|(&pfn, _)| pfn).collect())
    }

    /// Returns true if enough of the pageblock is free or suits the type.
    fn claims(&self, pfn: u64, start: Migratetype) -> bool {
        let first = pfn / BLOCK * BLOCK;
        let pages = |order: u8| 1_u64 << order;
        let free: u64 =
            self.free.range(first..first + BLOCK).map(|(_, block)| pages(block.order)).sum();
        let in_block = self.held.range(first..first + BLOCK);
        let movable: u64 =
            in_block.filter(|(_, held)| held.movable).map(|(_, held)| pages(held.order)).sum();
        let alike = if start == Migratetype::Movable {
            movable
        } else if self.type_of(pfn) == Migratetype::Movable {
            BLOCK - free - movable
        } else {
            0
        };
        !self.grouping || free + alike >= BLOCK / 2
    }

    fn boost(&mut self, zone: usize) {
        let Some(boost) = self.policy.boost else { return };
        let fixes = self.policy.fixes;
        let zone = &mut self.zones[zone];
        let exempt = boost.factor == 0
            || fixes.has(Fixes::EARLY_BOOT) && zone.high == 0
            || fixes.has(Fixes::SMALL_ZONE) && 4 * BLOCK > zone.managed;
        if !exempt {
            let most = BLOCK.max(zone.high * u64::from(boost.factor) / 10_000);
            let to = (zone.boost + BLOCK).min(most);
            self.counts.boosts += u64::from(to != zone.boost);
            zone.boost = to;
        }
    }

    fn tell(&mut self, found: (u64, u8, Migratetype), zone: usize, request: (u8, Migratetype)) {
        let (pfn, fallback_order, fallback) = found;
        let (alloc_order, alloc) = request;
        let change_ownership = self.type_of(pfn) == alloc;
        self.events.push(NaiveEvent {
            pfn,
            zone,
            alloc_order,
            fallback_order,
            alloc,
            fallback,
            change_ownership,
        });
    }

    /// Brings a block of another type to the lists of `start`, as 4.20 to 6.9 do. Returns true if there was one.
    fn fall_back_loosely(
        &mut self,
        zone: usize,
        order: u8,
        start: Migratetype,
        pass: Pass,
    ) -> bool {
        let at =
            |model: &Naive, o: u8| model.fallback(zone, o, start).map(|(pfn, list)| (pfn, o, list));
        let least = self.least_order(order, pass);
        let Some(mut found) = (least..=10).rev().find_map(|o| at(self, o)) else { return false };
        if !self.can_steal(found.1, start) && found.1 > order {
            found = (order..=10).find_map(|o| at(self, o)).expect("there is one at least");
        }
        let (pfn, fallback_order, _) = found;
        if self.type_of(pfn) == Migratetype::HighAtomic {
            self.relist(pfn, start);
        } else if fallback_order >= 9 {
            self.retype(pfn, fallback_order, start);
            self.relist(pfn, start);
        } else {
            self.boost(zone);
            let whole = self.can_steal(fallback_order, start);
            match self.free_of_block(zone, pfn).filter(|_| whole) {
                None => self.relist(pfn, start),
                Some(all) => {
                    let claimed = self.claims(pfn, start);
                    all.into_iter().for_each(|pfn| self.relist(pfn, start));
                    if claimed {
                        self.retype(pfn, 0, start);
                    }
                }
            }
        }
        self.tell(found, zone, (order, start));
        true
    }

    /// Makes the pageblock of `found` one of type `start` and takes from it, under strict lists; `None` if it may not
    /// be claimed.
    fn claim(
        &mut self,
        zone: usize,
        found: (u64, u8, Migratetype),
        order: u8,
        start: Migratetype,
    ) -> Option<u64> {
        let (pfn, fallback_order, _) = found;
        if fallback_order >= 9 {
            self.retype(pfn, fallback_order, start);
            self.take(pfn, order, start);
            self.tell(found, zone, (order, start));
            return Some(pfn);
        }
        self.boost(zone);
        let all = self.free_of_block(zone, pfn)?;
        if !self.claims(pfn, start) {
            return None;
        }
        self.retype(pfn, 0, start);
        all.into_iter().for_each(|pfn| self.relist(pfn, start));
        self.tell(found, zone, (order, start));
        self.take_smallest(zone, order, start)
    }

    /// Takes one block and leaves the rest to its own type, under strict lists.
    fn steal(
        &mut self,
        zone: usize,
        found: (u64, u8, Migratetype),
        order: u8,
        start: Migratetype,
    ) -> u64 {
        let page = self.take(found.0, order, found.2);
        self.tell(found, zone, (order, start));
        page
    }

    /// Falls back as the first form of 6.10 did: claims the block that the largest-first scan finds, or else breaks it.
    fn fall_back_first(
        &mut self,
        zone: usize,
        order: u8,
        start: Migratetype,
        pass: Pass,
    ) -> Option<u64> {
        let at =
            |model: &Naive, o: u8| model.fallback(zone, o, start).map(|(pfn, list)| (pfn, o, list));
        let least = self.least_order(order, pass);
        let mut found = (least..=10).rev().find_map(|o| at(self, o))?;
        if !self.can_steal(found.1, start) && found.1 > order {
            found = (order..=10).find_map(|o| at(self, o)).expect("there is one at least");
        }
        if self.can_steal(found.1, start) {
            if let Some(page) = self.claim(zone, found, order, start) {
                return Some(page);
            }
        } else {
            self.boost(zone);
        }
        Some(self.steal(zone, found, order, start))
    }

    /// Falls back as 6.12 and later do: claims the largest block that allows it, else steals from the smallest.
    fn fall_back_strictly(
        &mut self,
        zone: usize,
        order: u8,
        start: Migratetype,
        pass: Pass,
        depth: &mut Depth,
    ) -> Option<u64> {
        let at =
            |model: &Naive, o: u8| model.fallback(zone, o, start).map(|(pfn, list)| (pfn, o, list));
        if *depth == Depth::Own {
            for o in (self.least_order(order, pass)..=10).rev() {
                let Some(found) = at(self, o) else { continue };
                if !self.can_steal(o, start) {
                    break;
                }
                if let Some(page) = self.claim(zone, found, order, start) {
                    return Some(page);
                }
            }
        }
        if pass.no_fragment {
            return None;
        }
        let found = (order..=10).find_map(|o| at(self, o))?;
        *depth = Depth::Steal;
        Some(self.steal(zone, found, order, start))
    }

    /// Takes a block from a zone's lists, those of other types included.
    fn take_any(
        &mut self,
        zone: usize,
        order: u8,
        start: Migratetype,
        pass: Pass,
        depth: &mut Depth,
    ) -> Option<u64> {
        loop {
            if *depth == Depth::Own
                && let Some(page) = self.take_smallest(zone, order, start)
            {
                return Some(page);
            }
            match self.policy.fallback {
                FallbackRules::Loose => {
                    if !self.fall_back_loosely(zone, order, start, pass) {
                        return None;
                    }
                }
                FallbackRules::StrictFirst => {
                    return self.fall_back_first(zone, order, start, pass);
                }
                FallbackRules::Strict => {
                    return self.fall_back_strictly(zone, order, start, pass, depth);
                }
                rules => panic!("the model does not know {rules:?}"),
            }
        }
    }
}

// Per-CPU lists of single pages.
impl Naive {
    /// Returns the number of pages that move between the buddy lists and those of a CPU at once.
    fn batch(&self, zone: usize) -> u64 {
        let quarter = (self.zones[zone].managed / 1024).min(256) / 4;
        let wanted = (quarter + quarter / 2).max(1);
        ((1 << wanted.ilog2()) - 1).max(1)
    }

    fn take_single(
        &mut self,
        cpu: u32,
        zone: usize,
        start: Migratetype,
        pass: Pass,
    ) -> Option<u64> {
        let lists = self.per_cpu.entry((zone, cpu)).or_default();
        if lists[start.index()].is_empty() {
            let mut depth = Depth::Own;
            for _ in 0..self.batch(zone) {
                let Some(page) = self.take_any(zone, 0, start, pass, &mut depth) else { break };
                self.per_cpu.entry((zone, cpu)).or_default()[start.index()].push(page);
                let cma = self.type_of(page) == Migratetype::Cma;
                self.goes_back.insert(page, if cma { Migratetype::Cma } else { start });
            }
        }
        let list = &mut self.per_cpu.entry((zone, cpu)).or_default()[start.index()];
        (!list.is_empty()).then(|| list.remove(0))
    }

    fn free_single(&mut self, cpu: u32, zone: usize, pfn: u64) {
        let of = self.type_of(pfn);
        let list = if of.is_mobility() { of } else { Migratetype::Movable };
        let lists = self.per_cpu.entry((zone, cpu)).or_default();
        lists[list.index()].insert(0, pfn);
        self.goes_back.insert(pfn, of);
        let count: usize = lists.iter().map(Vec::len).sum();
        let batch = self.batch(zone);
        if count as u64 >= 6 * batch {
            self.drain_oldest(cpu, zone, batch);
        }
    }

    /// Gives the oldest pages back: from each type in turn a page, and one more for each empty list before it.
    fn drain_oldest(&mut self, cpu: u32, zone: usize, pages: u64) {
        let mut left = pages;
        let mut turn = 0;
        while left > 0 {
            let lists = self.per_cpu.entry((zone, cpu)).or_default();
            let Some(passed) = (1..=3).find(|n| !lists[(turn + n) % 3].is_empty()) else { return };
            turn = (turn + passed) % 3;
            for _ in 0..if passed == 3 { left } else { left.min(passed as u64) } {
                let lists = self.per_cpu.entry((zone, cpu)).or_default();
                let Some(pfn) = lists[turn].pop() else { break };
                left -= 1;
                let goes_back = self.goes_back.remove(&pfn).expect("it was listed");
                let list = if self.is_strict() { self.type_of(pfn) } else { goes_back };
                self.free_block_as(zone, pfn, 0, list);
            }
        }
    }

    /// Gives a whole zone's pages of a CPU back, type by type.
    fn drain_all(&mut self, cpu: u32, zone: usize) {
        for list in 0..3 {
            while let Some(pfn) = self.per_cpu.entry((zone, cpu)).or_default()[list].pop() {
                let goes_back = self.goes_back.remove(&pfn).expect("it was listed");
                let list = if self.is_strict() { self.type_of(pfn) } else { goes_back };
                self.free_block_as(zone, pfn, 0, list);
            }
        }
    }

    /// Gives all pages of a CPU's lists back.
    pub(crate) fn drain(&mut self, cpu: u32) {
        for zone in 0..self.zones.len() {
            self.drain_all(cpu, zone);
        }
    }
}

// Requests.
impl Naive {
    fn can_wait(request: &PageRequest) -> bool {
        request.flags.has(RequestFlags::DIRECT_RECLAIM)
    }

    /// Returns the zones that the request may use, best first.
    fn allowed(&self, cpu: u32, request: &PageRequest) -> Vec<usize> {
        let node = request.node.map_or_else(|| self.cpu_nodes[&cpu], |node| node.index());
        let here_only = request.flags.has(RequestFlags::THIS_NODE);
        let may = |zone: &usize| {
            let zone = &self.zones[*zone];
            zone.kind <= request.zone
                && request.nodes.has(nofrag::page::NodeId(zone.node as u8))
                && (!here_only || zone.node == node)
        };
        self.zonelists[node].iter().copied().filter(may).collect()
    }

    fn is_above(&self, zone: usize, request: &PageRequest, floor: Floor, boosted: bool) -> bool {
        let of = &self.zones[zone];
        let order = request.order.get();
        let pages = |list: &Migratetype| -> i64 {
            (0..=10).map(|o| (self.free_blocks(zone, o, *list) << o) as i64).sum()
        };
        let urgent = floor == Floor::Min && request.flags.has(RequestFlags::HIGH);
        let reserves = urgent && !Naive::can_wait(request) && order > 0;
        let may_cma = request.flags.has(RequestFlags::CMA);
        let mut free = self.free_pages(zone) as i64 - ((1_i64 << order) - 1);
        if !reserves {
            free -= pages(&Migratetype::HighAtomic);
        }
        if !may_cma {
            free -= pages(&Migratetype::Cma);
        }
        let mark = if floor == Floor::Low { of.low } else { of.min };
        let mut min = (mark + if boosted { of.boost } else { 0 }) as i64;
        if urgent {
            min -= min / 2;
            if !Naive::can_wait(request) {
                min -= min / 4;
            }
        }
        if free <= min + of.reserve[request.zone.index()] as i64 {
            return false;
        }
        let usable = |list: &Migratetype| match list {
            Migratetype::HighAtomic => reserves,
            Migratetype::Cma => may_cma,
            Migratetype::Isolate => false,
            _ => true,
        };
        let usable: Vec<_> = Migratetype::ALL.into_iter().filter(usable).collect();
        let fits = |o: u8| usable.iter().any(|list| self.free_blocks(zone, o, *list) > 0);
        order == 0 || (order..=10).any(fits)
    }

    fn spreads(&self, allowed: &[usize]) -> bool {
        let Some(&preferred) = allowed.first() else { return false };
        let preferred = &self.zones[preferred];
        let nodes = self.zonelists.len();
        let kinds = |kind| self.zones.iter().any(move |zone| zone.kind == kind);
        let configured =
            kinds(ZoneKind::Dma32) || self.policy.fixes.has(Fixes::SPREAD_WITHOUT_DMA32);
        let below = |zone: &NaiveZone| {
            zone.node == preferred.node && zone.kind == ZoneKind::Dma32 && zone.managed > 0
        };
        match self.policy.spread {
            Spread::Off | Spread::Lost => false,
            Spread::EveryRequest => configured,
            Spread::FastPath => {
                let normal = preferred.kind == ZoneKind::Normal;
                configured && normal && (nodes == 1 || self.zones.iter().any(below))
            }
            rules => panic!("the model does not know {rules:?}"),
        }
    }

    /// Makes a pass over the zonelist, and another one where `no_fragment` has to be given up. Returns the block's
    /// first frame.
    fn walk(&mut self, cpu: u32, request: &PageRequest, mut pass: Pass) -> Option<u64> {
        let allowed = self.allowed(cpu, request);
        let &preferred = allowed.first()?;
        let sticky = self.policy.spread == Spread::EveryRequest;
        'pass: loop {
            for &zone in &allowed {
                let remote = self.zones[zone].node != self.zones[preferred].node;
                if remote && pass.no_fragment && !sticky {
                    pass.no_fragment = false;
                    self.counts.spread_given_up += 1;
                    continue 'pass;
                }
                let (order, start) = (request.order.get(), request.migratetype);
                if !self.is_above(zone, request, pass.mark, true) {
                    let fixes = self.policy.fixes;
                    let urgent = request.flags.has(RequestFlags::HIGH) && order == 0;
                    let retest = fixes.has(Fixes::HIGH_RETEST)
                        || fixes.has(Fixes::ATOMIC_RETEST) && !Naive::can_wait(request);
                    let again = pass.mark == Floor::Min && urgent && retest;
                    if !again || !self.is_above(zone, request, pass.mark, false) {
                        continue;
                    }
                }
                let page = if order == 0 {
                    assert_eq!(self.policy.per_cpu, PerCpuRules::Single, "the model knows these");
                    self.take_single(cpu, zone, start, pass)
                } else {
                    self.take_any(zone, order, start, pass, &mut Depth::Own)
                };
                if page.is_some() {
                    return page;
                }
            }
            if !pass.no_fragment || sticky {
                return None;
            }
            pass.no_fragment = false;
            self.counts.spread_given_up += 1;
        }
    }

    /// Takes the block that the fast path hands out.
    pub(crate) fn alloc(&mut self, cpu: u32, request: &PageRequest) -> Option<u64> {
        let no_fragment = self.spreads(&self.allowed(cpu, request));
        let page = self.walk(cpu, request, Pass { mark: Floor::Low, no_fragment })?;
        self.hand_out(page, request);
        Some(page)
    }

    fn hand_out(&mut self, pfn: u64, request: &PageRequest) {
        let of = self.type_of(pfn);
        self.counts.allocations += 1;
        self.counts.mistyped += u64::from(of.is_mobility() && of != request.migratetype);
        let before = self.held.insert(pfn, Held { order: request.order.get(), movable: false });
        assert_eq!(before, None, "frame {pfn} was handed out twice");
    }

    /// Gives a block back that was handed out.
    pub(crate) fn free(&mut self, cpu: u32, pfn: u64) {
        let held = self.held.remove(&pfn).expect("it is in use");
        let zone = self.zone_of(pfn);
        self.counts.frees += 1;
        if held.order == 0 {
            self.free_single(cpu, zone, pfn);
        } else {
            self.free_block(zone, pfn, held.order);
        }
    }

    /// Says whether a block's content may be moved.
    pub(crate) fn set_movable(&mut self, pfn: u64, movable: bool) {
        self.held.get_mut(&pfn).expect("it is in use").movable = movable;
    }
}

/// Returns for each node the zones to try: its own from the highest down, then those of the other nodes, nearest first.
fn zonelists(map: &MemoryMap, zones: &[NaiveZone]) -> Vec<Vec<usize>> {
    let nodes = map.nodes();
    let has_memory = |node: usize| zones.iter().any(|zone| zone.node == node && zone.managed > 0);
    let mut load = vec![0_u64; nodes.len()];
    let mut lists = Vec::new();
    for local in 0..nodes.len() {
        let mut order = Vec::new();
        if has_memory(local) {
            order.push(local);
        }
        let mut left: Vec<usize> =
            (0..nodes.len()).filter(|&n| n != local && has_memory(n)).collect();
        let mut class = map.distance(node_id(local), node_id(local));
        while !left.is_empty() {
            let value = |n: usize| {
                let near = u64::from(map.distance(node_id(local), node_id(n)));
                let val = near + u64::from(n < local) + u64::from(has_cpus(&nodes[n]));
                val * MAX_NODES as u64 + load[n]
            };
            let best = *left.iter().min_by_key(|&&n| value(n)).expect("one is left");
            let distance = map.distance(node_id(local), node_id(best));
            if distance != class {
                load[best] += 1;
                class = distance;
            }
            order.push(best);
            left.retain(|&n| n != best);
        }
        let mut list = Vec::new();
        for node in order {
            let of = (0..zones.len()).rev();
            list.extend(of.filter(|&z| zones[z].node == node && zones[z].managed > 0));
        }
        lists.push(list);
    }
    lists
}

fn node_id(node: usize) -> nofrag::page::NodeId {
    nofrag::page::NodeId(node as u8)
}

fn has_cpus(node: &NodeMap) -> bool {
    !node.cpus.is_empty()
}
