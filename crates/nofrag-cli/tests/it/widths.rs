//! Output in lines from 60 to 200 columns.

use crate::support::call_there;

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
        "explain --no-replay RECORDING",
        "explain RECORDING@end",
        "explain data/reports/order-4-kernel.txt",
        "host HOST",
        "host --all HOST",
        "host pages --root RECORDING@end",
        "host vmalloc HOST",
        "host maps self",
        "host maps --all HOST",
        "run vm-map-ram-2015 --mask w1 --design linux-3.19,linux-4.1",
        "top --once HOST",
        "trace info RECORDING",
    ];
    // These take seconds each.
    let slow =
        ["replay --policy linux-6.1 --repeats 2", "run mmap-holes-2005 --design linux-2.4,nofrag"];
    let slow = slow.into_iter().map(|command| (command, 60));
    let every =
        commands.iter().flat_map(|&command| [60, 80, 120, 200].map(|columns| (command, columns)));
    for (command, columns) in every.chain(slow) {
        let text = shown(&command.replace("HOST", HOST), columns);
        assert!(text.lines().count() > 3, "{command}: {text}");
        for line in text.lines() {
            let is_wide = line.chars().count() > columns && line.trim().contains(' ');
            assert!(!is_wide, "{command}, {columns} columns:\n{line}");
        }
    }
}
