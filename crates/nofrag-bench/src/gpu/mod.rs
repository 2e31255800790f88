//! Memory of a GPU in blocks of many sizes: nofrag's ranges over one block of the driver's, beside what programs use
//! today.
//!
//! A pool is filled to three quarters and blocks are replaced one for one. Then it is filled until a request is refused
//! for the first time. From then on each request that finds no place evicts live blocks, drawn at random, until it
//! fits, as a cache of keys and values does. *Live when full* is how much of the pool was in use when a request was
//! refused, in the mean of the requests after the ageing: what fragmentation and rounding leave unused is the rest of
//! it. Times are the wall clock's, as drivers wait, and of a full pool they include what was refused.
//!
//! Whoever does not cut blocks from one block of the pool's size finds the rest of the device's memory taken.
//!
//! Needs the feature `gpu`, and a GPU of CUDA with a driver; where there is none the one row says so. Contestants in
//! Python need `python3` with PyTorch or CuPy.

mod calls;
mod contestants;
mod device;
mod python;

pub use self::contestants::{contestants, in_python};
pub use self::device::Gpu;

use crate::contest::{Entry, Measured, Named, Outcome, Run, shielded};
use crate::packing::Tenants;
use crate::peers::Peer;
use crate::record::{Group, Measure};
use crate::trace::{Draws, Sizes};
use std::time::{Duration, Instant};

/// Bytes of the unit in which blocks are asked for: what allocators of GPUs round to.
pub const UNIT: u64 = 512;

/// Requests that are drawn; a turn that needs more begins anew with the first.
const DRAWN: usize = 1 << 18;

/// Time of each part of a turn: replacing, ageing, counting.
const PART: Duration = Duration::from_secs(2);

/// Time to fill the pool.
const FILL: Duration = Duration::from_secs(20);

/// Refused requests for which the contents of what they evict are looked at.
const PROVED: usize = 500;

/// The requests of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuPlan {
    pub name: String,
    /// Units of each request, from the first on.
    pub sizes: Vec<u32>,
    /// The block that is evicted, as a fraction of 2^32 of the number of live ones.
    pub picks: Vec<u32>,
    /// Requests after the first refusal and before the first that counts.
    pub ageing: usize,
    /// Requests that count.
    pub counted: usize,
}

impl GpuPlan {
    /// Draws a plan; each size is of so many units.
    #[must_use]
    pub fn new(name: &str, seed: u64, sizes: Sizes, factor: u32, requests: usize) -> GpuPlan {
        let mut draws = Draws::new(seed, sizes);
        GpuPlan {
            name: name.to_owned(),
            sizes: (0..DRAWN).map(|_| draws.size() * factor).collect(),
            picks: (0..DRAWN).map(|_| draws.fraction()).collect(),
            ageing: requests,
            counted: requests,
        }
    }
}

/// A turn of a contestant.
#[derive(Clone, Copy, Debug)]
pub enum GpuTurn<'a> {
    /// Is timed; blocks are written on the device's stream when they are taken, or never.
    Serve { plan: &'a GpuPlan, is_written: bool },
    /// Is asked for the contents of what it evicts.
    Prove(&'a GpuPlan),
}

/// A contestant of whatever type; its turns are measured where the type is known.
pub trait GpuContestant: Named {
    /// Takes a turn.
    fn turn(&self, gpu: &Gpu, turn: GpuTurn<'_>) -> Outcome;
}

impl<P: Peer, M: Fn(&Gpu) -> Result<P, String>> GpuContestant for Entry<M> {
    fn turn(&self, gpu: &Gpu, turn: GpuTurn<'_>) -> Outcome {
        shielded(|| {
            let mut cache = Cache::new((self.make)(gpu)?, gpu.pool_units());
            let outcome = match turn {
                GpuTurn::Serve { plan, is_written } => {
                    let mut write = |unit, units, tag| gpu.write(unit, units, tag);
                    let mut leave = |_, _, _| Ok(());
                    cache.serve(plan, if is_written { &mut write } else { &mut leave })
                }
                GpuTurn::Prove(plan) => cache.prove(plan, gpu),
            };
            cache.clear().and(outcome)
        })
    }
}

/// Writes a block: its first unit, its units, and what to write.
type Write<'a> = &'a mut dyn FnMut(u64, u32, u32) -> Result<(), String>;

/// Is told the block that is evicted next, by its index.
type Evict<'a, P> = &'a mut dyn FnMut(&Tenants<P>, usize) -> Result<(), String>;

/// A pool as a cache, which evicts what is in the way.
pub struct Cache<P: Peer> {
    tenants: Tenants<P>,
    pool_units: u64,
    /// Requests served so far, and picks made.
    served: usize,
    picked: usize,
    evicted: usize,
}

/// Percent of the pool that was live at refusals.
#[derive(Default)]
struct WhenFull {
    sum: f64,
    refusals: usize,
}

impl<P: Peer> Cache<P> {
    /// Makes an empty cache of a pool of so many units.
    pub fn new(peer: P, pool_units: u64) -> Cache<P> {
        Cache { tenants: Tenants::new(peer), pool_units, served: 0, picked: 0, evicted: 0 }
    }

    fn live_percent(&self) -> f64 {
        f64::from(self.tenants.pages()) / self.pool_units as f64 * 100.0
    }

    fn pick(&mut self, plan: &GpuPlan) -> usize {
        let fraction = u64::from(plan.picks[self.picked % plan.picks.len()]);
        self.picked += 1;
        ((fraction * self.tenants.count() as u64) >> 32) as usize
    }

    /// Serves one request, and evicts until it fits; `evict` is told each block before it goes.
    fn request(
        &mut self,
        plan: &GpuPlan,
        full: &mut WhenFull,
        evict: Evict<'_, P>,
        write: Write<'_>,
    ) -> Result<(), String> {
        let size = plan.sizes[self.served % plan.sizes.len()];
        let mut is_first = true;
        while !self.tenants.admit(size) {
            if std::mem::take(&mut is_first) {
                full.sum += self.live_percent();
                full.refusals += 1;
            }
            if self.tenants.count() == 0 {
                return Err(format!("fails: refuses {size} units when nothing is live"));
            }
            let index = self.pick(plan);
            evict(&self.tenants, index)?;
            self.tenants.evict(index)?;
            self.evicted += 1;
        }
        self.served += 1;
        let (unit, units) = self.tenants.place(self.tenants.count() - 1);
        write(unit, units, self.served as u32)
    }

    /// Serves requests until `is_done`, or until `limit` is over; returns how many.
    fn part(
        &mut self,
        plan: &GpuPlan,
        full: &mut WhenFull,
        write: Write<'_>,
        limit: Duration,
        is_done: impl Fn(&Self, usize, &WhenFull) -> bool,
    ) -> Result<usize, String> {
        let (clock, mut done) = (Instant::now(), 0);
        while !is_done(self, done, full) && (done % 16 != 0 || clock.elapsed() < limit) {
            self.request(plan, full, &mut |_, _| Ok(()), &mut *write)?;
            done += 1;
        }
        Ok(done)
    }

    /// Replaces blocks one for one; returns the nanoseconds of an allocation or a free.
    fn replace(&mut self, plan: &GpuPlan, write: Write<'_>) -> Result<f64, String> {
        let (clock, mut done, mut full) = (Instant::now(), 0, WhenFull::default());
        while done < plan.counted && (done % 16 != 0 || clock.elapsed() < PART) {
            let index = self.pick(plan);
            self.tenants.evict(index)?;
            self.request(plan, &mut full, &mut |_, _| Ok(()), &mut *write)?;
            done += 1;
        }
        Ok(clock.elapsed().as_nanos() as f64 / (2 * done) as f64)
    }

    /// Fills the pool, ages it, and measures.
    ///
    /// # Errors
    /// When the contestant fails, or takes too long to fill the pool.
    pub fn serve(&mut self, plan: &GpuPlan, write: Write<'_>) -> Outcome {
        let mut first = WhenFull::default();
        let three_quarters = |cache: &Self, _: usize, full: &WhenFull| {
            cache.live_percent() > 75.0 || full.refusals > 0
        };
        self.part(plan, &mut first, &mut *write, FILL, three_quarters)?;
        let ns_roomy = self.replace(plan, &mut *write)?;
        let filled =
            self.part(plan, &mut first, &mut *write, FILL, |_, _, full| full.refusals > 0)?;
        if first.refusals == 0 {
            return Err(format!("too slow to fill: {filled} requests in {FILL:?}"));
        }
        let aged = |_: &Self, done: usize, _: &WhenFull| done == plan.ageing;
        self.part(plan, &mut WhenFull::default(), &mut *write, PART, aged)?;
        let (mut full, evicted, began) = (WhenFull::default(), self.evicted, Instant::now());
        let counted = |_: &Self, done: usize, _: &WhenFull| done == plan.counted;
        let done = self.part(plan, &mut full, write, PART, counted)?;
        let ns = began.elapsed().as_nanos() as f64 / (done + self.evicted - evicted) as f64;
        let mut samples = vec![
            (Measure::FirstFailurePercent, first.sum),
            (Measure::NsPerOp, ns_roomy),
            (Measure::NsPerOpFull, ns),
        ];
        if full.refusals > 0 {
            samples.push((Measure::LiveWhenFullPercent, full.sum / full.refusals as f64));
        }
        let note =
            (done < plan.counted).then(|| format!("slow: {done} of {} requests", plan.counted));
        Ok(Measured { samples, note })
    }

    /// Writes each block with a number of its own, all of it, and reads it when it is evicted.
    fn prove(&mut self, plan: &GpuPlan, gpu: &Gpu) -> Outcome {
        let write: Write<'_> = &mut |unit, units, tag| gpu.write(unit, units, tag);
        // The number of what lies in each slot: evicting moves the last one into the gap, as the tenants do.
        let (mut tags, mut seen) = (Vec::new(), (0, 0));
        let mut full = WhenFull::default();
        while full.refusals < PROVED && self.served < DRAWN {
            let evict = &mut |tenants: &Tenants<P>, index: usize| {
                let (unit, units) = tenants.place(index);
                let differing = gpu.differing(unit, units, tags.swap_remove(index))?;
                seen = (seen.0 + units as u64 * UNIT / 4, seen.1 + differing);
                Ok(())
            };
            self.request(plan, &mut full, evict, &mut *write)?;
            tags.push(self.served as u32);
        }
        let (compared, differing) = (seen.0 as f64, seen.1 as f64);
        Ok(vec![(Measure::Compared, compared), (Measure::Differing, differing)].into())
    }

    /// Gives everything back.
    fn clear(&mut self) -> Result<(), String> {
        while self.tenants.count() > 0 {
            self.tenants.evict(self.tenants.count() - 1)?;
        }
        Ok(())
    }
}

/// Runs the rounds of all contestants.
pub fn run(run: &mut Run<'_>) {
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(why) => {
            let row = (Measure::Compared, Vec::new());
            return run.add((Group::Gpu, "no GPU"), "all", row, Some(&why));
        }
    };
    let (seed, effort) = (run.seed, run.effort);
    let plan =
        |name, sizes, factor| GpuPlan::new(name, seed, sizes, factor, effort.replacements / 4);
    // Blocks of 64 KiB are sixteen tokens of a layer of a model with eight heads of 128 numbers for keys and values.
    let cache = plan("a cache of keys and values, 20..100 blocks of 64 KiB", Sizes::Cache, 128);
    let tensors = plan("4 KiB..64 MiB, each doubling as likely", Sizes::Doublings, 1);
    let title = |what: &str| format!("{}: {what}", gpu.title());
    let rounds = effort.rounds / 3;
    let limit = FILL * effort.rounds as u32;
    let proof = title(&format!("{}: contents of what is evicted", cache.name));
    run.contest((Group::Gpu, &proof), &contestants(), (1, limit), |who, _| {
        who.turn(&gpu, GpuTurn::Prove(&cache))
    });
    for (plan, is_written) in [(&cache, false), (&cache, true), (&tensors, false)] {
        let how = if is_written { "written when taken" } else { "not touched" };
        let workload = title(&format!("{}: {how}", plan.name));
        let turn = |who: &dyn GpuContestant| who.turn(&gpu, GpuTurn::Serve { plan, is_written });
        run.contest((Group::Gpu, &workload), &contestants(), (rounds, limit), |who, _| turn(who));
        if !is_written {
            // Each turn begins a process, which takes longer than the turn.
            run.contest((Group::Gpu, &workload), &in_python(), (1, limit), |who, _| turn(who));
        }
    }
    calls::run(run, &gpu);
}
