//! A hundred thousand operations against the running kernel, and the signs of a wrong model.

use crate::apparatus::probe::Width;
use nofrag::mmap::{Direction, HugePages, Placement};

use super::trace::{PUBLISHED_SEED, Style, Trace};
use super::twin::{Setting, Trouble, Twin};
use super::*;
use crate::oracle::ClaimKind;
use crate::scenario::{Mode, Silent};

fn report(options: Options) -> Report {
    SCENARIO.run(&options, &Silent).unwrap()
}

/// Checks that every claim holds, or that the notes name the skipped programs. Under a kernel with which the rules were
/// never compared a difference is news, not a fault of ours: the notes tell it.
fn check_same(mask: &str, loops: u64) {
    check_same_of(Options {
        mask: Some(mask.to_owned()),
        loops: Some(loops),
        ..Options::default()
    });
}

fn check_same_of(options: Options) {
    let report = report(options);
    for note in &report.notes {
        eprintln!("{note}");
    }
    assert!(!report.oracles.is_empty() || report.notes.iter().any(|n| n.starts_with("skipped: ")));
    for oracle in report.oracles.iter().filter(|oracle| oracle.id.starts_with("same/")) {
        if oracle.kind == ClaimKind::Environment {
            eprintln!("not judged, this kernel was not compared before: {}", oracle.claim);
            continue;
        }
        assert!(oracle.holds, "{}: {:?}", oracle.claim, report.notes);
    }
}

#[test]
fn the_kernel_does_what_the_model_says_downwards() {
    check_same("plain_500,mixed_500,mixed_5000", 20_000);
}

#[test]
fn the_kernel_does_what_the_model_says_in_the_legacy_layout() {
    check_same("legacy_500", 20_000);
}

#[test]
fn the_kernel_does_what_the_model_says_in_32_bits() {
    check_same("compat_500,compat_legacy_500,compat_full", 10_000);
}

/// Replays a seed with which a campaign found a stack so low that its guard gap reaches address 0
/// (docs/sources/mmap.md#guard-down-to-zero).
#[test]
fn the_kernel_does_what_the_model_says_below_the_lowest_stack() {
    let mask = Some("compat_full".to_owned());
    let seed = Some(3_539_747_756_258_762);
    check_same_of(Options { mask, seed, loops: Some(10_000), ..Options::default() });
}

#[test]
fn a_wrong_rule_is_noticed_and_named() {
    let setting = Setting { width: Width::Bits64, direction: Direction::Down };
    // No kernel places small mappings from the bottom in the usual layout.
    let mut twin = match Twin::with_rules(setting, Placement::TwoEnded, 65_530) {
        Ok(twin) => twin,
        Err(Trouble::Skipped(why)) => return eprintln!("skipped: {why}"),
        Err(other) => panic!("{other}"),
    };
    let mut trace = Trace::new(&mut twin, Style::Plain, setting.width, PUBLISHED_SEED, 10);
    let result = trace.run(5000).and_then(|()| twin.finish().map(|_| ()));
    let Err(Trouble::Mismatch(mismatch)) = result else { panic!("{result:?}") };
    let text = mismatch.to_string();
    assert_eq!(mismatch.operation, 1, "{text}");
    for part in ["map 0x", "the kernel says 0x7ff", "the model 0x", "around:"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_rule_that_is_wrong_for_some_lengths_only_is_noticed() {
    let setting = Setting { width: Width::Bits64, direction: Direction::Down };
    let Ok(kernel) = kernel::Kernel::here() else { return };
    if kernel.standing != kernel::Standing::Proved {
        return;
    }
    let other = Placement::MapleTreeGuarded(HugePages::Ignored);
    let Ok(mut twin) = Twin::with_rules(setting, other, kernel.map_limit) else { return };
    let mut trace = Trace::new(&mut twin, Style::Plain, setting.width, PUBLISHED_SEED, 100);
    let result = trace.run(5000).and_then(|()| twin.finish().map(|_| ()));
    let Err(Trouble::Mismatch(mismatch)) = result else { panic!("{result:?}") };
    assert!(mismatch.operation < 100, "{mismatch}");
}

#[test]
fn bad_options_are_refused() {
    for options in [
        Options { loops: Some(0), ..Options::default() },
        Options { repeat: Some(0), ..Options::default() },
        Options { threads: Some(100_000), ..Options::default() },
        Options { mode: Mode::Soak, ..Options::default() },
    ] {
        assert!(matches!(SCENARIO.run(&options, &Silent), Err(RunError::BadOption { .. })));
    }
}
