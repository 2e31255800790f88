//! Page frames in a file: handing out, contents, and taking back.

mod contents;
mod model;
mod moves;
mod sharing;

use nofrag::cpu::CpuId;
use nofrag::page::Migratetype;
use nofrag::units::{Order, Pfn};
use nofrag_backing::frames::{
    Effort, Fill, FrameBlock, FrameRequest, Frames, FramesConfig, Sharing,
};

pub(crate) const MIB: u64 = 1 << 20;
const BOTH: [Sharing; 2] = [Sharing::Lock, Sharing::Shards];

fn frames(mib: u64, owners: u32, sharing: Sharing) -> Frames {
    let config = FramesConfig { owners, sharing, ..FramesConfig::new(mib * MIB) };
    Frames::new(&config).expect("there is memory for a test")
}

pub(crate) fn order(order: u8) -> Order {
    Order::new(order).expect("an order of the test")
}

pub(crate) fn owner(frames: &Frames, rank: usize) -> CpuId {
    frames.owners().by_rank(rank).expect("an owner of the test")
}

/// Returns a request for free blocks alone, with contents of any kind.
fn plain(of: u8) -> FrameRequest {
    FrameRequest::new(order(of), Migratetype::Movable).fill(Fill::Anything).effort(Effort::AtHand)
}

/// Writes `stamp` to the beginning and the end of each frame of a block.
pub(crate) fn stamp(frames: &Frames, block: FrameBlock, stamp: u64) {
    for pfn in block.pfn.0..block.end().0 {
        let at = frames.address(Pfn(pfn)).expect("a frame").cast::<u64>();
        // SAFETY: the block is the test's, whose one thread alone uses it.
        unsafe { at.write(stamp ^ pfn) };
        // SAFETY: as above; the last word of the same page.
        unsafe { at.add(511).write(stamp) };
    }
}

/// Expects the stamps that [`stamp`] writes at all frames of `block`.
#[track_caller]
pub(crate) fn check_stamp(frames: &Frames, block: FrameBlock, stamp: u64) {
    for pfn in block.pfn.0..block.end().0 {
        let at = frames.address(Pfn(pfn)).expect("a frame").cast::<u64>();
        // SAFETY: the block is the test's, whose one thread alone uses it.
        let first = unsafe { at.read() };
        // SAFETY: as above; the last word of the same page.
        let last = unsafe { at.add(511).read() };
        assert_eq!((first, last), (stamp ^ pfn, stamp), "frame {pfn}");
    }
}

/// Expects zeros in all frames of a block.
#[track_caller]
pub(crate) fn check_zero(frames: &Frames, block: FrameBlock) {
    let at = frames.address(block.pfn).expect("a frame").cast::<u64>();
    for word in 0..block.bytes() / 8 {
        // SAFETY: the word lies in the block, which is the test's.
        let found = unsafe { at.add(word).read() };
        assert_eq!(found, 0, "word {word} of frame {}", block.pfn);
    }
}
