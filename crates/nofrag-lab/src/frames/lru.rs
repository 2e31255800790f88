//! The two-list LRU beside a kernel's: the frames that reclaim takes, the sizes of its requests, and its ends.
//!
//! Four lists of folios: anonymous and file pages, inactive and active. The model starts from a kernel's lists and
//! follows its events; before each it predicts reclaim's next step, and where it is wrong it is counted and set right.
//! The rules, found in twelve stretches of 6.1 and 6.12 with 9,652 isolations, 7,015 passes and 56 calls of direct
//! reclaim (kswapd freed 15,133 pages, callers 29,366); none of them shows a counterexample:
//!
//! 1. **Heads.** A frame goes to the head of a list: when it is added (`mm_lru_insertion`), activated, deactivated, or
//!    put back by compaction. All positions of all lists at the end are the kernel's in all twelve stretches.
//! 2. **Ends.** Reclaim takes from the end, until as many pages are found as were asked for; a folio counts all its
//!    pages and may exceed the number (kswapd, 6.12-compaction).
//! 3. **Zones.** Frames of zones above the caller's are passed over, count as scanned and skipped, and go to the head
//!    of the list, the first one met deepest (244 isolations of normal-fallbacks-boosted; by the opposite order 76 % of
//!    the active list's positions are right at the end).
//! 4. **Order of frees.** 6.1 frees the frames taken last first (39,666 frames), 6.12 those taken first (4,323 frames);
//!    no other rule differs. Clean file pages that no process maps are freed, referenced or not. Mapped, dirty and
//!    anonymous ones did not come up.
//! 5. **Active lists.** Taken frames go to the head of the inactive list, the first one taken deepest (15,869 pages).
//! 6. **Requests.** A pass asks each list for its length >> priority at the beginning of the pass, 32 pages at most at
//!    a time, inactive list and active list in turn. Lengths are counters of zones up to the caller's, *without* the
//!    CPU's share that is not added yet, read before the CPU's batches are emptied. There is no swap, so anonymous
//!    lists are not asked.
//! 7. **Ages.** The active list is asked only if the inactive one is shorter (the node's counters, with shares of their
//!    own), or if a file page came back from disk to the active list since a run of reclaim ended. Returns before the
//!    stretch are not told, but read from the first pass. Seen for lists below 1 GiB in all. By the zones' counters,
//!    1,060 of 5,295 passes of compaction and compaction-pinned would be wrong.
//! 8. **End of a pass.** When nothing is left to ask, or at the end of a round with the target reached; a caller's
//!    pass of priority 12 goes on. The target is 32 pages; kswapd's is Σ max(high mark, 32) over its zones.
//! 9. **kswapd.** From priority 12; the next pass is one deeper unless this one scanned its target. It rests when a
//!    zone is above its high mark and reserve. Boosted runs stay at 10 until as much as all boosts is reclaimed
//!    (256 passes of normal-fallbacks-boosted), and then take that off the boosts.
//! 10. **Direct reclaim** (docs/sources/pages.md#reclaim-by-order): ready zones are remembered; the pass repeats while
//!     compaction can do nothing; 32 pages or a remembered zone end the call. Compaction's word on a zone is read from
//!     the events (the engine's compaction answers for it), the zone that is asked about is compared.
//! 11. **Compaction** takes all listed frames of a step's range, by number (374 steps), or, where it gives up, none.
//!
//! Facts that the data cannot tell are counted under [`LruTally::untold`]. Not seen, and so not judged: swap, mapped or
//! dirty pages at the end of a list, slab pages that a shrinker gives back, direct reclaim for orders 0 to 8, kswapd
//! for more than single pages, two CPUs that reclaim.

mod counts;
mod lists;
mod pass;
mod runs;
mod tally;
#[cfg(test)]
mod tests;

pub(super) use tally::{LruDifference, LruTally};

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use nofrag::page::FragmentationPolicy;
use nofrag::units::{Order, Pfn};

use self::counts::{Counts, Sizes, class_of};
use self::lists::{List, Lists};
use self::pass::{Ages, Asked, BATCH, FIRST_PRIORITY, Pass, PassPlan};
use self::runs::{Direct, Done, Stage, Stand, Turn, after_pass};
use super::compaction::range;
use super::events::{Asked as Request, Block, Event, Fields, Line, Phase};
use super::outcome::Score;
use super::state::{Era, State, StateError};

/// The largest order of blocks on per-CPU lists, but for huge pages.
const CACHED_ORDERS: u8 = 3;

/// The model as it follows a stretch.
pub(super) struct Lru {
    era: Era,
    lists: Lists,
    counts: Counts,
    /// Runs of reclaim under way, by task.
    runs: HashMap<u32, Run>,
    passes: HashMap<u32, (Pass, Sizes)>,
    /// By task: frames that it took from a list and has not dealt with yet.
    held: HashMap<u32, Held>,
    /// By task: lengths of the lists before it emptied its CPU's batches.
    before: HashMap<u32, Sizes>,
    /// By task: zones and pages that its refill has taken up to now; 6.1 counts them at the refill's end.
    refills: HashMap<u32, Vec<(usize, i64)>>,
    /// Frames that were handed out, and have been on no list since.
    fresh: HashSet<Pfn>,
    /// Blocks above order 3 that have left the zone's lists.
    ready: HashSet<Pfn>,
    /// Frames that carry private data of a file system.
    private: HashSet<Pfn>,
    /// True if a file page came back since a run of reclaim ended; `None` before the first end.
    came_back: Option<bool>,
    /// True if the stretch has several CPUs; only the shares of the first one are followed.
    several_cpus: bool,
    tally: LruTally,
}

/// A run of reclaim under way.
#[derive(Debug)]
enum Run {
    Kswapd(Kswapd),
    Direct {
        call: Direct,
        /// All decisions of the call were the model's.
        sound: bool,
    },
}

/// A run of kswapd under way.
#[derive(Debug, Default)]
struct Kswapd {
    priority: u8,
    /// Boosted pages to reclaim; `None` until the zones of the run are known.
    boost: Option<u64>,
    /// The boosts of its zones at its beginning, which it subtracts at the end.
    noted: Vec<u64>,
    done: Option<Pass>,
    next: Option<Turn>,
}

#[derive(Debug)]
struct Held {
    list: List,
    taken: Vec<Pfn>,
    freed: Vec<Pfn>,
}

impl Lru {
    pub(super) fn new(state: &State, policy: &FragmentationPolicy) -> Result<Lru, StateError> {
        let mut lists = Lists::default();
        let mut private = HashSet::new();
        for &(first, pages, _, _, _, mapping) in &state.frames {
            let head = mapping >> 3 & 1 == 1;
            let order = if head { Order::new((mapping >> 8) as u8) } else { None };
            for pfn in (first..first + pages).map(Pfn) {
                lists.set_order(pfn, order.unwrap_or(Order::ZERO));
                if mapping >> 5 & 1 == 1 {
                    private.insert(pfn);
                }
            }
        }
        for list in List::ALL {
            let frames = state.lru.get(list.into_str());
            let missing = || StateError::Field(format!("there is no list {}", list.into_str()));
            lists.fill(list, frames.ok_or_else(missing)?);
        }
        let mut ready = HashSet::new();
        for (_, zone) in state.zones()? {
            let huge = zone.pcp.lists.iter().filter(|(name, _)| name.starts_with("9/"));
            ready.extend(huge.flat_map(|(_, frames)| frames).copied().map(Pfn));
        }
        Ok(Lru {
            era: state.era(),
            lists,
            counts: Counts::new(state, policy)?,
            runs: HashMap::new(),
            passes: HashMap::new(),
            held: HashMap::new(),
            before: HashMap::new(),
            refills: HashMap::new(),
            fresh: HashSet::new(),
            ready,
            private,
            came_back: None,
            several_cpus: false,
            tally: LruTally::default(),
        })
    }

    pub(super) fn follow(&mut self, line: &Line) {
        let task = line.task.pid;
        self.several_cpus |= line.cpu > 0;
        if !matches!(line.event, Event::Refilled { .. }) {
            self.end_refill(task);
        }
        match &line.event {
            Event::OnLru(..) | Event::Activated(_) => {
                let counts = &self.counts;
                self.before.entry(task).or_insert_with(|| counts.sizes());
            }
            Event::LruIsolated(_) => {}
            _ => drop(self.before.remove(&task)),
        }
        self.follow_frames(line);
        self.follow_reclaim(line);
    }

    /// Follows events that move frames and change counters.
    fn follow_frames(&mut self, line: &Line) {
        let task = line.task.pid;
        match &line.event {
            Event::Ends(Request { request, answer: Some(pfn), .. }) => {
                self.handed_out(*pfn, request.order);
            }
            Event::Bulk(pfn) => self.handed_out(*pfn, Order::ZERO),
            Event::Freed(Block { pfn, order }) | Event::FreedInBatch(Block { pfn, order }) => {
                self.freed(task, *pfn, *order);
            }
            Event::Refilled { pfn, order, cached } => self.refilled(task, *pfn, *order, *cached),
            Event::Drained(Block { pfn, order }) => {
                self.ready.remove(pfn);
                self.free_changes(*pfn, pages_of(*order));
            }
            Event::Isolated(Block { pfn, order }) => self.free_changes(*pfn, -pages_of(*order)),
            Event::ExtFrag(event) if event.fallback_order < Order::PAGEBLOCK => {
                let zone = self.counts.zone_of(event.pfn);
                self.counts.rise(zone);
            }
            Event::Fold => self.counts.fold(),
            Event::OnLru(pfn, number) => self.added(*pfn, *number),
            Event::Activated(pfn) => {
                if let Some(list) = self.lists.list_of(*pfn) {
                    self.put(*pfn, list.active());
                }
            }
            Event::Moved { from, to } => {
                self.remove(*from);
                let order = self.lists.order(*from);
                self.lists.set_order(*to, order);
            }
            Event::SourcesIsolated(fields) => self.sources(fields),
            _ => {}
        }
    }

    /// Follows the decisions of reclaim.
    fn follow_reclaim(&mut self, line: &Line) {
        let task = line.task.pid;
        match &line.event {
            Event::KswapdWakes(_) => {
                let run = Kswapd { priority: FIRST_PRIORITY, ..Kswapd::default() };
                self.passes.remove(&task);
                self.runs.insert(task, Run::Kswapd(run));
            }
            Event::KswapdRests => self.kswapd_rests(line),
            Event::Reclaims(Phase::Begins, fields) => {
                let call = self.call(fields);
                self.passes.remove(&task);
                self.runs.insert(task, Run::Direct { call, sound: true });
            }
            Event::Reclaims(Phase::Ended, fields) => self.call_ends(line, fields),
            Event::Suitable(fields) => self.hears(line, fields),
            Event::LruIsolated(fields) => self.isolates(line, fields),
            Event::InactiveShrunk(fields) => {
                self.hears_priority(line, fields);
                self.shrinks_inactive(line, fields);
            }
            Event::ActiveShrunk(fields) => {
                self.hears_priority(line, fields);
                self.shrinks_active(line, fields);
            }
            Event::ShrinksSlab(Phase::Begins) => self.pass_ends(line),
            Event::ShrinksSlab(Phase::Ended) => self.decide(task),
            _ => {}
        }
    }

    /// Counts a value of the kernel's beside the model's, and notes it if they differ.
    fn compare<T: PartialEq + std::fmt::Debug>(
        &mut self,
        score: impl Fn(&mut LruTally) -> &mut Score,
        line: &Line,
        cause: &'static str,
        kernel: T,
        model: T,
    ) {
        score(&mut self.tally).count(kernel == model);
        if kernel != model {
            self.differs(line.number, cause, kernel, model);
        }
    }

    fn differs(
        &mut self,
        line: usize,
        cause: &'static str,
        kernel: impl std::fmt::Debug,
        model: impl std::fmt::Debug,
    ) {
        let (kernel, model) = (format!("{kernel:?}"), format!("{model:?}"));
        self.tally.differences.push(LruDifference { line, cause, kernel, model });
    }
}

impl Lru {
    fn put(&mut self, pfn: Pfn, list: List) {
        self.remove(pfn);
        self.lists.put(pfn, list);
        self.list_changes(pfn, list, self.lists.pages(pfn).cast_signed());
    }

    fn remove(&mut self, pfn: Pfn) -> Option<List> {
        let list = self.lists.remove(pfn)?;
        self.list_changes(pfn, list, -self.lists.pages(pfn).cast_signed());
        Some(list)
    }

    fn list_changes(&mut self, pfn: Pfn, list: List, pages: i64) {
        let zone = self.counts.zone_of(pfn);
        self.counts.listed(zone, list, pages);
    }

    fn free_changes(&mut self, pfn: Pfn, pages: i64) {
        let zone = self.counts.zone_of(pfn);
        self.counts.freed(zone, pages);
    }

    fn handed_out(&mut self, pfn: Pfn, order: Order) {
        if order.get() > CACHED_ORDERS && !self.ready.remove(&pfn) {
            // The caller of compaction took it before it reached a list.
            self.free_changes(pfn, -pages_of(order));
        }
        self.lists.set_order(pfn, order);
        self.private.remove(&pfn);
        self.fresh.insert(pfn);
    }

    fn freed(&mut self, task: u32, pfn: Pfn, order: Order) {
        self.fresh.remove(&pfn);
        if order == Order::PAGEBLOCK {
            self.ready.insert(pfn);
        } else if order.get() > CACHED_ORDERS {
            self.free_changes(pfn, pages_of(order));
        }
        match self.held.get_mut(&task) {
            Some(held) if held.taken.contains(&pfn) => held.freed.push(pfn),
            _ => drop(self.remove(pfn)),
        }
    }

    fn refilled(&mut self, task: u32, pfn: Pfn, order: Order, cached: bool) {
        if order.get() > CACHED_ORDERS {
            self.ready.insert(pfn);
        }
        if cached && self.era == Era::Fixed {
            let zone = self.counts.zone_of(pfn);
            let refill = self.refills.entry(task).or_default();
            match refill.iter_mut().find(|(of, _)| *of == zone) {
                Some((_, pages)) => *pages += pages_of(order),
                None => refill.push((zone, pages_of(order))),
            }
        } else {
            self.free_changes(pfn, -pages_of(order));
        }
    }

    fn end_refill(&mut self, task: u32) {
        for (zone, pages) in self.refills.remove(&task).unwrap_or_default() {
            self.counts.freed(zone, -pages);
        }
    }

    fn added(&mut self, pfn: Pfn, number: u8) {
        let Some(list) = List::ALL.get(usize::from(number)).copied() else {
            self.remove(pfn);
            return;
        };
        if self.fresh.remove(&pfn) && list == List::ActiveFile {
            self.came_back = self.came_back.map(|_| true);
        }
        if self.lists.list_of(pfn).is_some() {
            self.tally.untold("frames that compaction took and put back within a step", 1);
        }
        self.put(pfn, list);
    }

    /// Compares the frames that compaction took with rule 11.
    fn sources(&mut self, fields: &Fields) {
        let taken = fields.number("nr_taken");
        let Some(((first, behind), taken)) = range(fields).zip(taken) else { return };
        let listed = self.lists.within(Pfn(first)..Pfn(behind));
        let pages = self.lists.pages_of(&listed);
        if pages == taken {
            self.tally.sources.count(true);
            for pfn in listed {
                self.remove(pfn);
            }
        } else if taken == 0 {
            self.tally.untold("steps of compaction that gave up a range", 1);
        } else {
            self.tally.untold("steps of compaction that took a part of a range", 1);
        }
    }
}

impl Lru {
    fn isolates(&mut self, line: &Line, fields: &Fields) {
        let task = line.task.pid;
        let number = |key| fields.number(key).unwrap_or(0);
        let Some(list) = fields.get("lru").and_then(|name| name.parse().ok()) else { return };
        let asked = Asked { list, pages: number("nr_requested") };
        let class = number("classzone") as usize;
        let sizes = self.before.remove(&task).unwrap_or_else(|| self.counts.sizes());
        if !self.passes.contains_key(&task) {
            if number("order") > 0 && matches!(self.runs.get(&task), Some(Run::Kswapd(_))) {
                self.tally.untold("passes of kswapd for larger blocks, judged as for pages", 1);
            }
            self.begin_pass(line, class, sizes);
        }
        self.compare_asked(line, asked);

        let counts = &self.counts;
        let tail = self.lists.tail(list, asked.pages, |pfn| counts.class_of(pfn) <= class);
        let (taken, skipped) =
            (self.lists.pages_of(&tail.taken), self.lists.pages_of(&tail.skipped));
        let model = [taken + skipped, skipped, taken];
        let kernel = ["nr_scanned", "nr_skipped", "nr_taken"].map(number);
        self.compare(|it| &mut it.isolations, line, "scanned, skipped and taken", kernel, model);
        let mut by_zone = vec![0; self.counts.zones.len()];
        for &pfn in &tail.taken {
            self.lists.remove(pfn);
            by_zone[self.counts.zone_of(pfn)] += self.lists.pages(pfn).cast_signed();
        }
        for (zone, pages) in by_zone.into_iter().enumerate() {
            self.counts.listed(zone, list, -pages);
        }
        for pfn in tail.skipped {
            self.lists.put(pfn, list);
        }
        self.held.insert(task, Held { list, taken: tail.taken, freed: Vec::new() });
    }

    /// Decides by rule 7 whether the pass asks active lists.
    fn ages(&self, sizes: &Sizes) -> Ages {
        match self.came_back {
            _ if sizes.short => Ages::Yes,
            Some(true) => Ages::Yes,
            Some(false) => Ages::No,
            None => Ages::Untold,
        }
    }

    fn begin_pass(&mut self, line: &Line, class: usize, sizes: Sizes) {
        let task = line.task.pid;
        let ages = self.ages(&sizes);
        let direct = !matches!(self.runs.get(&task), Some(Run::Kswapd(_)));
        let priority = match direct {
            true => self.direct_begins_pass(line, class),
            false => self.kswapd_begins_pass(line, class),
        };
        let target = if direct { BATCH } else { self.counts.target(class) };
        let plan = PassPlan { priority, class, target, direct, ages };
        let mut pass = Pass::new(plan, &sizes);
        while !direct && pass.is_empty() && pass.plan.priority > 1 {
            // A pass without a request leaves no event.
            let plan = PassPlan { priority: pass.plan.priority - 1, ..plan };
            pass = Pass::new(plan, &sizes);
        }
        self.passes.insert(task, (pass, sizes));
    }

    fn compare_asked(&mut self, line: &Line, asked: Asked) {
        let Some((pass, _)) = self.passes.get_mut(&line.task.pid) else { return };
        let [yes, no] = [Ages::Yes, Ages::No].map(|ages| pass.had_it(ages).next());
        let mut ages = None;
        if yes != no && !pass.aged && [yes, no].contains(&Some(asked)) {
            pass.aged = true;
            let kernel = if yes == Some(asked) { Ages::Yes } else { Ages::No };
            ages = Some((kernel, std::mem::replace(&mut pass.plan.ages, kernel)));
        }
        let model = pass.next();
        self.compare(|it| &mut it.asked, line, "list and pages asked for", Some(asked), model);
        if let Some((kernel, model)) = ages {
            self.compare_ages(line, kernel, model);
        }
    }

    fn compare_ages(&mut self, line: &Line, kernel: Ages, model: Ages) {
        if model == Ages::Untold {
            self.tally.untold("whether file pages came back before the stretch", 1);
            // From here on the fact is known.
            self.came_back = Some(kernel == Ages::Yes);
            return;
        }
        self.compare(|it| &mut it.aged, line, "whether the active list is asked", kernel, model);
    }

    /// Takes the priority of the pass from the events of a list.
    fn hears_priority(&mut self, line: &Line, fields: &Fields) {
        let task = line.task.pid;
        let told = fields.number("priority").and_then(|told| u8::try_from(told).ok());
        let (Some(told), Some((pass, sizes))) = (told, self.passes.get_mut(&task)) else { return };
        if std::mem::replace(&mut pass.told, true) {
            return;
        }
        let model = pass.plan.priority;
        if model != told {
            // The first request of the pass has been made.
            *pass = Pass::new(PassPlan { priority: told, ..pass.plan }, sizes);
            pass.told = true;
            pass.next();
        }
        match self.runs.get_mut(&task) {
            Some(Run::Kswapd(run)) => run.priority = told,
            Some(Run::Direct { call, sound }) => {
                *sound &= model == told;
                call.priority = told;
            }
            None => {}
        }
        self.compare(|it| &mut it.priorities, line, "priority of a pass", told, model);
    }

    fn pass_ends(&mut self, line: &Line) {
        let task = line.task.pid;
        let Some((mut pass, _)) = self.passes.remove(&task) else {
            if let Some(Run::Direct { call, .. }) = self.runs.get_mut(&task) {
                // The call asked for nothing; in all other stages there is nothing to end.
                call.passed(0);
            }
            return;
        };
        let [yes, no] = [Ages::Yes, Ages::No].map(|ages| pass.had_it(ages).next());
        if yes.is_some() && no.is_none() && !pass.aged {
            let model = std::mem::replace(&mut pass.plan.ages, Ages::No);
            self.compare_ages(line, Ages::No, model);
        }
        let model = pass.next();
        self.compare(|it| &mut it.passes, line, "end of a pass", None, model);
        match self.runs.get_mut(&task) {
            Some(Run::Direct { call, .. }) => call.passed(pass.reclaimed),
            Some(Run::Kswapd(run)) => run.done = Some(pass),
            None => {}
        }
    }

    fn shrinks_inactive(&mut self, line: &Line, fields: &Fields) {
        let task = line.task.pid;
        let number = |key| fields.number(key).unwrap_or(0);
        let Some(held) = self.held.remove(&task) else { return };
        let taken = self.lists.pages_of(&held.taken);
        let reclaimed = number("nr_reclaimed");
        if let Some((pass, _)) = self.passes.get_mut(&task) {
            pass.reclaimed += reclaimed;
            pass.scanned += taken;
        }
        let freed: HashSet<Pfn> = held.freed.iter().copied().collect();
        let (gone, kept): (Vec<Pfn>, Vec<Pfn>) =
            held.taken.iter().partition(|pfn| freed.contains(pfn));
        let model: Vec<Pfn> = match self.era {
            Era::Fixed => gone.iter().rev().copied().collect(),
            Era::Tuned => gone,
        };
        let same = held.freed.iter().zip(&model).filter(|(kernel, model)| kernel == model).count();
        self.tally.freed.same += same as u64;
        self.tally.freed.of += held.freed.len() as u64;
        if held.freed != model {
            self.differs(line.number, "order of frees", &held.freed, &model);
        }
        if kept.is_empty() {
            self.compare(|it| &mut it.shrunk, line, "pages reclaimed", reclaimed, taken);
        }
        let activated = number("nr_activate_file") + number("nr_activate_anon");
        self.keep(held.list, &kept, activated);
    }

    /// Puts frames back that reclaim did not free: no event tells which ones, nor why.
    fn keep(&mut self, list: List, kept: &[Pfn], activated: u64) {
        let all = activated == self.lists.pages_of(kept);
        if activated > 0 && !all {
            self.tally.untold("which of the frames not reclaimed were activated", activated);
        }
        for &pfn in kept {
            let why = match self.private.contains(&pfn) {
                true => "frames not reclaimed, with private data that may be in use",
                false => "frames not reclaimed for a reason that is not in the data",
            };
            self.tally.untold(why, 1);
            self.put(pfn, if activated > 0 && all { list.active() } else { list });
        }
    }

    fn shrinks_active(&mut self, line: &Line, fields: &Fields) {
        let number = |key| fields.number(key).unwrap_or(0);
        let Some(held) = self.held.remove(&line.task.pid) else { return };
        let (kernel, model) = (number("nr_deactivated"), self.lists.pages_of(&held.taken));
        if number("nr_active") == 0 {
            self.compare(|it| &mut it.shrunk, line, "pages deactivated", kernel, model);
        } else {
            self.tally.untold("which frames stayed active, being referenced", number("nr_active"));
        }
        for pfn in held.taken {
            self.put(pfn, held.list.inactive());
        }
    }
}

impl Lru {
    /// Returns the priority of kswapd's next pass.
    fn kswapd_begins_pass(&mut self, line: &Line, class: usize) -> u8 {
        let highest = self.counts.highest(class);
        let Some(Run::Kswapd(run)) = self.runs.get_mut(&line.task.pid) else {
            return FIRST_PRIORITY;
        };
        if run.boost.is_none() {
            run.noted = self.counts.zones[..=highest].iter().map(|zone| zone.boost).collect();
            run.boost = Some(run.noted.iter().sum());
        }
        match run.next.take() {
            Some(Turn::Pass { priority, boost }) => {
                (run.priority, run.boost) = (priority, Some(boost));
            }
            Some(Turn::Ends) => {
                self.tally.runs.count(false);
                self.differs(line.number, "end of a run of kswapd", "another pass", Turn::Ends);
            }
            None => {}
        }
        match self.runs.get(&line.task.pid) {
            Some(Run::Kswapd(run)) => run.priority,
            _ => FIRST_PRIORITY,
        }
    }

    /// Decides on kswapd's next turn by the zones as they stand: the last shrinker of slabs settles it.
    fn decide(&mut self, task: u32) {
        let Some(Run::Kswapd(run)) = self.runs.get_mut(&task) else { return };
        let Some(pass) = &run.done else { return };
        run.next = Some(after_pass(Done {
            priority: run.priority,
            boost: run.boost.unwrap_or(0),
            scanned: pass.scanned,
            reclaimed: pass.reclaimed,
            target: self.counts.target(pass.plan.class),
            balanced: self.counts.is_balanced(pass.plan.class),
        }));
    }

    fn kswapd_rests(&mut self, line: &Line) {
        let Some(Run::Kswapd(run)) = self.runs.remove(&line.task.pid) else { return };
        match run.next {
            None => self.tally.untold("runs of kswapd without a pass", 1),
            Some(next) => {
                let what = "end of a run of kswapd";
                self.compare(|it| &mut it.runs, line, what, Turn::Ends, next);
            }
        }
        for (zone, noted) in self.counts.zones.iter_mut().zip(run.noted) {
            zone.boost = zone.boost.saturating_sub(noted);
        }
        self.came_back = Some(false);
    }
}

impl Lru {
    fn call(&self, fields: &Fields) -> Direct {
        let order = fields.order("order").unwrap_or(Order::ZERO);
        let class = class_of(fields.gfp().zone());
        Direct::new(order, self.counts.highest(class), class)
    }

    fn direct_begins_pass(&mut self, line: &Line, class: usize) -> u8 {
        let Some(Run::Direct { call, sound }) = self.runs.get_mut(&line.task.pid) else {
            return FIRST_PRIORITY;
        };
        let priority = call.priority;
        if !matches!(call.stage, Stage::Pass { .. }) || call.class != class {
            *sound = false;
            let stage = call.stage;
            call.class = class;
            call.stage = Stage::Pass { zone: call.highest };
            self.differs(line.number, "a pass of direct reclaim", "begins", stage);
        }
        priority
    }

    fn hears(&mut self, line: &Line, fields: &Fields) {
        let about = fields.get("zone").and_then(|name| self.counts.named(name));
        let (Some(about), Some(Run::Direct { call, sound })) =
            (about, self.runs.get_mut(&line.task.pid))
        else {
            return;
        };
        let gap = self.counts.gap(call.order);
        let stand = Stand {
            above_high: self.counts.above_high(about, gap, call.class),
            worthwhile: self.counts.inactive_file() > gap,
        };
        let stage = call.stage;
        let same = call.hears(about, fields.suitability(), stand);
        *sound &= same;
        self.tally.questions.count(same);
        if !same {
            self.differs(line.number, "a question of direct reclaim", fields.get("zone"), stage);
        }
    }

    fn call_ends(&mut self, line: &Line, fields: &Fields) {
        let Some(Run::Direct { call, sound }) = self.runs.remove(&line.task.pid) else { return };
        let kernel = fields.number("nr_reclaimed").unwrap_or(0);
        let over = call.stage == Stage::Over && call.reclaimed == kernel;
        self.tally.calls.count(sound && over);
        if !over {
            self.differs(line.number, "end of a call of direct reclaim", kernel, &call);
        }
        self.came_back = Some(false);
    }
}

impl Lru {
    pub(super) fn finish(mut self, after: &State) -> Result<LruTally, StateError> {
        let refilling: Vec<u32> = self.refills.keys().copied().collect();
        for task in refilling {
            self.end_refill(task);
        }
        for run in std::mem::take(&mut self.runs).into_values() {
            match run {
                Run::Kswapd(Kswapd { next: Some(Turn::Ends), .. }) => {
                    self.tally.runs.count(true);
                }
                _ => self.tally.untold("runs that the end of the stretch cuts off", 1),
            }
        }
        for list in List::ALL {
            let kernel = after.lru.get(list.into_str()).map(Vec::as_slice).unwrap_or_default();
            self.compare_list(list, kernel);
        }
        self.compare_counters(after)?;
        Ok(self.tally)
    }

    fn compare_list(&mut self, list: List, kernel: &[u64]) {
        let model: Vec<u64> = self.lists.head_first(list).map(|pfn| pfn.0).collect();
        let length = kernel.len().max(model.len());
        let differ: Vec<usize> =
            (0..length).filter(|place| kernel.get(*place) != model.get(*place)).collect();
        let score = &mut self.tally.at_end[list.index()];
        score.of += length as u64;
        score.same += (length - differ.len()) as u64;
        if let Some(&first) = differ.first() {
            let side =
                |side: &[u64]| format!("{} at {first}: {:x?}", list.into_str(), side.get(first));
            self.differs(0, "a list at the end", side(kernel), side(&model));
        }
    }

    fn compare_counters(&mut self, after: &State) -> Result<(), StateError> {
        let kernel = Counts::new(after, &FragmentationPolicy::LINUX_6_1)?;
        let model = std::mem::take(&mut self.counts.zones);
        for (kernel, model) in kernel.zones.iter().zip(&model) {
            let all = |zone: &counts::ZoneCounts| {
                let counters = std::iter::once(&zone.free).chain(&zone.lists);
                counters.map(|counter| (counter.seen, counter.share)).collect::<Vec<_>>()
            };
            for (item, (kernel, model)) in all(kernel).into_iter().zip(all(model)).enumerate() {
                let same = kernel == model;
                self.tally.counters.count(same);
                if !same {
                    let what =
                        ["free", "inactive_anon", "active_anon", "inactive_file", "active_file"];
                    let cause = if self.several_cpus {
                        "a counter at the end: shares of other CPUs"
                    } else if kernel.0 + kernel.1 == model.0 + model.1 {
                        "a counter at the end: when the CPU's share was added"
                    } else {
                        "a counter at the end"
                    };
                    self.differs(0, cause, (what[item], kernel), model);
                }
            }
        }
        Ok(())
    }
}

fn pages_of(order: Order) -> i64 {
    order.pages().cast_signed()
}
