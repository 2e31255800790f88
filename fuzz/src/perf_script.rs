//! The reader of the text of perf script, on arbitrary bytes.

use nofrag_host::trace::{Event, EventSource, Loss, TraceMeta, TraceText};

/// Reads `data` as the text. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let (events, loss) = read(data);
    let lines = data.split(|&byte| byte == b'\n').count() as u64;
    assert!(events.len() as u64 + loss.unreadable <= 2 * lines, "more than the lines hold");
    assert!(loss.gaps <= lines, "more losses than lines");
    for event in &events {
        let rest = &event.values[event.kind.fields().len()..];
        assert!(rest.iter().all(|&value| value == 0), "a value that the kind does not have");
        let _ = event.view();
    }
    assert_eq!(read(data), (events, loss), "reading depends on more than the text");
}

fn read(data: &[u8]) -> (Vec<Event>, Loss) {
    let mut source = TraceText::perf_script(data, "perf".into(), &TraceMeta::default());
    let mut events = Vec::new();
    while source.read(&mut events).expect("memory can be read") {}
    (events, source.loss())
}
