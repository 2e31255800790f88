//! The events of a stretch: one line each, `SECONDS [CPU] TASK-PID EVENT: fields`.

use foldhash::{HashMap, HashMapExt};
use nofrag::page::{Migratetype, PageRequest, Suitability};
use nofrag::units::{Order, Pfn};
use nofrag_host::gfp::GfpFlags;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// Line of the file, from 1 on.
    pub(super) number: usize,
    pub(super) cpu: u32,
    pub(super) task: Task,
    pub(super) event: Event,
}

/// The task of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) name: String,
    pub(super) pid: u32,
}

/// A request as the kernel made and answered it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) request: PageRequest,
    /// The frame of the answer, if there is one.
    pub(super) answer: Option<Pfn>,
}

/// A block of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
}

/// The kind of an event, with its fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// A request begins; holds the index of the line of its end, if it has one.
    Begins(Option<usize>),
    Ends(Asked),
    /// The bulk interface has handed out this frame.
    Bulk(Pfn),
    /// A block is given back; it is put on its list later, in a batch.
    FreedInBatch(Block),
    /// A block is given back, and put on its list at once.
    Freed(Block),
    /// A block that was given back earlier is put on its list.
    Batched(Pfn),
    /// A block went from the zone to a per-CPU list or to the request.
    Refilled {
        pfn: Pfn,
        order: Order,
        cached: bool,
    },
    /// A block went from a per-CPU list to the zone.
    Drained(Block),
    ExtFrag(Fallback),
    /// Compaction takes a free block.
    Isolated(Block),
    Moved {
        from: Pfn,
        to: Pfn,
    },
    /// Bits of a pageblock are written.
    Bits {
        pfn: Pfn,
        flags: u8,
        mask: u8,
    },
    /// All per-CPU pages of a zone are given back.
    DrainZone(String),
    /// The skip marks of a zone's pageblocks are wiped.
    WipeMarks(String),
    /// A run of compaction over a zone.
    Compacts(Fields),
    Deferred(Fields),
    Suitable(Fields),
    CompactionBegins(Fields),
    CompactionEnds(Fields),
    SourcesIsolated(Fields),
    TargetsIsolated(Fields),
    /// A quick search for targets is over.
    TargetsSearched(Fields),
    /// A frame goes to the head of the LRU list that has this number in the kernel.
    OnLru(Pfn, u8),
    /// A frame goes from an inactive LRU list to the active one.
    Activated(Pfn),
    /// Reclaim takes frames from the end of an LRU list.
    LruIsolated(Fields),
    /// Outcome for the frames that were taken from an inactive list.
    InactiveShrunk(Fields),
    /// Outcome for the frames of an active list.
    ActiveShrunk(Fields),
    /// A shrinker of slabs begins or has ended: a pass over the lists is over.
    ShrinksSlab(Phase),
    /// A task wakes kswapd, which slept or dozed, for a block of this order.
    WakesKswapd(Order),
    /// kswapd begins a run for a block of this order.
    KswapdWakes(Order),
    /// A run of kswapd is over.
    KswapdRests,
    KswapdSleeps,
    WakesKcompactd,
    KcompactdWakes(Fields),
    /// Direct reclaim begins or has ended.
    Reclaims(Phase, Fields),
    /// A CPU adds its share of counters to the zone's.
    Fold,
    /// Idle per-CPU pages of a zone are given back.
    Decay(String),
    /// An event that is not followed.
    Other,
}

/// The beginning or the end of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Begins,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fallback {
    pub(super) pfn: Pfn,
    pub(super) alloc_order: Order,
    pub(super) fallback_order: Order,
    pub(super) alloc_migratetype: Migratetype,
    pub(super) fallback_migratetype: Migratetype,
    pub(super) change_ownership: bool,
}

/// `key=value` pairs as they stand in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(pub(super) String);

impl Fields {
    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the value as a number, decimal or `0x`.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        number(self.get(key)?)
    }

    /// Returns the value as a frame.
    fn pfn(&self, key: &str) -> Option<Pfn> {
        self.number(key).map(Pfn)
    }

    fn block(&self) -> Option<Block> {
        Some(Block { pfn: self.pfn("pfn")?, order: self.order("order")? })
    }

    pub(super) fn order(&self, key: &str) -> Option<Order> {
        Order::new(u8::try_from(self.number(key)?).ok()?)
    }

    /// Returns the flags of a request.
    pub(super) fn gfp(&self) -> GfpFlags {
        let names = self.get("gfp_flags").unwrap_or("none").split('|');
        names.map(GfpFlags::named).fold(GfpFlags::default(), GfpFlags::with)
    }

    /// Returns the kernel's answer to whether compaction helps.
    pub(super) fn suitability(&self) -> Suitability {
        match self.get("ret") {
            Some("success") => Suitability::Satisfied,
            Some("continue") => Suitability::Suitable,
            _ => Suitability::Hopeless,
        }
    }

    fn migratetype(&self, key: &str) -> Option<Migratetype> {
        Migratetype::from_index(usize::try_from(self.number(key)?).ok()?)
    }
}

/// The reason why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}: {text}")]
pub(super) struct LineError {
    /// The line's number, from 1 on.
    pub(super) line: usize,
    /// The fault of the line.
    pub(super) what: &'static str,
    pub(super) text: String,
}

/// Reads all events, pairs each request with its end and each free with the moment at which it reaches its list.
pub(super) fn read(text: &str) -> Result<Vec<Line>, LineError> {
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let error = |what| LineError { line: index + 1, what, text: text.to_owned() };
        lines.push(line(index + 1, text).map_err(error)?);
    }
    // Insertions come first, then everything that remembers positions.
    find_rests(&mut lines);
    pair_requests(&mut lines);
    pair_frees(&mut lines);
    Ok(lines)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn line(number: usize, text: &str) -> Result<Line, &'static str> {
    let (seconds, rest) = text.split_once(' ').ok_or("a line begins with its time")?;
    seconds.parse::<f64>().map_err(|_| "a line begins with its time")?;
    let (cpu, rest) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (cpu, rest) = rest.split_once("] ").ok_or("a CPU ends with ]")?;
            (cpu.trim().parse().map_err(|_| "a CPU is a number")?, rest)
        }
        None => (0, rest),
    };
    // The name of a task may hold spaces; the event is the first word that ends with a colon.
    let at = rest.find(": ").or_else(|| rest.ends_with(':').then(|| rest.len() - 1));
    let (head, fields) = rest.split_at(at.ok_or("an event ends with a colon")?);
    let fields = fields.get(2..).unwrap_or("").trim_end();
    let (task, event) = head.rsplit_once(' ').ok_or("a task and an event")?;
    let (name, pid) = task.rsplit_once('-').ok_or("a task has a number")?;
    let pid = pid.trim().parse().map_err(|_| "a task's number is one")?;
    let task = Task { name: name.to_owned(), pid };
    let event = event_of(event, Fields(fields.to_owned())).ok_or("a field is missing")?;
    Ok(Line { number, cpu, task, event })
}

fn event_of(name: &str, fields: Fields) -> Option<Event> {
    Some(match name {
        "reqalloc" => Event::Begins(None),
        "mm_page_alloc" => Event::Ends(asked(&fields)?),
        "bulk_page" => Event::Bulk(fields.pfn("pfn")?),
        "mm_page_free" => Event::Freed(fields.block()?),
        "mm_page_free_batched" => Event::Batched(fields.pfn("pfn")?),
        "mm_page_alloc_zone_locked" => {
            let cached = fields.get("percpu_refill")? == "1";
            Event::Refilled { pfn: fields.pfn("pfn")?, order: fields.order("order")?, cached }
        }
        "mm_page_pcpu_drain" => Event::Drained(fields.block()?),
        "mm_page_alloc_extfrag" => Event::ExtFrag(Fallback {
            pfn: fields.pfn("pfn")?,
            alloc_order: fields.order("alloc_order")?,
            fallback_order: fields.order("fallback_order")?,
            alloc_migratetype: fields.migratetype("alloc_migratetype")?,
            fallback_migratetype: fields.migratetype("fallback_migratetype")?,
            change_ownership: fields.get("change_ownership")? == "1",
        }),
        "isofree" => Event::Isolated(fields.block()?),
        "moved" => Event::Moved { from: fields.pfn("from")?, to: fields.pfn("to")? },
        "pbflags" => Event::Bits {
            pfn: fields.pfn("pfn")?,
            flags: u8::try_from(fields.number("flags")?).ok()?,
            mask: u8::try_from(fields.number("mask")?).ok()?,
        },
        "drain" => Event::DrainZone(fields.get("zone")?.to_owned()),
        "resetskip" => Event::WipeMarks(fields.get("zone")?.to_owned()),
        "compact_enter" => Event::Compacts(fields),
        "mm_compaction_deferred" => Event::Deferred(fields),
        "mm_compaction_suitable" => Event::Suitable(fields),
        "mm_compaction_begin" => Event::CompactionBegins(fields),
        "mm_compaction_end" => Event::CompactionEnds(fields),
        "mm_compaction_isolate_migratepages" => Event::SourcesIsolated(fields),
        "mm_compaction_isolate_freepages" => Event::TargetsIsolated(fields),
        "mm_compaction_fast_isolate_freepages" => Event::TargetsSearched(fields),
        "mm_lru_insertion" => {
            Event::OnLru(fields.pfn("pfn")?, u8::try_from(fields.number("lru")?).ok()?)
        }
        "mm_lru_activate" => Event::Activated(fields.pfn("pfn")?),
        "mm_vmscan_lru_isolate" => Event::LruIsolated(fields),
        "mm_vmscan_lru_shrink_inactive" => Event::InactiveShrunk(fields),
        "mm_vmscan_lru_shrink_active" => Event::ActiveShrunk(fields),
        "mm_shrink_slab_start" => Event::ShrinksSlab(Phase::Begins),
        "mm_shrink_slab_end" => Event::ShrinksSlab(Phase::Ended),
        "mm_vmscan_wakeup_kswapd" => Event::WakesKswapd(fields.order("order")?),
        "mm_vmscan_kswapd_wake" => Event::KswapdWakes(fields.order("order")?),
        "mm_vmscan_kswapd_sleep" => Event::KswapdSleeps,
        "mm_vmscan_direct_reclaim_begin" => Event::Reclaims(Phase::Begins, fields),
        "mm_vmscan_direct_reclaim_end" => Event::Reclaims(Phase::Ended, fields),
        "vmfold" => Event::Fold,
        "pcpdecay" => Event::Decay(fields.get("zone")?.to_owned()),
        "mm_compaction_wakeup_kcompactd" => Event::WakesKcompactd,
        "mm_compaction_kcompactd_wake" => Event::KcompactdWakes(fields),
        _ => Event::Other,
    })
}

fn asked(fields: &Fields) -> Option<Asked> {
    let gfp = fields.gfp();
    let pfn = fields.get("pfn")?;
    let refused = pfn == "-1" || pfn == "0" || pfn == "0x0" || pfn.starts_with("0xffffffff");
    let migratetype = fields.migratetype("migratetype")?;
    let order = fields.order("order")?;
    let request = PageRequest::new(order, migratetype).flags(gfp.request_flags());
    Some(Asked {
        request: PageRequest { zone: gfp.zone(), ..request },
        answer: if refused { None } else { Some(Pfn(number(pfn)?)) },
    })
}

/// Pairs the beginnings and ends of a task's requests. They end in the opposite order of their beginnings: an interrupt
/// may make a request in between.
fn pair_requests(lines: &mut [Line]) {
    let mut open: HashMap<u32, Vec<usize>> = HashMap::new();
    for index in 0..lines.len() {
        let pid = lines[index].task.pid;
        match lines[index].event {
            Event::Begins(_) => open.entry(pid).or_default().push(index),
            Event::Ends(_) => {
                if let Some(begin) = open.get_mut(&pid).and_then(Vec::pop) {
                    lines[begin].event = Event::Begins(Some(index));
                }
            }
            _ => {}
        }
    }
}

/// Turns each free that is followed by a batched one of the same frame into [`Event::FreedInBatch`], as the frame
/// reaches its list only then; a batched one without such a free becomes [`Event::Other`].
fn pair_frees(lines: &mut [Line]) {
    let mut waiting: HashMap<Pfn, usize> = HashMap::new();
    for index in 0..lines.len() {
        match lines[index].event {
            Event::Freed(Block { pfn, .. }) => {
                waiting.insert(pfn, index);
            }
            Event::Batched(pfn) => match waiting.remove(&pfn) {
                Some(begin) => {
                    if let Event::Freed(block) = lines[begin].event {
                        lines[begin].event = Event::FreedInBatch(block);
                    }
                }
                None => lines[index].event = Event::Other,
            },
            Event::Ends(Asked { answer: Some(pfn), .. }) | Event::Bulk(pfn) => {
                waiting.remove(&pfn);
            }
            _ => {}
        }
    }
}

/// Inserts the ends of kswapd's runs. A run ends with kswapd's last operation before it wakes anew, sleeps, or leaves
/// the rest to kcompactd: no event tells of it.
fn find_rests(lines: &mut Vec<Line>) {
    let mut rests = Vec::new();
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (index, line) in lines.iter().enumerate() {
        if !line.task.name.starts_with("kswapd") {
            continue;
        }
        match line.event {
            Event::KswapdSleeps => rests.extend(last.remove(&line.task.pid)),
            // The end of a boosted run, or a way to sleep.
            Event::WakesKcompactd if last.contains_key(&line.task.pid) => {
                last.remove(&line.task.pid);
                rests.push(index);
            }
            Event::KswapdWakes(_) => {
                rests.extend(last.insert(line.task.pid, index));
            }
            _ => {
                if let Some(last) = last.get_mut(&line.task.pid) {
                    *last = index;
                }
            }
        }
    }
    rests.sort_unstable();
    for &at in rests.iter().rev() {
        let rest = Line { event: Event::KswapdRests, ..lines[at].clone() };
        lines.insert(at + 1, rest);
    }
}
