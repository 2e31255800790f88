//! Progress of a long command, on standard error; nothing where that is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use nofrag_host::trace::Progressed;

/// The number of events read so far, and of all where it is known.
pub(crate) struct Events(ProgressBar);

impl Events {
    /// Begins to show events, with the time that they take and their rate; `of` is the number of all of them, where it
    /// is known.
    pub(crate) fn of(of: Option<u64>) -> Events {
        let events = Events(ProgressBar::new_spinner());
        events.style("{spinner} {human_pos} events {elapsed} {per_sec}");
        events.show(Progressed { events: 0, of });
        events
    }

    fn style(&self, template: &str) {
        let style = ProgressStyle::with_template(template).expect("the template is well-formed");
        self.0.set_style(style);
    }

    pub(crate) fn show(&self, Progressed { events, of }: Progressed) {
        if let Some(of) = of.filter(|&of| self.0.length() != Some(of)) {
            self.0.set_length(of);
            self.style("{bar:30} {human_pos}/{human_len} events {elapsed} {per_sec}");
        }
        self.0.set_position(events);
    }

    /// Shows the number of events of the total that is known already.
    pub(crate) fn done(&self, events: u64) {
        self.0.set_position(events);
    }

    /// Takes the line away.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}
