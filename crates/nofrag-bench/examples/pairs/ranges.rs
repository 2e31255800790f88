//! A free and a lowest fit on a range allocator of one design, in a used space or in a single hole; and by handle.

use crate::{Outcome, Random, timed};
use clap::ValueEnum;
use nofrag::ranges::{
    AlignClasses, AlignRule, Config, Index, RangeAllocator, RangeHeap, Request, Span,
};
use std::hint::black_box;

/// Number of live ranges.
const LIVE: usize = 15_000;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Design {
    Wide,
    Tree,
    Scan,
}

pub(crate) fn run(design: Design, pairs: u64) -> Outcome {
    let index = match design {
        Design::Wide => Index::WideBlocks,
        Design::Tree => Index::AugmentedTree(AlignRule::PaddedUnlessExact),
        Design::Scan => Index::CachedScan,
    };
    let mut allocator = RangeAllocator::new(Config { index, ..Config::default() });
    allocator.add_span(Span::sized(0x1000, 1 << 33)?)?;
    let mut random = Random(Random::SEED);
    let mut live = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        live.push(allocator.alloc(&Request::new(1 + random.below(100)))?);
    }
    timed(pairs, || {
        for _ in 0..pairs {
            let at = random.below(LIVE as u64) as usize;
            allocator.free(black_box(live[at]))?;
            live[at] = allocator.alloc(black_box(&Request::new(1 + random.below(100))))?;
        }
        Ok(())
    })
}

/// Frees and takes by handle, in the same used space.
pub(crate) fn run_by_handle(pairs: u64) -> Outcome {
    let mut heap = RangeHeap::over(Span::sized(0x1000, 1 << 33)?)?;
    let mut random = Random(Random::SEED);
    let mut live = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        live.push(heap.alloc(1 + random.below(100))?);
    }
    timed(pairs, || {
        for _ in 0..pairs {
            let at = random.below(LIVE as u64) as usize;
            heap.free(black_box(live[at]))?;
            live[at] = heap.alloc(black_box(1 + random.below(100)))?;
        }
        Ok(())
    })
}

/// The facts of holes that our design keeps besides their lengths.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Kept {
    Nothing,
    /// The largest of each of two alignment classes.
    Classes,
    /// An index by size.
    Sizes,
}

/// Takes and frees one range in a single hole of 2^`bits` numbers.
pub(crate) fn run_in_one_hole(kept: Kept, bits: u32, pairs: u64) -> Outcome {
    let config = match kept {
        Kept::Nothing => Config::default(),
        Kept::Classes => {
            let align_classes = AlignClasses::new(&[6, 9]).ok_or("two ascending exponents")?;
            Config { align_classes, ..Config::default() }
        }
        Kept::Sizes => Config { size_index: true, ..Config::default() },
    };
    let mut allocator = RangeAllocator::new(config);
    allocator.add_span(Span::sized(0x1000, 1 << bits)?)?;
    timed(pairs, || {
        for _ in 0..pairs {
            let span = allocator.alloc(black_box(&Request::new(100)))?;
            allocator.free(black_box(span))?;
        }
        Ok(())
    })
}
