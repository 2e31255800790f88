//! Claims that a run must confirm.
//!
//! Some claims are about the designs themselves and are tried on small structures of their own ([`judge_engines`]); the
//! others read the run's measurements ([`judge_measurements`]). A claim that counts something is exact; one that
//! compares two times of the same run is a ratio.

use std::collections::VecDeque;

use nofrag::check::Check;
use nofrag::ranges::{
    AlignClasses, AlignOne, AlignRule, Config, Counters, Fit, Index, RangeAllocator, Request, Span,
};
use nofrag::vmap::{AreaRequest, Budget, Guard, Preset, VmapPolicy, VmapSpace};

use super::catalogue::{Program, SPECS, Spec, Width};
use super::programs::{FIRST_REFUSED_SHIFT, LONG_BUSY_AREAS};
use super::turns::{AreasPlan, EMULATED_CPUS};
use super::worker::{Audit, RunSize, Worker};
use super::{AFTER, BEFORE, OURS, SCENARIO, names};
use crate::oracle::{Claims, Oracle, Relation};
use crate::random::Random;
use crate::report::Report;
use crate::scenario::RunError;
use crate::spaces::{Failure, new_space};

/// Judges the claims about the designs themselves, which are tried on small structures.
pub(super) fn judge_engines(plan: &AreasPlan, report: &mut Report) -> Result<(), RunError> {
    type Trial = fn(&AreasPlan, &mut Vec<Oracle>) -> Result<(), Failure>;
    let trials: [(&str, Trial); 8] = [
        ("the fit types", fit_types),
        ("the searches", searches),
        ("misaligned holes", misaligned_holes),
        ("the padded search", padded_search),
        ("span over live", span_over_live),
        ("the lazy limit", lazy_limits),
        ("the pools", pools),
        ("an audited body", bodies),
    ];
    for (program, trial) in trials {
        trial(plan, &mut report.oracles)
            .map_err(|failure| RunError::engine("a design", program, failure))?;
    }
    Ok(())
}

fn records(error: impl std::fmt::Display) -> Failure {
    Failure::Records(error.to_string())
}

const TREE: Index = Index::AugmentedTree(AlignRule::Padded);

fn allocator(index: Index, holes: &[(u64, u64)]) -> Result<RangeAllocator, Failure> {
    let align_classes = AlignClasses::new(&[3, 9]).expect("ascending exponents from 1 to 30");
    let size_index = index == Index::WideBlocks;
    let mut ranges = RangeAllocator::new(Config { index, align_classes, size_index });
    for (start, end) in holes {
        let span = Span::new(*start, *end).map_err(records)?;
        ranges.add_span(span).map_err(|error| Failure::Records(format!("{error:?}")))?;
    }
    Ok(ranges)
}

fn free_of(ranges: &RangeAllocator) -> Vec<(u64, u64)> {
    ranges.iter_free().map(|hole| (hole.start(), hole.end())).collect()
}

/// A case of docs/sources/vmap.md#oracle-8: the part taken out of the hole [100,200), the holes that remain, and the
/// counter of that type of fit.
type Cut = ((u64, u64), &'static [(u64, u64)], fn(&Counters) -> u64);

/// Judges the four fits and the double merge, of the tree and of our index.
fn fit_types(_: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    let cuts: [Cut; 4] = [
        ((100, 200), &[], |counters| counters.fit_full),
        ((100, 110), &[(110, 200)], |counters| counters.fit_left_edge),
        ((190, 200), &[(100, 190)], |counters| counters.fit_right_edge),
        ((120, 130), &[(100, 120), (130, 200)], |counters| counters.fit_no_edge),
    ];
    let mut deviations = 0;
    for index in [TREE, Index::WideBlocks] {
        for ((start, end), left, fit) in cuts {
            let mut ranges = allocator(index, &[(100, 200)])?;
            ranges.alloc_at(Span::new(start, end).map_err(records)?).map_err(records)?;
            let right = free_of(&ranges) == left && fit(ranges.counters()) == 1;
            deviations += u32::from(!right) + u32::from(ranges.check().is_err());
        }
        let mut ranges = allocator(index, &[(0, 30)])?;
        let middle = Span::new(10, 20).map_err(records)?;
        ranges.alloc_at(middle).map_err(records)?;
        ranges.free(middle).map_err(records)?;
        let joined = free_of(&ranges) == [(0, 30)] && ranges.counters().merges_both == 1;
        deviations += u32::from(!joined) + u32::from(ranges.check().is_err());
    }
    let claim = "[100,200) is cut and joined as FL, LE, RE, NE and a double merge; deviations";
    claims.exact("fit-types", claim, f64::from(deviations), Relation::NONE);
    Ok(())
}

/// Returns random holes with gaps between them, ascending.
fn random_holes(random: &mut Random, count: usize, gap: u64, length: u64) -> Vec<(u64, u64)> {
    let mut end = 0;
    let mut hole = || {
        let start = end + random.between(1, gap);
        end = start + random.between(1, length);
        (start, end)
    };
    (0..count).map(|_| hole()).collect()
}

/// Finds the lowest place by looking at every hole.
fn linear_scan(holes: &[(u64, u64)], request: &Request) -> Option<u64> {
    holes.iter().find_map(|(start, end)| {
        let usable = Span::new(*start, *end).ok()?.intersection(request.within)?;
        usable.lowest_fit(request.size, request.align)
    })
}

/// Runs a query that leaves the allocator as it was; returns the place found, `None` if there is none, and the steps of
/// the search.
fn query(ranges: &mut RangeAllocator, request: &Request) -> Result<(Option<u64>, u64), Failure> {
    let before = ranges.counters().steps;
    let found = ranges.alloc(request).ok();
    let steps = ranges.counters().steps - before;
    if let Some(span) = found {
        ranges.free(span).map_err(records)?;
    }
    Ok((found.map(Span::start), steps))
}

/// Judges page-aligned searches of the tree, and all searches of ours, against a linear scan
/// (docs/sources/vmap.md#oracle-9).
fn searches(plan: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    let mut random = Random::new(plan.seed, 9);
    let (mut tree_wrong, mut ours_wrong, mut over_bound) = (0, 0, 0);
    for _ in 0..40 {
        let count = random.between(1, 400) as usize;
        let holes = random_holes(&mut random, count, 40, 1200);
        let end = holes[holes.len() - 1].1;
        let mut tree = allocator(TREE, &holes)?;
        let mut ours = allocator(Index::WideBlocks, &holes)?;
        let bound = 4.0 * ((count + 1) as f64).log2() + 8.0;
        for _ in 0..50 {
            let low = random.between(0, end);
            let size = random.between(1, 1300);
            let request = Request::new(size).within(Span::new(low, end + 1).map_err(records)?);
            let truth = linear_scan(&holes, &request);
            let (found, steps) = query(&mut tree, &request)?;
            tree_wrong += u32::from(found != truth);
            over_bound += u32::from(steps as f64 > bound);

            let high = random.between(low, end) + 1;
            let aligned = Request::new(random.between(1, 700))
                .align(1 << random.between(0, 10))
                .within(Span::new(low, high).map_err(records)?);
            let (found, _) = query(&mut ours, &aligned)?;
            ours_wrong += u32::from(found != linear_scan(&holes, &aligned));
        }
    }
    let claim = "the tree's page-aligned search equals a linear scan; differences in 2,000 queries";
    claims.exact("tree-search", claim, f64::from(tree_wrong), Relation::NONE);
    let claim = "and takes at most 4 log2(N+1) + 8 steps; queries above";
    claims.exact("tree-steps", claim, f64::from(over_bound), Relation::NONE);
    let claim = "ours equals it for alignments up to 4 MiB and any bounds; differences in 2,000";
    claims.exact("ours-search", claim, f64::from(ours_wrong), Relation::NONE);
    Ok(())
}

/// Counts the visits of a tree search without padding: it visits every hole that is large enough but misaligned.
fn misaligned_holes(_: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    let (mut deviations, mut ours_found) = (0, 0);
    for count in [256_u64, 1024, 4096, 16_384] {
        let holes: Vec<(u64, u64)> = (0..count).map(|i| (64 * i + 1, 64 * i + 33)).collect();
        let request = Request::new(32).align(64);
        let unpadded = Index::AugmentedTree(AlignRule::Unpadded);
        let (found, steps) = query(&mut allocator(unpadded, &by_levels(&holes))?, &request)?;
        deviations += u32::from(found.is_some() || steps != 2 * count - 1);
        let (found, _) = query(&mut allocator(Index::WideBlocks, &holes)?, &request)?;
        ours_found += u32::from(found.is_some());
    }
    let claim = "N misaligned holes: the unpadded tree finds nothing in 2N-1 steps; deviations";
    claims.exact("misaligned-holes", claim, f64::from(deviations), Relation::NONE);
    let claim = "and ours finds nothing either";
    claims.exact("ours-misaligned-holes", claim, f64::from(ours_found), Relation::NONE);
    Ok(())
}

/// Returns the order in which a sorted list becomes a perfectly balanced tree: level by level, each middle before its
/// halves.
fn by_levels(holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut order = Vec::new();
    let mut parts = VecDeque::from([holes]);
    while let Some(part) = parts.pop_front() {
        if let Some(middle) = part.get(part.len() / 2) {
            order.push(*middle);
            parts.extend([&part[..part.len() / 2], &part[part.len() / 2 + 1..]]);
        }
    }
    order
}

/// Judges the padded search (docs/sources/vmap.md#oracle-10): how often it misses a fit, or takes one that is not the
/// lowest; and the two places that tell its versions apart, which no share does.
fn padded_search(plan: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    const QUERIES: u32 = 10_000;
    let mut random = Random::new(plan.seed, 10);
    let (mut missed, mut not_lowest, mut found_at_all, mut ours_wrong) = (0, 0, 0, 0);
    for _ in 0..QUERIES / 5 {
        let holes = random_holes(&mut random, 200, 40, 60);
        let end = holes[holes.len() - 1].1;
        let mut tree = allocator(TREE, &by_levels(&holes))?;
        let mut ours = allocator(Index::WideBlocks, &holes)?;
        for _ in 0..5 {
            let low = random.between(0, end - 1);
            let request = Request::new(random.between(1, 20))
                .align(1 << random.between(1, 6))
                .within(Span::new(low, end).map_err(records)?);
            let truth = linear_scan(&holes, &request);
            let (found, _) = query(&mut tree, &request)?;
            found_at_all += u32::from(found.is_some());
            missed += u32::from(truth.is_some() && found.is_none());
            not_lowest += u32::from(found.is_some() && found != truth);
            ours_wrong += u32::from(query(&mut ours, &request)?.0 != truth);
        }
    }
    let percent = |part: u32, whole: u32| 100.0 * f64::from(part) / f64::from(whole.max(1));
    let claim = "places of the padded tree that are not the lowest, in % of 10,000 aligned queries \
                 (simulated: 9.9)";
    claims.ratio("padded-not-lowest", claim, percent(not_lowest, QUERIES), near(9.9, 1.5));
    let claim = "and in % of the places found (simulated: 11.5)";
    claims.ratio(
        "padded-found-not-lowest",
        claim,
        percent(not_lowest, found_at_all),
        near(11.5, 1.5),
    );
    let claim = "existing fits that it misses, in % of the queries (simulated: 13.7)";
    claims.ratio("padded-missed", claim, percent(missed, QUERIES), near(13.7, 0.8));
    let claim = "our index neither misses nor takes a higher one; wrong answers in 10,000";
    claims.exact("ours-aligned", claim, f64::from(ours_wrong), Relation::NONE);
    let claim = "5 pages at a multiple of 8, holes [100,1000) and below it [1,13): 104 where Linux pads, 8 where it \
                 does not and in ours; 65 pages, holes [100,110) and [1,66): refused up to 5.15 if aligned to a page, \
                 else 1; deviations";
    claims.exact("padded-witness", claim, witnesses()?, Relation::NONE);
    Ok(())
}

/// Counts deviations of the designs' answers from those that the rule gives by hand.
fn witnesses() -> Result<f64, Failure> {
    let [padded, unpadded, since_5_18] =
        [AlignRule::Padded, AlignRule::Unpadded, AlignRule::PaddedUnlessExact]
            .map(Index::AugmentedTree);
    let aligned = Request::new(5).align(8);
    let of_a_page = Request::new(65).align_one(AlignOne::Number);
    let (low, exact) = ([(100, 1000), (1, 13)], [(100, 110), (1, 66)]);
    let cases = [
        (padded, low, aligned, Some(104)),
        (since_5_18, low, aligned, Some(104)),
        (unpadded, low, aligned, Some(8)),
        (Index::WideBlocks, low, aligned, Some(8)),
        (padded, exact, of_a_page, None),
        (padded, exact, Request::new(65), Some(1)),
        (unpadded, exact, of_a_page, Some(1)),
        (since_5_18, exact, of_a_page, Some(1)),
    ];
    let mut deviations = 0;
    for (index, holes, request, expected) in cases {
        let (found, _) = query(&mut allocator(index, &holes)?, &request)?;
        deviations += u32::from(found != expected);
    }
    Ok(deviations.into())
}

fn near(value: f64, tolerance: f64) -> Relation {
    Relation::Between(value - tolerance, value + tolerance)
}

/// Judges how far above its live pages a random mix reaches, over the same mix under the exact lowest fit
/// (docs/sources/vmap.md#oracle-11): exactness and best fit gain little. The values themselves scatter from seed to
/// seed by more than the rules differ.
fn span_over_live(plan: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    const SEEDS: u64 = 8;
    const RUNS: u64 = 4;
    let kernel = Index::AugmentedTree(AlignRule::PaddedUnlessExact);
    let (mut kernel_sum, mut best_sum) = (0.0, 0.0);
    for seed in 0..SEEDS {
        let mean = |index, fit| {
            let mut total = 0.0;
            for run in 0..RUNS {
                let mut random = Random::new(plan.seed, 110 + RUNS * seed + run);
                total += mean_span(&mut random, index, fit)?;
            }
            Ok::<f64, Failure>(total)
        };
        let lowest = mean(Index::WideBlocks, Fit::Lowest)?;
        kernel_sum += mean(kernel, Fit::Lowest)? / lowest;
        best_sum += mean(Index::WideBlocks, Fit::Best)? / lowest;
    }
    let claim = "highest end over live pages of a random mix, the kernel's rule over exact lowest \
                 fit (simulated: 1.042)";
    let kernel = kernel_sum / SEEDS as f64;
    claims.ratio("span-kernel", claim, kernel, Relation::Between(1.025, 1.06));
    let claim = "and best fit over exact lowest fit (simulated: 1.009)";
    let best = best_sum / SEEDS as f64;
    claims.ratio("span-best", claim, best, Relation::Between(0.99, 1.03));
    Ok(())
}

fn mean_span(random: &mut Random, index: Index, fit: Fit) -> Result<f64, Failure> {
    let mut ranges = allocator(index, &[(0, 1 << 22)])?;
    let mut live: Vec<Span> = Vec::new();
    let (mut sum, mut samples) = (0.0, 0);
    for operation in 0..12_000 {
        if live.len() < 300 || random.between(0, 1) == 0 {
            let aligned = random.between(0, 3) == 0;
            let (size, align) = if aligned { (1024, 1024) } else { (random.between(2, 101), 1) };
            let request = Request::new(size).align(align).fit(fit);
            live.push(ranges.alloc(&request).map_err(records)?);
        } else {
            let at = random.index(live.len());
            ranges.free(live.swap_remove(at)).map_err(records)?;
        }
        if operation >= 3_000 && operation % 50 == 0 {
            let end = live.iter().map(|span| span.end()).max().unwrap_or(0);
            let pages: u64 = live.iter().map(|span| span.len()).sum();
            sum += end as f64 / pages as f64;
            samples += 1;
        }
    }
    Ok(sum / f64::from(samples))
}

/// Linux's lazy limits by number of CPUs, in MiB (docs/sources/vmap.md#oracle-12).
const LIMITS_MIB: [(usize, u64); 9] =
    [(1, 32), (2, 64), (4, 96), (8, 128), (16, 160), (32, 192), (64, 224), (128, 256), (256, 288)];

/// Judges the lazy limits of Linux, and that a purge begins one page above the limit.
fn lazy_limits(plan: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    let limit = VmapPolicy::LINUX_4_19.lazy_limit;
    let wrong = |(cpus, mib): &&(usize, u64)| limit.pages(*cpus) != mib * 256;
    let wrong = LIMITS_MIB.iter().filter(wrong).count();
    let claim = "the lazy limit of 1 to 256 CPUs (J is 16,384 for 2, 57,344 for 64); deviations";
    claims.exact("lazy-limit", claim, wrong as f64, Relation::NONE);
    let mut deviations = 0;
    for design in &plan.designs {
        let space = new_space(design.policy, 1 << 20, EMULATED_CPUS)?;
        let limit = space.lazy_limit().get();
        free_pages(&space, limit)?;
        deviations += u32::from(space.counters().purge.areas != 0 || space.drain_wanted());
        free_pages(&space, 1)?;
        deviations += u32::from(space.counters().purge.areas == 0 && !space.drain_wanted());
    }
    let claim = "nothing is drained at the limit, and one page above it something is; deviations";
    claims.exact("drain-at-limit", claim, f64::from(deviations), Relation::NONE);
    Ok(())
}

/// Allocates areas of `pages` pages in all and frees them.
fn free_pages(space: &VmapSpace, pages: u64) -> Result<(), Failure> {
    let cpu = space.cpus().by_rank(0).expect("every space has a CPU");
    let request = AreaRequest::new(pages).guard(Guard::None);
    let area = space.alloc(cpu, &request)?;
    space.free(cpu, area.start)?;
    Ok(())
}

/// Judges the pools of 6.9 (docs/sources/vmap.md#oracle-13): the pages that one request takes, and the areas that a
/// partial decay leaves.
fn pools(_: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    let pooled = |count: usize| -> Result<(VmapSpace, u64), Failure> {
        let space = new_space(VmapPolicy::LINUX_6_9, 1 << 20, EMULATED_CPUS)?;
        let cpu = space.cpus().by_rank(0).expect("every space has a CPU");
        let mut areas = Vec::new();
        for _ in 0..count {
            areas.push(space.alloc(cpu, &AreaRequest::new(1))?);
        }
        let busy_pages = space.stats().busy_pages;
        for area in areas {
            space.free(cpu, area.start)?;
        }
        space.step(Budget { areas: usize::MAX });
        Ok((space, busy_pages))
    };
    let (space, busy_pages) = pooled(1)?;
    let claim = "an area of one page takes two";
    claims.exact("guard-page", claim, busy_pages as f64, Relation::Equals(2.0));
    let cpu = space.cpus().by_rank(0).expect("every space has a CPU");
    space.alloc(cpu, &AreaRequest::new(1))?;
    let claim = "and its flushed area serves the next request for one page from the pool";
    claims.exact("pool-hit", claim, space.counters().pools.hits as f64, Relation::Equals(1.0));
    let mut deviations = 0;
    for count in [0, 1, 2, 3, 4, 7, 8, 100] {
        let (space, _) = pooled(count)?;
        space.step(Budget { areas: usize::MAX });
        let left = space.stats().pooled_areas as usize;
        deviations += u32::from(left != count - count / 4);
    }
    let claim = "a partial decay leaves n - floor(n/4) of n pooled areas; deviations";
    claims.exact("pool-decay", claim, f64::from(deviations), Relation::NONE);
    Ok(())
}

/// Runs the chosen programs under every design, small and with a check of each area (docs/sources/vmap.md#oracle-14).
fn bodies(plan: &AreasPlan, claims: &mut Vec<Oracle>) -> Result<(), Failure> {
    let (mut areas, mut overlaps, mut misfits, mut left, mut unclean) = (0, 0, 0, 0, 0);
    for spec in plan.programs.iter().filter(|spec| is_audited(spec)) {
        for design in &plan.designs {
            let (audit, space, shift) = audited(plan, spec, design)?;
            areas += audit.areas;
            overlaps += audit.overlaps;
            misfits += audit.misfits;
            space.purge_all();
            let stats = space.stats();
            left += stats.total_pages - stats.free_pages + u64::from(space.check().is_err());
            let clean = shift.is_some_and(|shift| (13.0..=63.0).contains(&shift));
            unclean += u32::from(spec.program == Program::AlignShift && !clean);
        }
    }
    let claim =
        format!("no two of {areas} live areas share a page, guard pages included; overlaps");
    claims.exact("no-overlap", claim, overlaps as f64, Relation::NONE);
    let claim =
        "every area has the size, alignment, bounds and guard that were asked for; deviations";
    claims.exact("as-requested", claim, misfits as f64, Relation::NONE);
    let claim = "everything comes back after a purge, and every law holds; pages or laws missing";
    claims.exact("all-returned", claim, left as f64, Relation::NONE);
    let claim = "align_shift ends with a refusal under every design; deviations";
    claims.exact("align-shift", claim, f64::from(unclean), Relation::NONE);
    Ok(())
}

/// Returns true for programs that are quick to prepare: all of the kernel's, and most of ours.
pub(super) fn is_audited(spec: &Spec) -> bool {
    let small = match spec.program {
        Program::Churn { live, .. } => live <= 10_000,
        Program::MixedParams(areas) => areas <= 1_000,
        _ => true,
    };
    small && spec.width == Width::Single
}

type Audited = (Audit, VmapSpace, Option<f64>);

pub(super) fn audited(plan: &AreasPlan, spec: &Spec, design: &Preset) -> Result<Audited, Failure> {
    let space = new_space(design.policy, spec.space_pages(), EMULATED_CPUS)?;
    let loops = spec.loops(50, super::catalogue::Search::Descends, plan.extent);
    let size = RunSize { loops, pages: plan.pages, cpus: EMULATED_CPUS, threads: 1 };
    let random = Random::new(plan.seed, spec.info.bit);
    let mut worker = Worker::new(&space, 0, size, random, Audit::default());
    spec.program.run(&mut worker)?;
    let (audit, shift) =
        (worker.watch, worker.sample.extra.get(&FIRST_REFUSED_SHIFT).map(|it| it.get()));
    Ok((audit, space, shift))
}

/// Judges that one seed gives one set of counts.
pub(super) fn judge_stability(unstable: &[String], report: &mut Report) {
    let claim = "repetitions with the same seed count the same; single-threaded rows that differ";
    report.oracles.exact("same-seed", claim, unstable.len() as f64, Relation::NONE);
    if !unstable.is_empty() {
        report.notes.push(format!("counts differ between repetitions: {}", unstable.join(", ")));
    }
}

/// Judges the claims of the document, and ours, by the measurements; those whose programs or designs were not run are
/// left out.
pub(super) fn judge_measurements(report: &mut Report) {
    judge_walks(report);
    judge_fits(report);
    SCENARIO.judge(report);
}

fn judge_walks(report: &mut Report) {
    let hole = "long_busy_hole";
    let steps = |design| report.count(hole, design, names::STEPS_PER_LOOP);
    let [before, after, ours] = [BEFORE, AFTER, OURS].map(steps);
    let clean = report.count("fix_size_alloc", BEFORE, names::STEPS_PER_SEARCH);
    let claims = &mut report.oracles;
    let claim = "4.19 walks over all 15,000 areas in each loop of long_busy_hole; steps per loop";
    claims.exact("hole-walk-before", claim, before, Relation::AtLeast(LONG_BUSY_AREAS as f64));
    for (id, design, steps) in [("hole-walk-after", AFTER, after), ("hole-walk-ours", OURS, ours)] {
        let claim = format!("{design} needs no walk: steps per loop, two searches each");
        claims.exact(id, claim, steps, Relation::AtMost(64.0));
    }
    let claim = "4.19 is not slow on a clean space: steps per search of fix_size";
    claims.exact("clean-before", claim, clean, Relation::AtMost(4.0));
}

fn judge_fits(report: &mut Report) {
    let full = report.count("full_fit_alloc", AFTER, &names::FITS[0]);
    let split = report.count("fix_align_alloc", AFTER, &names::FITS[3]);
    let kept = |spec: &Spec| {
        let free = report.count(spec.info.name, AFTER, names::FREE_OBJECTS)?;
        let busy = report.count(spec.info.name, BEFORE, names::BUSY_OBJECTS)?;
        // One free area is the rest of the space; an empty space has no busy area.
        Some(f64::from(u8::from(free > busy + 1.0)))
    };
    let of_kernel = SPECS.iter().filter(|spec| spec.is_of_kernel());
    let more = of_kernel.filter_map(kept).reduce(|one, other| one + other);
    let claims = &mut report.oracles;
    let claim = "full_fit is served by full fits; their share";
    claims.exact("full-fit", claim, full, Relation::AtLeast(0.99));
    let claim = "fix_align splits free areas (no edge); their share";
    claims.exact("align-splits", claim, split, Relation::AtLeast(0.5));
    let claim = "5.2 keeps no more free areas than 4.19 keeps busy ones, but for the rest of the space; programs of \
                 the kernel's test with more";
    claims.exact("fewer-objects", claim, more, Relation::NONE);
}
