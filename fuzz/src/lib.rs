//! Fuzz targets as plain functions of bytes.
//!
//! A target reads operations from its input and panics when a structure breaks its promise. The same function is run
//! three ways: by libFuzzer (`cargo xtask fuzz`), by a seeded loop on stable Rust (`cargo test` in this folder), and on
//! saved inputs (`cargo run --bin ranges -- FILE...` in this folder).

pub mod arena;
pub mod blocks;
pub mod canary;
pub mod failure;
pub mod flags;
pub mod format;
pub mod http;
pub mod mmap;
pub mod pages;
pub mod perf_script;
pub mod proc_maps;
pub mod range_heap;
pub mod ranges;
pub mod raw_pages;
pub mod recording;
pub mod refused;
pub mod snapshot;
pub mod starved;
pub mod steps;
pub mod trace_dat;
pub mod trace_text;
pub mod vmallocinfo;
pub mod vmap;

/// The drivers and the models of the core's own tests; the fuzzer only finds other steps.
#[path = "../../crates/nofrag/tests/it"]
#[allow(dead_code)] // The tests use more of them.
mod it {
    #[path = "../../../nofrag-backing/tests/it/arena/pair.rs"]
    pub(crate) mod arena_pair;
    pub(crate) mod block_pair;
    pub(crate) mod block_support;
    pub(crate) mod choices;
    #[path = "../../../nofrag-backing/tests/it/arena/ghosts.rs"]
    pub(crate) mod ghosts;
    pub(crate) mod heap_pair;
    pub(crate) mod mmap_naive;
    pub(crate) mod mmap_pair;
    pub(crate) mod page_bench;
    pub(crate) mod page_naive;
    pub(crate) mod page_pair;
    pub(crate) mod page_world;
    pub(crate) mod range_pair;
    pub(crate) mod runs;
    #[path = "../../../nofrag-backing/tests/it/arena/stamps.rs"]
    pub(crate) mod stamps;
    pub(crate) mod starving;
    pub(crate) mod vmap_pair;
    pub(crate) mod vmap_support;
}

/// The heap of every program here: one that a body can make refuse.
#[path = "../../crates/nofrag/tests/it/memory.rs"]
mod memory;

/// Makes the program of a fuzz target: libFuzzer's entry under cargo-fuzz, else one that replays the given files.
#[macro_export]
macro_rules! target {
    ($body:path) => {
        #[cfg(fuzzing)]
        ::libfuzzer_sys::fuzz_target!(|data: &[u8]| $body(data));

        #[cfg(not(fuzzing))]
        fn main() -> ::std::io::Result<()> {
            for path in ::std::env::args_os().skip(1) {
                $body(&::std::fs::read(&path)?);
                println!("{}: held", path.display());
            }
            Ok(())
        }
    };
}
