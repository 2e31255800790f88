//! Operations of `ranges`, each on its worst input.

use std::sync::Arc;

use nofrag::ranges::{
    AlignClasses, Config, Fit, OwnedRange, RangeAllocator, RangeHeap, Request, SharedRanges, Span,
};

use super::Cost::{Constant, Linear, Logarithmic};
use super::steps::instructions;
use super::{Chapter, operation};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "ranges",
    counted: "the number of holes, under `WideBlocks`",
    operations: &[
        operation("alloc", "only the highest hole is long enough", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            instructions(|| space.alloc(&Request::new(SIZE + 1)).unwrap())
        }),
        operation(
            "alloc",
            "`Highest`, only the lowest hole inside the bounds fits",
            Logarithmic,
            |n| {
                let mut space = holes(n, Config::default());
                space.add_span(span(0, 2 * SIZE)).unwrap();
                let request =
                    Request::new(SIZE + 1).fit(Fit::Highest).within(span(0, BASE + n * PITCH));
                instructions(|| space.alloc(&request).unwrap())
            },
        ),
        operation(
            "alloc",
            "`Best`, nearly all holes of the size's class too short",
            Logarithmic,
            |n| {
                let mut space = holes(n, Config { size_index: true, ..Config::default() });
                instructions(|| space.alloc(&Request::new(SIZE + 40).fit(Fit::Best)).unwrap())
            },
        ),
        operation("alloc", "`Dynamic`, the same", Logarithmic, |n| {
            let mut space = holes(n, Config { size_index: true, ..Config::default() });
            instructions(|| space.alloc(&Request::new(SIZE + 40).fit(Fit::Dynamic)).unwrap())
        }),
        operation("alloc", "the first request with `Best` among n holes", Linear, |n| {
            let mut space = holes(n, Config::default());
            instructions(|| space.alloc(&Request::new(SIZE).fit(Fit::Best)).unwrap())
        }),
        operation(
            "alloc",
            "an alignment with a class that only the highest hole has",
            Logarithmic,
            |n| {
                let align_classes = AlignClasses::new(&[10]).unwrap();
                let mut space = holes(n, Config { align_classes, ..Config::default() });
                instructions(|| space.alloc(&Request::new(SIZE - 1).align(1 << 10)).unwrap())
            },
        ),
        operation("alloc", "the same without a class, after some requests", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            for _ in 0..8 {
                let got = space.alloc(&Request::new(SIZE - 1).align(1 << 10)).unwrap();
                space.free(got).unwrap();
            }
            instructions(|| space.alloc(&Request::new(SIZE - 1).align(1 << 10)).unwrap())
        }),
        operation("alloc", "the same, the first request among n holes", Linear, |n| {
            let mut space = holes(10 * n, Config::default());
            instructions(|| space.alloc(&Request::new(SIZE - 1).align(1 << 10)).unwrap())
        }),
        operation("alloc", "the first size of 4 KiB where all were 8, beyond 2^31", Linear, |n| {
            let mut space = spread(n);
            instructions(|| space.alloc(&Request::new(PAGE)).unwrap())
        }),
        operation("alloc", "the next one", Logarithmic, |n| {
            let mut space = spread(n);
            space.alloc(&Request::new(PAGE)).unwrap();
            instructions(|| space.alloc(&Request::new(PAGE)).unwrap())
        }),
        operation("alloc_at", "the middle of a hole", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            instructions(|| space.alloc_at(span(middle(n) + 10, 5)).unwrap())
        }),
        operation("free", "between two holes, which become one", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            let hole = span(middle(n), SIZE);
            space.alloc_at(span(hole.start() + 9, 9)).unwrap();
            instructions(|| space.free(span(hole.start() + 9, 9)).unwrap())
        }),
        operation("free", "apart from all holes", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            let hole = span(middle(n), SIZE);
            space.alloc_at(hole).unwrap();
            instructions(|| space.free(span(hole.start() + 9, 9)).unwrap())
        }),
        operation("relocate_to", "with the commit", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            let from = space.alloc(&Request::new(SIZE)).unwrap();
            let to = span(middle(n), SIZE);
            instructions(|| space.relocate_to(from, to).unwrap().commit().unwrap())
        }),
        operation("relocate", "dropped", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            let from = space.alloc(&Request::new(SIZE)).unwrap();
            instructions(|| drop(space.relocate(from, &Request::new(SIZE + 1)).unwrap()))
        }),
        operation("add_span", "between two holes", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            let between = span(middle(n) + SIZE, PITCH - SIZE);
            instructions(|| space.add_span(between).unwrap())
        }),
        operation("remove_span", "the middle of a hole", Logarithmic, |n| {
            let mut space = holes(n, Config::default());
            instructions(|| space.remove_span(span(middle(n) + 10, 5)).unwrap())
        }),
        operation("shrink", "all holes in use", Linear, |n| {
            let mut ranges = holes(n, Config::default());
            instructions(|| ranges.shrink().unwrap())
        }),
        operation("largest", "any", Constant, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.largest())
        }),
        operation("largest_aligned", "a configured class", Constant, |n| {
            let align_classes = AlignClasses::new(&[10]).unwrap();
            let space = holes(n, Config { align_classes, ..Config::default() });
            instructions(|| space.largest_aligned(1 << 10))
        }),
        operation("largest_aligned", "no configured class", Linear, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.largest_aligned(1 << 10))
        }),
        operation("hole_from", "between two holes", Logarithmic, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.hole_from(middle(n) + SIZE + 1))
        }),
        operation("hole_below", "between two holes", Logarithmic, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.hole_below(middle(n) - 1))
        }),
        operation("is_free", "a hole", Logarithmic, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.is_free(span(middle(n), SIZE)))
        }),
        operation("iter_free", "each step", Logarithmic, |n| {
            let space = holes(n, Config::default());
            let mut all = space.iter_free();
            let _ = all.nth(500);
            instructions(|| all.next())
        }),
        operation("stats", "any", Constant, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.stats())
        }),
        operation("unusable_index", "any", Linear, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.unusable_index(SIZE))
        }),
        operation("metadata_bytes", "any", Constant, |n| {
            let space = holes(n, Config::default());
            instructions(|| space.metadata_bytes())
        }),
        operation(
            "RangeHeap::alloc",
            "n holes, all of them too short or of the last bin",
            Constant,
            |n| {
                let mut heap = heap(n);
                instructions(|| heap.alloc(SIZE + 20).unwrap())
            },
        ),
        operation("RangeHeap::alloc", "n holes of the size's bin, all too short", Constant, |n| {
            let mut heap = heap(n);
            heap.alloc(heap.stats().largest).unwrap();
            instructions(|| heap.alloc(SIZE + 20).unwrap_err())
        }),
        operation("RangeHeap::alloc_aligned", "n holes, all misaligned", Constant, |n| {
            let mut heap = heap(n);
            heap.alloc(heap.stats().largest).unwrap();
            instructions(|| heap.alloc_aligned(SIZE / 4, 4 * PITCH).unwrap_err())
        }),
        operation("RangeHeap::free", "between two holes, which become one", Constant, |n| {
            let mut heap = RangeHeap::over(span(0, 1 << 40)).unwrap();
            let ranges: Vec<_> = (0..2 * n + 1).map(|_| heap.alloc(SIZE).unwrap()).collect();
            for &range in ranges.iter().step_by(2) {
                heap.free(range).unwrap();
            }
            let between = ranges[n as usize | 1];
            instructions(|| heap.free(between).unwrap())
        }),
        operation("RangeHeap::span", "any", Constant, |n| {
            let mut heap = heap(n);
            let range = heap.alloc(SIZE).unwrap();
            instructions(|| heap.span(range))
        }),
        operation("RangeHeap::iter_free", "all holes", Linear, |n| {
            let heap = heap(n);
            instructions(|| heap.iter_free().count())
        }),
        operation("RangeHeap::stats", "n holes of the last bin", Linear, |n| {
            let mut heap = heap(n);
            heap.alloc(heap.stats().largest).unwrap();
            instructions(|| heap.stats())
        }),
        operation("RangeHeap::remove_span", "the highest hole", Linear, |n| {
            let mut heap = heap(n);
            let hole = heap.iter_free().last().unwrap();
            instructions(|| heap.remove_span(hole).unwrap())
        }),
        operation("RangeHeap::reserve", "for as many ranges again", Linear, |n| {
            let mut heap = heap(n);
            instructions(|| heap.reserve(4 * n as usize).unwrap())
        }),
        operation("SharedRanges::alloc", "after n others", Logarithmic, |n| {
            let (space, _) = shared(n);
            instructions(|| space.alloc(&Request::new(SIZE)).unwrap())
        }),
        operation("SharedRanges::free", "between two others", Logarithmic, |n| {
            let (_space, own) = shared(n);
            instructions(|| drop(own))
        }),
        operation("SharedRanges::span", "any", Constant, |n| {
            let (space, own) = shared(n);
            instructions(|| space.span(own.handle()))
        }),
    ],
};

const BASE: u64 = 1 << 40;
const SIZE: u64 = 1_024;
const PITCH: u64 = 4_096;

fn span(start: u64, size: u64) -> Span {
    Span::sized(start, size).unwrap()
}

/// Returns the start of a hole in the middle of `count`.
fn middle(count: u64) -> u64 {
    BASE + count / 2 * PITCH + 1
}

/// Returns a space with `count` holes of [`SIZE`] numbers that start behind a multiple of their length, and an aligned
/// longer one above.
fn holes(count: u64, config: Config) -> RangeAllocator {
    let mut space = RangeAllocator::new(config);
    for number in 0..count {
        space.add_span(span(BASE + number * PITCH + 1, SIZE)).unwrap();
    }
    space.add_span(span(BASE + count * PITCH, 16 * SIZE)).unwrap();
    space
}

const PAGE: u64 = 4_096;

/// Returns a space with `count` holes of two pages, 1 TiB apart.
fn spread(count: u64) -> RangeAllocator {
    let mut space = RangeAllocator::new(Config::default());
    space.add_span(span(0, count << 40)).unwrap();
    for number in 0..count {
        space.alloc_at(span((number << 40) + 2 * PAGE, (1 << 40) - 2 * PAGE)).unwrap();
    }
    space
}

/// Returns a heap with `count` holes of [`SIZE`] numbers, none of which has a multiple of 4 [`PITCH`], and the rest
/// above.
fn heap(count: u64) -> RangeHeap {
    let mut heap = RangeHeap::over(span(1, 1 << 40)).unwrap();
    let mut holes = Vec::new();
    for _ in 0..count {
        holes.push(heap.alloc(SIZE).unwrap());
        heap.alloc(PITCH - SIZE).unwrap();
    }
    for hole in holes {
        heap.free(hole).unwrap();
    }
    heap
}

/// Returns a space of `count` ranges in use, every other one of `2 * count`, and one in the middle that is owned.
fn shared(count: u64) -> (Arc<SharedRanges>, OwnedRange<Arc<SharedRanges>>) {
    let space = Arc::new(SharedRanges::over(span(0, 1 << 40)).unwrap());
    let mut own = None;
    let mut apart = Vec::new();
    for number in 0..2 * count {
        let handle = space.alloc(&Request::new(SIZE - 1)).unwrap();
        if number == count {
            space.free(handle).unwrap();
            own = OwnedRange::new(Arc::clone(&space), &Request::new(SIZE - 1)).ok();
        } else if number % 2 == 1 {
            apart.push(handle);
        }
    }
    for handle in apart {
        space.free(handle).unwrap();
    }
    (space, own.unwrap())
}
