//! What of the simulation was fitted to kernels, on which, and what was tried.

use super::outcome::Fitted;

/// Kernels that parameters may be fitted on; the others judge.
pub(super) const FITTED_ON: [&str; 2] = ["6.1", "7.2"];

/// With more parameters anything can be fitted.
pub(super) const MOST_FITTED: usize = 6;

/// Every parameter whose value comes from runs of kernels.
pub(super) const FITTED: &[Fitted] = &[];

/// How many sets of values were run beside kernels.
pub(super) const FITS_TRIED: u32 = 0;

/// Cells of judging kernels that were looked at while fitting, as `KERNEL-FACTOR`: they judge no more.
pub(super) const SPOILT: &[&str] = &[];

/// What was tried for what does not come out: the id of a measure, and a sentence.
pub(super) const TRIED: &[(&str, &str)] = &[];
