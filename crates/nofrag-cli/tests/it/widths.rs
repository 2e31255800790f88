//! Output in lines from 60 to 200 columns.

use std::fs;
use std::path::Path;

use crate::support::{call_there, commands, repository};

const RECORDING: &str = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag";

/// Returns the output of a command in the repository's folder, for lines of `columns`.
fn shown(line: &str, columns: usize) -> String {
    let line = line.replace("RECORDING", RECORDING);
    let args: Vec<&str> = line.split_whitespace().collect();
    let output = call_there(&args).env("COLUMNS", columns.to_string()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Every command that shows figures keeps to the width of a line; what has no blank, such as a path, stays whole.
#[test]
fn no_line_is_wider_than_it_may_be() {
    const HOST: &str = "--root data/hosts/whole-6.18-x86_64";
    let commands = [
        "compare RECORDING@start RECORDING@end",
        "compare --all RECORDING@start RECORDING@end",
        "explain RECORDING@end",
        "explain data/reports/order-4-kernel.txt",
        "host HOST",
        "host --all HOST",
        "host pages --root RECORDING@end",
        "host pages --all --root RECORDING@end",
        "host vmalloc HOST",
        "host vmalloc --all HOST",
        "host maps self",
        "host maps --all self",
        "host maps --all HOST",
        "run mmap-holes-2005 --design linux-2.4,nofrag --loops 2000",
        "top --once HOST",
        "explain --all --no-replay RECORDING",
        "explain --no-replay RECORDING",
    ];
    // Seconds of work, which the next test looks at in 80 columns, or at what they share.
    let slow = [
        "run vm-map-ram-2015 --mask w1 --design linux-3.19,linux-4.1 --loops 30",
        "run --all vm-map-ram-2015 --mask w1 --design linux-3.19,linux-4.1 --loops 30",
        "replay --policy linux-6.1 --repeats 1 --samples 2",
        "trace info RECORDING",
        "trace info --all RECORDING",
    ];
    let every = commands.iter().flat_map(|&line| [60, 80, 120, 200].map(|columns| (line, columns)));
    let slow = slow.iter().flat_map(|&line| [60, 200].map(|columns| (line, columns)));
    for (command, columns) in every.chain(slow) {
        let text = shown(&command.replace("HOST", HOST), columns);
        assert!(text.lines().count() > 3, "{command}: {text}");
        for line in text.lines() {
            let is_wide = line.chars().count() > columns && line.trim().contains(' ');
            assert!(!is_wide, "{command}, {columns} columns:\n{line}");
        }
    }
}

/// Help breaks at the end of the line, and commands stay whole: in 80 columns their rows once broke in the middle.
#[test]
fn help_fits_its_lines() {
    for (command, _) in commands() {
        let command = format!("{} --help", command.strip_prefix("nofrag ").unwrap());
        for columns in [80, 100] {
            let text = shown(&command, columns);
            let (_, examples) = text.split_once("Examples:\n").unwrap_or_default();
            let lines = examples.lines().take_while(|line| !line.is_empty());
            for line in lines.clone() {
                assert!(line.chars().count() <= columns && line.starts_with("  "), "{line}");
            }
            assert!(command.starts_with("run") || lines.count() > 0, "{text}");
        }
    }
}

/// Every answer is one screen of a terminal. `trace info` had 140 lines, `replay` 393 and `host pages` 74.
#[test]
fn no_answer_is_longer_than_a_screen() {
    const SCREEN: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let replay = |policy: &str| -> String {
        let name = folder.path().join(format!("{policy}.json")).display().to_string();
        let json = shown(&format!("replay --policy {policy} --repeats 1 --samples 2 --json"), 80);
        fs::write(&name, json).unwrap();
        name
    };
    let replays = ["linux-6.1", "nofrag"].map(replay).join(" ");
    let mut commands = vec![
        "compare RECORDING@start RECORDING@end".to_owned(),
        "compare RECORDING RECORDING".to_owned(),
        format!("compare {replays}"),
        "explain RECORDING@end".to_owned(),
        "host --root data/states/6.12-two-nodes".to_owned(),
        "host --root data/states/7.2-cache-pinned".to_owned(),
        "explain --no-replay RECORDING".to_owned(),
        "host --root RECORDING@end".to_owned(),
        "host --frames --root RECORDING@end".to_owned(),
        "host --root data/hosts/whole-6.18-x86_64".to_owned(),
        "host pages --root RECORDING@end".to_owned(),
        "host pages --root data/hosts/whole-6.18-x86_64".to_owned(),
        "host vmalloc --root data/hosts/vm-6.18-x86_64".to_owned(),
        "host vmalloc --root data/hosts/whole-6.18-x86_64".to_owned(),
        "host maps self".to_owned(),
        "host maps --root data/hosts/rustc-6.18-x86_64".to_owned(),
        "replay --policy all --repeats 1 --samples 2".to_owned(),
        "run mmap-holes-2005 --design linux-2.4,nofrag --loops 2000".to_owned(),
        "run vm-map-ram-2015 --mask w1,w2 --loops 30 --repeat 2".to_owned(),
        "run vmap-areas-2019 --mask long_busy_hole --loops 20 --repeat 2".to_owned(),
        "trace info RECORDING".to_owned(),
    ];
    for report in fs::read_dir(repository().join("data/reports")).unwrap() {
        let name = report.unwrap().file_name().into_string().unwrap();
        commands.extend(name.ends_with(".txt").then(|| format!("explain data/reports/{name}")));
    }
    for command in commands {
        let text = shown(&command, 80);
        let lines = text.lines().count();
        assert!((4..=SCREEN).contains(&lines), "{command}: {lines} lines\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{command}: {text}");
        assert!(text.contains("--all"), "{command}: {text}");
    }
}

/// Damage is said first, and in the exit status: `trace info` said it in line 101 of 111, with 0.
#[test]
fn what_is_not_whole_is_said_first() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(repository().join(RECORDING)).unwrap();
    let (cut, damaged) = (folder.path().join("cut"), folder.path().join("damaged"));
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let mut bytes = whole;
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    fs::write(&damaged, bytes).unwrap();
    let snapshot = folder.path().join("snapshot");
    fs::create_dir(&snapshot).unwrap();
    fs::write(snapshot.join("zoneinfo"), "").unwrap();
    fs::write(snapshot.join("buddyinfo"), "Node 0, zone Normal 1 2 3\nNode 0, zo").unwrap();
    let name = |path: &Path| path.display().to_string();
    let (cut, damaged, snapshot) = (name(&cut), name(&damaged), name(&snapshot));
    let copy = name(&folder.path().join("copy"));
    for command in [
        format!("trace info {cut}"),
        format!("trace info {damaged}"),
        format!("trace info --all {damaged}"),
        format!("explain --no-replay {cut}"),
        format!("explain --no-replay --all {damaged}"),
        format!("explain {snapshot}"),
        format!("compare {cut} {damaged}"),
        format!("compare {snapshot} {snapshot}"),
        format!("replay --policy linux-6.1 --repeats 1 --samples 2 {cut}"),
        format!("replay --all --policy linux-6.1 --repeats 1 --samples 2 {damaged}"),
        format!("trace convert {cut} {copy}"),
        format!("trace info {copy}"),
        format!("trace export {damaged} --to ftrace {copy}.txt"),
    ] {
        let args: Vec<&str> = command.split_whitespace().collect();
        let output = call_there(&args).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert!(first.contains("NOT WHOLE: "), "{command}: {text}");
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
    }
}
