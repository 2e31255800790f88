//! Reports of many kernels, whole and cut.

use std::fs;
use std::path::Path;

use nofrag::page::{Migratetype, PageRequest, Refusal, ZoneKind};
use nofrag::units::Order;
use nofrag_host::failure::{Event, GroupLimit, LogReport, Mode, parse};
use nofrag_host::gfp::GfpFlag;

/// Returns the text of a report in `data/reports`.
fn report(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/reports").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/reports");
    let entries = fs::read_dir(folder).expect("the folder is part of the repository");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".txt")).collect()
}

/// Checks the request of a report: order, right to wait, process and kernel.
fn check(
    name: &str,
    index: usize,
    order: u32,
    waits: bool,
    process: &str,
    release: &str,
) -> LogReport {
    let report = parse(&report(name)).swap_remove(index);
    let asked = report.asked().expect("it asks for pages");
    let mode = asked.mode.as_ref().expect("it says how");
    assert_eq!((asked.order, mode.flags.has(GfpFlag::DirectReclaim)), (order, waits), "{name}");
    assert_eq!(report.process.as_deref(), Some(process), "{name}");
    assert_eq!(report.release.as_deref(), Some(release), "{name}");
    report
}

/// Returns the refusal of each zone, by the zone's name.
fn refusals(report: &LogReport) -> Vec<(String, Refusal)> {
    let asked = report.asked().expect("it asks for pages");
    let mode = asked.mode.as_ref().expect("it says how");
    let request = PageRequest {
        order: Order::new(asked.order as u8).expect("an order of the core"),
        migratetype: mode.flags.migratetype(),
        flags: mode.flags.request_flags(),
        zone: mode.flags.zone(),
        ..PageRequest::new(Order::ZERO, Migratetype::Unmovable)
    };
    let states = report.memory.states();
    states.iter().map(|(zone, state)| (zone.zone.name.clone(), state.refusal(&request))).collect()
}

#[test]
fn pieces_below_order_4() {
    let report = check("order-4-kernel.txt", 0, 4, true, "pipewire", "6.8.9-1-generic");
    assert_eq!(
        (report.seconds, report.caller()),
        (Some(88231.104522), Some("fw_core_load_message"))
    );
    assert_eq!(report.memory.zones.len(), 3);
    let normal = &report.memory.zones[2];
    assert_eq!((normal.zone.name.as_str(), normal.kib("managed")), ("Normal", Some(13_351_020)));
    assert_eq!((normal.blocks[0], normal.types[0].to_string()), (30_511, "UME".to_owned()));
    assert_eq!(report.memory.totals["slab_unreclaimable"], 30_000);
    assert_eq!(
        (report.memory.free_swap_kib, report.memory.ram_pages),
        (Some(1_998_332), Some(4_000_000))
    );
    let largest = Order::new(3);
    let [(_, dma), (_, dma32), (_, normal)] = &refusals(&report)[..] else { panic!("three zones") };
    assert!(matches!(dma, Refusal::Reserve { reserve: 15_857, .. }), "{dma:?}");
    assert!(matches!(dma32, Refusal::Reserve { reserve: 13_038, .. }), "{dma32:?}");
    assert_eq!(*normal, Refusal::Order { largest });
}

#[test]
fn kernels_without_names_nodes_or_boost() {
    let report = check("order-5-linux-3.18.txt", 0, 5, true, "mount.cifs", "3.18.140");
    let zones: Vec<_> = report.memory.zones.iter().map(|zone| zone.zone.kind()).collect();
    assert_eq!(zones, [Some(ZoneKind::Dma), Some(ZoneKind::Normal), Some(ZoneKind::HighMem)]);
    let of = refusals(&report);
    assert!(matches!(of[0].1, Refusal::Reserve { reserve: 855, .. }), "{of:?}");
    assert_eq!(of[1].1, Refusal::Order { largest: Order::new(4) });
    assert_eq!(of[2].1, Refusal::NotAllowed);
    assert_eq!(report.caller(), Some("cifs_setup_session"));
    let report = check("order-7-noretry.txt", 0, 7, true, "strindex", "4.19.0-27-amd64");
    assert_eq!(refusals(&report)[1].1, Refusal::Order { largest: Order::new(6) });
}

#[test]
fn several_reports_in_one_text() {
    let reports = parse(&report("order-0-atomic-burst.txt"));
    assert_eq!(reports.len(), 3);
    assert!(reports.windows(2).all(|pair| pair[0].line < pair[1].line));
    let report = check("order-0-atomic-burst.txt", 2, 0, false, "swapper/2", "5.10.0-28-amd64");
    let of = refusals(&report);
    assert!(matches!(of[2].1, Refusal::Watermark { .. }), "{of:?}");
    assert_eq!(report.caller(), Some("nic_refill_rx"));
    let together = names().iter().map(|name| self::report(name)).collect::<String>();
    let apart: usize = names().iter().map(|name| parse(&self::report(name)).len()).sum();
    assert_eq!((apart, parse(&together).len()), (16, 16));
}

#[test]
fn reserves_that_a_request_must_not_touch() {
    let report = check("highatomic-reserve.txt", 0, 3, true, "nvme-wq", "6.12.30");
    assert_eq!(refusals(&report)[0].1, Refusal::Type);
    let report = check("cma.txt", 0, 3, true, "v4l2-ctl", "6.6.31+rpt-rpi-v8");
    assert_eq!(refusals(&report)[0].1, Refusal::Type);
    let report = check("boosted-atomic.txt", 0, 0, false, "irq/33-eth0", "5.4.0-173-generic");
    let (zone, state) = report.memory.states()[0];
    assert_eq!((zone.kib("boost"), state.boost, state.marks.min), (Some(71_680), 17_920, 2560));
    assert!(matches!(refusals(&report)[0].1, Refusal::Watermark { .. }));
}

#[test]
fn atomic_defrag_is_refused_by_nothing_that_is_printed() {
    let report = check("defrag-mode-atomic.txt", 0, 1, false, "kworker/u64:2", "7.1.4");
    let of = refusals(&report);
    assert_eq!(of[2].1, Refusal::Limit);
    let state = report.memory.states()[2].1;
    assert!(!state.free.has(Migratetype::Unmovable, Order::ZERO));
}

#[test]
fn limits_of_control_groups_and_the_killer() {
    let report = check("cgroup-limit.txt", 0, 0, true, "python3", "6.18.44");
    let Event::OutOfMemory { group, .. } = report.event else { panic!("{:?}", report.event) };
    let limit = GroupLimit { usage_kib: Some(20_480), limit_kib: Some(20_480) };
    assert_eq!((group, report.memory.is_empty()), (Some(limit), true));
    let report = check("out-of-memory.txt", 0, 0, true, "java", "6.12.12-amd64");
    let Event::OutOfMemory { group, .. } = report.event else { panic!("{:?}", report.event) };
    assert_eq!((group, report.memory.zones.len()), (None, 2));
}

#[test]
fn no_room_for_areas() {
    let reports = parse(&report("vmap-arm32.txt"));
    assert_eq!(reports.len(), 4);
    assert_eq!(reports[0].event, Event::VmapFailure { bytes: 36_864, within: None });
    let Event::VmallocFailure { bytes, what, mode } = &reports[3].event else { panic!() };
    assert_eq!((*bytes, what.as_str()), (Some(36_864), "vm_struct allocation failed"));
    assert_eq!(mode.as_ref().map(Mode::to_string).as_deref(), Some("GFP_KERNEL|__GFP_ZERO"));
    assert_eq!(reports[3].process.as_deref(), Some("bpf-filter"));
    let one = |text| parse(text).swap_remove(0).event;
    let range = "vmalloc_node_range for size 8192 failed: Address range restricted to 0xf0800000 - 0xff800000";
    let within = Some(0xf080_0000..0xff80_0000);
    assert_eq!(one(range), Event::VmapFailure { bytes: 8192, within });
    let old = one("insmod: vmalloc: allocation failure, allocated 4096 of 16777216 bytes");
    assert!(matches!(old, Event::VmallocFailure { bytes: Some(16_777_216), .. }), "{old:?}");
    let stall =
        one("kswapd0: page allocation stalls for 10012ms, order:3, mode:0x14000c0(GFP_KERNEL)");
    assert!(matches!(stall, Event::PageStall { millis: 10_012, .. }), "{stall:?}");
}

/// Cuts each text at every character: the beginning never gives more reports or zones than the whole text, nor fewer
/// reports than a shorter beginning.
#[test]
fn every_cut_of_every_report() {
    for name in names() {
        let text = report(&name);
        let whole = parse(&text);
        let mut before = 0;
        for (at, _) in text.char_indices() {
            let cut = parse(&text[..at]);
            assert!(cut.len() <= whole.len() && cut.len() >= before, "{name} at {at}");
            before = cut.len();
            for (cut, whole) in cut.iter().zip(&whole) {
                assert!(cut.memory.zones.len() <= whole.memory.zones.len(), "{name} at {at}");
                let _ = (cut.memory.states(), cut.caller());
            }
        }
    }
}

/// Takes away each line in turn, and all lines before each: the rest of the reports is read all the same.
#[test]
fn a_missing_line_costs_only_itself() {
    for name in names() {
        let text = report(&name);
        let lines: Vec<&str> = text.lines().collect();
        let whole = parse(&text);
        for missing in 0..lines.len() {
            let rest = [&lines[..missing], &lines[missing + 1..]].concat().join("\n");
            let zones =
                |reports: &[LogReport]| reports.iter().map(|r| r.memory.zones.len()).sum::<usize>();
            let rest = parse(&rest);
            assert!(
                zones(&rest) >= zones(&whole).saturating_sub(1),
                "{name} without line {missing}"
            );
        }
        for first in 0..lines.len() {
            let tail = parse(&lines[first..].join("\n"));
            assert!(tail.len() <= whole.len() + 1, "{name} from line {first}");
        }
    }
}

/// Breaks long lines as mail does: the figures are those of the whole lines.
#[test]
fn broken_lines_are_joined() {
    for name in ["order-4-kernel.txt", "order-7-noretry.txt", "cma.txt", "defrag-mode-atomic.txt"] {
        let text = report(name);
        let broken: String = text.lines().map(|line| broken(line, 72) + "\n").collect();
        let (whole, broken) = (parse(&text), parse(&broken));
        for (whole, broken) in whole.iter().zip(&broken) {
            assert_eq!(whole.memory.zones, broken.memory.zones, "{name}");
        }
    }
}

/// Returns a line broken after at most `columns` columns; words stay whole.
fn broken(line: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in line.split(' ') {
        if column + word.len() > columns && column > 40 {
            text += "\n";
            column = 0;
        } else if !text.is_empty() {
            text += " ";
        }
        text += word;
        column += word.len() + 1;
    }
    text
}
