//! The fuzz bodies driven by a seeded generator, for machines without a fuzzer.

use std::panic::catch_unwind;
use std::sync::Once;

use nofrag_fuzz::{
    arena, blocks, canary, failure, flags, format, http, mmap, pages, perf_script, proc_maps,
    range_heap, ranges, raw_pages, recording, refused, snapshot, starved, trace_dat, trace_text,
    vmallocinfo, vmap,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Address space that this program may take beyond what it has at the beginning: code that believes a length from a
/// file asks for more, and ends the program. (Sanitizers reserve terabytes: under them `cargo xtask fuzz` bounds what
/// is in use, and single allocations.)
const SPACE: u64 = 2 << 30;

fn limit_address_space() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages: u64 = pages.split(' ').next().and_then(|word| word.parse().ok()).expect("pages");
        let most = Some(pages * rustix::param::page_size() as u64 + SPACE);
        setrlimit(Resource::As, Rlimit { current: most, maximum: most }).expect("it is lowered");
    });
}

/// Runs `body` on what `input` makes of `inputs` seeds; a failure names the seed.
fn drive(body: fn(&[u8]), input: fn(u64) -> Vec<u8>, inputs: u64) {
    limit_address_space();
    for seed in 0..inputs {
        if catch_unwind(|| body(&input(seed))).is_err() {
            panic!("the input of seed {seed} fails");
        }
    }
}

/// Makes bytes without any order, which serve as operations.
fn noise(seed: u64) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut data = vec![0; 64 + (seed as usize % 16) * 128];
    random.fill_bytes(&mut data);
    data
}

fn damaged_vmallocinfo(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/vmallocinfo/real"), include_bytes!("../seeds/vmallocinfo/odd")];
    damaged(FILES, seed)
}

fn damaged_maps(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/proc_maps/real"), include_bytes!("../seeds/proc_maps/odd")];
    damaged(FILES, seed)
}

fn damaged_recording(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] = &[
        include_bytes!("../seeds/recording/pages"),
        include_bytes!("../seeds/recording/mixed"),
        include_bytes!("../seeds/recording/bomb"),
        include_bytes!("../seeds/recording/sparse-chunk"),
        include_bytes!("../seeds/recording/sparse-snapshot"),
    ];
    damaged(FILES, seed)
}

fn damaged_perf_script(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] = &[
        include_bytes!("../seeds/perf_script/kinds"),
        include_bytes!("../seeds/perf_script/lost"),
    ];
    damaged(FILES, seed)
}

fn damaged_trace_dat(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/trace_dat/v6"), include_bytes!("../seeds/trace_dat/v7")];
    let mut data = damaged(FILES, seed);
    // The first byte is that of the magic; without it nothing is read.
    data[0] = FILES[0][0];
    data
}

fn damaged_raw_pages(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/raw_pages/real"), include_bytes!("../seeds/raw_pages/odd")];
    damaged(FILES, seed)
}

fn damaged_format(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/format/real"), include_bytes!("../seeds/format/odd")];
    damaged(FILES, seed)
}

fn damaged_flags(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/flags/real"), include_bytes!("../seeds/flags/odd")];
    damaged(FILES, seed)
}

fn damaged_trace_text(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/trace_text/real"), include_bytes!("../seeds/trace_text/odd")];
    damaged(FILES, seed)
}

fn damaged_failure(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/failure/real"), include_bytes!("../seeds/failure/odd")];
    damaged(FILES, seed)
}

fn damaged_snapshot(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/snapshot/real"), include_bytes!("../seeds/snapshot/odd")];
    damaged(FILES, seed)
}

fn damaged_http(seed: u64) -> Vec<u8> {
    const FILES: &[&[u8]] =
        &[include_bytes!("../seeds/http/real"), include_bytes!("../seeds/http/odd")];
    let mut data = damaged(FILES, seed);
    // A method begins with a letter; without it nothing more is read.
    if !seed.is_multiple_of(4) {
        data[0] = b'G';
    }
    data
}

/// Damages a real file: bytes and pieces of it changed, removed, and written twice.
fn damaged(files: &[&[u8]], seed: u64) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut below = |bound: usize| (random.next_u64() % bound.max(1) as u64) as usize;
    let mut text = files[below(files.len())].to_vec();
    text[0] = below(256) as u8;
    for _ in 0..below(12) {
        let from = below(text.len());
        let piece = from..(from + below(90)).min(text.len());
        match below(5) {
            0 => text[from] = below(256) as u8,
            1 => text[from] = b"0123456789abcdefx+-=/ \n"[below(23)],
            2 => drop(text.drain(piece)),
            3 => text.extend_from_within(piece),
            _ => text.truncate(from.max(1)),
        }
        if text.is_empty() {
            text.push(0);
        }
    }
    text
}

#[test]
fn areas_hold() {
    drive(vmap::run, noise, 3_000);
}

#[test]
fn arenas_hold() {
    drive(arena::run, noise, 600);
}

#[test]
fn blocks_hold() {
    drive(blocks::run, noise, 3_000);
}

#[test]
fn refused_system_calls_are_survived() {
    drive(refused::run, noise, 20);
}

#[test]
fn what_is_refused_memory_holds() {
    drive(starved::run, noise, 3_000);
}

#[test]
fn address_spaces_hold() {
    drive(mmap::run, noise, 3_000);
}

#[test]
fn page_frames_hold() {
    drive(pages::run, noise, 1_500);
}

#[test]
fn vmallocinfo_is_read() {
    drive(vmallocinfo::run, damaged_vmallocinfo, 3_000);
}

#[test]
fn files_of_trace_cmd_are_read() {
    drive(trace_dat::run, damaged_trace_dat, 3_000);
}

#[test]
fn text_of_perf_is_read() {
    drive(perf_script::run, damaged_perf_script, 3_000);
}

#[test]
fn maps_are_read() {
    drive(proc_maps::run, damaged_maps, 3_000);
}

#[test]
fn raw_pages_are_read() {
    drive(raw_pages::run, damaged_raw_pages, 3_000);
}

#[test]
fn formats_are_read() {
    drive(format::run, damaged_format, 20_000);
}

#[test]
fn flags_are_read() {
    drive(flags::run, damaged_flags, 3_000);
}

#[test]
fn the_text_of_traces_is_read() {
    drive(trace_text::run, damaged_trace_text, 3_000);
}

#[test]
fn recordings_are_read() {
    drive(recording::run, damaged_recording, 3_000);
}

#[test]
fn bombs_and_sparse_recordings_are_read() {
    let seeds: [&[u8]; 3] = [
        include_bytes!("../seeds/recording/bomb"),
        include_bytes!("../seeds/recording/sparse-chunk"),
        include_bytes!("../seeds/recording/sparse-snapshot"),
    ];
    limit_address_space();
    seeds.into_iter().for_each(recording::run);
}

/// The limit leaves a target only the space that it may take.
#[test]
fn the_limit_of_address_space_holds() {
    limit_address_space();
    assert!(Vec::<u8>::new().try_reserve_exact(2 * SPACE as usize).is_err());
}

#[test]
fn reports_are_read() {
    drive(failure::run, damaged_failure, 3_000);
}

#[test]
fn requests_of_scrapers_are_read() {
    drive(http::run, damaged_http, 10_000);
}

#[test]
fn snapshots_are_read() {
    drive(snapshot::run, damaged_snapshot, 3_000);
}

#[test]
fn ranges_by_handle_hold() {
    drive(range_heap::run, noise, 2_000);
}

#[test]
fn ranges_hold() {
    drive(ranges::run, noise, 2_000);
}

#[test]
fn the_planted_bug_is_found() {
    let found = (0..4_000).find(|&seed| catch_unwind(|| canary::run(&noise(seed))).is_err());
    assert!(found.is_some(), "the driver does not see a lost number");
}
