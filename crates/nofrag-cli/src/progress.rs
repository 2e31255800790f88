//! Progress of a long command, on standard error; nothing where that is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the number of events done, the time that took, and the rate.
pub(crate) fn events() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {human_pos} events {elapsed} {per_sec}");
    bar.set_style(style.expect("the template is well-formed"));
    bar
}
