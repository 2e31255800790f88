//! Output of commands for inputs that do not change, letter by letter, as a pipe gets it.
//!
//! After a wanted change: `INSTA_UPDATE=always cargo test -p nofrag-cli --test it golden`, and read the difference.

use insta::assert_snapshot;

use crate::support::call_there;

/// Returns the command's output and, where it is not 0, its status. The command runs in the repository's folder, so
/// that paths are the same everywhere.
fn shown(line: &str) -> String {
    let args: Vec<&str> = line.split_whitespace().collect();
    let output = call_there(&args).output().unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.find('\x1b'), None, "a pipe gets no colour");
    text += &String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(0) => text,
        status => format!("{text}(exit status {status:?})\n"),
    }
}

#[test]
fn run_lists_scenarios() {
    assert_snapshot!(shown("run"));
}

#[test]
fn explain_reports() {
    for name in [
        "boosted-atomic",
        "cgroup-limit",
        "cma",
        "defrag-mode-atomic",
        "highatomic-reserve",
        "order-0-atomic-burst",
        "order-4-kernel",
        "order-5-linux-3.18",
        "order-7-noretry",
        "out-of-memory",
        "vmap-arm32",
    ] {
        let name_of_snapshot = format!("explain_{name}");
        assert_snapshot!(
            name_of_snapshot,
            shown(&format!("explain --all data/reports/{name}.txt"))
        );
    }
}

#[test]
fn explain_a_snapshot() {
    assert_snapshot!(shown(
        "explain --all crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@end"
    ));
}

#[test]
fn host_of_a_recording() {
    assert_snapshot!(shown(
        "host --root crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@end"
    ));
}

#[test]
fn host_pages_of_a_recording() {
    assert_snapshot!(shown(
        "host pages --all --root crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@end"
    ));
}

#[test]
fn host_vmalloc_of_a_captured_host() {
    assert_snapshot!(shown("host vmalloc --all --root data/hosts/vm-6.18-x86_64"));
}

#[test]
fn trace_info_of_a_recording() {
    assert_snapshot!(shown(
        "trace info --all crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag"
    ));
}

#[test]
fn answers_on_one_screen() {
    const RECORDING: &str = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag";
    assert_snapshot!("answer_explain_report", shown("explain data/reports/order-4-kernel.txt"));
    let recorded = shown(&format!("explain --no-replay {RECORDING}"));
    assert_snapshot!("answer_explain_recording", recorded);
    assert_snapshot!("answer_trace_info", shown(&format!("trace info {RECORDING}")));
}

#[test]
fn compare_two_snapshots() {
    let [start, end] = ["start", "end"].map(|moment| {
        format!("crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@{moment}")
    });
    assert_snapshot!(shown(&format!("compare {start} {end}")));
}

#[test]
fn replay_under_two_policies() {
    let text = shown("replay --all --policy linux-6.1,nofrag --samples 12");
    let (before, after) = text.split_once(" ns an event").unwrap();
    let before = before.trim_end_matches(|c: char| c.is_ascii_digit() || ",.".contains(c));
    assert_snapshot!(format!("{before}(time) ns an event{after}"));
}

#[test]
fn a_setting_is_a_run_beside_the_recorded_one() {
    let text = shown("replay --set linux-6.1:boost=0/30000 --repeats 1 --samples 2");
    for row in ["linux-6.1 ", "linux-6.1:boost=0 ", "linux-6.1:boost=30000 "] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(row)), "{row}: {text}");
    }
}
