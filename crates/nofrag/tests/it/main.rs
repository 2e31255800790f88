//! Tests of the public interface, one module per document or method.

mod block_drain;
mod block_face;
mod block_hand_over;
mod block_limits;
mod block_model;
mod block_regressions;
mod block_support;
mod block_threads;
mod designs;
mod doc_2015;
mod doc_2019;
mod doc_2023;
mod linux_rules;
mod memory;
mod mersenne;
mod mmap_ours;
mod model;
mod regressions;
mod relocation;
mod vmap_model;
mod vmap_oracles;
mod vmap_regressions;
mod vmap_support;
mod vmap_threads;
