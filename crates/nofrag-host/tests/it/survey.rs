//! The report against sums made another way, and against arbitrary layouts.

use nofrag_host::addresses::Addresses;
use nofrag_host::source::Sources;
use nofrag_host::vmalloc::{VmallocReport, survey};
use proptest::prelude::*;

const PAGE: u64 = 4096;

/// Checks the sums of any report: every byte of a region is in use, lazy or free, now and after the purge.
fn check_sums(report: &VmallocReport) {
    let totals = report.totals;
    assert_eq!(totals.live_bytes + report.lazy.bytes, totals.bytes);
    assert_eq!(totals.live_areas + report.lazy.areas, totals.areas);
    assert_eq!(report.kinds.iter().map(|group| group.bytes).sum::<u64>(), totals.bytes);
    assert_eq!(report.callers.iter().map(|group| group.areas).sum::<u64>(), totals.live_areas);
    for region in &report.regions {
        for room in [&region.now, &region.after_purge] {
            assert_eq!(room.classes.iter().map(|class| class.bytes).sum::<u64>(), room.free_bytes);
            assert_eq!(room.classes.iter().map(|class| class.holes).sum::<usize>(), room.holes);
            assert_eq!(room.largest_by_align[0].largest_area_bytes, room.largest_area_bytes);
            assert!(
                room.largest_by_align
                    .is_sorted_by(|a, b| a.largest_area_bytes >= b.largest_area_bytes)
            );
        }
        let taken = region.live_bytes + region.lazy_bytes;
        if region.overlapping_areas == 0 {
            assert_eq!(region.now.free_bytes + taken, region.end - region.start);
            assert_eq!(region.after_purge.free_bytes, region.now.free_bytes + region.lazy_bytes);
        }
        assert!(region.now.largest_area_bytes <= region.after_purge.largest_area_bytes);
    }
}

fn sources(text: String) -> Sources {
    Sources {
        vmallocinfo: text.into_bytes(),
        cpus_online: Some(2),
        vmalloc_total: Some((32 << 40) - 1024),
        arch: Some("x86_64".to_owned()),
        release: Some("6.18.0".to_owned()),
        ..Sources::default()
    }
}

/// An area: the pages of the hole before it, its own pages, and `true` if it is lazy.
type Step = (u64, u64, bool);

fn layout(base: u64, steps: &[Step]) -> String {
    let mut at = base;
    let mut text = String::new();
    for &(gap, pages, lazy) in steps {
        let start = at + gap * PAGE;
        at = start + pages * PAGE;
        let what = if lazy { "unpurged vm_area" } else { "f+0x1/0x2 vmalloc" };
        text += &format!("0x{start:016x}-0x{at:016x} {:7} {what}\n", pages * PAGE);
    }
    text
}

proptest! {
    /// Checks that the engine's largest holes equal those of a walk over the same areas.
    #[test]
    fn holes_equal_a_linear_walk(
        steps in proptest::collection::vec((0_u64..6, 1_u64..40, any::<bool>()), 1..60),
    ) {
        let base = 0xffff_c900_0000_0000;
        let report = survey(&sources(layout(base, &steps))).unwrap();
        prop_assert_eq!(report.addresses, Addresses::Real);
        check_sums(&report);
        let region = &report.regions[0];
        let used = |kept: fn(&Step) -> bool| {
            let mut largest = 0;
            let mut holes = 0;
            let mut gap = 0;
            for step in &steps {
                gap += step.0;
                if kept(step) {
                    largest = largest.max(gap);
                    holes += usize::from(gap > 0);
                    gap = 0;
                } else {
                    gap += step.1;
                }
            }
            let end = base + steps.iter().map(|step| step.0 + step.1).sum::<u64>() * PAGE;
            let behind = region.end - end + gap * PAGE;
            ((largest * PAGE).max(behind), holes + 1)
        };
        let found = |room: &nofrag_host::layout::Room| (room.largest_area_bytes, room.holes);
        prop_assert_eq!(found(&region.now), used(|_| true));
        prop_assert_eq!(found(&region.after_purge), used(|step| !step.2));
    }

    /// Checks that the report is made and adds up, whatever the lines claim, overlaps, ends of the address space and
    /// all.
    #[test]
    fn any_layout_makes_a_report(
        areas in proptest::collection::vec((0_usize..6, 0_u64..64, 1_u64..64, any::<bool>()), 0..40),
        total in proptest::option::of(any::<u64>()),
    ) {
        let bases = [
            1 << 32,
            0x37f_e000_0000,
            0xffff_8000_0000_0000,
            0xffff_c900_0000_0000,
            0xffff_ffff_c000_0000,
            u64::MAX - 256 * PAGE + 1,
        ];
        let text: String = areas
            .iter()
            .map(|&(base, offset, pages, lazy)| layout(bases[base] + offset * PAGE, &[(0, pages, lazy)]))
            .collect();
        for arch in ["x86_64", "aarch64", "s390"] {
            let sources = Sources {
                arch: Some(arch.to_owned()),
                vmalloc_total: total,
                ..sources(text.clone())
            };
            check_sums(&survey(&sources).unwrap());
        }
    }

    #[test]
    fn any_text_makes_a_report(text in "(0x[0-9a-f]{1,16}-0x[0-9a-f]{1,16} [0-9]{1,20} [a-z +=0-9]{0,12}\n){0,8}") {
        let _ = survey(&sources(text)).unwrap();
    }
}
