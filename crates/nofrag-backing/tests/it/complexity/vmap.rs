//! Operations of `vmap`, each on its worst input.

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::Span;
use nofrag::units::Vpn;
use nofrag::vmap::{Area, AreaRequest, Budget, VmapConfig, VmapSpace};

use super::Cost::{Constant, Linear, Linearithmic, Logarithmic};
use super::steps::instructions;
use super::{Chapter, operation};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "vmap",
    counted: "the number of areas, under nofrag's own policy",
    operations: &[
        operation("alloc", "no gap between areas is long enough", Logarithmic, |n| {
            let (space, cpu, _) = areas(n);
            instructions(|| space.alloc(cpu, &AreaRequest::new(50)).unwrap())
        }),
        operation("free", "an area between two gaps", Logarithmic, |n| {
            let (space, cpu, own) = areas(n);
            instructions(|| space.free(cpu, own.start).unwrap())
        }),
        operation("find", "the second page of an area", Logarithmic, |n| {
            let (space, _, own) = areas(n);
            instructions(|| space.find(Vpn(own.start.0 + 1)).unwrap())
        }),
        operation("step", "a budget of one area", Logarithmic, |n| {
            let (space, cpu, own) = areas(n);
            space.free(cpu, own.start).unwrap();
            instructions(|| space.step(Budget { areas: 1 }))
        }),
        operation("map_ram", "a slot of a block", Constant, |n| {
            let (space, cpu, _) = areas(n);
            let ram = space.map_ram(cpu, 1, &()).unwrap();
            space.unmap_ram(cpu, ram).unwrap();
            instructions(|| space.map_ram(cpu, 1, &()).unwrap())
        }),
        operation("unmap_ram", "a slot of a block", Constant, |n| {
            let (space, cpu, _) = areas(n);
            let _kept = space.map_ram(cpu, 1, &()).unwrap();
            let ram = space.map_ram(cpu, 1, &()).unwrap();
            instructions(|| space.unmap_ram(cpu, ram).unwrap())
        }),
        operation("CpuHandle::alloc", "no gap between areas is long enough", Logarithmic, |n| {
            let (space, cpu, _) = areas(n);
            let mut handle = space.cpu(cpu).unwrap();
            instructions(|| handle.alloc(&AreaRequest::new(50)).unwrap())
        }),
        operation("CpuHandle::free", "the last of 1,024, which are flushed", Logarithmic, |n| {
            let (space, cpu, _) = areas(n);
            let mut handle = space.cpu(cpu).unwrap();
            let all: Vec<Area> =
                (0..1024).map(|_| handle.alloc(&AreaRequest::new(20)).unwrap()).collect();
            let (last, others) = all.split_last().unwrap();
            for area in others {
                handle.free(area.start).unwrap();
            }
            instructions(|| handle.free(last.start).unwrap())
        }),
        operation("unmap_aliases", "a handle keeps an area that it has freed", Constant, |n| {
            let (space, cpu, _) = areas(n);
            let mut handle = space.cpu(cpu).unwrap();
            let freed = handle.alloc(&AreaRequest::new(20)).unwrap();
            handle.free(freed.start).unwrap();
            instructions(|| space.unmap_aliases())
        }),
        operation("purge_all", "the same", Constant, |n| {
            let (space, cpu, _) = areas(n);
            let mut handle = space.cpu(cpu).unwrap();
            let freed = handle.alloc(&AreaRequest::new(20)).unwrap();
            handle.free(freed.start).unwrap();
            instructions(|| space.purge_all())
        }),
        operation("lazy_pages", "any", Constant, |n| {
            let (space, ..) = areas(n);
            instructions(|| space.lazy_pages())
        }),
        operation("stats", "any", Linear, |n| {
            let (space, ..) = areas(n);
            instructions(|| space.stats())
        }),
        operation("areas", "any", Linearithmic, |n| {
            let (space, ..) = areas(n / 2);
            instructions(|| space.areas().unwrap())
        }),
        operation("holes", "any", Linear, |n| {
            let (space, ..) = areas(n);
            instructions(|| space.holes().unwrap())
        }),
    ],
};

/// Returns a space with `count` areas and as many gaps between them, all purged, and an area in the middle.
fn areas(count: u64) -> (VmapSpace<(), ()>, CpuId, Area) {
    let cpus = CpuSet::first(1).unwrap();
    let cpu = cpus.by_rank(0).unwrap();
    let span = Span::sized(1 << 20, 1 << 30).unwrap();
    let space = VmapSpace::new(VmapConfig::new(span, cpus), (), ()).unwrap();
    let request = AreaRequest::new(20);
    let all: Vec<Area> = (0..2 * count).map(|_| space.alloc(cpu, &request).unwrap()).collect();
    for area in all.iter().skip(1).step_by(2) {
        space.free(cpu, area.start).unwrap();
    }
    space.purge_all();
    let own = all[count as usize / 2 * 2];
    (space, cpu, own)
}
