//! `nofrag preflight`, on the host and the guest that come with nofrag.

use serde_json::Value;

use crate::support::{call_there, check};

const WHOLE: &str = "data/hosts/whole-6.18-x86_64";
const RECORDED: &str = "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag@end";

fn preflight(root: &str, need: &str, more: &[&str]) -> std::process::Output {
    let args = [&["preflight", "--root", root, "--need", need], more].concat();
    call_there(&args).output().unwrap()
}

#[test]
fn the_first_words_are_the_answer() {
    let cases = [
        (
            WHOLE,
            "hugepages=1000",
            0,
            "Yes: 1,000 blocks of 2 MiB (order 9) needed; 1,229 can be had now.",
        ),
        (
            RECORDED,
            "100x2M",
            1,
            "Yes, after page cache is dropped: 100 blocks of 2 MiB (order 9) needed; ",
        ),
        (WHOLE, "hugepages=10000", 1, "Uncertain: 10,000 blocks"),
        (
            WHOLE,
            "hugepages=11000",
            1,
            "No: 11,000 blocks of 2 MiB (order 9) needed; 1,229 can be had now, ",
        ),
        (
            WHOLE,
            "1x32M",
            1,
            "No: 1 block of 32 MiB (order 13) needed; this kernel keeps no block above order 10",
        ),
    ];
    for (root, need, status, first) in cases {
        let output = preflight(root, need, &[]);
        let text = String::from_utf8_lossy(&output.stdout).replace("\n  ", " ");
        assert!(text.starts_with(first), "{need}: {text}");
        check(&output, status, &[]);
    }
    check(&preflight(RECORDED, "100x2M", &[]), 1, &["drop_caches", "at least  about  at most"]);
    check(&preflight(RECORDED, "hugepages=300", &[]), 1, &["No: 300", "what stays: other"]);
}

#[test]
fn what_is_no_need_or_no_node_is_bad_use() {
    check(&preflight(WHOLE, "many", &[]), 2, &["not a number of blocks", "hugepages=2048"]);
    check(&preflight(WHOLE, "1x2M", &["--node", "7"]), 2, &["this host has no node 7"]);
}

#[test]
fn for_machines() {
    let output = preflight(WHOLE, "hugepages=10000", &["--node", "0", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::json::check_documented(&output);
    assert_eq!(
        (&said["schema"], &said["answer"]),
        (&"nofrag.preflight".into(), &"uncertain".into())
    );
    assert_eq!((&said["now"], &said["order"]), (&1229.into(), &9.into()));
}
