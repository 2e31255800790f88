//! Reports of the kernel log about failed requests for memory, from text of any length: dmesg, the journal, a mail.
//!
//! ```text
//! kworker/0:1: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null),cpuset=/
//! page allocation stalls for Nms, order:0, mode:0x14200ca(GFP_HIGHUSER_MOVABLE)
//! bash invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
//! vmap allocation for size 1052672 failed: use vmalloc=<size> to increase size
//! vmalloc error: size 8192, page order 0, failed to allocate pages, mode:0xcc2(GFP_KERNEL|__GFP_HIGHMEM)
//! ```
//!
//! Each of these lines begins a [`LogReport`]; the call trace and the Mem-Info block that follow belong to it. A
//! Mem-Info block alone (sysrq) is a report without a request. The parser is a pure function of the text: values that a
//! cut text lacks are absent, and all others are kept. Lines of several CPUs that the log has mixed cannot be told
//! apart.
//!
//! Source: docs/sources/trace.md#degrading.

mod log;
mod memory;
mod mode;

use std::ops::Range;

use serde::Serialize;

pub use memory::{Memory, ReportedZone, TypeSet};
pub use mode::Mode;

/// A request to the page allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedPages {
    /// Order of the requested block.
    pub order: u32,
    /// The flags of the request; `None` where the line is cut.
    pub mode: Option<Mode>,
}

/// Event that a report is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A request for pages failed.
    PageFailure(AskedPages),
    /// A request for pages takes long (reported by 4.10 to 4.14, and by 7.2 again).
    PageStall {
        /// Milliseconds that the request has taken so far.
        millis: u64,
        #[serde(flatten)]
        asked: AskedPages,
    },
    /// The kernel looks for a process to kill.
    OutOfMemory {
        #[serde(flatten)]
        asked: AskedPages,
        /// The limit that was reached, if it is the limit of a control group.
        group: Option<GroupLimit>,
    },
    /// No room in the kernel's vmalloc space.
    VmapFailure {
        /// Requested bytes, the guard page included.
        bytes: u64,
        /// The addresses between which the area had to lie, where they are printed.
        #[serde(skip_serializing_if = "Option::is_none")]
        within: Option<Range<u64>>,
    },
    /// `vmalloc` failed: it found no addresses, or no pages to put behind them.
    VmallocFailure {
        bytes: Option<u64>,
        /// The failed resource, in the kernel's words.
        what: String,
        /// The flags of the request, where they are printed.
        mode: Option<Mode>,
    },
    /// The state of memory, printed on request.
    State,
}

/// The memory limit of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupLimit {
    /// Memory in use by the group, in KiB.
    pub usage_kib: Option<u64>,
    /// The group's limit, in KiB.
    pub limit_kib: Option<u64>,
}

/// One report of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogReport {
    /// Number of its first line, from 1.
    pub line: u32,
    /// Seconds since boot, where the log has them.
    pub seconds: Option<f64>,
    pub event: Event,
    /// Name of the process or kernel thread.
    pub process: Option<String>,
    /// The kernel's release, from the line `CPU: .. Not tainted 6.1.0 #1`.
    pub release: Option<String>,
    /// The functions of the call trace, innermost first.
    pub trace: Vec<String>,
    pub memory: Memory,
}

/// Most functions that are kept of one trace.
const DEEPEST_TRACE: usize = 64;

impl LogReport {
    fn new(line: u32, seconds: Option<f64>, event: Event, process: Option<String>) -> LogReport {
        let memory = Memory::new();
        LogReport { line, seconds, event, process, release: None, trace: Vec::new(), memory }
    }

    /// Returns the request to the page allocator that the report is about; `None` if it is about another event.
    #[must_use]
    pub fn asked(&self) -> Option<&AskedPages> {
        match &self.event {
            Event::PageFailure(asked)
            | Event::PageStall { asked, .. }
            | Event::OutOfMemory { asked, .. } => Some(asked),
            Event::VmapFailure { .. } | Event::VmallocFailure { .. } | Event::State => None,
        }
    }

    /// Returns the caller of the allocator: the innermost function of the trace that is not part of an allocator.
    #[must_use]
    pub fn caller(&self) -> Option<&str> {
        const ALLOCATORS: [&str; 27] = [
            "dump_",
            "unwind_",
            "show_stack",
            "warn_alloc",
            "oom_kill_process",
            "out_of_memory",
            "alloc_pages",
            "__alloc_pages",
            "alloc_frozen",
            "__alloc_frozen",
            "__folio_alloc",
            "folio_alloc",
            "vma_alloc",
            "alloc_slab",
            "new_slab",
            "allocate_slab",
            "___slab_alloc",
            "__slab_alloc",
            "kmem_cache_alloc",
            "__kmem_cache",
            "kmalloc",
            "__kmalloc",
            "___kmalloc",
            "__do_kmalloc",
            "cache_alloc",
            "get_free_pages",
            "__get_free_pages",
        ];
        let plumbing = |name: &&String| {
            ALLOCATORS.iter().any(|allocator| name.starts_with(allocator))
                || ["kvmalloc", "__kvmalloc", "__vmalloc", "vmalloc", "alloc_vmap", "__get_vm_area"]
                    .iter()
                    .any(|allocator| name.starts_with(allocator))
        };
        self.trace.iter().find(|name| !plumbing(name)).map(String::as_str)
    }
}

/// Returns all reports in a text, in their order. O(text).
///
/// ```
/// use nofrag_host::failure::{Event, parse};
///
/// let text = "[ 12.5] irq/9-x: page allocation failure: order:2, mode:0x820(GFP_ATOMIC), nodemask=(null)";
/// let report = &parse(text)[0];
/// let Event::PageFailure(asked) = &report.event else { panic!() };
/// assert_eq!((asked.order, report.seconds, report.process.as_deref()), (2, Some(12.5), Some("irq/9-x")));
/// ```
#[must_use]
pub fn parse(text: &str) -> Vec<LogReport> {
    let mut reports: Vec<LogReport> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let log::LogLine { seconds, text } = log::log_line(line);
        let line = u32::try_from(number + 1).unwrap_or(u32::MAX);
        if let Some((event, process)) = event(text) {
            reports.push(LogReport::new(line, seconds, event, process));
        } else if text.starts_with("Mem-Info:") {
            if reports.last().is_none_or(|report| !report.memory.is_empty()) {
                reports.push(LogReport::new(line, seconds, Event::State, None));
            }
        } else if let Some(report) = reports.last_mut() {
            report.line_of(text);
        } else {
            // A block whose beginning was cut off.
            let mut report = LogReport::new(line, seconds, Event::State, None);
            if report.memory.line(text) && !report.memory.zones.is_empty() {
                reports.push(report);
            }
        }
    }
    reports
}

impl LogReport {
    /// Takes a line inside the report; lines that do not matter here are ignored.
    fn line_of(&mut self, text: &str) {
        if let Some((before, _)) = text.split_once(" #")
            && text.starts_with("CPU:")
        {
            let release = before
                .rsplit(' ')
                .next()
                .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            self.release = self.release.take().or(release.map(str::to_owned));
        } else if let Event::OutOfMemory { group, .. } = &mut self.event
            && let Some(limit) = group_limit(text)
        {
            let known = group.get_or_insert_default();
            known.usage_kib = limit.usage_kib.or(known.usage_kib);
            known.limit_kib = limit.limit_kib.or(known.limit_kib);
        } else if self.memory.is_empty()
            && let Some(function) = function(text)
            && self.trace.len() < DEEPEST_TRACE
        {
            self.trace.push(function.to_owned());
        } else {
            self.memory.line(text);
        }
    }
}

/// Returns the event that a line reports, and the name of the process where the line has it; `None` for a line that
/// begins no report.
fn event(text: &str) -> Option<(Event, Option<String>)> {
    if let Some((before, after)) = text.split_once("page allocation failure") {
        return Some((Event::PageFailure(asked(after)?), process(before)));
    }
    if let Some((before, after)) = text.split_once("page allocation stalls for ") {
        let millis = leading_number(after)?;
        return Some((Event::PageStall { millis, asked: asked(after)? }, process(before)));
    }
    if let Some((before, after)) = text.split_once(" invoked oom-killer:") {
        return Some((Event::OutOfMemory { asked: asked(after)?, group: None }, process(before)));
    }
    if let Some((_, after)) = text.split_once("vmap allocation for size ") {
        let bytes = leading_number(after)?;
        return Some((Event::VmapFailure { bytes, within: None }, None));
    }
    if let Some((_, after)) = text.split_once("vmalloc_node_range for size ") {
        let event = Event::VmapFailure { bytes: leading_number(after)?, within: addresses(after) };
        return Some((event, None));
    }
    if let Some((before, after)) = text.split_once("vmalloc error: size ") {
        let what = after.split_once(", ").map_or("", |(_, what)| what);
        let what = what.split(", mode:").next().unwrap_or(what).trim_end_matches(',').to_owned();
        let event = Event::VmallocFailure { bytes: leading_number(after), what, mode: mode(after) };
        return Some((event, process(before)));
    }
    let (before, after) = text.split_once("vmalloc: allocation failure")?;
    let bytes = after.split(|c: char| !c.is_ascii_digit()).rfind(|word| !word.is_empty());
    let bytes = bytes.and_then(|word| word.parse().ok()).filter(|_| after.contains("bytes"));
    let event =
        Event::VmallocFailure { bytes, what: "allocation failure".to_owned(), mode: mode(after) };
    Some((event, process(before)))
}

/// Parses `order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP)`, or `gfp_mask=NUMBER(NAMES), order=0`.
fn asked(text: &str) -> Option<AskedPages> {
    let order = text.split_once("order:").or_else(|| text.split_once("order="))?.1;
    let order = u32::try_from(leading_number(order)?).ok()?;
    Some(AskedPages { order, mode: mode(text) })
}

fn mode(text: &str) -> Option<Mode> {
    let rest = text.split_once("mode:").or_else(|| text.split_once("gfp_mask="))?.1;
    // A bracket may hold anything but a blank; the text behind it begins with a comma.
    let end = rest.find(|c: char| c == ',' || c.is_ascii_whitespace()).unwrap_or(rest.len());
    Mode::parse(&rest[..end])
}

/// Returns the name of the process from the text before the message, such as `kworker/0:1: `; `None` if there is none.
fn process(before: &str) -> Option<String> {
    let name = before.trim_end().trim_end_matches(':').trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the number with which a text begins.
fn leading_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Returns the range between the first two hexadecimal numbers of a text; `None` unless there are two that ascend.
fn addresses(text: &str) -> Option<Range<u64>> {
    let words = text.split(|c: char| c.is_ascii_whitespace() || matches!(c, '-' | ',' | '[' | ']'));
    let numbers = words.filter_map(|word| word.trim_end_matches('.').strip_prefix("0x"));
    let mut numbers = numbers.map_while(|digits| u64::from_str_radix(digits, 16).ok());
    let (start, end) = (numbers.next()?, numbers.next()?);
    (start < end).then_some(start..end)
}

/// Parses a line that tells that a limit of a control group was reached, or how large the limit is.
fn group_limit(text: &str) -> Option<GroupLimit> {
    if text.contains("Memory cgroup out of memory") || text.contains("CONSTRAINT_MEMCG") {
        return Some(GroupLimit::default());
    }
    let rest = text.strip_prefix("memory: usage ")?;
    let kib = |text: &str| text.trim().strip_suffix("kB")?.parse().ok();
    let mut parts = rest.split(',');
    let usage_kib = parts.next().and_then(kib);
    let limit_kib = parts.next().and_then(|part| kib(part.trim().strip_prefix("limit ")?));
    Some(GroupLimit { usage_kib, limit_kib })
}

/// Returns the function of a line of a call trace: `? warn_alloc+0x138/0x160 [module]`.
fn function(text: &str) -> Option<&str> {
    let word = text.split_ascii_whitespace().find(|word| word.contains("+0x"))?;
    let (name, offset) = word.split_once("+0x")?;
    let is_name =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.$".contains(&b));
    // A question mark means that the kernel is not sure of the line.
    (is_name && offset.contains("/0x") && !text.contains("? ")).then_some(name)
}
