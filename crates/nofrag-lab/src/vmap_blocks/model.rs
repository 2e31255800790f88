//! The counted model: many CPUs that map and unmap in a loop, on a real space, in virtual time.
//!
//! The space is the real engine, called by one thread in the order of the simulated clocks. The locks of an operation
//! are not assumed but read: from the counters of the space before and after, less those of the reading itself. The
//! [simulator](super::simulator) then lets them be taken, in the algorithm's order, as servers that are busy for a
//! stated time.
//!
//! The costs of an operation are assumed ([`Costs`]), and a report of the model states them:
//!
//! * **A hold** lasts as long as fetching the cache lines that its structure needs; the bookkeeping itself is short,
//!   but another CPU wrote them last. By chance it is anything from nothing to twice that.
//! * **The rest of an operation** is work of the CPU's own, a quarter more or less by chance, so that CPUs do not march
//!   in step; and between two locks there is some, such as allocating a record.
//! * **Locks of one CPU are never contended.** Each simulated CPU unmaps its own mappings; so no other CPU takes the
//!   lock of its block or list. Their acquisitions are counted, and nothing is simulated.
//!
//! A loop takes shared locks once in hundreds of operations. So the counters are read only after an operation that
//! shows a sign of more than the usual: it touched another block than the one before, or changed the number of lazy
//! pages or of flushes. Its locks are all those taken since the last reading; a test compares this with reading each
//! time.

use std::collections::VecDeque;

use nofrag::vmap::{BlockIndex, Layout, RamArea};

use super::caller::{ByCall, Caller, Space};
use super::locks::{Lock, LockCounts, LockKind, Site};
use super::simulator::{Machine, Next, Outcome, Step, simulate};
use crate::random::Random;
use crate::spaces::Failure;

/// Assumed costs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Costs {
    /// The lock-free part of mapping a page: filling in page tables.
    pub(super) map_ns: u64,
    /// The lock-free part of unmapping a page.
    pub(super) unmap_ns: u64,
    /// Time of either for each page besides the first.
    pub(super) page_ns: u64,
    /// Upper bound of the work between a lock and the next one.
    pub(super) between_ns: u64,
    /// Fetching a cache line that another CPU has written, on a large machine under load.
    pub(super) line_ns: u64,
    pub(super) lines: Lines,
    pub(super) holds: Holds,
}

/// Number of cache lines that are fetched under one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// The cache lines that the lock's structure needs.
    ByStructure,
    /// The same number of cache lines under each lock.
    Alike(u64),
}

/// Spread of the holds of one kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Anything from nothing to twice the mean.
    UpToTwice,
    /// All holds are equally long.
    Alike,
}

impl Costs {
    /// The times of a pair and of a cache line were chosen so that under the global index the area lock is contended
    /// about as often, and waits about as long, as the document says; `between_ns` and `holds` were chosen so that the
    /// CPUs that leave one lock do not arrive at the next one in single file. The other values follow.
    pub(super) const STATED: Costs = Costs {
        map_ns: 2_200,
        unmap_ns: 2_200,
        page_ns: 50,
        between_ns: 2_000,
        line_ns: 500,
        lines: Lines::ByStructure,
        holds: Holds::UpToTwice,
    };

    fn pair_ns(&self, pages: u64) -> u64 {
        self.map_ns + self.unmap_ns + 2 * self.page_ns * (pages - 1)
    }
}

impl Lines {
    /// Returns the number of cache lines that are fetched while a lock of this kind is held. The busy areas of 64 CPUs
    /// are a red-black tree of about a hundred nodes, of which a change visits seven: its own and those that it
    /// balances. The index of blocks has 64 entries to a node, two or three levels. Free areas are few, and found with
    /// their neighbours; lazy ones are few and merge with one.
    pub(super) fn of(self, kind: LockKind) -> u64 {
        match (self, kind) {
            (Lines::Alike(lines), _) => lines,
            (Lines::ByStructure, LockKind::AreaBusy) => 9,
            (Lines::ByStructure, LockKind::AreaFree) => 4,
            (Lines::ByStructure, LockKind::BlockIndex) => 3,
            (Lines::ByStructure, LockKind::Purge) => 1,
            (Lines::ByStructure, _) => 2,
        }
    }
}

/// Choice of the operations after which the counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readings {
    /// Operations after which `Signs` have changed, so that more happened than the usual.
    AtSigns,
    /// All operations: a hundred times slower.
    #[cfg(test)]
    Always,
}

/// Size, seed and costs of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimulationSize {
    pub(super) pages: u64,
    /// Number of pairs of one CPU.
    pub(super) pairs: u64,
    pub(super) seed: u64,
    pub(super) readings: Readings,
    pub(super) costs: Costs,
}

impl SimulationSize {
    /// Returns a size under the stated assumptions.
    pub(super) fn stated(pages: u64, pairs: u64, seed: u64) -> SimulationSize {
        SimulationSize { pages, pairs, seed, readings: Readings::AtSigns, costs: Costs::STATED }
    }
}

/// Lock counts and outcome of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Simulated {
    pub(super) outcome: Outcome,
    /// All acquisitions, those of private locks included.
    pub(super) taken: LockCounts,
    pub(super) pairs: u64,
    pub(super) blocks_created: u64,
}

impl Simulated {
    /// Adds the results of another run.
    pub(super) fn add(&mut self, other: &Simulated) {
        self.outcome.add(&other.outcome);
        self.taken.add(&other.taken);
        self.pairs += other.pairs;
        self.blocks_created += other.blocks_created;
    }

    /// Returns the virtual time of a CPU for one pair.
    pub(super) fn ns_per_pair(&self) -> f64 {
        self.outcome.cpu_ns.iter().sum::<u64>() as f64 / self.pairs as f64
    }
}

/// Lets all CPUs of `space` map and unmap in a loop.
pub(super) fn run(space: &Space, size: SimulationSize) -> Result<Simulated, Failure> {
    let mut random = Random::new(size.seed, 64);
    let cpus = space.cpus();
    let block_pairs =
        u64::from(space.policy().blocks.geometry.slots()) / size.pages.next_power_of_two();
    let block_ns = size.costs.pair_ns(size.pages) * block_pairs;
    // No CPU starts in step with another: each begins anywhere within the time that a block lasts.
    let begins: Vec<u64> = cpus.iter().map(|_| random.between(0, block_ns)).collect();
    let mut blocks = Blocks {
        space,
        size,
        random,
        cpus: cpus
            .iter()
            .map(|cpu| Cpu { caller: ByCall { space, cpu }, live: None, block: None, pairs: 0 })
            .collect(),
        known: LockCounts::default(),
        signs: Signs::of(space),
        taken: LockCounts::default(),
    };
    blocks.read();
    blocks.taken = LockCounts::default();
    let outcome = simulate(&begins, &mut blocks)?;
    blocks.read();
    let taken = blocks.taken;
    let pairs = size.pairs * begins.len() as u64;
    let blocks_created = space.counters().blocks.created;
    Ok(Simulated { outcome, taken, pairs, blocks_created })
}

struct Blocks<'a> {
    space: &'a Space,
    size: SimulationSize,
    random: Random,
    cpus: Vec<Cpu<'a>>,
    /// The counters at the end of the last reading.
    known: LockCounts,
    signs: Signs,
    taken: LockCounts,
}

struct Cpu<'a> {
    caller: ByCall<'a>,
    live: Option<RamArea>,
    /// The block of its last mapping.
    block: Option<u64>,
    pairs: u64,
}

/// Values that change when more happens than the usual, and that cost nothing to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    lazy_pages: u64,
    flushes: u64,
}

impl Signs {
    fn of(space: &Space) -> Signs {
        Signs { lazy_pages: space.lazy_pages().get(), flushes: space.mapper().count() }
    }
}

impl Machine for Blocks<'_> {
    type Error = Failure;

    fn operate(&mut self, cpu: usize, steps: &mut VecDeque<Step>) -> Result<Next, Failure> {
        let state = &mut self.cpus[cpu];
        match state.live.take() {
            None if state.pairs == self.size.pairs => return Ok(Next::Done),
            None => {
                let area = state.caller.map(self.size.pages)?;
                let block = area.start.get() / self.slots();
                let state = &mut self.cpus[cpu];
                let moved = state.block.replace(block) != Some(block);
                state.live = Some(area);
                // Slots first, page tables then.
                self.locks_of(cpu, Site::Map, area, moved, steps);
                steps.push_back(self.work(self.size.costs.map_ns));
            }
            Some(area) => {
                state.caller.unmap(area)?;
                state.pairs += 1;
                // Page tables first, slots then.
                steps.push_back(self.work(self.size.costs.unmap_ns));
                self.locks_of(cpu, Site::Unmap, area, false, steps);
            }
        }
        Ok(Next::Steps)
    }
}

impl Blocks<'_> {
    fn slots(&self) -> u64 {
        u64::from(self.space.policy().blocks.geometry.slots())
    }

    fn work(&mut self, first_page: u64) -> Step {
        let ns = first_page + self.size.costs.page_ns * (self.size.pages - 1);
        Step::Work(self.random.between(ns - ns / 4, ns + ns / 4))
    }

    /// Returns the acquisitions since the last reading. The counters of a lock include the acquisition that reads them,
    /// so a second reading tells those of the first one.
    fn read(&mut self) -> LockCounts {
        let read = || LockCounts::of(&self.space.counters().locks);
        let (first, second) = (read(), read());
        let with_reading = first.since(&self.known);
        let taken = with_reading.since(&second.since(&first));
        self.known = second;
        self.taken.add(&taken);
        taken
    }

    /// Appends the shared locks that the operation on `area` has taken.
    fn locks_of(
        &mut self,
        cpu: usize,
        site: Site,
        area: RamArea,
        moved: bool,
        steps: &mut VecDeque<Step>,
    ) {
        let signs = Signs::of(self.space);
        let unusual = moved || signs != self.signs;
        self.signs = signs;
        let due = match self.size.readings {
            Readings::AtSigns => unusual,
            #[cfg(test)]
            Readings::Always => true,
        };
        if !due {
            return;
        }
        let taken = self.read();
        for lock in Places::of(self.space, cpu, area).holds(site, &taken) {
            self.append(lock, steps);
        }
    }

    /// Appends `step`, with the time that the assumed costs give it, to `steps`.
    fn append(&mut self, step: Hold, steps: &mut VecDeque<Step>) {
        let Costs { line_ns, lines, holds, between_ns, .. } = self.size.costs;
        steps.push_back(match step {
            Hold::Take(lock, site) => Step::Take(lock, site),
            Hold::Release(lock) => Step::Release(lock),
            Hold::Between => Step::Work(self.random.between(0, between_ns)),
            Hold::Fetch(kind) => {
                let mean = line_ns * lines.of(kind);
                Step::Work(match holds {
                    Holds::UpToTwice => self.random.between(0, 2 * mean),
                    Holds::Alike => mean,
                })
            }
        });
    }
}

/// Steps around a lock, without their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Take(Lock, Site),
    /// Fetches the cache lines of the structure that a lock of this kind protects.
    Fetch(LockKind),
    Release(Lock),
    /// Work until the next lock.
    Between,
}

/// Instances of the locks that an operation takes.
struct Places {
    cpu: u64,
    block: u64,
    busy: u64,
    bucket: u64,
    owner: u64,
    /// Number of locks of each kind that `owner` chooses from; a purge visits them one after the other.
    owners: u64,
}

/// Consecutive pages that belong to one node, as `nofrag::vmap` has them from Linux.
const NODE_GRAIN_PAGES: u64 = 16;

impl Places {
    fn of(space: &Space, cpu: usize, area: RamArea) -> Places {
        let (policy, cpus, cpu) = (space.policy(), space.cpus().len() as u64, cpu as u64);
        let block = area.start.get() / u64::from(policy.blocks.geometry.slots());
        let first_page = block * u64::from(policy.blocks.geometry.slots());
        let (busy, owner, owners) = match policy.layout {
            Layout::Nodes => {
                let nodes = cpus.min(128);
                (first_page / NODE_GRAIN_PAGES % nodes, cpu % nodes, nodes)
            }
            // A hash over sixteen shards for each CPU: blocks seldom meet in one.
            Layout::Shards => (block % (16 * cpus), cpu, 16 * cpus),
            // One lock, or one for each list.
            _ => (0, 0, 1),
        };
        let bucket = match policy.blocks.index {
            BlockIndex::PerCpu => block % cpus,
            _ => 0,
        };
        Places { cpu, block, busy, bucket, owner, owners }
    }

    fn lock(&self, kind: LockKind) -> Lock {
        let instance = match kind {
            LockKind::AreaBusy => self.busy,
            LockKind::BlockIndex => self.bucket,
            LockKind::AreaFree | LockKind::Purge => 0,
            LockKind::AreaLazy | LockKind::Pools => self.owner,
            LockKind::Block => self.block,
            LockKind::Inbox
            | LockKind::BlockQueue
            | LockKind::Cpu
            | LockKind::Stock
            | LockKind::Recycler => self.cpu,
        };
        Lock { kind, instance }
    }

    /// Returns the holds of the shared locks in `taken`, in the algorithm's order. Locks that a purge took are held
    /// under the purge's lock.
    fn holds(&self, site: Site, taken: &LockCounts) -> Vec<Hold> {
        const ON_MAP: [LockKind; 5] = [
            LockKind::Inbox,
            LockKind::Pools,
            LockKind::AreaFree,
            LockKind::AreaBusy,
            LockKind::BlockIndex,
        ];
        const ON_UNMAP: [LockKind; 3] =
            [LockKind::BlockIndex, LockKind::AreaBusy, LockKind::AreaLazy];
        const IN_PURGE: [LockKind; 6] = [
            LockKind::Pools,
            LockKind::AreaLazy,
            LockKind::AreaBusy,
            LockKind::BlockIndex,
            LockKind::Inbox,
            LockKind::AreaFree,
        ];
        let mut left = LockKind::ALL.map(|kind| taken.get(kind).acquisitions);
        let purges = std::mem::take(&mut left[LockKind::Purge as usize]);
        let mut steps = Vec::new();
        let order: &[LockKind] = if site == Site::Map { &ON_MAP } else { &ON_UNMAP };
        for kind in order {
            let left = &mut left[*kind as usize];
            // A purge takes them again, for all CPUs.
            let own = if purges > 0 { (*left).min(1) } else { *left };
            *left -= own;
            for _ in 0..own {
                steps.extend(hold(self.lock(*kind), site));
            }
        }
        let purge = Lock { kind: LockKind::Purge, instance: 0 };
        for nth in 0..purges {
            steps.extend([Hold::Take(purge, Site::Purge), Hold::Fetch(LockKind::Purge)]);
            for kind in IN_PURGE.into_iter().filter(|_| nth == 0) {
                for instance in 0..left[kind as usize] {
                    let lock = match kind {
                        LockKind::AreaFree | LockKind::BlockIndex => self.lock(kind),
                        // Each node in turn; of pools, one of each size.
                        _ => Lock { kind, instance: instance % self.owners },
                    };
                    // Pools of most sizes are empty, so a glance is enough.
                    let glance = kind == LockKind::Pools && instance >= self.owners;
                    let hold = hold(lock, Site::Purge);
                    let shown =
                        |step: &Hold| !glance || matches!(step, Hold::Take(..) | Hold::Release(_));
                    steps.extend(hold.into_iter().filter(shown));
                }
            }
            steps.extend([Hold::Release(purge), Hold::Between]);
        }
        steps
    }
}

fn hold(lock: Lock, site: Site) -> [Hold; 4] {
    [Hold::Take(lock, site), Hold::Fetch(lock.kind), Hold::Release(lock), Hold::Between]
}

#[cfg(test)]
mod tests {
    use nofrag::vmap::{LockCosts, LockCounters};

    use super::*;

    const PLACES: Places = Places { cpu: 3, block: 70, busy: 0, bucket: 6, owner: 3, owners: 2 };

    fn once() -> LockCounters {
        times(1)
    }

    fn times(acquisitions: u64) -> LockCounters {
        LockCounters { acquisitions, conflicts: 0 }
    }

    /// Returns the locks that are taken, in order, with their instances.
    fn order(site: Site, costs: LockCosts) -> Vec<(LockKind, u64, Site)> {
        let steps = PLACES.holds(site, &LockCounts::of(&costs));
        let taken = steps.into_iter().filter_map(|step| match step {
            Hold::Take(lock, site) => Some((lock.kind, lock.instance, site)),
            _ => None,
        });
        taken.collect()
    }

    #[test]
    fn a_new_block_takes_the_free_lock_the_busy_lock_and_its_bucket() {
        let costs = LockCosts {
            free: once(),
            busy: once(),
            block_index: once(),
            block: once(),
            block_queue: once(),
            ..LockCosts::default()
        };
        use LockKind::{AreaBusy, AreaFree, BlockIndex};
        let expected =
            [(AreaFree, 0, Site::Map), (AreaBusy, 0, Site::Map), (BlockIndex, 6, Site::Map)];
        assert_eq!(order(Site::Map, costs), expected);
    }

    #[test]
    fn a_purge_takes_the_lazy_and_the_free_lock_again_under_its_own() {
        let (purge, lazy, free) = (once(), times(3), once());
        let costs = LockCosts {
            block_index: once(),
            busy: once(),
            lazy,
            purge,
            free,
            ..LockCosts::default()
        };
        use LockKind::{AreaBusy, AreaFree, AreaLazy, BlockIndex, Purge};
        let expected = [
            (BlockIndex, 6, Site::Unmap),
            (AreaBusy, 0, Site::Unmap),
            (AreaLazy, 3, Site::Unmap),
            (Purge, 0, Site::Purge),
            (AreaLazy, 0, Site::Purge),
            (AreaLazy, 1, Site::Purge),
            (AreaFree, 0, Site::Purge),
        ];
        assert_eq!(order(Site::Unmap, costs), expected);
        let steps = PLACES.holds(Site::Unmap, &LockCounts::of(&costs));
        let release = Hold::Release(Lock { kind: Purge, instance: 0 });
        assert_eq!(steps[steps.len() - 2..], [release, Hold::Between]);
    }
}
