//! The reader of raw pages against the running kernel's own text of the same buffer.

use std::fs::{self, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nofrag_host::trace::{
    Decoder, Event, EventKind, FlagTable, Format, KINDS, Loss, RawPages, SUB_BUFFER, TextWriter,
    TraceMeta, TraceText,
};

use crate::raw_pages::all;

const TRACEFS: &str = "/sys/kernel/tracing";

/// An instance of our own, removed when this value is dropped.
struct Instance(PathBuf);

impl Instance {
    fn new(name: &str) -> io::Result<Instance> {
        let path =
            Path::new(TRACEFS).join("instances").join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path)?;
        let instance = Instance(path);
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", "mono")?;
        Ok(instance)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.0.join(file), text)
    }

    fn read(&self, file: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.0.join(file)).unwrap()).into_owned()
    }

    /// Returns the raw pages of a CPU, and takes them out of the buffer.
    fn pages(&self, cpu: u16, size: usize) -> Vec<u8> {
        const O_NONBLOCK: i32 = 0o4000;
        let path = self.0.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let mut file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).unwrap();
        let (mut bytes, mut page) = (Vec::new(), vec![0; size]);
        loop {
            match file.read(&mut page) {
                Ok(0) => return bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return bytes,
                Ok(read) => {
                    assert_eq!(read, size, "the kernel gives whole pages");
                    bytes.extend_from_slice(&page);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// If this variable is set, all memory is compacted too, which disturbs the other users of the machine.
const COMPACT: &str = "NOFRAG_TEST_COMPACT";

/// Allocates, frees, maps and ends processes for a moment.
fn load() {
    for round in 0..4 {
        let bytes = vec![round; 4 << 20];
        assert_eq!(std::hint::black_box(&bytes)[5], round);
        let child = Command::new("true").status();
        assert!(child.is_ok_and(|status| status.success()), "`true` is there");
    }
    if std::env::var_os(COMPACT).is_some() {
        fs::write("/proc/sys/vm/compact_memory", "1").unwrap();
    }
}

/// The contents of one buffer, read in two ways.
struct Recorded {
    meta: TraceMeta,
    /// The buffer as the kernel prints it.
    text: String,
    /// The events of the raw pages, by CPU.
    raw: Vec<(Vec<Event>, Loss)>,
}

impl Recorded {
    /// Returns true if an event was still being written during one of the two reads of its CPU: also with tracing off a
    /// CPU that others hold up completes an event that it has begun.
    fn is_torn(&self) -> bool {
        let lines: Vec<_> = self.lines().map(|line| essence(line).0).collect();
        (0..).zip(&self.raw).any(|(cpu, (events, _))| {
            lines.iter().filter(|&&of_line| of_line == cpu).count() != events.len()
        })
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.starts_with('#'))
    }
}

/// The reason why no comparable recording was made.
enum Unfit {
    /// The kernel cannot record, or must not.
    Always(String),
    /// This time the kernel dropped events.
    ThisTime,
}

/// Records the load with sub-buffers of this size.
fn recorded(name: &str, sub_buffer_kib: usize) -> Result<Recorded, Unfit> {
    let instance = Instance::new(name).map_err(|error| {
        Unfit::Always(format!("no instance under {TRACEFS} can be made: {error}"))
    })?;
    let size = 1024 * sub_buffer_kib;
    if size != SUB_BUFFER
        && instance.write("buffer_subbuf_size_kb", &sub_buffer_kib.to_string()).is_err()
    {
        return Err(Unfit::Always("this kernel has pages of one size only".to_owned()));
    }
    instance.write("buffer_size_kb", "16384").unwrap();
    let mut formats = Vec::new();
    for row in KINDS.iter().filter(|row| row.kind != EventKind::Lost) {
        let folder = format!("events/{}/{}", row.group, row.name);
        if let Ok(text) = fs::read_to_string(instance.0.join(&folder).join("format")) {
            instance.write(&format!("{folder}/enable"), "1").unwrap();
            formats.push(text);
        }
    }
    instance.write("tracing_on", "1").unwrap();
    load();
    instance.write("tracing_on", "0").unwrap();
    let cpus = || (0..).take_while(|cpu| instance.0.join(format!("per_cpu/cpu{cpu}")).is_dir());
    let stats = |cpu: u16| instance.read(&format!("per_cpu/cpu{cpu}/stats"));
    if cpus().any(|cpu| dropped_events(&stats(cpu))) {
        return Err(Unfit::ThisTime);
    }
    let text = instance.read("trace");
    let formats: Vec<_> = formats.iter().map(|text| (text, Format::parse(text).unwrap())).collect();
    let decoder = Arc::new(Decoder::new(formats.iter().map(|(_, format)| format)));
    let alloc = formats.iter().find(|(_, format)| format.name == "mm_page_alloc");
    let gfp = alloc.and_then(|(_, format)| FlagTable::from_print_fmt(&format.print));
    let meta = TraceMeta {
        gfp: gfp.expect("this kernel's flags can be read"),
        formats: formats
            .iter()
            .map(|(text, format)| (format.name.clone(), (*text).clone()))
            .collect(),
        ..TraceMeta::default()
    };
    let raw = cpus().map(|cpu| {
        let pages = BufReader::new(io::Cursor::new(instance.pages(cpu, size)));
        all(&mut RawPages::new(pages, PathBuf::new(), cpu, Arc::clone(&decoder), size))
    });
    let raw = raw.collect();
    Ok(Recorded { meta, text, raw })
}

fn dropped_events(stats: &str) -> bool {
    stats.lines().filter_map(|line| line.split_once(": ")).any(|(name, count)| {
        matches!(name, "overrun" | "commit overrun" | "dropped events") && count != "0"
    })
}

/// Returns CPU, process, time and the rest of a line, without the parts that an event does not have.
fn essence(line: &str) -> (u16, i32, String, String) {
    let (head, rest) = line.split_once(": ").unwrap();
    let words: Vec<&str> = head.split_whitespace().collect();
    let cpu = words.iter().rposition(|word| word.starts_with('[')).unwrap();
    let number = words[cpu].trim_matches(['[', ']']).parse().unwrap();
    let (_, pid) = words[cpu - 1].rsplit_once('-').unwrap();
    // The pointer to a frame's description is hashed, and so is that of an address space, which is another pointer.
    let words =
        rest.split(' ').filter(|word| !word.starts_with("page=") && !word.starts_with("zid="));
    let words: Vec<&str> = match rest.starts_with("exit_mmap") {
        true => vec!["exit_mmap"],
        false => words.collect(),
    };
    (number, pid.parse().unwrap(), words_time(head), words.join(" "))
}

fn words_time(head: &str) -> String {
    head.split_whitespace().last().unwrap().to_owned()
}

/// Most tries: other users of the machine may disturb some.
const TRIES: usize = 5;

fn check_against_the_kernel(name: &str, sub_buffer_kib: usize) {
    for tries_left in (0..TRIES).rev() {
        match recorded(name, sub_buffer_kib) {
            Ok(recorded) if tries_left > 0 && recorded.is_torn() => {
                eprintln!("once more: an event was being written");
            }
            Ok(recorded) => return check_recorded(&recorded, sub_buffer_kib),
            Err(Unfit::Always(why)) => return eprintln!("skipped: {why}"),
            Err(Unfit::ThisTime) => eprintln!("once more: the kernel dropped events"),
        }
    }
    eprintln!("skipped: others use the machine so much that the kernel dropped events each time");
}

/// Compares event by event: raw pages, the kernel's text read back, and raw pages written as text.
fn check_recorded(recorded: &Recorded, sub_buffer_kib: usize) {
    let Recorded { meta, text, raw } = recorded;
    let (read, loss) = all(&mut TraceText::new(text.as_bytes(), "trace".into(), meta));
    assert_eq!(loss, Loss::default(), "every line of the kernel's is understood");
    let writer = TextWriter::new(meta);
    let mut seen = std::collections::BTreeMap::new();
    let total: usize = raw.iter().map(|(events, _)| events.len()).sum();
    // The number depends on the size of the pages that the load gets.
    assert!(total > 100, "the load leaves {total} events");
    assert_eq!(read.len(), total, "both ways give the same number of events");
    let lines: Vec<_> = recorded.lines().map(|line| (line, essence(line))).collect();
    for (cpu, (events, loss)) in (0_u16..).zip(raw) {
        assert_eq!(*loss, Loss::default());
        let read = read.iter().filter(|event| event.cpu == cpu);
        let lines = lines.iter().filter(|(_, essence)| essence.0 == cpu);
        assert_eq!(read.clone().count(), events.len(), "CPU {cpu}");
        for ((event, read), (line, essence_of_line)) in events.iter().zip(read).zip(lines) {
            *seen.entry(event.kind.name()).or_insert(0) += 1;
            let mut expected = Event { at: (event.at + 500) / 1000 * 1000, ..*event };
            match event.kind {
                EventKind::KswapdWake | EventKind::WakeupKswapd => expected.values[1] = 0,
                EventKind::ExitMmap => expected.values[0] = read.values[0],
                _ => {}
            }
            assert_eq!(*read, expected, "{line}");
            let mut written = String::new();
            writer.add_line(event, &mut written);
            assert_eq!(essence(written.trim_end()), *essence_of_line, "{line}");
        }
    }
    println!("{total} events on pages of {sub_buffer_kib} KiB: {seen:?}");
}

#[test]
fn raw_pages_are_what_the_kernel_prints() {
    check_against_the_kernel("nofrag-text", 4);
}

/// Compares events with the kernel's text on sub-buffers of 16 KiB, which kernels since 6.8 allow.
#[test]
fn large_pages_are_what_the_kernel_prints() {
    check_against_the_kernel("nofrag-text-large", 16);
}
