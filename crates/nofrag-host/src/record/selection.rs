//! The selection of events to record.

use std::io;

use serde::{Deserialize, Serialize};

use super::error::RecordError;
use super::instance::Instance;
use crate::trace::{EventKind, Format, KINDS, KindInfo};

/// A set of events with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    pub name: &'static str,
    has: fn(&KindInfo) -> bool,
}

/// The sets that [`Selection::parse`] knows. An event that is in none of the sets must be named.
pub const PRESETS: [Preset; 6] = [
    // Pages and what is done to have them: kmem, compaction, migrate, vmscan.
    Preset { name: "pages", has: is_of_pages },
    // What crosses between the CPUs' lists and the buddies.
    Preset { name: "buddy", has: is_of_buddies },
    Preset { name: "vmalloc", has: |row| row.group == "vmalloc" },
    // Where mappings are placed, and munmap.
    Preset { name: "mmap", has: |row| matches!(row.group, "mmap" | "syscalls") },
    // The four sets above.
    Preset {
        name: "all",
        has: |row| row.kind != EventKind::PageFreeBatched && row.kind.is_tracepoint(),
    },
    // What a host does when memory is short or in pieces: of the first set all but pages taken and given back.
    Preset { name: "rare", has: is_rare },
];

fn is_rare(row: &KindInfo) -> bool {
    is_of_pages(row) && !matches!(row.kind, EventKind::PageAlloc | EventKind::PageFree)
}

fn is_of_buddies(row: &KindInfo) -> bool {
    matches!(row.kind, EventKind::ZoneLocked | EventKind::PcpuDrain)
}

/// Returns true for events of pages, without `mm_page_free_batched`: each such event follows an `mm_page_free` of the
/// same frame.
fn is_of_pages(row: &KindInfo) -> bool {
    matches!(row.group, "kmem" | "compaction" | "migrate" | "vmscan")
        && row.kind != EventKind::PageFreeBatched
        && !is_of_buddies(row)
}

/// The orders whose page events are recorded.
/// Source: docs/sources/trace.md#large-orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Orders {
    #[default]
    All,
    /// Blocks of more than one page: about one in a hundred events. Such a recording cannot be replayed.
    AboveZero,
}

/// A selection of events to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    kinds: Vec<EventKind>,
    orders: Orders,
}

impl Default for Selection {
    fn default() -> Selection {
        Selection::of(&PRESETS[0])
    }
}

impl Selection {
    fn of(preset: &Preset) -> Selection {
        let rows = KINDS.iter().filter(|row| (preset.has)(row));
        Selection { kinds: rows.map(|row| row.kind).collect(), orders: Orders::All }
    }

    /// Selects the events of the sets with these names, and the events with these names.
    ///
    /// # Errors
    /// [`RecordError::NoSuchEvent`] for a name that is neither a set nor an event.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Selection, RecordError> {
        let mut kinds = Vec::new();
        for name in names {
            match (PRESETS.iter().find(|preset| preset.name == name), EventKind::from_name(name)) {
                (Some(preset), _) => kinds.extend(Selection::of(preset).kinds),
                (None, Some(kind)) if kind.is_tracepoint() => kinds.push(kind),
                _ => return Err(no_such_event(name)),
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        Ok(Selection { kinds, orders: Orders::All })
    }

    /// Returns the same events, restricted to blocks of these orders.
    #[must_use]
    pub fn with_orders(self, orders: Orders) -> Selection {
        Selection { orders, ..self }
    }

    /// Returns true if the placing of mappings is recorded, which needs the mappings at the start.
    pub(super) fn has_mmap(&self) -> bool {
        self.kinds.iter().any(|kind| matches!(kind.info().group, "mmap" | "syscalls"))
    }

    /// Switches the events on in the instance; events that the kernel lacks are named in the result.
    pub(super) fn enable(&self, instance: &Instance) -> Result<Enabled, RecordError> {
        let mut enabled = Enabled::default();
        for kind in &self.kinds {
            let row = kind.info();
            let folder = format!("events/{}/{}", row.group, row.name);
            let text = match instance.text(&format!("{folder}/format")) {
                Ok(text) => text,
                Err(cause) => {
                    enabled.missing.push(without(row, &cause));
                    continue;
                }
            };
            let format = match Format::parse(&text) {
                Ok(format) => format,
                Err(cause) => {
                    enabled.missing.push(without(row, &io::Error::other(cause)));
                    continue;
                }
            };
            let has_order = format.field("order").is_some() && row.group == "kmem";
            if self.orders == Orders::AboveZero && has_order {
                instance.set(&format!("{folder}/filter"), "order > 0", "cannot be filtered")?;
            }
            instance.set(&format!("{folder}/enable"), "1", "cannot be switched on")?;
            enabled.formats.push((text, format));
        }
        if self.orders == Orders::AboveZero {
            enabled.missing.push(
                "pages of order 0 were left out as asked: what is free is not known from the events, so no replay"
                    .to_owned(),
            );
        }
        if enabled.formats.is_empty() {
            return Err(RecordError::NothingToRecord(enabled.missing.join("; ")));
        }
        Ok(enabled)
    }
}

/// The result of switching events on.
#[derive(Debug, Default)]
pub(super) struct Enabled {
    /// The `format` files, as text and parsed.
    pub(super) formats: Vec<(String, Format)>,
    /// The events that could not be switched on, with the consequences, as sentences.
    pub(super) missing: Vec<String>,
}

fn no_such_event(name: &str) -> RecordError {
    let joined =
        |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>().join(", ");
    RecordError::NoSuchEvent {
        name: name.to_owned(),
        sets: joined(&mut PRESETS.iter().map(|preset| preset.name)),
        events: joined(
            &mut KINDS.iter().filter(|row| row.kind.is_tracepoint()).map(|row| row.name),
        ),
    }
}

fn without(row: &KindInfo, cause: &io::Error) -> String {
    format!("{}:{}: {cause}: {}", row.group, row.name, costs(row.kind))
}

/// Returns the knowledge that a recording lacks without the event, in words.
fn costs(kind: EventKind) -> &'static str {
    match kind {
        EventKind::PageAlloc | EventKind::PageFree => "no replay of pages is possible",
        EventKind::PageFreeBatched => "nothing is lost, each repeats an mm_page_free",
        EventKind::ExtFrag => "what the kernel's own fallbacks were is not known",
        EventKind::ZoneLocked | EventKind::PcpuDrain => "traffic of the buddies is not seen",
        EventKind::MigratePages => "where pages were moved to is not modelled",
        EventKind::CompactionIsolateMigratepages
        | EventKind::CompactionIsolateFreepages
        | EventKind::CompactionFastIsolateFreepages => {
            "from which frames compaction moved pages, and to which, is not seen"
        }
        EventKind::VmapAlloc | EventKind::VmapFree | EventKind::VmapPurge => {
            "vmalloc space cannot be replayed"
        }
        EventKind::UnmappedArea => "address spaces cannot be replayed",
        EventKind::Munmap => {
            "unmappings are not seen (the kernel was built without syscall tracing)"
        }
        EventKind::Mmap => {
            "what protection and file a mapping has is not seen (the kernel was built without syscall tracing)"
        }
        EventKind::ExitMmap => "the end of an address space is not seen",
        EventKind::WakeupKswapd
        | EventKind::KswapdWake
        | EventKind::KswapdSleep
        | EventKind::DirectReclaimBegin
        | EventKind::DirectReclaimEnd => "reclaim is not compared",
        _ => "compaction is not compared in full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_has(names: &[&str], kind: EventKind, expected: bool) {
        let selection = Selection::parse(names.iter().copied()).unwrap();
        assert_eq!(selection.kinds.contains(&kind), expected, "{names:?} {kind:?}");
    }

    #[test]
    fn sets_and_names_add_up() {
        assert_eq!(Selection::parse(["pages"]).unwrap(), Selection::default());
        check_has(&["pages"], EventKind::PageAlloc, true);
        check_has(&["pages"], EventKind::PageFreeBatched, false);
        check_has(&["pages"], EventKind::CompactionIsolateMigratepages, true);
        check_has(&["rare"], EventKind::CompactionIsolateFreepages, true);
        check_has(&["pages"], EventKind::CompactionFastIsolateFreepages, true);
        check_has(&["pages"], EventKind::PcpuDrain, false);
        check_has(&["pages", "buddy"], EventKind::PcpuDrain, true);
        check_has(&["all"], EventKind::PageFreeBatched, false);
        check_has(&["all", "mm_page_free_batched"], EventKind::PageFreeBatched, true);
        check_has(&["all"], EventKind::Munmap, true);
        check_has(&["all", "vmalloc"], EventKind::Lost, false);
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_names() {
        for name in ["", "page", "lost", "bulk_page"] {
            let error = Selection::parse([name]).unwrap_err().to_string();
            assert!(error.contains("sets: pages, buddy, vmalloc, mmap, all"), "{error}");
            assert!(error.contains("mm_page_alloc, mm_page_free"), "{error}");
        }
    }
}
