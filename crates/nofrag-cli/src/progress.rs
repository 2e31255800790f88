//! How far a long command is, on standard error; nothing where that is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Shows how many events are done, how long that took, and how fast it goes.
pub(crate) fn events() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {human_pos} events {elapsed} {per_sec}");
    bar.set_style(style.expect("the template is well-formed"));
    bar
}
