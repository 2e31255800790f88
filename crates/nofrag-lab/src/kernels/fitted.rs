//! Parameters of the simulation that were fitted to kernels, the kernels used, and the attempts.

use super::outcome::Fitted;
use crate::world::costs::{cost_rows, world_rows};

/// Kernels that parameters may be fitted on; the others judge.
pub(super) const FITTED_ON: [&str; 2] = ["6.1", "7.2"];

/// Limit on fitted parameters: with more of them anything can be fitted.
pub(super) const MOST_FITTED: usize = 6;

/// Returns every parameter whose value comes from counts of kernels: the rows of the world's table that say so.
pub(super) fn fitted() -> Vec<Fitted> {
    let rows = cost_rows().chain(world_rows());
    let fitted = rows.filter_map(|row| {
        let on = row.source.strip_prefix("fitted on ")?.to_owned();
        Some(Fitted {
            name: row.id.clone().into(),
            value: row.value as f64,
            what: row.what.clone().into(),
            on: on.into(),
        })
    });
    fitted.collect()
}

/// Number of sets of values that were run beside kernels.
pub(super) const FITS_TRIED: u32 = 9;

/// Cells of judging kernels that were looked at while fitting, as `KERNEL-FACTOR`: they judge no more.
pub(super) const SPOILT: &[&str] = &["5.10-default", "6.12-default"];

const HUGE: &str = "in 6.12 huge pages come at the end, from zone DMA32, when page cache of zone Normal is used up: \
                    how many depends on a few thousand pages of Normal. To take pages by age whatever their zone \
                    gives 6.12 as many as it has (5 to 21 %), but from DMA32, where the kernel took none. 5.10 and \
                    6.1: reclaim four times cheaper gave 6.1-centre 2 to 12 % for 2 to 4; larger steps of kswapd, and \
                    guests twice as fast or slow, made no difference. Two nodes and 4 GiB: not looked into";

/// Attempts at measures that do not come out: the id of a measure, and a sentence.
pub(super) const TRIED: &[(&str, &str)] =
    &[("order-of-kernels", HUGE), ("order-of-factors", HUGE), ("log-odds", HUGE)];
