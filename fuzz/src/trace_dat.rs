//! The reader of trace.dat, on arbitrary bytes.

use std::path::Path;
use std::sync::Arc;

use nofrag_host::budget::Budget;
use nofrag_host::trace::{Event, Loss, open_trace_dat};

/// Reads `data` as the file. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let Some((events, loss)) = read(data) else { return };
    // A record has at least a word of its own, unless it was packed; then a byte cannot unpack to more than zstd's
    // longest run.
    assert!(events.len() <= data.len() << 17, "{} events of {} bytes", events.len(), data.len());
    assert!(events.iter().all(|event| event.kind.fields().len() <= event.values.len()));
    for event in &events {
        let rest = &event.values[event.kind.fields().len()..];
        assert!(rest.iter().all(|&value| value == 0), "a value that the kind does not have");
        let _ = event.view();
    }
    let (again, loss_again) = read(data).expect("it could be read before");
    assert!(again == events && loss_again == loss, "reading depends on more than the bytes");
}

fn read(data: &[u8]) -> Option<(Vec<Event>, Loss)> {
    let budget = Budget::of_length(data.len() as u64);
    let mut trace = open_trace_dat(Arc::new(data.to_vec()), Path::new("trace.dat"), budget).ok()?;
    let mut events = Vec::new();
    // A damaged page ends a source; what it gave before stands.
    while matches!(trace.events.read(&mut events), Ok(true)) {}
    Some((events, trace.events.loss()))
}
