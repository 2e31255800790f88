//! Random operations on an arena, against a list of live runs: over the memory of this process, where no owner may see
//! what another one wrote, and over simulated memory, which comes and goes by chunks and is now and then refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use nofrag::check::Check;
use nofrag_backing::arena::{
    Arena, ArenaError, Budget, Config, FreeError, Lease, OwnerId, Owners, Purge, ResizeError, Run,
};
use nofrag_backing::backend::{
    Anonymous, Backend, BackendError, Caps, CostModel, Geometry, SimCall, Simulated, Va,
};

use crate::steps;

const OWNERS: u32 = 3;

/// So many steps of one input are run.
const MOST_STEPS: usize = 300;

/// Runs the operations in `data` on the memory and the policy that its first byte chooses; panics when a promise is
/// broken.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let purge = match choice % 3 {
        0 => Purge::Decay { after: Duration::from_millis(50) },
        1 => Purge::Watermark { pages: 40 },
        _ => Purge::Manual,
    };
    if choice & 0x80 == 0 { in_chunks(rest, purge) } else { in_process(rest, purge) }
}

fn owner(byte: u8) -> OwnerId {
    OwnerId(u32::from(byte) % OWNERS)
}

/// Mostly short; the longest have more pages than a block.
fn pages(byte: u8) -> u64 {
    match byte {
        0..200 => u64::from(byte % 20) + 1,
        _ => u64::from(byte - 190) * 3,
    }
}

fn check<B: Backend>(arena: &Arena<B>) {
    if let Err(violation) = arena.check() {
        panic!("{violation}");
    }
}

/// The next step in the input, if there is a whole one.
fn next<'a, S: Arbitrary<'a>>(input: &mut Unstructured<'a>) -> Option<S> {
    if input.is_empty() { None } else { S::arbitrary(input).ok() }
}

// -- Simulated memory, by chunks -------------------------------------------------------------------------------------

const GHOST_PAGE: u64 = 64 << 10;
const BLOCK: u64 = 4 << 20;
const CHUNK: u64 = 1 << 20;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Alloc { owner: u8, pages: u8, align: u8 },
    Free { which: u8, later: bool },
    FreeStale { which: u8, later: bool },
    Forge { page: u16, pages: u8, generation: u64 },
    Resize { which: u8, pages: u8 },
    Purge { blocks: u8 },
    Tick { ms: u8, blocks: u8 },
    ByHandle { owner: u8, pages: [u8; 3], which: u8 },
    Refuse { call: u8, after: u8, times: u8 },
    AllowAll,
}

struct Chunked {
    backing: Arc<Simulated>,
    arena: Arena<Arc<Simulated>>,
    /// Live runs by first address.
    live: BTreeMap<u64, Run>,
    stale: Vec<Run>,
    now: Duration,
}

/// Nothing is purged in place, and there is memory for fewer blocks than addresses.
fn in_chunks(data: &[u8], purge: Purge) {
    let geometry = Geometry {
        granule: CHUNK,
        recommended: CHUNK,
        va_align: CHUNK,
        max_va: 1 << 40,
        caps: Caps::ZEROED,
        max_mappings: None,
        vector_max: 3,
        cost: CostModel::default(),
    };
    let backing = Arc::new(Simulated::new(geometry).expect("the shape makes sense"));
    let (owners, max_mappings) = (Owners::Count(OWNERS), Some(10 * BLOCK / CHUNK));
    let over = Config::over(Arc::clone(&backing));
    let config = Config { page: GHOST_PAGE, owners, max_mappings, purge, ..over };
    let arena = Arena::reserve(12 * BLOCK, config).expect("a new backend refuses nothing");
    let (live, stale, now) = (BTreeMap::new(), Vec::new(), Duration::ZERO);
    let mut chunked = Chunked { backing: Arc::clone(&backing), arena, live, stale, now };
    let mut input = Unstructured::new(data);
    for _ in 0..MOST_STEPS {
        let Some(step) = next(&mut input) else { break };
        steps::count();
        chunked.step(step);
        chunked.compare();
    }
    chunked.end();
    drop(chunked);
    assert_eq!(backing.areas(), 0, "all addresses went back");
    if let Err(violation) = backing.check() {
        panic!("{violation}");
    }
}

impl Chunked {
    fn pick(&self, which: u8) -> Option<Run> {
        let at = usize::from(which) % self.live.len().max(1);
        self.live.values().nth(at).copied()
    }

    fn ends(run: Run) -> [Va; 2] {
        [run.va(), run.va().plus(u64::from(run.pages()) * GHOST_PAGE - 8)]
    }

    /// A run was handed out or has another length: nobody else's, and there is memory behind both ends.
    fn enter(&mut self, run: Run) {
        let end = run.va().0 + u64::from(run.pages()) * GHOST_PAGE;
        let before = self.live.range(..end).next_back();
        let before = before.map_or(0, |(&at, run)| at + u64::from(run.pages()) * GHOST_PAGE);
        assert!(before <= run.va().0, "{run:?} overlaps another one");
        for at in Chunked::ends(run) {
            self.backing.touch(at, 8).expect("a run is mapped");
        }
        self.live.insert(run.va().0, run);
    }

    fn leave(&mut self, run: Run) {
        self.live.remove(&run.va().0).expect("it was picked among them");
        for at in Chunked::ends(run) {
            assert_eq!(self.backing.holds(at), Some(true), "what was written to {run:?} is lost");
        }
        self.stale.push(run);
    }

    fn note(&mut self, wanted: u64, align: u64, result: Result<Run, ArenaError>) {
        match result {
            Ok(run) => {
                assert_eq!(u64::from(run.pages()), wanted);
                assert!((run.va().0 / GHOST_PAGE).is_multiple_of(align), "{run:?} is not aligned");
                self.enter(run);
            }
            Err(ArenaError::Exhausted(_) | ArenaError::Backend(_)) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc { owner: who, pages: wanted, align } => {
                let (wanted, align) = (pages(wanted), 1 << (align % 7));
                let result = self.arena.alloc(owner(who), wanted, align);
                self.note(wanted, align, result);
            }
            Step::Free { which, later } => {
                if let Some(run) = self.pick(which) {
                    self.leave(run);
                    self.free(run, later);
                }
            }
            Step::FreeStale { which, later } => {
                let at = usize::from(which) % self.stale.len().max(1);
                if let Some(&run) = self.stale.get(at) {
                    let again =
                        if later { self.arena.free_later(run) } else { self.arena.free(run) };
                    again.expect_err("it was freed before");
                }
            }
            Step::Forge { page, pages, generation } => self.forge(page, pages, generation),
            Step::Resize { which, pages: wanted } => {
                if let Some(run) = self.pick(which) {
                    self.resize(run, pages(wanted));
                }
            }
            Step::Purge { blocks } => {
                let budget = Budget { blocks: usize::from(blocks) };
                assert!(self.arena.purge(budget).blocks <= u64::from(blocks));
            }
            Step::Tick { ms, blocks } => {
                self.now += Duration::from_millis(ms.into());
                self.arena.step(self.now, Budget { blocks: usize::from(blocks) });
            }
            Step::ByHandle { owner, pages, which } => self.by_handle(owner, pages, which),
            Step::Refuse { call, after, times } => {
                let calls = [SimCall::Create, SimCall::Map, SimCall::Unmap];
                let call = calls[usize::from(call) % calls.len()];
                let (after, times) = (u32::from(after % 4), u32::from(times % 4));
                self.backing.refuse(call, after, times, BackendError::Unsupported);
            }
            Step::AllowAll => self.backing.allow_all(),
        }
    }

    fn free(&mut self, run: Run, later: bool) {
        let freed = match later {
            false => self.arena.free(run),
            true => match self.arena.free_later(run) {
                Err(FreeError::Uncollected) => self.arena.free(run),
                freed => freed,
            },
        };
        freed.expect("it was in use");
    }

    /// Names put together from parts name no run, unless they are one's.
    fn forge(&mut self, page: u16, pages: u8, generation: u64) {
        let va = self.arena.base().plus(u64::from(page) * GHOST_PAGE / 2);
        let Some(run) = Run::from_parts(va, pages.into(), generation) else { return };
        if self.live.get(&va.0).is_none_or(|&live| live != run) {
            self.arena.free(run).expect_err("there is no such run");
        }
    }

    fn resize(&mut self, run: Run, wanted: u64) {
        match self.arena.resize(run, wanted) {
            Ok(resized) => {
                assert_eq!((resized.va(), u64::from(resized.pages())), (run.va(), wanted));
                self.live.remove(&run.va().0).expect("it was picked");
                let first = self.backing.holds(run.va());
                assert_eq!(first, Some(true), "{run:?} lost its beginning");
                if run != resized {
                    self.stale.push(run);
                }
                self.enter(resized);
            }
            Err(ResizeError::NoRoom { most }) => assert!(most < wanted, "{most} would have done"),
            Err(ResizeError::Backend(_)) => {}
            Err(why) => panic!("{why}"),
        }
    }

    fn by_handle(&mut self, who: u8, wanted: [u8; 3], which: u8) {
        let picked = self.pick(which);
        if let Some(run) = picked {
            self.leave(run);
        }
        let (freed, got) = {
            let mut handle = self.arena.owner(owner(who)).expect("nobody holds it");
            assert!(self.arena.owner(owner(who)).is_err(), "two holders of one owner");
            let freed = picked.map(|run| handle.free(run));
            let got = wanted.map(|wanted| (pages(wanted), handle.alloc(pages(wanted), 1)));
            handle.step(self.now, Budget { blocks: 2 });
            (freed, got)
        };
        freed.into_iter().for_each(|freed| freed.expect("it was in use"));
        got.into_iter().for_each(|(wanted, result)| self.note(wanted, 1, result));
    }

    fn compare(&self) {
        let live: u64 = self.live.values().map(|run| u64::from(run.pages())).sum();
        assert_eq!(self.arena.stats().live, live);
        check(&self.arena);
    }

    /// When everything is given back and nothing is refused any more, nothing is left.
    fn end(&mut self) {
        self.backing.allow_all();
        while let Some(run) = self.pick(0) {
            self.leave(run);
            self.free(run, false);
        }
        // What a refused purge left is tried again by its owner, which has it back by then.
        for _ in 0..3 {
            self.arena.purge(Budget::ALL);
        }
        let stats = self.arena.stats();
        assert_eq!((self.backing.pages_held(), stats.mappings, stats.dirty), (0, 0, 0));
        check(&self.arena);
    }
}

// -- The memory of this process --------------------------------------------------------------------------------------

const PAGE: usize = 4 << 10;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum LeaseStep {
    Take { owner: u8, pages: u8, align: u8 },
    Drop { which: u8 },
    Purge { blocks: u8 },
    Tick { ms: u8, blocks: u8 },
}

fn in_process(data: &[u8], purge: Purge) {
    let config = Config {
        block: 64 * PAGE as u64,
        align: 64 * PAGE as u64,
        owners: Owners::Count(OWNERS),
        purge,
        ..Config::over(Anonymous::new())
    };
    let arena = Arena::reserve(16 * 64 * PAGE as u64, config).expect("there is memory enough");
    let mut leases: Vec<(Lease<'_, Anonymous>, u8)> = Vec::new();
    let mut input = Unstructured::new(data);
    let mut now = Duration::ZERO;
    for _ in 0..MOST_STEPS {
        let Some(step) = next(&mut input) else { break };
        steps::count();
        match step {
            LeaseStep::Take { owner: who, pages: wanted, align } => {
                match arena.lease(owner(who), pages(wanted), 1 << (align % 7)) {
                    Ok(lease) => leases.push(stamped(lease, owner(who))),
                    Err(ArenaError::Exhausted(_)) => {}
                    Err(why) => panic!("{why}"),
                }
            }
            LeaseStep::Drop { which } => {
                if !leases.is_empty() {
                    let (lease, mark) = leases.swap_remove(usize::from(which) % leases.len());
                    let kept = lease.iter().step_by(PAGE).all(|&byte| byte == mark);
                    assert!(kept, "{lease:?} has lost what was written");
                }
            }
            LeaseStep::Purge { blocks } => {
                arena.purge(Budget { blocks: blocks.into() });
            }
            LeaseStep::Tick { ms, blocks } => {
                now += Duration::from_millis(ms.into());
                arena.step(now, Budget { blocks: blocks.into() });
            }
        }
        let live: usize = leases.iter().map(|(lease, _)| lease.len() / PAGE).sum();
        assert_eq!(arena.stats().live, live as u64);
        check(&arena);
    }
    leases.clear();
    arena.purge(Budget::ALL);
    let stats = arena.stats();
    assert_eq!((stats.live, stats.dirty, stats.blocks.clean), (0, 0, stats.blocks.total));
}

/// Marks every page as its owner's; none may hold the mark of another one.
fn stamped(mut lease: Lease<'_, Anonymous>, owner: OwnerId) -> (Lease<'_, Anonymous>, u8) {
    let mark = owner.0 as u8 + 1;
    let foreign = lease.iter().step_by(PAGE).find(|&&byte| byte != 0 && byte != mark);
    assert_eq!(foreign, None, "{owner:?} sees what another owner wrote");
    lease.iter_mut().step_by(PAGE).for_each(|byte| *byte = mark);
    (lease, mark)
}
