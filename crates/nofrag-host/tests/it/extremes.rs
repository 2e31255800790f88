//! Every public function that takes numbers, at the ends of their ranges: an answer or an error, never a panic or an
//! overflow.

use std::io::empty;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nofrag::page::Migratetype;
use nofrag::ranges::Span;
use nofrag_host::budget::{Budget, Room};
use nofrag_host::failure;
use nofrag_host::fields::{Limit, lazy_limit_bytes};
use nofrag_host::finding::{bytes_text, grouped};
use nofrag_host::gfp::GfpBits;
use nofrag_host::layout::Layout;
use nofrag_host::machine::pass::tolerance;
use nofrag_host::picture::{self, Ink, Stroke};
use nofrag_host::proc_maps;
use nofrag_host::process::growth::{Earlier, growth};
use nofrag_host::process::replay::Which;
use nofrag_host::process::room::headroom;
use nofrag_host::process::window::Window;
use nofrag_host::process::{self, started, survey};
use nofrag_host::recording::{Recording, RecordingWriter, WriterOptions};
use nofrag_host::snapshot::{PageMap, Snapshot};
use nofrag_host::source::{self, Root};
use nofrag_host::trace::{
    self, Decoder, Event, EventKind, EventSource, FlagTable, RawPages, TraceMeta, UnseenTracker,
    type_name,
};
use nofrag_host::vmalloc;
use nofrag_host::watch::page::Page;
use nofrag_host::watch::{History, Source, Watch};

const ENDS: [u64; 7] = [0, 1, 2, 4096, 1 << 63, u64::MAX - 1, u64::MAX];
const ENDS_32: [u32; 8] = [0, 1, 10, 11, 63, 64, u32::MAX - 1, u32::MAX];
const ENDS_USIZE: [usize; 5] = [0, 1, 2, 80, 100_000];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the root of a captured host.
fn captured() -> Root {
    Root::Captured(repository().join("data/hosts/vm-6.18-x86_64"))
}

fn shipped() -> trace::Trace {
    let path = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag";
    trace::open(&repository().join(path)).unwrap()
}

#[test]
fn budgets() {
    // The setting holds for the whole process: 0 keeps the defaults for the other tests.
    Budget::allow(0);
    for end in ENDS {
        let budget = Budget { bytes: end, ..Budget::of_length(end) };
        assert!(Budget::of_length(end).bytes > 0);
        for other in ENDS {
            let mut room = Room::new(Path::new("ends"), budget);
            assert_eq!(room.check(other).is_ok(), other <= end);
            assert_eq!(room.take(other).is_ok(), other <= end);
            let left = room.left();
            assert!(room.take_part(other, end) <= left);
        }
    }
}

#[test]
fn figures() {
    for end in ENDS {
        assert!(!bytes_text(end).is_empty());
        assert_eq!(grouped(end).replace(',', ""), end.to_string());
        let meta = shipped().meta;
        assert!(!meta.gfp.render(end).is_empty());
        assert!(!FlagTable::default().render(end).is_empty());
        let _ = GfpBits::new(&meta.gfp).flags(end);
        assert_eq!(Event::lost(end, u16::MAX, Some(end)).at, end);
    }
    for end in ENDS_32 {
        assert!(lazy_limit_bytes(end) <= 32 * (32 << 20));
    }
    for end in [0, 1, 40, 255, 256, usize::MAX] {
        let kind = EventKind::from_number(end);
        assert!(kind.is_none_or(|kind| kind as usize == end));
        assert!(!type_name(end).is_empty());
    }
    assert_eq!((started(0), started(u32::MAX)), (None, None));
    assert!(started(std::process::id()).is_some());
}

#[test]
fn pictures() {
    let space = Span::new(0, u64::MAX).unwrap();
    let areas = [(0, 1), (1 << 63, 4096), (u64::MAX - 1, 1)];
    let stroke = |(start, len)| Stroke { span: Span::sized(start, len).unwrap(), ink: Ink::Solid };
    for cells in ENDS_USIZE {
        assert!(!picture::draw(space, &areas.map(stroke), cells).is_empty());
        let _ = picture::draw(Span::new(7, 8).unwrap(), &[], cells);
    }
}

#[test]
fn vmalloc_spaces() {
    let text = source::read_vmallocinfo(&captured()).unwrap();
    let sources = source::read_rest(&captured(), text);
    let report = vmalloc::survey(&sources).unwrap();
    for cpus in ENDS_32 {
        let lazy = vmalloc::Lazy { largest_bytes: u64::MAX, ..report.lazy };
        assert!(!lazy.is_over_limit(cpus) || cpus == 0);
    }
    for region in &report.regions {
        assert!(ENDS_USIZE.iter().all(|&cells| !region.draw(cells).is_empty()));
        for page in ENDS {
            let Ok(mut layout) = Layout::load(&region.region, page) else { continue };
            for (bytes, align) in ENDS.iter().flat_map(|&b| ENDS.map(|align| (b, align))) {
                assert!(!layout.would_succeed(bytes, align) || bytes < 1 << 63);
            }
        }
    }
}

#[test]
fn processes() {
    let last = "7fffffffe000-7ffffffff000 rw-p 00000000 00:00 0\nfffffffffffff000-ffffffffffffffff --xp 0 00:00 0\n";
    let text = format!("10000-11000 rw-p 00000000 00:00 0\n{last}");
    let parsed = || proc_maps::parse(text.as_bytes()).unwrap();
    let sources = source::process::Sources { parsed: parsed(), ..Default::default() };
    let window = Window::of(&sources).unwrap();
    for end in ENDS {
        let _ = window.layout(end);
        for before in [Duration::ZERO, Duration::MAX] {
            let earlier = Earlier { parsed: parsed(), before };
            assert_eq!(growth(&earlier, &sources.parsed, Some(end)).appeared, 0);
        }
        for limit in [None, Some(Limit::Unlimited), Some(Limit::Bytes(end))] {
            let _ = headroom(&sources.parsed.areas, &window, limit, Some(end));
        }
    }
    let report: process::ProcessReport = survey(&sources, None, Which::All).unwrap();
    assert!(ENDS_USIZE.iter().all(|&cells| !report.space.draw(cells).is_empty()));
}

#[test]
fn reports_of_failures() {
    let text = std::fs::read_dir(repository().join("data/reports")).unwrap().flatten();
    let text = text.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mut zones = 0;
    for report in text.flat_map(|text| failure::parse(&text)) {
        for zone in &report.memory.zones {
            zones += 1;
            for page_kib in ENDS {
                assert!(zone.free_pages(page_kib) >= zone.free_pages(u64::MAX));
                let _ = zone.state(page_kib);
            }
        }
    }
    assert!(zones > 0);
}

#[test]
fn snapshots() {
    let meta = shipped().meta;
    let mut files = meta.start().unwrap().files.clone();
    files.insert("ends", vec![0xff]);
    let snapshot = Snapshot::parse(&files);
    let mut ram = snapshot.memory();
    assert!(ENDS.map(|address| ram.has(address)).contains(&false));
    for pfn in ENDS {
        let _ = snapshot.zone_of(pfn);
    }
    for order in ENDS_32 {
        for zone in &snapshot.zones {
            assert!(snapshot.takeable(&zone.zone, order) <= 1 << 40);
            let _ = snapshot.blocks_of_type(&zone.zone, Migratetype::Movable, order);
            let _ = snapshot.state_for(zone, order);
        }
        for blocks in &snapshot.buddy {
            assert!(blocks.blocks_of(order) <= blocks.blocks_of(0));
            let _ = blocks.indices(order);
        }
    }
    let types = snapshot.types.as_ref().unwrap();
    for number in [0, 1, 8, usize::MAX] {
        assert!(types.migratetype(number).is_none_or(|of| types.number(of) == Some(number)));
    }
}

#[test]
fn forecasts() {
    for blocks in ENDS {
        assert!((5..=blocks.max(5)).contains(&tolerance(blocks)));
    }
}

#[test]
fn maps_of_frames() {
    let bytes = [1024_u64.to_le_bytes(), [0xff; 8], 1024_u64.to_le_bytes()].concat();
    for map in [PageMap::new(&bytes), PageMap::new(&[])] {
        for pfn in ENDS {
            assert_eq!(map.flags(pfn).is_some(), pfn < map.frames());
        }
        for range in ENDS.iter().flat_map(|&start| ENDS.map(|end| Range { start, end })) {
            let frames = map.count_uses(range.clone()).iter().sum::<u64>();
            assert_eq!(map.uses(range.clone()).count() as u64, frames);
            for largest in ENDS_32 {
                let blocks = map.free_blocks(range.clone(), largest);
                assert!(blocks.count() as u64 <= frames);
            }
        }
    }
}

#[test]
fn traces() {
    let mut room = Room::new(Path::new("ends"), Budget::of_length(0));
    for end in ENDS {
        assert!(
            !UnseenTracker::new(&TraceMeta::default(), &mut room).finish(end).sentences.is_empty()
        );
    }
    let decoder = Arc::new(Decoder::new([]));
    for (at, cpu) in ENDS.iter().flat_map(|&at| [0, u16::MAX].map(|cpu| (at, cpu))) {
        decoder.decode(&[0xff; 64], at, cpu).unwrap_err();
        decoder.decode_into(&[], at, cpu, &mut Vec::new()).unwrap_err();
    }
    for (cpu, size) in [(0, 17), (u16::MAX, usize::MAX)] {
        let mut pages = RawPages::new(empty(), PathBuf::new(), cpu, Arc::clone(&decoder), size);
        assert!(!pages.read(&mut Vec::new()).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ends.nofrag");
    let writer = RecordingWriter::create(&path, &TraceMeta::default(), WriterOptions::default());
    let writer = writer.unwrap();
    for cpu in [0, u16::MAX] {
        let mut stream = writer.stream(cpu);
        for at in ENDS {
            stream.push(&Event::lost(at, cpu, Some(at))).unwrap();
            stream.complete_until(at).unwrap();
        }
        stream.end().unwrap();
    }
    drop(writer);
    let mut events = Recording::open(&path).unwrap().events().unwrap();
    let mut read = Vec::new();
    while events.read(&mut read).unwrap() {}
    assert!(read.len() >= 2 * ENDS.len());
}

#[test]
fn looks() {
    let mut watch = Watch::new(captured(), &[Source::Memory]);
    for most in [0, 1, usize::MAX] {
        let mut history = History::new(most);
        for at in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
            history.push(at, Duration::MAX, &watch.look().snapshot());
        }
        for order in ENDS_32 {
            assert!(history.obtainable(order).count() <= 3);
            for least in [Duration::ZERO, Duration::MAX] {
                let _ = history.forecast(order, least);
            }
            for processes in [0, usize::MAX] {
                let _ = Page::of(watch.last(), &history, None, order, processes);
            }
        }
    }
}
