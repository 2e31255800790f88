//! Fidelity: the distance of the replay under the recorded kernel's own rules from that kernel.
//!
//! A replay under the recorded kernel's own rules is run as every other policy is, with reclaim and compaction of its
//! own, under several seeds, and each of its figures stands beside the kernel's. A figure vouches for something only if
//! the middle of these runs is within its bound and they lie no farther apart than that bound is wide; [`Answer`]s
//! apply this to the questions that people ask of a replay.

use nofrag::page::{Migratetype, PageAllocator, ZoneKind};
use nofrag::units::Order;
use nofrag_host::snapshot::{Snapshot, ZoneName};

use super::outcome::{
    Answer, ByOrder, ByType, Counts, Fidelity, FidelityFigure, ORDERS, Query, Range,
    Recorded as Traced, Repeat, Tolerance, Verdict, events_of, figures, served,
};
use super::timeline::idle;
use crate::key::Key;

/// Counts of the recorded kernel below this prove nothing: twice as many may be chance.
const FEW: f64 = 10.0;
/// Zones with at most this many managed pages are left out when free memory is compared by zone.
const SMALL: u64 = 2048;

/// The results of a run under one seed, and its memory at the end.
type Ran<'a> = (&'a Repeat, &'a End);

/// The memory of a run at its end.
#[derive(Clone, Debug)]
pub(super) struct End(Vec<ZoneEnd>);

#[derive(Clone, Debug)]
struct ZoneEnd {
    kind: ZoneKind,
    node: u32,
    /// Pages that are free, or on the lists of CPUs.
    idle: u64,
    blocks: ByOrder,
    types: ByType,
}

impl End {
    pub(super) fn of(pages: &PageAllocator) -> End {
        let zone = |zone: nofrag::page::ZoneInfo| {
            let blocks = |order| {
                let of = |kind| pages.free_blocks(zone.id, order, kind);
                Migratetype::ALL.map(of).iter().sum()
            };
            let mut types = ByType::default();
            for block in pages.pageblocks().filter(|block| block.zone == zone.id) {
                types[block.migratetype.index()] += 1;
            }
            let mut by_order = ByOrder::default();
            Order::all().for_each(|order| by_order[order.index()] = blocks(order));
            let idle = idle(pages, &zone);
            ZoneEnd { kind: zone.kind, node: zone.node.0.into(), idle, blocks: by_order, types }
        };
        End(pages.zones().map(zone).collect())
    }

    /// Returns the number of free blocks of a pageblock or more.
    pub(super) fn large_blocks(&self) -> u64 {
        self.0.iter().map(|zone| large(&zone.blocks)).sum()
    }

    fn zone(&self, name: &ZoneName) -> Option<&ZoneEnd> {
        let kind = name.kind()?;
        self.0.iter().find(|zone| zone.kind == kind && zone.node == name.node)
    }
}

/// The recorded kernel: its snapshots before and after, and its traced counts.
pub(super) struct Truth<'a> {
    pub(super) start: &'a Snapshot<'a>,
    pub(super) end: &'a Snapshot<'a>,
    pub(super) traced: &'a Traced,
    /// True if the recording has the event for pages that compaction moved.
    pub(super) traces_moves: bool,
    /// Pages of each zone that are free at the end, as followed through the events alone.
    pub(super) followed: Vec<(ZoneName, u64)>,
}

/// Compares the runs under the recorded kernel's rules (`preset`), one a seed, with that kernel.
pub(super) fn fidelity(
    preset: &str,
    (repeats, ends): (&[Repeat], &[End]),
    truth: &Truth<'_>,
) -> Fidelity {
    let runs = repeats.iter().zip(ends).collect();
    let mut beside = Beside { runs, figures: Vec::new() };
    beside.requests(truth.traced);
    beside.events(truth.traced);
    beside.price(preset, truth);
    beside.large_blocks(truth.end);
    beside.free_pages(truth);
    beside.free_over_time(truth);
    beside.pageblock_types(truth.end);
    beside.blocks_by_order(truth.end);
    let figures = beside.figures;
    let answers = Query::ALL.map(|query| answer(query, &figures));
    Fidelity { preset: preset.to_owned(), figures, answers: answers.to_vec() }
}

/// Judges a comparison again where the kernel was recorded several times under one workload: the tolerance of a figure
/// that all recordings have is the range of its values there.
pub(super) fn among_repeats(fidelity: &Fidelity, others: &[Fidelity]) -> Fidelity {
    let bound = |figure: &FidelityFigure| {
        let of_others = others.iter().filter_map(|other| {
            other.figures.iter().find(|it| it.name == figure.name).map(|it| it.recorded)
        });
        let recorded: Vec<f64> = of_others.chain([figure.recorded]).collect();
        let range = Range::of(recorded.clone()).filter(|_| recorded.len() == others.len() + 1);
        let Some(Range { least, most, .. }) = range else { return figure.clone() };
        let tolerance = Tolerance::Repeats(least, most);
        let verdict = verdict(figure.recorded, &figure.replayed, tolerance);
        FidelityFigure { tolerance, verdict, ..figure.clone() }
    };
    let figures: Vec<FidelityFigure> = fidelity.figures.iter().map(bound).collect();
    let answers = Query::ALL.map(|query| answer(query, &figures)).to_vec();
    Fidelity { preset: fidelity.preset.clone(), figures, answers }
}

/// Returns the worst verdict of the figures that a question rests on, with the names of those that do not hold.
fn answer(query: Query, figures: &[FidelityFigure]) -> Answer {
    let of: Vec<&FidelityFigure> =
        figures.iter().filter(|figure| figure.carries.contains(&query)).collect();
    let verdict = of.iter().map(|figure| figure.verdict).max().unwrap_or(Verdict::TooFew);
    let why = of.iter().filter(|figure| figure.verdict != Verdict::Holds);
    Answer { query, verdict, rests_on: why.map(|figure| figure.name.clone()).collect() }
}

/// Returns the rise of a counter of `vmstat` from one snapshot to the other; `None` if one of them lacks it.
pub(super) fn counted(start: &Snapshot<'_>, end: &Snapshot<'_>, name: &str) -> Option<u64> {
    let (start, end) = (start.vmstat.get(name)?, end.vmstat.get(name)?);
    Some(end.saturating_sub(start))
}

struct Beside<'a> {
    runs: Vec<Ran<'a>>,
    figures: Vec<FidelityFigure>,
}

impl Beside<'_> {
    fn push(
        &mut self,
        name: Key,
        recorded: f64,
        tolerance: Tolerance,
        carries: &[Query],
        of: impl Fn(Ran<'_>) -> Option<f64>,
    ) {
        let values: Option<Vec<f64>> = self.runs.iter().map(|run| of(*run)).collect();
        let Some(replayed) = values.and_then(Range::of) else { return };
        let verdict = verdict(recorded, &replayed, tolerance);
        let carries = carries.to_vec();
        self.figures.push(FidelityFigure { name, recorded, replayed, tolerance, verdict, carries });
    }

    fn requests(&mut self, traced: &Traced) {
        let bound = Tolerance::PercentOr(15.0, 2.0);
        for (name, orders) in ORDERS {
            let sum = |by_order: &ByOrder| by_order[orders.clone()].iter().sum::<u64>() as f64;
            let asked = sum(&traced.requests);
            if asked == 0.0 {
                continue;
            }
            let is_huge = orders.contains(&Order::PAGEBLOCK.index());
            let carries: &[Query] = if is_huge { &[Query::Huge] } else { &[] };
            let answered = asked - sum(&traced.failures);
            self.push(served(name), answered, bound, carries, |(run, _)| {
                let Counts { requests, served, .. } = &run.counts;
                // Single pages in the place of a huge one, and second tries for one, are asked for on one side alone.
                Some(if is_huge { sum(served) } else { asked - (sum(requests) - sum(served)) })
            });
        }
    }

    fn events(&mut self, traced: &Traced) {
        let bound = Tolerance::FactorOr(2.0, 5.0);
        let sum = |by_type: &ByType| by_type.iter().sum::<u64>() as f64;
        let carries = &[Query::Events, Query::Mistyped];
        let mut push = |name: &Key, recorded: f64, carries: &[Query], of: fn(&Counts) -> u64| {
            self.push(name.clone(), recorded, bound, carries, |(run, _)| {
                Some(of(&run.counts) as f64)
            });
        };
        push(&figures::EVENTS, sum(&traced.extfrag), carries, |it| it.extfrag.iter().sum());
        push(&figures::SERIOUS, sum(&traced.serious), &[], |it| it.serious.iter().sum());
        push(&figures::CLAIMS, traced.claims as f64, &[], |it| it.claims);
        for kind in Migratetype::MOBILITY {
            let recorded = traced.extfrag[kind.index()] as f64;
            self.push(events_of(kind), recorded, bound, &[], |(run, _)| {
                Some(run.counts.extfrag[kind.index()] as f64)
            });
        }
    }

    fn price(&mut self, preset: &str, truth: &Truth<'_>) {
        let difference = |name: &str| counted(truth.start, truth.end, name);
        let mut push =
            |name: Key, recorded: Option<u64>, carries: &[Query], of: fn(&Counts) -> u64| {
                let Some(recorded) = recorded else { return };
                let bound = Tolerance::FactorOr(2.0, 5.0);
                self.push(name, recorded as f64, bound, carries, |(run, _)| {
                    Some(of(&run.counts) as f64)
                });
            };
        // The counter has pages that were moved to another node, too.
        let counted = || difference("pgmigrate_success").unwrap_or(0);
        let moved = if truth.traces_moves { truth.traced.moved } else { counted() };
        push(Key::count("pages moved by compaction"), Some(moved), &[Query::Moves], |it| it.moved);
        let stalls = difference("compact_stall");
        push(
            figures::COMPACTIONS.clone(),
            stalls,
            &[],
            match crate::kernels::counts_put_off(preset.trim_start_matches("linux-")) {
                true => |it| it.compactions + it.compactions_put_off,
                false => |it| it.compactions,
            },
        );
        let kswapd = truth.traced.reclaimed_kswapd;
        push(Key::count("pages reclaimed by kswapd"), kswapd, &[Query::Reclaim], |it| {
            it.reclaimed_kswapd
        });
        let entries = Some(truth.traced.direct_reclaims);
        push(Key::count("direct reclaims"), entries, &[Query::Direct], |it| it.direct_reclaims);
        let direct = Some(truth.traced.reclaimed_direct);
        push(figures::DIRECT_PAGES.clone(), direct, &[], |it| it.reclaimed_direct);
    }

    fn large_blocks(&mut self, end: &Snapshot<'_>) {
        let recorded: u64 = end.buddy.iter().map(|zone| large(&zone.blocks)).sum();
        let bound = Tolerance::PercentOr(15.0, 2.0);
        let name = Key::count("free blocks of order 9 and above");
        self.push(name, recorded as f64, bound, &[Query::Largest], |(run, _)| {
            Some(run.large_at_end as f64)
        });
    }

    /// Compares the pages that nobody uses at the end, free or on the lists of CPUs. The tolerance is at least the
    /// error of the events alone, of which no run can know more.
    fn free_pages(&mut self, truth: &Truth<'_>) {
        let recorded = truth.end.populated().map(|zone| zone.free + zone.on_per_cpu_lists());
        let missed: u64 = truth.followed.iter().map(|(_, free)| free).sum();
        let recorded: u64 = recorded.sum();
        let all = |(_, end): Ran<'_>| Some(end.0.iter().map(|zone| zone.idle).sum::<u64>() as f64);
        self.push(figures::FREE.clone(), recorded as f64, free_bound(recorded, missed), &[], all);
        for zone in truth.end.populated().filter(|zone| zone.managed > SMALL) {
            let recorded = zone.free + zone.on_per_cpu_lists();
            let followed = truth.followed.iter().find(|(name, _)| *name == zone.zone);
            let followed = followed.map_or(recorded, |(_, free)| *free);
            let name = Key::count("free pages, ").with(label(&zone.zone));
            self.push(name, recorded as f64, free_bound(recorded, followed), &[], |(_, end)| {
                Some(end.zone(&zone.zone)?.idle as f64)
            });
        }
    }

    /// Compares the pages of each zone that nobody uses, on average over time. Between snapshots only the events tell
    /// the kernel's free pages, so the tolerance is that of the end.
    fn free_over_time(&mut self, truth: &Truth<'_>) {
        for (number, (zone, at_end)) in truth.followed.iter().enumerate() {
            let Some(taken) = truth.end.populated().find(|taken| taken.zone == *zone) else {
                continue;
            };
            let recorded = truth.traced.followed.iter().filter_map(|it| it.idle.get(number));
            let Some(recorded) = mean(recorded) else { continue };
            if taken.managed > SMALL {
                let bound = free_bound(taken.free + taken.on_per_cpu_lists(), *at_end);
                let name = Key::number("free pages over time, ").with(label(zone));
                self.push(name, recorded, bound, &[], |(run, _)| {
                    mean(run.timeline.iter().filter_map(|sample| sample.idle.get(number)))
                });
            }
        }
    }

    fn pageblock_types(&mut self, end: &Snapshot<'_>) {
        let Some(types) = &end.types else { return };
        for zone in end.populated() {
            for kind in Migratetype::MOBILITY {
                let Some(recorded) = types.pageblocks_of(&zone.zone, kind) else { continue };
                let name = Key::from(format!("{kind} pageblocks, {}", label(&zone.zone)));
                let bound = Tolerance::FactorOr(1.1, 3.0);
                self.push(name, recorded as f64, bound, &[Query::Mistyped], |(_, end)| {
                    Some(end.zone(&zone.zone)?.types[kind.index()] as f64)
                });
            }
        }
    }

    fn blocks_by_order(&mut self, end: &Snapshot<'_>) {
        for zone in end.populated() {
            let Some(buddy) = end.blocks(&zone.zone) else { continue };
            for (order, &recorded) in Order::all().zip(&buddy.blocks) {
                let name = Key::count("free blocks of order ");
                let name = name.with(format_args!("{}, {}", order.get(), label(&zone.zone)));
                let bound = Tolerance::FactorOr(1.5, 10.0);
                self.push(name, recorded as f64, bound, &[], |(_, end)| {
                    Some(end.zone(&zone.zone)?.blocks[order.index()] as f64)
                });
            }
        }
    }
}

fn mean<'a>(values: impl Iterator<Item = &'a u64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, n), &value| (sum + value as f64, n + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// Returns the number of blocks of a pageblock or more, from the numbers by order.
fn large(blocks: &[u64]) -> u64 {
    blocks.iter().skip(Order::PAGEBLOCK.index()).sum()
}

/// Returns a tolerance of two percent, or of the error of the events alone (`followed`) if that is larger.
fn free_bound(recorded: u64, followed: u64) -> Tolerance {
    let missed = 100.0 * followed.abs_diff(recorded) as f64 / recorded.max(1) as f64;
    Tolerance::Percent(missed.max(2.0))
}

fn label(zone: &ZoneName) -> String {
    match zone.node {
        0 => zone.name.clone(),
        node => format!("{} of node {node}", zone.name),
    }
}

/// Judges a figure. It holds if the middle of its runs is within the bound, and they lie no farther apart than the
/// bound is wide; it is off if no run could be within it. Beside repeats of the kernel, which are few, the ranges have
/// to overlap, and the runs may lie twice as far apart.
fn verdict(recorded: f64, replayed: &Range, tolerance: Tolerance) -> Verdict {
    let [low, high] = tolerance.bound(recorded);
    let Range { least, median, most } = *replayed;
    if most < low || high < least {
        Verdict::Off
    } else if let Tolerance::Repeats(..) = tolerance {
        if most - least > 2.0 * (high - low) { Verdict::Wide } else { Verdict::Holds }
    } else if median < low || high < median || most - least > high - low {
        Verdict::Wide
    } else if (1.0..FEW).contains(&recorded) && most > 0.0 && is_count(tolerance) {
        // So few that the bound allows for nothing and for twice as many alike.
        Verdict::TooFew
    } else {
        Verdict::Holds
    }
}

/// Returns true for a bound on counts of rare events.
fn is_count(tolerance: Tolerance) -> bool {
    matches!(tolerance, Tolerance::FactorOr(factor, _) if factor >= 2.0)
}

#[cfg(test)]
mod tests {
    use nofrag_host::snapshot::Files;

    use super::super::outcome::{Followed, Sample};
    use super::*;

    fn of(values: &[f64], recorded: f64, tolerance: Tolerance) -> Verdict {
        verdict(recorded, &Range::of(values.to_vec()).expect("some"), tolerance)
    }

    fn files(vmstat: &str) -> Files {
        let mut files = Files::default();
        files.insert("vmstat", vmstat.as_bytes().to_vec());
        let zoneinfo = [
            "Node 0, zone   Normal\n",
            "  pages free     5000\n",
            "        boost    0\n",
            "        min      10\n",
            "        low      12\n",
            "        high     14\n",
            "        spanned  8192\n",
            "        present  8192\n",
            "        managed  8000\n",
            "        protection: (0, 0)\n",
            "  start_pfn:           0\n",
        ]
        .concat();
        files.insert("zoneinfo", zoneinfo.as_bytes().to_vec());
        files
    }

    /// Returns the figures of one run without any work, beside a kernel with these counts.
    fn beside(vmstat: [&str; 2], traced: &Traced, traces_moves: bool) -> Vec<FidelityFigure> {
        let [start, end] = vmstat.map(files);
        let [start, end] = [&start, &end].map(Snapshot::parse);
        let zone = end.populated().next().expect("there is a zone").zone.clone();
        let followed = vec![(zone, 5000)];
        let truth = Truth { start: &start, end: &end, traced, traces_moves, followed };
        let sample = |idle| Sample { idle: vec![idle], ..Sample::default() };
        let timeline = vec![sample(3000), sample(4000), sample(5000)];
        let repeat = Repeat { timeline, ..Repeat::default() };
        fidelity("linux-6.1", (&[repeat], &[End(Vec::new())]), &truth).figures
    }

    fn recorded(figures: &[FidelityFigure], name: &str) -> f64 {
        figures
            .iter()
            .find(|figure| figure.name.name() == name)
            .expect("there is such a figure")
            .recorded
    }

    /// Takes the moved pages from the trace where it has the event: `pgmigrate_success` also counts pages moved to
    /// another node (here 269 of them, and none by compaction).
    #[test]
    fn pages_moved_are_those_that_the_trace_has_of_compaction() {
        let vmstat = ["pgmigrate_success 0\n", "pgmigrate_success 269\n"];
        let moved = |traces| {
            recorded(&beside(vmstat, &Traced::default(), traces), "pages moved by compaction")
        };
        assert_eq!((moved(true), moved(false)), (0.0, 269.0));
    }

    /// Compares like with like: a kernel up to 6.12 counts compactions that were put off, a later one does not.
    #[test]
    fn compactions_that_were_put_off_count_where_the_kernel_counts_them() {
        let [start, end] = ["compact_stall 0\n", "compact_stall 7\n"].map(files);
        let [start, end] = [&start, &end].map(Snapshot::parse);
        let traced = &Traced::default();
        let truth =
            Truth { start: &start, end: &end, traced, traces_moves: true, followed: Vec::new() };
        let mut repeat = Repeat::default();
        repeat.counts.compactions = 3;
        repeat.counts.compactions_put_off = 4;
        let replayed = |preset| {
            let figures = fidelity(preset, (&[repeat.clone()], &[End(Vec::new())]), &truth).figures;
            let figure = figures.iter().find(|figure| figure.name == figures::COMPACTIONS);
            figure.expect("there is such a figure").replayed.median
        };
        assert_eq!(["linux-6.1", "linux-6.12", "linux-7.2"].map(replayed), [7.0, 7.0, 3.0]);
    }

    #[test]
    fn repeats_of_the_kernel_bound_what_all_of_them_have() {
        let kernel = |events: u64, claims| Traced {
            extfrag: [events, 0, 0, 0, 0, 0],
            claims,
            ..Traced::default()
        };
        let of = |traced: &Traced| Fidelity {
            preset: "linux-6.1".to_owned(),
            figures: beside(["", ""], traced, true),
            answers: Vec::new(),
        };
        let one = of(&kernel(27, 3));
        let mut other = of(&kernel(52, 4));
        other.figures.retain(|figure| figure.name != figures::CLAIMS);
        let bound = among_repeats(&one, &[other, of(&kernel(30, 5))]);
        let tolerance = |name: &Key| {
            bound.figures.iter().find(|figure| figure.name == *name).expect("a figure").tolerance
        };
        assert_eq!(tolerance(&figures::EVENTS), Tolerance::Repeats(27.0, 52.0));
        assert_eq!(tolerance(&figures::CLAIMS), Tolerance::FactorOr(2.0, 5.0), "one lacks it");
    }

    #[test]
    fn free_pages_over_time_are_set_beside_what_the_events_say() {
        let followed = [2000, 4000].map(|idle| Followed { at: 0, idle: vec![idle] }).to_vec();
        let figures = beside(["", ""], &Traced { followed, ..Traced::default() }, true);
        let figure = figures.iter().find(|it| it.name.name() == "free pages over time, Normal");
        let figure = figure.expect("there is such a figure");
        assert_eq!((figure.recorded, figure.replayed.median), (3000.0, 4000.0));
        assert_eq!(figure.verdict, Verdict::Off);
    }

    #[test]
    fn a_tolerance_is_a_share_or_a_factor_or_a_number() {
        assert_eq!(Tolerance::Percent(2.0).bound(1000.0), [980.0, 1020.0]);
        assert_eq!(Tolerance::PercentOr(15.0, 2.0).bound(100.0), [85.0, 115.0]);
        assert_eq!(Tolerance::PercentOr(15.0, 2.0).bound(1.0), [-1.0, 3.0]);
        assert_eq!(Tolerance::FactorOr(2.0, 5.0).bound(100.0), [50.0, 200.0]);
        assert_eq!(Tolerance::FactorOr(2.0, 5.0).bound(1.0), [-4.0, 6.0]);
        assert_eq!(Tolerance::Percent(2.0).bound(0.0), [0.0, 0.0]);
    }

    #[test]
    fn a_figure_holds_by_its_middle_and_by_its_spread() {
        let served = Tolerance::PercentOr(15.0, 2.0);
        assert_eq!(of(&[85.0, 90.0, 104.0], 90.0, served), Verdict::Holds);
        assert_eq!(of(&[85.0, 90.0, 120.0], 90.0, served), Verdict::Wide, "they disagree");
        assert_eq!(of(&[100.0, 110.0, 120.0], 90.0, served), Verdict::Wide, "most are off");
        assert_eq!(of(&[120.0, 125.0, 136.0], 90.0, served), Verdict::Off);
        let events = Tolerance::FactorOr(2.0, 5.0);
        assert_eq!(of(&[2.0, 6.0], 4.0, events), Verdict::TooFew);
        assert_eq!(of(&[0.0, 0.0], 0.0, events), Verdict::Holds);
        let repeats = Tolerance::Repeats(27.0, 52.0);
        assert_eq!(of(&[18.0, 20.0, 30.0], 27.0, repeats), Verdict::Holds, "they overlap");
        assert_eq!(of(&[20.0, 40.0, 90.0], 27.0, repeats), Verdict::Wide, "twice as wide, or less");
        assert_eq!(of(&[53.0, 60.0], 27.0, repeats), Verdict::Off);
    }
}
