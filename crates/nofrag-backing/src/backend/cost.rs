//! Expected costs of calls, with which a backend without memory can estimate the time of one with memory.

/// Nanoseconds of each part of the work. Measured on the machine of `crates/nofrag-lab/data/figures/backing.toml` (2
/// processors, virtualised); ratios carry over, absolute values do not.
/// Source: docs/sources/backing.md#cost-model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostModel {
    /// To reserve or release addresses, per call.
    pub reserve_ns: f64,
    /// To make or destroy memory, per call.
    pub create_ns: f64,
    /// To map, for each call.
    pub map_ns: f64,
    /// To unmap, for each call.
    pub unmap_ns: f64,
    /// To grant access, per call.
    pub grant_ns: f64,
    /// To purge, for each call.
    pub purge_ns: f64,
    /// To move or copy, per call.
    pub move_ns: f64,
    /// For each touched page that is unmapped or purged.
    pub page_ns: f64,
    /// For each page that is moved.
    pub moved_page_ns: f64,
    /// For each page that is copied.
    pub copied_page_ns: f64,
    /// For a flush of the other processors' translation caches.
    pub flush_ns: f64,
    /// For the first touch of a page.
    pub first_touch_ns: f64,
}

impl CostModel {
    /// Costs on the machine of the figures with one busy processor: the rows for one page, and as `page_ns` the
    /// increase per page in the rows for sixty-four touched pages.
    /// Source: docs/sources/backing.md#baselines, #first-touch, #map-and-unmap, #userfaultfd.
    pub const ALONE: CostModel = CostModel {
        // A mapping of any length costs the same, and so does one over another.
        reserve_ns: 1_324.0,
        create_ns: 625.0,
        map_ns: 1_324.0,
        unmap_ns: 718.0,
        grant_ns: 1_109.0,
        purge_ns: 1_327.0,
        move_ns: 1_150.0,
        page_ns: (5_862.0 - 821.0) / 64.0,
        moved_page_ns: 37.0,
        copied_page_ns: 310.0,
        flush_ns: 0.0,
        first_touch_ns: 1_430.0,
    };

    /// Costs on the same machine with another thread of the process on the other processor, which each flush has to
    /// reach (1.3): `flush_ns` is the difference between giving one page back there and giving it back alone.
    /// Source: docs/sources/backing.md#shootdown.
    pub const BUSY: CostModel = CostModel { flush_ns: 19_000.0 - 1_327.0, ..CostModel::ALONE };
}
