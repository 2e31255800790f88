//! The reader of ftrace's text, on arbitrary bytes.

use std::io::{BufReader, Cursor};

use nofrag_host::trace::{Event, EventKind, Loss, TextWriter, TraceMeta, TraceText};

use crate::raw_pages::all;

/// Reads `data` as the text of a trace. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let (events, loss) = read(data, 4096);
    assert_eq!(read(data, 7), (events.clone(), loss), "reading depends on the reader's buffer");
    let told = events.iter().filter(|event| event.kind == EventKind::Lost);
    assert_eq!(told.count() as u64, loss.gaps, "what is lost is told where it is lost");
    let lines = data.split(|&byte| byte == b'\n').count();
    assert!(events.len() + loss.unreadable as usize <= 2 * lines, "a line is taken twice");
    // What was read is written so that it is read again.
    let writer = TextWriter::new(&TraceMeta::default());
    let mut text = TextWriter::header().to_owned();
    events.iter().for_each(|event| writer.add_line(event, &mut text));
    let (again, loss_again) = read(text.as_bytes(), 4096);
    assert_eq!(loss_again, Loss { unreadable: loss_again.unreadable, ..loss });
    // The last half of a microsecond of 584 years has no time in microseconds.
    let rounded = events.iter().map(|event| (rounded(event).is_none(), rounded(event)));
    if rounded.clone().any(|(is_beyond, _)| is_beyond) {
        return;
    }
    assert_eq!(loss_again.unreadable, 0, "{text}");
    let expected: Vec<Event> = rounded.filter_map(|(_, event)| event).collect();
    assert_eq!(again.iter().map(untimed).collect::<Vec<_>>(), expected, "{text}");
}

fn read(data: &[u8], buffer: usize) -> (Vec<Event>, Loss) {
    let input = BufReader::with_capacity(buffer, Cursor::new(data.to_vec()));
    all(&mut TraceText::new(input, "text".into(), &TraceMeta::default()))
}

/// Returns the event as text can tell it: to the microsecond. `None` if its time cannot be rounded.
fn rounded(event: &Event) -> Option<Event> {
    let at = event.at.checked_add(500)? / 1000 * 1000;
    Some(untimed(&Event { at, ..*event }))
}

/// Takes the time off a loss: text tells a loss before the next event, whose time it takes.
fn untimed(event: &Event) -> Event {
    match event.kind {
        EventKind::Lost => Event { at: 0, ..*event },
        _ => *event,
    }
}
