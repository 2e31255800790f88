//! Random operations against a list of areas, each with its stamp.

use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::units::{Order, PageCount, Pfn, Vpn};
use nofrag::vmap::{LazyLimit, VmapPolicy};
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::{Fill, FrameBlock};
use nofrag_backing::mapped::{
    Grain, Mapped, MappedConfig, Mobility, ShownFrames, VmallocArea, VmallocRequest,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::io::Errno;

use super::{owner, pages, seen, seen_in_frame, space_with, stamp};
use crate::frames::MIB;

/// The expected state: each area holds its last stamp, as seen there and in its frames.
struct Model {
    mapped: Mapped,
    areas: Vec<(VmallocArea, u64)>,
    shown: Vec<(ShownFrames, Vec<FrameBlock>)>,
    random: Pcg64,
}

impl Model {
    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound)
    }

    fn here(&mut self) -> CpuId {
        let rank = self.below(2);
        owner(&self.mapped, rank)
    }

    fn vmalloc(&mut self, step: u64) {
        let request = VmallocRequest {
            bytes: self.random.random_range(1..300 * 4096),
            grain: [Grain::Page, Grain::Page, Grain::Largest, Grain::Huge][self.below(4)],
            fill: [Fill::Zeroed, Fill::Anything][self.below(2)],
            mobility: [Mobility::Pinned, Mobility::Movable][self.below(2)],
        };
        let here = self.here();
        let Ok(area) = self.mapped.vmalloc(here, &request) else {
            return;
        };
        if request.fill == Fill::Zeroed {
            pages(&area).for_each(|vpn| assert_eq!(seen(&self.mapped, vpn), (0, 0)));
        }
        pages(&area).for_each(|vpn| stamp(&self.mapped, vpn, step));
        self.areas.push((area, step));
    }

    fn check_area(&self, area: &VmallocArea, step: u64) {
        let frames = self.mapped.blocks(area.start());
        let frames = frames.iter().flat_map(|block| block.pfn.0..block.end().0);
        for (vpn, pfn) in pages(area).zip(frames) {
            assert_eq!(seen(&self.mapped, vpn), (step, vpn.0));
            assert_eq!(seen_in_frame(&self.mapped, Pfn(pfn)), (step, vpn.0));
        }
    }

    fn vfree(&mut self) {
        if self.areas.is_empty() {
            return;
        }
        let at = self.below(self.areas.len());
        let (area, step) = self.areas.swap_remove(at);
        self.check_area(&area, step);
        let here = self.here();
        self.mapped.vfree(here, area).unwrap();
    }

    fn map_ram(&mut self) {
        let here = self.here();
        let none = FrameBlock { pfn: Pfn(0), order: Order::ZERO };
        let mut blocks = vec![none; self.below(100) + 1];
        let request = nofrag_backing::frames::FrameRequest::new(
            Order::ZERO,
            nofrag::page::Migratetype::Unmovable,
        );
        let got = self.mapped.frames().alloc_bulk(here, request, &mut blocks).unwrap();
        blocks.truncate(got);
        match self.mapped.map_ram(here, &blocks) {
            Ok(area) => {
                let all = (area.start().0..area.start().0 + area.pages().0).map(Vpn);
                all.for_each(|vpn| stamp(&self.mapped, vpn, 99));
                self.shown.push((area, blocks));
            }
            Err(_) => self.mapped.frames().free_bulk(here, &blocks).unwrap(),
        }
    }

    fn unmap_ram(&mut self) {
        if self.shown.is_empty() {
            return;
        }
        let at = self.below(self.shown.len());
        let (area, blocks) = self.shown.swap_remove(at);
        for (page, block) in (area.start().0..).zip(&blocks) {
            assert_eq!(seen_in_frame(&self.mapped, block.pfn), (99, page));
        }
        let here = self.here();
        self.mapped.unmap_ram(here, area).unwrap();
        self.mapped.frames().free_bulk(here, &blocks).unwrap();
    }

    fn step(&mut self, step: u64) {
        let refuse = self.below(10) == 0;
        let call = [Call::Mmap, Call::Mprotect, Call::Fallocate][self.below(3)];
        let fault = Fault { after: self.below(4) as u32, ..Fault::once(call, Errno::NOMEM) };
        let armed = refuse.then(|| faults::inject([fault]));
        match self.below(100) {
            0..30 => self.vmalloc(step),
            30..58 => self.vfree(),
            58..76 => self.map_ram(),
            76..92 => self.unmap_ram(),
            92..96 => drop(self.mapped.frames().purge(PageCount(1024))),
            _ => self.mapped.settle(),
        }
        drop(armed);
        if step.is_multiple_of(40) {
            self.mapped.check().unwrap();
        }
    }
}

fn check_model(policy: VmapPolicy, seed: u64) {
    let policy = VmapPolicy { lazy_limit: LazyLimit::Pages(500), ..policy };
    let config = MappedConfig { policy, mappings: Some(400), ..MappedConfig::new(96 * MIB) };
    let mapped = space_with(12, &config);
    let random = Pcg64::seed_from_u64(seed);
    let mut model = Model { mapped, areas: Vec::new(), shown: Vec::new(), random };
    (1..600).for_each(|step| model.step(step));
    while !model.areas.is_empty() || !model.shown.is_empty() {
        model.vfree();
        model.unmap_ram();
    }
    model.mapped.settle();
    model.mapped.check().unwrap();
    let frames = model.mapped.frames();
    frames.drain();
    assert_eq!(frames.stats().free, frames.len());
    assert_eq!(frames.stats().obtainable(Order::PAGEBLOCK), 6);
    assert_eq!(model.mapped.mappings().0, 0);
}

#[test]
fn nofrag_agrees_with_the_model() {
    check_model(VmapPolicy::NOFRAG, 1);
}

#[test]
fn every_preset_agrees_with_the_model() {
    for (seed, preset) in (10..).zip(VmapPolicy::presets()) {
        check_model(preset.policy, seed);
    }
}
