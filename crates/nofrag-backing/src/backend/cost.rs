//! What calls are expected to cost, so that a backend without memory can say what one with memory would take.

/// Nanoseconds of each part of the work. Measured on the machine of the specification (2 processors, virtualised);
/// ratios carry over, absolute values do not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostModel {
    /// To reserve or release addresses.
    pub reserve_ns: f64,
    /// To make or destroy memory, per call.
    pub create_ns: f64,
    /// To map, per call.
    pub map_ns: f64,
    /// To unmap, per call.
    pub unmap_ns: f64,
    /// To grant access, per call.
    pub grant_ns: f64,
    /// To purge, per call.
    pub purge_ns: f64,
    /// To move or copy, per call.
    pub move_ns: f64,
    /// For each page of what is unmapped or purged, if it was touched.
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
