//! Alignments that no class was configured for: what a space learns of them, and what it costs until then.

use nofrag::check::Check;
use nofrag::ranges::{AlignClasses, Config, Fit, RangeAllocator, Request, Span};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const KIB: u64 = 1 << 10;
const ALIGN: u64 = 64 * KIB;
/// Distance from one hole to the next.
const PITCH: u64 = 4 * ALIGN;
/// Size of each request.
const SIZE: u64 = 64 * KIB;

/// Returns a space by default with `count` holes that are twice as long as a request and hold none that is aligned, and
/// with long ones at both ends.
fn misaligned(count: u64) -> RangeAllocator {
    let mut space = RangeAllocator::new(Config { size_index: true, ..Config::default() });
    space.add_span(Span::sized(0, PITCH).unwrap()).unwrap();
    for number in 1..=count {
        space.add_span(Span::sized(number * PITCH + 1, 2 * SIZE - 2).unwrap()).unwrap();
    }
    space.add_span(Span::sized((count + 1) * PITCH, 64 * PITCH).unwrap()).unwrap();
    space
}

/// Blocks that were looked at for the last request, and holes that did not serve.
fn work(space: &mut RangeAllocator, request: &Request) -> (Option<Span>, u64) {
    let before = *space.counters();
    let got = space.alloc(request).ok();
    let after = *space.counters();
    (got, after.steps - before.steps + after.misfits - before.misfits)
}

/// Checks requests that pass all misaligned holes: after the first one they look at no more blocks among a hundred
/// thousand holes than among a thousand.
fn check_growth(fit: Fit) {
    let mut late = Vec::new();
    for count in [1_000, 100_000] {
        let mut space = misaligned(count);
        // The edge where the search begins is left out.
        let within = match fit {
            Fit::Highest => Span::new(0, (count + 1) * PITCH),
            _ => Span::new(PITCH, (count + 32) * PITCH),
        };
        let request = Request::new(SIZE).align(ALIGN).fit(fit).within(within.unwrap());
        let costs = [(); 12].map(|()| {
            let (got, cost) = work(&mut space, &request);
            space.free(got.expect("the other edge serves")).unwrap();
            cost
        });
        println!("{fit:?}, {count} holes: {costs:?}");
        assert!(costs[0] < 2 * count, "no lesson is longer than the search: {costs:?}");
        late.push(*costs[1..].iter().max().unwrap());
        space.check().unwrap();
    }
    assert!(late[1] <= 2 * late[0] && late[1] < 64, "{fit:?}: {late:?}");
}

#[test]
fn an_alignment_is_learned_by_lowest_and_highest() {
    check_growth(Fit::Lowest);
    check_growth(Fit::Highest);
}

/// The worst request of all: no hole can serve it, so that the first one has to look at every one.
#[test]
fn an_alignment_that_fits_nowhere_is_learned_by_one_request() {
    for fit in [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic] {
        for count in [1_000, 100_000] {
            let mut space = misaligned(count);
            space.alloc_at(Span::sized(0, PITCH).unwrap()).unwrap();
            space.alloc_at(Span::sized((count + 1) * PITCH, 64 * PITCH).unwrap()).unwrap();
            let request = Request::new(SIZE).align(ALIGN).fit(fit);
            let costs = [(); 4].map(|()| work(&mut space, &request).1);
            println!("{fit:?}, {count} holes: {costs:?}");
            assert!((count..2 * count).contains(&costs[0]), "{costs:?}");
            // The highest hole is looked at each time.
            assert!(costs[1..].iter().all(|&cost| cost <= 1), "{costs:?}");
            assert_eq!(space.counters().misses, 4);
        }
    }
}

/// A heap that starts empty, as a program's does, and asks for aligned and unaligned ranges in turn. No request of it
/// looks at many blocks, however many holes there are, though no class was configured.
#[test]
fn no_request_of_a_growing_heap_is_long() {
    for count in [1_000, 100_000] {
        let mut space = RangeAllocator::new(Config::default());
        space.add_span(Span::new(0, 1 << 44).unwrap()).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let (mut live, mut most, mut sum) = (Vec::new(), 0, 0);
        for step in 0..2 * count {
            let size = random.random_range(1..4 * SIZE);
            let align = if step % 2 == 0 { ALIGN } else { 256 };
            let (got, cost) = work(&mut space, &Request::new(size).align(align));
            (most, sum) = (most.max(cost), sum + cost);
            live.push(got.unwrap());
            if step >= count {
                let at = random.random_range(0..live.len());
                space.free(live.swap_remove(at)).unwrap();
            }
        }
        let mean = sum as f64 / (2 * count) as f64;
        println!("{count} live ranges, {:?}: most {most}, mean {mean:.1}", space.stats());
        assert!(most < 400 && mean < 24.0, "most {most}, mean {mean}");
        space.check().unwrap();
    }
}

/// More alignments than there are classes take turns, each with holes of its own that promise it a place and hold none.
/// They cost less than twice what they would without classes.
#[test]
fn six_alignments_share_four_classes() {
    const EACH: u64 = 2_000;
    const ROUNDS: u64 = 60;
    let exponents = [2, 4, 6, 8, 10, 12];
    let mut space = RangeAllocator::new(Config::default());
    for (kind, exponent) in (0..).zip(exponents) {
        let half = 1 << (exponent - 1);
        for number in 0..EACH {
            // Aligned to half of it, and one short of reaching from the next multiple on.
            let start = (kind * EACH + number) * PITCH + half;
            space.add_span(Span::sized(start, SIZE + half - 1).unwrap()).unwrap();
        }
    }
    let mut total = 0;
    for round in 0..ROUNDS {
        for exponent in exponents {
            let (got, cost) = work(&mut space, &Request::new(SIZE).align(1 << exponent));
            total += cost;
            assert_eq!(got.is_some(), exponent < 12);
            if let Some(span) = got {
                space.free(span).unwrap();
            }
        }
        if round % 20 == 0 {
            space.check().unwrap();
        }
    }
    let without = ROUNDS * (1..=6).map(|kinds| kinds * EACH).sum::<u64>();
    println!("{total} where it would be {without}");
    assert!(total < without, "{total} where it would be {without}");
}

/// Lessons change no address: these are the addresses that were handed out before anything was learned.
#[test]
fn the_same_requests_get_the_same_addresses() {
    let mut sums = Vec::new();
    for exponents in [&[][..], &[6]] {
        let mut space = RangeAllocator::new(Config {
            size_index: true,
            align_classes: AlignClasses::new(exponents).unwrap(),
            ..Config::default()
        });
        space.add_span(Span::new(0, 1 << 34).unwrap()).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let (mut live, mut sum) = (Vec::new(), 0_u64);
        for step in 0..60_000 {
            let request = draw(&mut random);
            if let Ok(span) = space.alloc(&request) {
                sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(span.start());
                live.push(span);
            }
            if step > 20_000 && !live.is_empty() {
                let at = random.random_range(0..live.len());
                space.free(live.swap_remove(at)).unwrap();
            }
        }
        space.check().unwrap();
        sums.push(sum);
    }
    assert_eq!(sums, [13_292_664_678_176_800_677, 4_741_913_919_559_800_236]);
}

fn draw(random: &mut impl Rng) -> Request {
    let bits = random.random_range(4..18);
    let size = random.random_range(1..1 << bits);
    let align = 1 << [0, 4, 6, 12, 14, 16, 17][random.random_range(0..7_usize)];
    let fit = [Fit::Lowest, Fit::Highest, Fit::Best, Fit::Dynamic][random.random_range(0..4_usize)];
    let within = match random.random_range(0..3_u32) {
        0 => Span::new(random.random_range(0..1 << 33), 1 << 34).unwrap(),
        _ => Span::ALL,
    };
    Request::new(size).align(align).fit(fit).within(within)
}
