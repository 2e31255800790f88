//! Exit statuses: those that docs/json.md and the help texts promise, and each of them once.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{commands, nofrag};

/// Returns the exit statuses that a command's help text lists.
fn of_help(help: &str) -> Vec<i32> {
    let (_, statuses) = help.split_once("Exit status:\n").unwrap();
    statuses
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_once("  ")?.0.parse().ok())
        .collect()
}

/// Returns commands with the exit statuses that docs/json.md lists.
fn documented() -> Vec<(String, Vec<i32>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let text = fs::read_to_string(page).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("| command | 0 | 1 | 2 |"));
    let rows = lines.skip(2).map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| {
        let (command, meanings) = row.split_once(" | ").unwrap();
        let said = meanings.split(" | ").zip(0..).filter(|(meaning, _)| *meaning != "-");
        (command.trim_matches('`').to_owned(), said.map(|(_, status)| status).collect())
    })
    .collect()
}

#[test]
fn the_page_and_the_help_texts_list_the_same_statuses() {
    let documented = documented();
    let commands = commands();
    for (command, help) in &commands {
        let row = documented.iter().find(|(documented, _)| documented == command);
        let Some((_, statuses)) = row else { panic!("docs/json.md has no statuses of {command}") };
        assert_eq!(statuses, &of_help(help), "docs/json.md and {command} --help differ");
        assert!(command == "nofrag run" || help.contains("Examples:"), "{command} has no examples");
    }
    for (command, _) in documented {
        assert!(commands.iter().any(|(known, _)| *known == command), "there is no {command}");
    }
}

/// Checks that a user who types `nofrag` alone sees commands to try, and that these exist.
#[test]
fn the_name_alone_says_what_to_try() {
    let alone = nofrag(&[]);
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!((alone.status.code(), alone.stdout.len()), (Some(2), 0));
    let tried: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(tried.len(), 4, "{said}");
    let commands = commands();
    for line in tried {
        let (_, command) = line.split_once("nofrag ").unwrap();
        let name = format!("nofrag {}", command.split_whitespace().next().unwrap());
        assert!(commands.iter().any(|(known, _)| *known == name), "there is no {name}");
    }
}

/// Makes a folder with the files for the cases below.
fn prepare(folder: &Path) {
    let snapshot = |name: &str, blocks: &str| {
        fs::create_dir(folder.join(name)).unwrap();
        let line = format!("Node 0, zone   Normal {blocks}\n");
        fs::write(folder.join(name).join("buddyinfo"), line).unwrap();
    };
    snapshot("whole", "0 0 0 0 0 0 0 0 0 10 0");
    snapshot("pieces", "512 0 0 0 0 0 0 0 0 9 0");
    fs::create_dir_all(folder.join("proc/7")).unwrap();
    fs::write(folder.join("proc/vmallocinfo"), "no area\n").unwrap();
    let areas = "400000-401000 r-xp 00000000 00:00 0 /a\nno area\n";
    fs::write(folder.join("proc/7/maps"), areas).unwrap();
    let event =
        "  sh-200 [000] ..... 1.000001: mm_page_free: page=0000000012345678 pfn=0x100 order=0\n";
    fs::write(folder.join("short.txt"), format!("# tracer: nop\n#\n{event}")).unwrap();
    let plan = "[[replay]]\nrecordings = ['short.txt']\npolicies = ['linux-6.1']\nrepeats = 1\n";
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let host = folder.join("host");
    assert!(nofrag(&["host", "capture", host.to_str().unwrap()]).status.success());
    let mut buddyinfo = fs::read(host.join("proc/buddyinfo")).unwrap();
    buddyinfo.extend(b"no zone\n");
    fs::write(host.join("proc/buddyinfo"), buddyinfo).unwrap();
}

/// The arguments of a command, and its exit status. `DIR` is the folder that `prepare` fills, `DATA` the one of the
/// repository.
///
/// Statuses that need a right or a signal have tests beside the others of their command: 0 and 1 of `record`, 1 of
/// `workload thpfioscale`. No finding of `host pages` is a warning today. Status 1 of `run` needs a broken claim: a
/// unit test of it decides on one that is made up. What is not whole has its statuses in `widths`.
const CASES: &[(&str, i32)] = &[
    ("run", 0),
    ("run no-such-scenario", 2),
    ("host --root RECORDED/linux-6.1-guest-768m.nofrag@end", 0),
    ("host --root DIR/host", 1),
    ("host --root DIR/proc/7", 2),
    ("host pages --root RECORDED/linux-6.1-guest-768m.nofrag@end", 0),
    ("host pages --root DIR/proc/7", 2),
    ("host capture DIR/captured", 0),
    ("host capture DIR/whole", 2),
    ("host vmalloc --root DATA/hosts/vm-6.18-x86_64", 0),
    ("host vmalloc --root DIR", 1),
    ("host vmalloc --root DIR/whole", 2),
    ("host maps --root DATA/hosts/rustc-6.18-x86_64", 0),
    ("host maps --root DIR", 1),
    ("host maps --root DIR/whole", 2),
    ("preflight --need 9xorder=9 --root DIR/pieces", 0),
    ("preflight --need 9xorder=10 --root DIR/pieces", 1),
    ("preflight --need many --root DIR/pieces", 2),
    ("record --events no-such-event", 2),
    ("explain DATA/reports/order-4-kernel.txt", 0),
    ("explain DIR/proc/7/maps", 2),
    ("replay --policy linux-6.1 --repeats 1", 0),
    ("replay DIR/no-such-file", 2),
    ("sweep DIR/plan.toml -o DIR/swept", 0),
    ("sweep DIR/no-such-plan.toml -o DIR/swept", 2),
    ("sweep merge DIR/plan.toml -o DIR/merged.jsonl DIR/swept", 0),
    ("sweep merge DIR/no-such-plan.toml -o DIR/none.jsonl DIR/swept", 2),
    ("compare DIR/pieces DIR/whole", 0),
    ("compare DIR/whole DIR/pieces", 1),
    ("compare DIR/whole DIR/none", 2),
    ("top --once --root DIR", 0),
    ("top", 2),
    ("top --once --root DIR/none", 2),
    ("export --once --json --root DIR", 0),
    ("export --textfile DIR/metrics.txt", 2),
    ("workload thpfioscale --dir DIR --dry-run", 0),
    ("workload thpfioscale --dir DIR --threads 0", 2),
    ("trace info RECORDED/linux-6.1-guest-768m.nofrag", 0),
    ("trace info DIR/none", 2),
    ("trace convert RECORDED/linux-6.1-guest-768m.nofrag DIR/copy.nofrag", 0),
    ("trace convert DIR/none DIR/copy", 2),
    ("trace export RECORDED/linux-6.1-guest-768m.nofrag --to ftrace DIR/lines", 0),
    ("trace export DIR/none --to ftrace DIR/lines", 2),
    // So few bytes are written only at the end.
    ("trace export DIR/short.txt --to json-lines --replace /dev/full", 2),
    ("schema nofrag.host", 0),
    ("schema nofrag.hosts", 2),
    ("completions bash", 0),
    ("completions", 2),
    ("man DIR/man", 0),
    ("man DIR/proc/7/maps/man", 2),
    ("--help", 0),
    ("--version", 0),
    ("", 2),
    ("no-such-command", 2),
];

/// Documented statuses without a case above.
const ELSEWHERE: &[(&str, i32)] = &[
    ("nofrag explain", 1),
    ("nofrag host pages", 1),
    ("nofrag record", 0),
    ("nofrag record", 1),
    ("nofrag replay", 1),
    ("nofrag run", 1),
    ("nofrag sweep", 1),
    ("nofrag trace convert", 1),
    ("nofrag trace export", 1),
    ("nofrag trace info", 1),
    ("nofrag workload thpfioscale", 1),
];

#[test]
fn each_status_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (data, recorded) = (own.join("../../data"), own.join("../nofrag-lab/data/recordings"));
    for (line, expected) in CASES {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| match word.split_once('/').unwrap_or((word, "")) {
                ("DIR", rest) => folder.path().join(rest).display().to_string(),
                ("RECORDED", rest) => recorded.join(rest).display().to_string(),
                ("DATA", rest) => data.join(rest).display().to_string(),
                _ => word.to_owned(),
            })
            .collect();
        let output = nofrag(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let err = String::from_utf8_lossy(&output.stderr);
        if err.contains("kept in memory") {
            eprintln!("skipped: nofrag {line}: its folder is kept in memory");
            continue;
        }
        assert_eq!(output.status.code(), Some(*expected), "nofrag {line}: {err}");
        assert_eq!(
            *expected == 2,
            !err.is_empty(),
            "2 says why, the others need not: {line}: {err}"
        );
    }
}

/// Checks that a command whose output cannot be written ends with 2: a script that keeps the output must learn that it
/// is not whole.
#[test]
fn what_cannot_be_written_is_two_and_says_why() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    let report = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/reports/order-4-kernel.txt");
    let output = command.args(["explain", report]).stdout(full).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("cannot write to standard output"), "{err}");
}

#[test]
fn each_documented_status_has_a_case() {
    for (command, statuses) in documented() {
        for status in statuses {
            let case = |(line, reached): &(&str, i32)| {
                *reached == status && format!("nofrag {line} ").starts_with(&format!("{command} "))
            };
            let elsewhere = ELSEWHERE.contains(&(command.as_str(), status));
            assert!(elsewhere || CASES.iter().any(case), "no case of {command} with {status}");
        }
    }
}

/// Checks that an unknown option is bad use for every command.
#[test]
fn bad_use_is_two_everywhere() {
    for (command, _) in commands() {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let output = nofrag(&[&words[..], &["--no-such-option"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(output.stdout.is_empty(), "{command}");
    }
}
