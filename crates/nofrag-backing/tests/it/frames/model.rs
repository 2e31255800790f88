//! Random operations against a map of blocks.

use std::collections::BTreeMap;

use nofrag::check::Check;
use nofrag::page::{FragmentationPolicy, Migratetype};
use nofrag::units::{Order, PageCount, Pfn};
use nofrag_backing::frames::{
    Effort, Fill, FrameBlock, FrameError, FrameRequest, Frames, FramesConfig, Sharing,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{MIB, check_stamp, check_zero, owner, stamp};

/// The expected state: blocks in use do not overlap, and each holds its last stamp.
struct Model {
    frames: Frames,
    live: BTreeMap<u64, (FrameBlock, u64)>,
    random: Pcg64,
}

impl Model {
    fn alloc(&mut self, step: u64) {
        let rank = self.random.random_range(0..3);
        let wanted = Order::new([0, 0, 0, 1, 2, 3, 9][self.random.random_range(0..7)]).unwrap();
        let kind = Migratetype::MOBILITY[self.random.random_range(0..3)];
        let fill = if self.random.random() { Fill::Zeroed } else { Fill::Anything };
        let request = FrameRequest::new(wanted, kind).fill(fill).effort(Effort::AtHand);
        match self.frames.alloc(owner(&self.frames, rank), request) {
            Ok(block) => self.enter(block, fill, step),
            Err(FrameError::Exhausted { order, largest, .. }) => {
                assert_eq!(order, wanted);
                assert!(largest < Some(wanted), "there is a block, but {largest:?} of {wanted}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn enter(&mut self, block: FrameBlock, fill: Fill, step: u64) {
        let before = self.live.range(..block.end().0).next_back();
        let apart = before.is_none_or(|(_, (live, _))| live.end() <= block.pfn);
        assert!(apart, "{block:?} overlaps {before:?}");
        if fill == Fill::Zeroed {
            check_zero(&self.frames, block);
        }
        stamp(&self.frames, block, step);
        self.live.insert(block.pfn.0, (block, step));
    }

    fn free(&mut self) {
        let Some(index) = self.live.len().checked_sub(1) else { return };
        let index = self.random.random_range(0..=index);
        let (&pfn, &(block, step)) = self.live.iter().nth(index).expect("there are so many");
        check_stamp(&self.frames, block, step);
        let rank = self.random.random_range(0..3);
        self.frames.free(owner(&self.frames, rank), Pfn(pfn)).expect("it is in use");
        self.live.remove(&pfn);
    }

    fn bulk(&mut self, step: u64) {
        let none = FrameBlock { pfn: Pfn(0), order: Order::ZERO };
        let mut blocks = [none; 100];
        let request = FrameRequest::new(Order::ZERO, Migratetype::Movable);
        let here = owner(&self.frames, self.random.random_range(0..3));
        let got = self.frames.alloc_bulk(here, request, &mut blocks).unwrap();
        let free = self.frames.stats().free;
        assert!(got == 100 || free == PageCount(0), "{got} with {free} left");
        blocks[..got].iter().for_each(|&block| self.enter(block, Fill::Zeroed, step));
    }

    fn step(&mut self, step: u64) {
        match self.random.random_range(0..100) {
            0..50 => self.alloc(step),
            50..96 => self.free(),
            96..98 => self.bulk(step),
            _ => drop(self.frames.purge(PageCount(self.random.random_range(0..2048)))),
        }
        if step.is_multiple_of(50) {
            self.frames.check().unwrap();
            let used: u64 = self.live.values().map(|(block, _)| block.order.pages()).sum();
            assert_eq!(self.frames.stats().free.0, self.frames.len().0 - used);
        }
    }
}

fn check_model(sharing: Sharing, policy: FragmentationPolicy, seed: u64) {
    let config = FramesConfig { owners: 3, sharing, policy, ..FramesConfig::new(12 * MIB) };
    let frames = Frames::new(&config).unwrap();
    let mut model = Model { frames, live: BTreeMap::new(), random: Pcg64::seed_from_u64(seed) };
    for step in 1..2000 {
        model.step(step);
    }
    while !model.live.is_empty() {
        model.free();
    }
    model.frames.drain();
    model.frames.check().unwrap();
    assert_eq!(model.frames.stats().obtainable(Order::PAGEBLOCK), 6);
}

#[test]
fn one_lock_agrees_with_the_model() {
    check_model(Sharing::Lock, FragmentationPolicy::NOFRAG, 1);
    check_model(Sharing::Lock, FragmentationPolicy::LINUX_7_2, 2);
}

#[test]
fn shards_agree_with_the_model() {
    check_model(Sharing::Shards, FragmentationPolicy::NOFRAG, 3);
    check_model(Sharing::Shards, FragmentationPolicy::LINUX_5_3, 4);
}
