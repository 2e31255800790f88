//! `format` files and the records that they describe, on arbitrary bytes.

use nofrag_host::trace::{Decoder, EventKind, Format, RecordError, TextWriter, TraceMeta};

/// Reads `data` as the text of a format file, a zero, and a record. Panics when a promise is broken.
pub fn run(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let text = String::from_utf8_lossy(&data[..end]);
    let record = data.get(end + 1..).unwrap_or(&[]);
    let Ok(format) = Format::parse(&text) else { return };
    let decoded = Decoder::new([&format]).decode(record, 77, 5);
    let kind = EventKind::from_name(&format.name);
    let id = match record {
        [low, high, ..] => u16::from_le_bytes([*low, *high]),
        _ => return assert_eq!(decoded, Err(RecordError::Short(record.len()))),
    };
    match decoded {
        Ok(None) => assert!(id == format.id && kind.is_none()),
        Err(RecordError::Unknown(unknown)) => assert!(unknown == id && id != format.id),
        Err(RecordError::Short(len)) => assert!(len == record.len() && kind.is_some()),
        Err(other) => panic!("{other} has no place here"),
        Ok(Some(event)) => {
            assert_eq!((Some(event.kind), event.at, event.cpu), (kind, 77, 5));
            for (value, field) in event.values.iter().zip(event.kind.fields()) {
                assert_eq!(*value, naive(&format, field.name, record), "{}", field.name);
            }
            assert_eq!(event.pid, naive(&format, "common_pid", record) as i32);
            let formats = vec![(format.name.clone(), text.into_owned())];
            let writer = TextWriter::new(&TraceMeta { formats, ..TraceMeta::default() });
            let mut line = String::new();
            writer.add_line(&event, &mut line);
            assert!(line.ends_with('\n'));
        }
    }
}

/// Reads the field byte by byte; 0 if the format has none of this name, or one that is no number.
fn naive(format: &Format, name: &str, record: &[u8]) -> u64 {
    let Some(field) = format.field(name) else { return 0 };
    if !matches!(field.size, 1 | 2 | 4 | 8) {
        return 0;
    }
    let bytes = &record[field.offset..field.offset + field.size];
    let negative = field.signed && bytes[field.size - 1] >= 0x80;
    let mut word = [if negative { 0xff } else { 0 }; 8];
    word[..field.size].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
