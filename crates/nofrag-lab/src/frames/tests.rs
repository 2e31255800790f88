//! Tests on the stretches of the repository, on a wrong rule, and on damaged files.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::oracle::Relation;
use crate::random::Random;
use crate::scenario::Silent;

/// The events of a stretch of one zone of 8 pageblocks, which tests damage; [`STATE`] is its state before and after.
const EVENTS: &str = "\
1.000001 task-1 reqalloc: gfp=0xcc0 order=0
1.000002 task-1 mm_page_alloc: pfn=0x3ff order=0 migratetype=0 gfp_flags=GFP_KERNEL
1.000003 task-1 reqalloc: gfp=0xcc0 order=2
1.000004 task-1 mm_page_alloc: pfn=0x400 order=2 migratetype=0 gfp_flags=GFP_KERNEL
1.000005 task-1 mm_page_free: pfn=0x400 order=2
1.000006 task-1 mm_page_free: pfn=0x3ff order=0
1.000007 task-1 isofree: pfn=0x800 order=9
1.000008 task-1 pbflags: pfn=0x800 flags=0x9 mask=0x8
1.000009 kswapd0-9 mm_vmscan_kswapd_wake: nid=0 order=0
1.000010 kswapd0-9 mm_vmscan_kswapd_sleep: nid=0
1.000011 task-1 mm_page_free: pfn=0x800 order=0
1.000012 task-1 mm_page_free_batched: pfn=0x800
1.000013 task-1 bulk_page: pfn=0x3ff
1.000014 task-1 drain: zone=DMA32
1.000015 task-1 resetskip: zone=DMA32
1.000016 task-1 mm_lru_insertion: pfn=0x801 lru=2 flags= f
";

const STATE: &str = r#"{"zones":{"DMA32":{"wmark_min":10,"wmark_low":12,"wmark_high":14,"wmark_promo":16,"boost":0,
"reserved_highatomic":0,"lowmem_reserve":[0,0,0,0,0],"start_pfn":0,"spanned":4096,"flags":0,"cached_free_pfn":3584,
"cached_migrate_pfn":[0,512],"compact_considered":1,"compact_defer_shift":2,"compact_order_failed":9,
"pcp":{"count":2,"high":60,"batch":15,"free_factor":1,"lists":{"0/unmovable":[1022,1021]}},
"free":{"0":{"unmovable":[1020]},"2":{"unmovable":[1024,1036]},"9":{"movable":[2048,1536]},"10":{"movable":[3072]}},
"blocks":{"first_pfn":0,"pages":512,"type":"UUUMMMMM","skip":"01000000"}}},
"lru":{"inactive_file":[5,6]},"frames":[[0,4096,0,1,-1,0]]}"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/kernel-states")
}

fn run(states: &Path, more: Options) -> Result<Report, RunError> {
    SCENARIO.run(&Options { states: Some(states.to_owned()), ..more }, &Silent)
}

/// Writes a stretch of this name below `folder`.
fn write(folder: &Path, name: &str, before: &str, events: &str, after: &str) -> PathBuf {
    let folder = folder.join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("state-before.json"), before).unwrap();
    fs::write(folder.join("events.txt"), events).unwrap();
    fs::write(folder.join("state-after.json"), after).unwrap();
    folder
}

fn check_refused(states: &Path, more: Options, expected: &str) {
    let error = run(states, more).expect_err(expected).to_string();
    assert!(error.contains(expected), "no {expected:?} in: {error}");
}

#[test]
fn every_stretch_of_the_repository_gives_what_is_claimed() {
    let report = run(&repository(), Options::default()).unwrap();
    for oracle in report.oracles.iter().filter(|oracle| !oracle.holds) {
        eprintln!("{}: {} {:?}", oracle.id, oracle.claim, oracle.measured);
    }
    assert_eq!(report.broken().count(), 0);
    // Every stretch is judged, by more than the fact that it was read.
    for followed in &report.frames.as_ref().unwrap().stretches {
        let of = |oracle: &&crate::oracle::Oracle| {
            oracle.id.split('/').next() == Some(&*followed.stretch)
        };
        assert!(report.oracles.iter().filter(of).count() >= 2, "{}", followed.stretch);
        assert!(followed.requests > 100, "{}: {}", followed.stretch, followed.requests);
    }
    let requests = |name: &str| {
        let stretches = &report.frames.as_ref().unwrap().stretches;
        stretches.iter().find(|it| it.stretch == name).unwrap().requests
    };
    let score = |name: &str, what| {
        let stretches = &report.frames.as_ref().unwrap().stretches;
        stretches.iter().find(|it| it.stretch == name).unwrap().score(what)
    };
    let all = |of| Score { same: of, of };
    assert_eq!(score("linux-6.1-kswapd", names::WOKEN), all(3));
    assert_eq!(score("linux-6.1-normal-fallbacks-boosted", names::WOKEN), all(1), "of 6 boosts");
    assert_eq!(score("linux-6.1-normal-compaction", names::KSWAPD_RUNS), all(2), "one goes on");
    assert_eq!(score("linux-6.1-compaction-pinned", names::SUITABLE), all(6_932));
    assert_eq!(score("linux-6.1-compaction", names::SUITABLE), all(3_850));
    assert_eq!(score("linux-6.12-compaction", names::SUITABLE), all(356));
    assert_eq!(report.oracles.len(), 117);
    // As the kernel's events count them (data/kernel-states/README.md).
    assert_eq!(requests("linux-6.1-no-reclaim"), 34_887);
    assert_eq!(requests("linux-6.1-kswapd"), 4_977);
    assert_eq!(requests("linux-6.1-normal-no-reclaim"), 25_742);
    assert_eq!(requests("linux-6.1-normal-fallbacks-boosted"), 19_869);
    assert_eq!(requests("linux-6.12-no-reclaim"), 11_972);
    // One table of at most 40 lines comes first.
    let text = nofrag_show::text(&(SCENARIO.present)(&report));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.split("\n\n").next().unwrap().lines().count() <= 40, "{text}");
}

#[test]
fn rules_of_another_kernel_are_seen_to_be_wrong() {
    let mask = Some("linux-6.1-kswapd".to_owned());
    let options = Options { mask, designs: vec!["linux-6.12".to_owned()], ..Options::default() };
    let report = run(&repository(), options).unwrap();
    let followed = &report.frames.as_ref().unwrap().stretches[0];
    let answers = followed.answers();
    assert!(answers.of > 4_000 && answers.same < answers.of, "{answers:?}");
    assert!(followed.causes.contains_key(&Cause::Other), "{:?}", followed.causes);
    assert!(!followed.differences.is_empty() && !followed.end_differences.is_empty());
    assert_eq!(followed.differences[0].events.len(), 8, "{:?}", followed.differences[0]);
    // Rules other than the kernel's own get no claims.
    assert_eq!(report.oracles, []);
    let text = nofrag_show::text(&(SCENARIO.present)(&report));
    for part in ["the first difference, ", "kernel: ", "engine: ", "what differs at the end"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn a_stretch_of_ones_own_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let own = write(folder.path(), "linux-6.6-own", STATE, EVENTS, STATE);
    // A folder of stretches, and a stretch alone.
    for states in [folder.path(), &own] {
        let report = run(states, Options::default()).unwrap();
        let followed = &report.frames.as_ref().unwrap().stretches[0];
        assert_eq!((&*followed.kernel, &*followed.preset), ("linux-6.6", "linux-6.1"));
        assert!(report.notes.iter().any(|note| note.contains("linux-6.6 follows linux-6.1")));
        assert_eq!(followed.frames[2], Score { same: 1, of: 1 }, "{followed:?}");
        // The kernel's 0x3ff is on no list: 1022 is the first.
        assert_eq!(followed.frames[0], Score { same: 0, of: 1 });
        assert!(followed.differences[0].kernel.contains("0x3ff"), "{:?}", followed.differences);
    }
}

#[test]
fn packed_files_are_read_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let own = write(folder.path(), "linux-6.1-own", STATE, EVENTS, STATE);
    let plain = run(&own, Options::default()).unwrap().frames;
    for name in ["state-before.json", "events.txt", "state-after.json"] {
        let bytes = fs::read(own.join(name)).unwrap();
        let packed = zstd::bulk::compress(&bytes, 3).unwrap();
        fs::write(own.join(format!("{name}.zst")), packed).unwrap();
        fs::remove_file(own.join(name)).unwrap();
    }
    assert_eq!(run(&own, Options::default()).unwrap().frames, plain);
    let zst = own.join("events.txt.zst");
    let cut = fs::read(&zst).unwrap();
    fs::write(&zst, &cut[..cut.len() / 2]).unwrap();
    check_refused(&own, Options::default(), "events.txt.zst");
}

#[test]
fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    check_refused(folder.path(), Options::default(), "holds no stretch");
    check_refused(&folder.path().join("nowhere"), Options::default(), "nowhere");
    let own = write(folder.path(), "linux-6.1-own", STATE, EVENTS, STATE);
    fs::remove_file(own.join("state-after.json")).unwrap();
    check_refused(folder.path(), Options::default(), "state-after.json is missing");
    let mask = Options { mask: Some("linux-6.1-other".to_owned()), ..Options::default() };
    check_refused(folder.path(), mask, "linux-6.1-own (1)");
}

#[test]
fn a_folder_that_names_no_known_kernel_is_refused() {
    for (name, expected) in [
        ("6.1-own", "must begin with linux-X.Y-"),
        ("linux-six-own", "must begin with linux-X.Y-"),
        ("linux-6.1.9-own", "must begin with linux-X.Y-"),
        ("linux-4.19-own", "older than all rules"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let own = write(folder.path(), name, STATE, EVENTS, STATE);
        check_refused(&own, Options::default(), expected);
        // A user who names the rules needs no name of a kernel.
        let designs = vec!["linux-6.1".to_owned()];
        assert!(run(&own, Options { designs, ..Options::default() }).is_ok(), "{name}");
    }
}

#[test]
fn damaged_files_are_errors_with_a_place() {
    let folder = tempfile::tempdir().unwrap();
    let cut = &STATE[..STATE.len() / 2];
    let events = EVENTS.replace("order=2", "order=77");
    let zone = STATE.replace("DMA32", "DMA33");
    let kind = STATE.replace("\"unmovable\"", "\"unmoved\"");
    let twice = STATE.replace("[1024,1036]", "[1024,1020]");
    let askew = STATE.replace("[1024,1036]", "[1025]");
    let outside = STATE.replace("[3072]", "[9216]");
    for (name, before, events, expected) in [
        ("linux-6.1-cut", cut, EVENTS, "state-before.json: it is not a state"),
        ("linux-6.1-empty", "", EVENTS, "it is not a state"),
        ("linux-6.1-order", STATE, &*events, "events.txt: line 4: a field is missing"),
        ("linux-6.1-line", STATE, &EVENTS[..30], "events.txt: line 1: the file ends within"),
        ("linux-6.1-none", STATE, "", "it was cut"),
        ("linux-6.1-zone", &*zone, EVENTS, "there is no zone DMA33"),
        ("linux-6.1-kind", &*kind, EVENTS, "there is no type unmoved"),
        ("linux-6.1-twice", &*twice, EVENTS, "two blocks share frame 1020"),
        ("linux-6.1-askew", &*askew, EVENTS, "begins at frame 1025"),
        ("linux-6.1-outside", &*outside, EVENTS, "frame 9216 is outside"),
    ] {
        let own = write(folder.path(), name, before, events, STATE);
        check_refused(&own, Options::default(), expected);
        check_refused(&own, Options::default(), name);
    }
    let own = write(folder.path(), "linux-6.1-after", STATE, EVENTS, cut);
    check_refused(&own, Options::default(), "state-after.json: it is not a state");
    fs::write(own.join("sysctl-before"), "watermark_boost_factor many\n").unwrap();
    check_refused(&own, Options::default(), "no boost factor: many");
}

/// Replaces one number in `text` by another.
fn damaged(text: &str, random: &mut Random) -> String {
    let is_number = |part: &str| part.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    let mut parts: Vec<String> = Vec::new();
    for character in text.chars() {
        let joins = character.is_ascii_hexdigit() || character == 'x';
        match parts.last_mut() {
            Some(last) if joins && is_number(last) => last.push(character),
            _ => parts.push(character.to_string()),
        }
    }
    let numbers: Vec<usize> = (0..parts.len()).filter(|&at| is_number(&parts[at])).collect();
    let values = ["0", "1", "3", "9", "11", "255", "511", "1024", "4095", "4096", "4294967295"];
    let large = ["18446744073709551615", "1099511627775", "67108864", "-1"];
    let all: Vec<&str> = values.into_iter().chain(large).collect();
    let at = numbers[random.index(numbers.len())];
    parts[at] = all[random.index(all.len())].to_owned();
    parts.concat()
}

#[test]
fn no_number_makes_it_panic() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(16, 0);
    let mut followed = 0;
    for turn in 0..600 {
        let mut texts = [STATE.to_owned(), EVENTS.to_owned()];
        for _ in 0..1 + turn % 3 {
            let which = random.index(2);
            texts[which] = damaged(&texts[which], &mut random);
        }
        let own = write(folder.path(), "linux-6.1-own", &texts[0], &texts[1], STATE);
        let design = ["linux-6.1", "linux-6.12"][turn % 2].to_owned();
        let options = Options { designs: vec![design], ..Options::default() };
        let result = std::panic::catch_unwind(|| run(&own, options).is_ok());
        let Ok(ok) = result else { panic!("turn {turn}:\n{}\n{}", texts[0], texts[1]) };
        followed += usize::from(ok);
    }
    // Damage that is always refused at once would prove little.
    assert!(followed > 100, "{followed}");
}

#[test]
fn a_claim_that_does_not_hold_is_broken() {
    let mask = Some("linux-6.1-kswapd".to_owned());
    let mut report = run(&repository(), Options { mask, ..Options::default() }).unwrap();
    let frames = report.frames.as_mut().unwrap();
    frames.stretches[0].frames[0].same -= 1;
    let mut oracles = Vec::new();
    claims::judge(frames, &mut oracles);
    let broken: Vec<_> = oracles.iter().filter(|oracle| oracle.is_broken()).collect();
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert_eq!(
        (&*broken[0].id, broken[0].relation),
        ("linux-6.1-kswapd/frames", Relation::Equals(0.0))
    );
}
