//! Page frames: which physical page a request gets decides whether a large one can still be had tomorrow.
//!
//! A [`PageAllocator`] is Linux's zoned buddy allocator with mobility grouping, outside the kernel, over any memory
//! map. What the kernel learned about fragmentation from 4.20 to 7.2 stands here as fields of
//! [`FragmentationPolicy`]; the five patches of Gorman 2018 are each one of them.
//!
//! Nothing here owns memory: frames are numbers. The owner of the pages implements [`Reclaim`] and [`Migrate`]. The
//! fast path is [`PageAllocator::alloc`]; what it cannot serve becomes an [`Attempt`], which says step by step what to
//! do. kswapd and kcompactd are background machines, [`Kswapd`] and [`Kcompactd`], that do a stated amount of
//! work a step.
//!
//! Files, bottom up: `migratetype`, `request` and `map` with `machines` (what there is, and what may be asked),
//! `policy` with `presets` (every difference between kernels), `huge_fault` (what a fault in huge memory asks for),
//! `event` (what is traced and counted), `frames` (what is known of each frame), `free_lists` with `fullness` (which of
//! their blocks) and `index` (how fragmented they are), `zone` (buddies), `fallback` (what a request may take from
//! other types), `steal` (taking it), `reserve` (pageblocks with a purpose), `per_cpu`, `boost`, `watermark` and
//! `zonelist` (which zones may serve), `state` (a zone as a kernel's report shows it), `walk` (one pass over the
//! zonelist), `allocator` (the face), `build` and `contents` (how it is made), `exact` (one particular block),
//! `inspect`, `image` and `audit` (what can be seen of it, all of it as data, and what is always true), `follow`
//! (beside a kernel that runs), `slow_path` and `attempt` (what else a request may try), `failure` (why it was not
//! served), `owner` (what the owner of the pages does), `reclaim` (how far it goes for a block), `kswapd`,
//! `compaction`, `kcompactd`.

mod allocator;
mod attempt;
mod audit;
mod boost;
mod build;
mod compaction;
mod contents;
mod event;
mod exact;
mod failure;
mod fallback;
mod follow;
mod frames;
mod free_lists;
mod fullness;
mod huge_fault;
mod image;
mod index;
mod inspect;
mod kcompactd;
mod kswapd;
mod machines;
mod map;
mod migratetype;
mod owner;
mod per_cpu;
mod policy;
mod presets;
mod reclaim;
mod request;
mod reserve;
mod slow_path;
mod state;
mod steal;
#[cfg(test)]
mod testing;
mod walk;
mod watermark;
mod zone;
mod zonelist;

pub use allocator::{FreeError, MinFree, PageAllocator, PageConfig, PageConfigError, ZoneInfo};
pub use attempt::{Attempt, Next, Outcome};
pub use boost::KernelRole;
pub use compaction::{
    Compaction, CompactionResult, CompactionStep, Landed, Mode as CompactionMode, Passed, ScanStep,
    Suitability,
};
pub use contents::{Contents, ContentsError};
pub use event::{
    CompactionAim, CompactionRun, ExtFrag, NoRun, PageCounters, PageEvent, RunEnd, Wiper,
};
pub use exact::{AllocAtError, FreeBulkError};
pub use failure::{FailureReason, FailureReport, Refusal, ZoneReport};
pub use follow::KswapdRun;
pub use huge_fault::{Advice, HugeDefrag, HugeFault};
pub use image::{
    CompactionImage, CpuImage, Image, ImageError, ListImage, PageblockImage, UsedBlock, ZoneImage,
};
pub use index::FragmentationIndices;
pub use inspect::{FrameState, PageblockCounts, PageblockInfo};
pub use kcompactd::{Kcompactd, KcompactdStep};
pub use kswapd::{Kswapd, KswapdInfo, PageBudget, PageProgress};
pub use map::{
    MAX_CPUS, MAX_NODES, MapError, MemoryMap, NodeId, NodeMap, NodeMask, PfnRange, ZoneKind,
    ZoneMap,
};
pub use migratetype::Migratetype;
pub use owner::{
    Migrate, Move, MoveResults, Moves, Reclaim, ReclaimRequest, ReclaimScope, Reclaimed,
};
pub use policy::{
    Boost, CaptureTrace, Choice, CompactionPolicy, FallbackRules, Fixes, FragmentationPolicy, Gap,
    HugeTries, KswapdFlag, Lru, MoveRules, NoRetry, PerCpuRules, ProactiveMarks, Relist,
    SourceRules, Spread, Stall,
};
pub use presets::{Basis, PolicyPreset, UnknownPolicy};
pub use request::{PageRequest, RequestFlags};
pub use reserve::BlockTypeError;
pub use state::{FreeCounts, ZoneState};
pub use zone::{Watermarks, ZoneId};
