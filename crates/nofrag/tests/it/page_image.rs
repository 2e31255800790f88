//! Pictures of an allocator, what they refuse, and what following a kernel does with blocks.

use super::choices::Random;
use super::page_bench::order;
use super::page_pair::{machine, machines, node, range, zone};
use crate::memory::{refusing_at_random, without_memory};
use nofrag::check::Check;
use nofrag::cpu::CpuId;
use nofrag::page::{
    AllocAtError, CompactionImage, CpuImage, FragmentationPolicy, FrameState, Image, ImageError,
    ListImage, MemoryMap, Migratetype, MinFree, NodeId, PageAllocator, PageConfig, PageRequest,
    PolicyPreset, UsedBlock, ZoneKind, ZoneMap,
};
use nofrag::units::{Nanos, Order, Pfn};

fn config(map: &MemoryMap, policy: FragmentationPolicy) -> PageConfig {
    PageConfig { min_free: MinFree::Pages(40), ..PageConfig::new(map.clone(), policy) }
}

/// Sizes that are asked for: those of per-CPU lists most often.
const ORDERS: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 6, 9, 10];

/// An allocator, and blocks in use that may be given back.
struct Machine {
    pages: PageAllocator,
    cpus: Vec<CpuId>,
    held: Vec<Pfn>,
}

impl Machine {
    fn new(config: &PageConfig) -> Machine {
        Machine::of(PageAllocator::new(config).unwrap(), config, Vec::new())
    }

    fn of(pages: PageAllocator, config: &PageConfig, held: Vec<Pfn>) -> Machine {
        let set = config.map.cpus();
        let cpus = (0..set.len()).filter_map(|rank| set.by_rank(rank)).collect();
        Machine { pages, cpus, held }
    }

    /// Makes the same machine from a picture of its allocator.
    fn restored(&self, config: &PageConfig) -> Machine {
        let pages = PageAllocator::restore(config, &self.pages.image().unwrap(), ()).unwrap();
        Machine::of(pages, config, self.held.clone())
    }

    /// Does something by chance, and returns a text of the result.
    fn step(&mut self, random: &mut Random) -> String {
        let cpu = self.cpus[random.below(self.cpus.len() as u64) as usize];
        let held = random.below(self.held.len().max(1) as u64) as usize;
        match random.below(100) {
            0..52 => {
                let size = order(ORDERS[random.below(ORDERS.len() as u64) as usize]);
                let kind = Migratetype::MOBILITY[random.below(3) as usize];
                let got = self.pages.alloc(Nanos(0), cpu, PageRequest::new(size, kind));
                let got = got.map_err(|attempt| attempt.abandon(&mut self.pages)).ok();
                self.held.extend(got);
                format!("{size} {kind:?}: {got:?}")
            }
            52..92 if !self.held.is_empty() => {
                let pfn = self.held.swap_remove(held);
                format!("free {pfn}: {:?}", self.pages.free(cpu, pfn))
            }
            92..96 if !self.held.is_empty() => {
                let pfn = self.held[held];
                format!("movable {pfn}: {:?}", self.pages.set_movable(pfn, random.below(2) == 0))
            }
            96 => {
                self.pages.set_skip(Pfn(random.below(8_000)), random.below(2) == 0);
                "mark".to_owned()
            }
            97 => {
                self.pages.drain(cpu);
                "drain".to_owned()
            }
            98 => {
                let zone = self.pages.zones().next().unwrap().id;
                let memory = CompactionImage {
                    sources: [(); 2].map(|()| random.below(8_000)),
                    targets: random.below(8_000),
                    shift: random.below(6) as u8,
                    ..CompactionImage::default()
                };
                self.pages.set_compaction_memory(zone, memory);
                "memory of compaction".to_owned()
            }
            _ => String::new(),
        }
    }
}

/// Checks that an allocator restored from a picture goes on as the pictured one does.
fn check_goes_on(name: &str, map: &MemoryMap, policy: FragmentationPolicy, seed: u64) {
    let config = config(map, policy);
    let mut machine = Machine::new(&config);
    let mut random = Random::new(seed);
    for turn in 0..4 {
        for _ in 0..300 {
            machine.step(&mut random);
        }
        // A run of kswapd is not pictured, nor is that it was asked for.
        for number in 0..map.nodes().len() {
            machine.pages.kswapd_sleeps(NodeId(number as u8));
        }
        let mut other = machine.restored(&config);
        let place = format!("{name}, seed {seed}, turn {turn}");
        assert_eq!(other.pages.image().unwrap(), machine.pages.image().unwrap(), "{place}");
        assert_eq!(other.pages.check().map_err(|law| law.to_string()), Ok(()), "{place}");
        let chances = seed * 10 + turn;
        let (mut ours, mut theirs) = (Random::new(chances), Random::new(chances));
        for step in 0..300 {
            let (ours, theirs) = (machine.step(&mut ours), other.step(&mut theirs));
            assert_eq!(ours, theirs, "{place}, step {step}");
        }
        assert_eq!(
            other.pages.image().unwrap(),
            machine.pages.image().unwrap(),
            "{place}, at the end"
        );
    }
}

#[test]
fn a_restored_allocator_goes_on_as_the_pictured_one() {
    for (nth, PolicyPreset { name, policy, .. }) in FragmentationPolicy::PRESETS.iter().enumerate()
    {
        for (shape, (machine, map)) in machines().iter().enumerate() {
            // Without CPUs on a node nobody asks there; all the others matter.
            check_goes_on(&format!("{name}, {machine}"), map, *policy, (100 * nth + shape) as u64);
        }
    }
}

/// Returns a machine with something of everything: blocks on per-CPU lists and free lists, blocks in use that may be
/// moved and others, skip marks.
fn busy(config: &PageConfig) -> Machine {
    let mut machine = Machine::new(config);
    let mut random = Random::new(7);
    for _ in 0..2_000 {
        machine.step(&mut random);
    }
    machine
}

#[test]
fn a_picture_shows_lists_of_cpus_and_all_that_is_in_use() {
    let map = machine(&[node(&[0, 1], &[zone(ZoneKind::Normal, 0, 8192)])]);
    let machine = busy(&config(&map, FragmentationPolicy::LINUX_6_1));
    let image = machine.pages.image().unwrap();
    let cpus = &image.zones[0].cpus;
    assert!(cpus.iter().all(|cpu| !cpu.lists.is_empty()), "{cpus:?}");
    assert!(cpus.iter().flat_map(|cpu| &cpu.lists).any(|list| list.order > Order::ZERO));
    assert!(image.used.iter().any(|block| block.movable) && !image.zones[0].free.is_empty());
    assert!(image.zones[0].pageblocks.iter().any(|block| block.skip));
    // Every frame is on a list or in use, once.
    let lists = image.zones[0].free.iter().chain(cpus.iter().flat_map(|cpu| &cpu.lists));
    let free: u64 = lists.map(|list| list.blocks.len() as u64 * list.order.pages()).sum();
    let used: u64 = image.used.iter().map(|block| block.order.pages()).sum();
    assert_eq!(free + used, 8192);
}

/// A picture is as large as the machine: without memory for it there is none, and the process goes on.
#[test]
fn a_picture_without_memory_is_an_error() {
    let (_, map) = machines().swap_remove(0);
    let machine = Machine::new(&config(&map, FragmentationPolicy::LINUX_6_12));
    without_memory(|| machine.pages.image()).unwrap_err();
    let odds = |seed| refusing_at_random(seed, 4, || machine.pages.image());
    let whole = machine.pages.image().unwrap();
    let refused = (0..200).filter(|&seed| odds(seed).map_or(true, |image| image != whole)).count();
    assert!((1..200).contains(&refused), "{refused} of 200 were refused in the middle");
}

fn check_refused(image: &Image, config: &PageConfig, expected: ImageError) {
    let refused = PageAllocator::restore(config, image, ()).map(|_| ()).unwrap_err();
    assert_eq!(refused, expected);
    assert!(!refused.to_string().is_empty());
}

#[test]
fn impossible_pictures_are_refused_with_the_frame() {
    let holed = ZoneMap { holes: vec![range(3000, 72)], ..zone(ZoneKind::Normal, 2048, 2048) };
    let map = machine(&[node(&[0], &[zone(ZoneKind::Dma32, 0, 2048), holed])]);
    let config = config(&map, FragmentationPolicy::LINUX_6_1);
    let image = PageAllocator::new(&config).unwrap().image().unwrap();
    let with = |change: &dyn Fn(&mut Image)| {
        let mut image = image.clone();
        change(&mut image);
        image
    };
    let list = |size, blocks: &[u64]| ListImage {
        order: order(size),
        migratetype: Migratetype::Movable,
        blocks: blocks.iter().copied().map(Pfn).collect(),
    };
    let check = |change: &dyn Fn(&mut Image), expected| {
        check_refused(&with(change), &config, expected);
    };
    check(&|image| image.zones.truncate(1), ImageError::Shape);
    check(&|image| image.zones[0].cpus.push(CpuImage::default()), ImageError::Shape);
    check(&|image| image.zones[0].free.push(list(0, &[9000])), ImageError::Outside(Pfn(9000)));
    // The other zone's, and one that lies in a hole or reaches into it.
    check(&|image| image.zones[0].free.push(list(0, &[2050])), ImageError::Outside(Pfn(2050)));
    check(&|image| image.zones[1].free.push(list(0, &[3001])), ImageError::Outside(Pfn(3001)));
    check(&|image| image.zones[1].free = vec![list(4, &[2992])], ImageError::Outside(Pfn(3000)));
    check(&|image| image.zones[0].free.push(list(2, &[6])), ImageError::Misaligned(Pfn(6)));
    check(&|image| image.zones[0].free.push(list(0, &[5])), ImageError::Overlap(Pfn(5)));
    let used = |pfn, size| UsedBlock { pfn: Pfn(pfn), order: order(size), movable: true };
    check(&|image| image.used.push(used(1024, 0)), ImageError::Overlap(Pfn(1024)));
    check(&|image| image.used.push(used(9000, 0)), ImageError::Outside(Pfn(9000)));
    let huge = |image: &mut Image| {
        image.zones[0].free.clear();
        image.zones[0].cpus[0].lists.push(list(5, &[32]));
    };
    check(&huge, ImageError::NoSuchList(order(5), Migratetype::Movable));
    let askew = |image: &mut Image| {
        image.zones[0].free.clear();
        image.zones[0].cpus[0].lists.push(list(1, &[33]));
    };
    check(&askew, ImageError::Misaligned(Pfn(33)));
    let none = PageConfig { watermark_scale_factor: 0, ..config.clone() };
    let refused = PageAllocator::restore(&none, &image, ()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, ImageError::Config(_)), "{refused}");
}

/// Checks that every law holds, and the frame has this state and lies in a block of this size.
fn check_frame(machine: &Machine, pfn: u64, state: FrameState, size: u8) {
    machine.pages.check().unwrap_or_else(|law| panic!("{law}"));
    let (is, _, of) = machine.pages.frame(Pfn(pfn)).unwrap();
    assert_eq!((is, of), (state, order(size)), "frame {pfn}");
}

/// Returns a machine of 4096 free frames in two zones that share a pageblock.
fn small(policy: FragmentationPolicy) -> Machine {
    let zones = [zone(ZoneKind::Dma32, 0, 2304), zone(ZoneKind::Normal, 2304, 1792)];
    Machine::new(&config(&machine(&[node(&[0, 1], &zones)]), policy))
}

#[test]
fn smaller_blocks_in_use_become_one_and_are_split_again() {
    let mut machine = small(FragmentationPolicy::LINUX_6_1);
    let pages = &mut machine.pages;
    for (pfn, movable) in [(64, true), (66, true), (68, true)] {
        pages.alloc_at(Pfn(pfn), order(if pfn == 68 { 2 } else { 1 })).unwrap();
        pages.set_movable(Pfn(pfn), movable).unwrap();
    }
    assert_eq!(pages.join(Pfn(66), order(2)), Err(AllocAtError::Misaligned(Pfn(66))));
    assert_eq!(pages.join(Pfn(64), order(4)), Err(AllocAtError::InUse(Pfn(72))));
    assert_eq!(pages.join(Pfn(99_999), order(0)), Err(AllocAtError::Unknown(Pfn(99_999))));
    pages.join(Pfn(64), order(3)).unwrap();
    check_frame(&machine, 69, FrameState::Movable, 3);
    machine.pages.split(Pfn(64), order(0)).unwrap();
    check_frame(&machine, 69, FrameState::Movable, 0);
    // Where one part may not be moved, the whole may not.
    machine.pages.set_movable(Pfn(70), false).unwrap();
    machine.pages.join(Pfn(64), order(3)).unwrap();
    check_frame(&machine, 64, FrameState::Used, 3);
    machine.pages.free(machine.cpus[0], Pfn(64)).unwrap();
    machine.pages.check().unwrap_or_else(|law| panic!("{law}"));
}

#[test]
fn blocks_of_two_zones_are_not_joined() {
    let mut machine = small(FragmentationPolicy::LINUX_6_1);
    machine.pages.alloc_at(Pfn(2048), order(8)).unwrap();
    machine.pages.alloc_at(Pfn(2304), order(8)).unwrap();
    assert!(machine.pages.join(Pfn(2048), order(9)).is_err());
    check_frame(&machine, 2048, FrameState::Used, 8);
}

#[test]
fn a_free_block_is_taken_wherever_it_is() {
    for PolicyPreset { policy, .. } in FragmentationPolicy::PRESETS {
        let mut machine = small(*policy);
        // In a larger block, not at its beginning; on no multiple of its size; twice.
        machine.pages.take_exactly(Pfn(1236), order(2)).unwrap();
        check_frame(&machine, 1238, FrameState::Used, 2);
        assert_eq!(
            machine.pages.take_exactly(Pfn(1242), order(2)),
            Err(AllocAtError::Misaligned(Pfn(1242)))
        );
        assert_eq!(
            machine.pages.take_exactly(Pfn(1236), order(2)),
            Err(AllocAtError::InUse(Pfn(1236)))
        );
        // On a list of a CPU.
        let cpu = machine.cpus[1];
        let request = PageRequest::new(order(0), Migratetype::Movable);
        let pfn = machine.pages.alloc(Nanos(0), cpu, request).unwrap();
        machine.pages.free(cpu, pfn).unwrap();
        if machine.pages.cached_as(pfn) == Some(Migratetype::Movable) {
            machine.pages.take_exactly(pfn, order(0)).unwrap();
            check_frame(&machine, pfn.0, FrameState::Used, 0);
        }
        machine.pages.set_block_type(Pfn(512), Migratetype::Unmovable).unwrap();
        machine.pages.isolate(Pfn(512), order(9)).unwrap();
        assert_eq!(machine.pages.block_type(Pfn(512)), Some(Migratetype::Movable));
        check_frame(&machine, 1000, FrameState::Used, 0);
        assert!(machine.pages.isolate(Pfn(512), order(9)).is_err());
        machine.pages.check().unwrap_or_else(|law| panic!("{law}"));
    }
}

#[test]
fn an_exchange_leaves_the_other_block_in_the_place() {
    // Large enough for a batch on the list of a CPU.
    let map = machine(&[node(&[0, 1], &[zone(ZoneKind::Normal, 0, 1 << 16)])]);
    let mut machine = Machine::new(&config(&map, FragmentationPolicy::LINUX_6_1));
    let cpu = machine.cpus[0];
    let request = PageRequest::new(order(0), Migratetype::Movable);
    let ours = machine.pages.alloc(Nanos(0), cpu, request).unwrap();
    let list = |machine: &Machine| {
        let zones = machine.pages.image().unwrap().zones;
        zones.iter().find_map(|zone| Some(zone.cpus[0].lists.first()?.blocks.clone())).unwrap()
    };
    let before = list(&machine);
    let theirs = before[3];
    machine.pages.exchange(ours, theirs).unwrap();
    let mut expected = before;
    expected[3] = ours;
    assert_eq!(list(&machine), expected);
    check_frame(&machine, theirs.0, FrameState::Used, 0);
    // Back, although it may be moved now.
    machine.pages.set_movable(theirs, true).unwrap();
    machine.pages.exchange(theirs, ours).unwrap();
    assert_eq!(list(&machine)[3], theirs);
    check_frame(&machine, ours.0, FrameState::Used, 0);
    assert!(machine.pages.exchange(theirs, ours).is_err());
    assert!(machine.pages.exchange(ours, Pfn(99_999)).is_err());
}

#[test]
fn exchanges_by_chance_keep_the_laws() {
    for (nth, PolicyPreset { name, policy, .. }) in FragmentationPolicy::PRESETS.iter().enumerate()
    {
        let mut machine = small(*policy);
        let mut random = Random::new(nth as u64 + 40);
        let mut done = [0_u64; 4];
        for step in 0..1_500 {
            machine.step(&mut random);
            let theirs = Pfn(random.below(4_200));
            let size = order(ORDERS[random.below(ORDERS.len() as u64) as usize]);
            let held = random.below(machine.held.len().max(1) as u64) as usize;
            let kind = random.below(4) as usize;
            let changed = match (kind, machine.held.get(held).copied()) {
                (0, Some(ours)) => {
                    let changed = machine.pages.exchange(ours, theirs).is_ok();
                    if changed {
                        machine.held[held] = theirs;
                    }
                    changed
                }
                (1, _) => {
                    let taken = machine.pages.take_exactly(theirs, size).is_ok();
                    machine.held.extend(taken.then_some(theirs));
                    taken
                }
                (2, Some(ours)) => {
                    let to = Order::new(random.below(3) as u8).unwrap();
                    let (_, _, from) = machine.pages.frame(ours).unwrap();
                    if to < from && machine.pages.split(ours, to).is_ok() {
                        let parts = (1..from.pages() / to.pages()).map(|n| n * to.pages());
                        machine.held.extend(parts.map(|n| Pfn(ours.0 + n)));
                        true
                    } else {
                        false
                    }
                }
                (3, Some(ours)) => {
                    let joined = machine.pages.join(ours, size).is_ok();
                    if joined {
                        let inside = ours.0 + 1..ours.0 + size.pages();
                        machine.held.retain(|pfn| !inside.contains(&pfn.0));
                    }
                    joined
                }
                _ => false,
            };
            done[kind] += u64::from(changed);
            if let Err(law) = machine.pages.check() {
                panic!("{name}, step {step}, kind {kind}: {law}");
            }
        }
        assert!(done.iter().all(|&count| count >= 20), "{name}: {done:?}");
    }
}
