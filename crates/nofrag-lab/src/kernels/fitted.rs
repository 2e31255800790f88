//! What of the simulation was fitted to kernels, on which, and what was tried.

use super::outcome::Fitted;
use crate::world::costs::{cost_rows, world_rows};

/// Kernels that parameters may be fitted on; the others judge.
pub(super) const FITTED_ON: [&str; 2] = ["6.1", "7.2"];

/// With more parameters anything can be fitted.
pub(super) const MOST_FITTED: usize = 6;

/// Every parameter whose value comes from counts of kernels: the rows of the world's table that say so.
pub(super) fn fitted() -> Vec<Fitted> {
    let rows = cost_rows().into_iter().chain(world_rows());
    let fitted = rows.filter_map(|row| {
        let on = row.source.strip_prefix("fitted on ")?.to_owned();
        Some(Fitted {
            name: row.id.into(),
            value: row.value as f64,
            what: row.what.into(),
            on: on.into(),
        })
    });
    fitted.collect()
}

/// How many sets of values were run beside kernels.
pub(super) const FITS_TRIED: u32 = 9;

/// Cells of judging kernels that were looked at while fitting, as `KERNEL-FACTOR`: they judge no more.
pub(super) const SPOILT: &[&str] = &["5.10-default", "6.12-default"];

const HUGE: &str = "too few pageblocks become free by reclaim alone. On 6.1 and 7.2, three seeds, before a fault of the \
                    writeback was repaired: reclaim four times cheaper gives 2 to 12 % in 6.1-centre for 2 to 4 and 3 \
                    to 10 in 7.2-boost-0 for 2, not enough; steps of kswapd four times larger, and guests twice as \
                    fast or slow, make no difference that three seeds show. On all cells: to reclaim the highest zone \
                    first, as allocations in 6.12 by zone suggest, gives fewer";

/// What was tried for what does not come out: the id of a measure, and a sentence.
pub(super) const TRIED: &[(&str, &str)] =
    &[("order-of-kernels", HUGE), ("order-of-factors", HUGE), ("log-odds", HUGE)];
