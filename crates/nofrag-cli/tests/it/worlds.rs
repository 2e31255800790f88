//! Hosts that few people try: larger pages and orders, one zone, zones with holes, CPUs whose numbers have gaps.
//!
//! Their files are made up; the form is the kernel's.

use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use crate::json::check_documented;
use crate::support::nofrag;

/// A zone with a part of its memory free in blocks of the lowest orders, and some blocks of the highest.
struct Zone {
    node: u32,
    name: &'static str,
    start: u64,
    spanned: u64,
    present: u64,
    managed: u64,
    whole: u64,
}

struct World {
    name: &'static str,
    page_bytes: u64,
    largest_order: usize,
    pageblock_order: u32,
    huge_kib: u64,
    cpus: Vec<u32>,
    zones: Vec<Zone>,
}

const TYPES: [&str; 6] = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate"];

impl Zone {
    /// Returns the free blocks by order: a fifth of the zone, a sixth of that in each of the six lowest orders.
    fn blocks(&self, largest_order: usize) -> Vec<u64> {
        let mut blocks = vec![0; largest_order + 1];
        for (order, blocks) in blocks.iter_mut().enumerate().take(6) {
            *blocks = (self.managed / 30) >> order;
        }
        blocks[largest_order] = self.whole;
        blocks
    }

    fn free(&self, largest_order: usize) -> u64 {
        let blocks = self.blocks(largest_order);
        blocks.iter().enumerate().map(|(order, blocks)| blocks << order).sum()
    }
}

impl World {
    fn free(&self) -> u64 {
        self.zones.iter().map(|zone| zone.free(self.largest_order)).sum()
    }

    /// Returns the pages of all zones, in KiB.
    fn kib(&self, pages: u64) -> u64 {
        pages * self.page_bytes / 1024
    }

    fn zoneinfo(&self) -> String {
        let mut text = String::new();
        for zone in &self.zones {
            let Zone { node, name, start, spanned, present, managed, .. } = zone;
            let (free, min) = (zone.free(self.largest_order), managed / 256);
            write!(
                text,
                "Node {node}, zone {name:>8}\n  pages free     {free}\n        boost    0\n\
                 \x20       min      {min}\n        low      {}\n        high     {}\n\
                 \x20       spanned  {spanned}\n        present  {present}\n        managed  {managed}\n\
                 \x20       protection: (0, 0, 0)\n      nr_free_pages {free}\n  pagesets\n",
                min * 5 / 4,
                min * 3 / 2
            )
            .unwrap();
            for cpu in &self.cpus {
                writeln!(
                    text,
                    "    cpu: {cpu}\n              count:    3\n              high:     63"
                )
                .unwrap();
            }
            writeln!(text, "  node_unreclaimable:  0\n  start_pfn:           {start}").unwrap();
        }
        text
    }

    fn buddyinfo(&self) -> String {
        let line = |zone: &Zone| {
            let blocks = zone.blocks(self.largest_order);
            let blocks: String = blocks.iter().map(|blocks| format!("{blocks:6} ")).collect();
            format!("Node {}, zone {:>8} {blocks}\n", zone.node, zone.name)
        };
        self.zones.iter().map(line).collect()
    }

    fn pagetypeinfo(&self) -> String {
        let mut text = format!(
            "Page block order: {}\nPages per block:  {}\n\nFree pages count per migrate type at order ",
            self.pageblock_order,
            1 << self.pageblock_order
        );
        (0..=self.largest_order).for_each(|order| write!(text, "{order:6} ").unwrap());
        text.push('\n');
        for zone in &self.zones {
            for kind in TYPES {
                write!(text, "Node {:4}, zone {:>8}, type {kind:>12} ", zone.node, zone.name)
                    .unwrap();
                let blocks = zone.blocks(self.largest_order);
                let of = |blocks: &u64| if kind == "Movable" { *blocks } else { 0 };
                blocks.iter().for_each(|blocks| write!(text, "{:6} ", of(blocks)).unwrap());
                text.push('\n');
            }
        }
        let names: String = TYPES.iter().map(|kind| format!("{kind:>12} ")).collect();
        writeln!(text, "\nNumber of blocks type {names}").unwrap();
        for zone in &self.zones {
            let all = (zone.present >> self.pageblock_order).max(2);
            writeln!(
                text,
                "Node {}, zone {:>8} {:12} {:12} {:12} {:12} {:12} {:12} ",
                zone.node,
                zone.name,
                all / 10,
                all - all / 10,
                0,
                0,
                0,
                0
            )
            .unwrap();
        }
        text
    }

    /// Writes the host into a folder, as `nofrag host capture` does.
    fn write(&self, root: &Path) {
        let managed: u64 = self.zones.iter().map(|zone| zone.managed).sum();
        let cpus: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
        let meminfo = format!(
            "MemTotal: {} kB\nMemFree: {} kB\nHugepagesize: {} kB\n",
            self.kib(managed),
            self.kib(self.free()),
            self.huge_kib
        );
        for (name, text) in [
            ("proc/buddyinfo", self.buddyinfo()),
            ("proc/zoneinfo", self.zoneinfo()),
            ("proc/pagetypeinfo", self.pagetypeinfo()),
            ("proc/meminfo", meminfo),
            ("proc/version", format!("Linux version 6.12.30-{} (gcc) #1 SMP\n", self.name)),
            ("proc/vmstat", format!("nr_free_pages {}\n", self.free())),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n".to_owned()),
            ("sys/devices/system/cpu/online", format!("{}\n", cpus.join(","))),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

/// Returns a zone without holes of which a hundredth is the kernel's own.
fn zone(name: &'static str, frames: Range<u64>, whole: u64) -> Zone {
    let pages = frames.end - frames.start;
    let managed = pages - pages / 100;
    Zone { node: 0, name, start: frames.start, spanned: pages, present: pages, managed, whole }
}

fn worlds() -> Vec<World> {
    let world = |name, page_bytes, largest_order, pageblock_order, huge_kib, zones| World {
        name,
        page_bytes,
        largest_order,
        pageblock_order,
        huge_kib,
        cpus: (0..8).collect(),
        zones,
    };
    let dma = |end: u64| zone("DMA", 0x8000..0x8000 + end, 1);
    let holes = |node, name, frames: Range<u64>, hole: u64| {
        let all = zone(name, frames, 2);
        Zone { node, present: all.present - hole, managed: all.managed - hole, ..all }
    };
    let gaps = World {
        cpus: (0..16).chain((32..64).step_by(2)).collect(),
        ..world(
            "holes",
            4096,
            10,
            9,
            2048,
            vec![
                holes(0, "DMA32", 4096..1 << 20, 600_000),
                holes(0, "Normal", 1 << 20..9 << 20, 1 << 22),
                holes(2, "Normal", 33 << 20..41 << 20, 12_289),
            ],
        )
    };
    let normal = |end: u64, whole| zone("Normal", 0x18000..0x18000 + end, whole);
    vec![
        world("arm64-64k", 65536, 13, 13, 524_288, vec![dma(1 << 16), normal(1 << 18, 0)]),
        world("arm64-16k", 16384, 11, 11, 32_768, vec![dma(1 << 16), normal(1 << 20, 2)]),
        world("ppc64le-64k", 65536, 8, 5, 2048, vec![zone("Normal", 0..1 << 18, 1)]),
        world("s390x", 4096, 10, 8, 1024, vec![zone("DMA", 0..1 << 19, 1), normal(1 << 19, 1)]),
        world("one-zone", 4096, 10, 9, 2048, vec![zone("Normal", 1..65_537, 0)]),
        gaps,
    ]
}

fn document(args: &[&str]) -> Value {
    check_documented(&nofrag(args))
}

#[test]
fn figures_are_those_of_the_worlds_own_pages_and_orders() {
    for world in worlds() {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path());
        let root = folder.path().to_str().unwrap();
        let name = world.name;
        let host = document(&["host", "--json", "--root", root]);
        let number = |path: &str| host.pointer(path).unwrap_or_else(|| panic!("{name}: {path}"));
        assert_eq!(number("/host/page_bytes"), world.page_bytes, "{name}");
        assert_eq!(number("/host/pageblock_order"), world.pageblock_order, "{name}");
        assert_eq!(number("/host/cpus_online"), world.cpus.len(), "{name}");
        assert_eq!(number("/host/free_bytes"), world.free() * world.page_bytes, "{name}");
        assert_eq!(number("/huge_pages/order"), world.pageblock_order, "{name}");
        assert_eq!(number("/huge_pages/bytes"), world.huge_kib * 1024, "{name}");
        assert_eq!(number("/free_gap/listed"), number("/free_gap/said"), "{name}");
        let large = |zone: &Zone| -> u64 {
            let blocks = zone.blocks(world.largest_order).into_iter().enumerate();
            let large = blocks.skip(world.pageblock_order as usize);
            large.map(|(order, blocks)| (blocks << order) >> world.pageblock_order).sum()
        };
        let whole: u64 = world.zones.iter().map(large).sum();
        assert_eq!(number("/huge_pages/listed"), whole, "{name}");
        for (zone, shown) in world.zones.iter().zip(zones_by_start(&host, &world)) {
            assert_eq!(shown["free_pages"], zone.free(world.largest_order), "{name}");
            assert_eq!(shown["managed_pages"], zone.managed, "{name}");
            assert_eq!(shown["per_cpu_pages"], 3 * world.cpus.len(), "{name}");
            let orders = shown["orders"].as_array().unwrap();
            assert_eq!(orders.len(), world.largest_order + 1, "{name}");
        }
    }
}

/// Returns the zones of a document in the order of the world's.
fn zones_by_start<'a>(host: &'a Value, world: &World) -> Vec<&'a Value> {
    let shown = host["zones"].as_array().unwrap();
    let of = |zone: &Zone| {
        let is_it = |it: &&Value| it["node"] == zone.node && it["name"] == zone.name;
        shown.iter().find(is_it).unwrap()
    };
    world.zones.iter().map(of).collect()
}

/// Explanations once asked for order 9 in each world: 32 MiB where a huge page has 512.
#[test]
fn a_huge_page_is_what_the_world_has_and_every_command_ends_in_order() {
    for world in worlds() {
        let folder = tempfile::tempdir().unwrap();
        world.write(folder.path());
        let root = folder.path().to_str().unwrap();
        let shown = |args: &[&str]| {
            let output = nofrag(args);
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            let is_ended = output.status.code().is_some_and(|status| status < 2);
            assert!(is_ended && !text.contains("panicked"), "{}: {args:?}: {text}", world.name);
            text
        };
        let text = shown(&["explain", root]);
        let asked = format!("would order {} (", world.pageblock_order);
        assert!(text.contains(&asked), "{}: {text}", world.name);
        let need = format!("1xorder={}", world.largest_order);
        let has = world.zones.iter().any(|zone| zone.whole > 0);
        let text = shown(&["preflight", "--need", &need, "--root", root]);
        assert_eq!(text.starts_with("Yes: 1 block of "), has, "{}: {text}", world.name);
        assert!(shown(&["compare", root, root]).contains("0 worse and 0 better"), "{}", world.name);
        for args in [
            &["host", "--all", "--root", root][..],
            &["host", "pages", "--all", "--root", root],
            &["top", "--once", "--root", root],
            &["export", "--once", "--root", root],
        ] {
            shown(args);
        }
    }
}
