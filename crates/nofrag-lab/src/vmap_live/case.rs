//! A recording of areas: those of its start, and the changes of areas since, in the order of time.

use std::fmt;

use foldhash::{HashMap, HashSet, HashSetExt};
use nofrag::ranges::Span;
use nofrag::vmap::AreaState;
use nofrag_host::trace::{Event, Loss, Moment, TakenSnapshot, Trace, View};
use thiserror::Error;

use crate::spaces::{self, NoAreas, PAGE};

/// An area of a list, in pages, guard included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    pub(super) span: Span,
    pub(super) lazy: bool,
}

/// A change that the kernel reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An area of `pages` pages was placed at page `at`.
    Alloc { at: u64, pages: u64, align_bytes: u64, window: Span },
    /// The area at page `at` became lazy, and with it this number of pages was.
    Free { at: u64, lazy: u64 },
    /// This number of lazy areas, which lie in the range, was flushed and given back.
    Purge { hull: Span, areas: u32 },
}

/// A change with the CPU and the thread that reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) cpu: u16,
    pub(super) thread: i32,
    pub(super) change: Change,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { cpu, thread, change } = *self;
        write!(f, "thread {thread} on CPU {cpu} ")?;
        match change {
            Change::Alloc { pages, align_bytes, .. } => {
                write!(f, "takes {pages} pages, aligned to {align_bytes:#x} bytes")
            }
            Change::Free { at, .. } => write!(f, "frees the area at {:#x}", at << 12),
            Change::Purge { areas, .. } => write!(f, "purges {areas} areas"),
        }
    }
}

/// A recording of areas.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The kernel's release.
    pub(super) release: String,
    /// Number of CPUs that the kernel may have.
    pub(super) cpus: u32,
    /// The space that is compared: requests for others, such as that of modules, are left out.
    pub(super) space: Span,
    pub(super) start: Vec<Listed>,
    pub(super) steps: Vec<Step>,
    /// Requests in other spaces.
    pub(super) elsewhere: u64,
    /// The list after the last step, by address.
    pub(super) end: Option<Vec<Listed>>,
}

/// The reason why a recording cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Unusable {
    #[error("the kernel lost {0} events")]
    Lost(u64),
    #[error("the recording cannot be read: {0}")]
    Unread(String),
    #[error("it has no list of the areas at the start")]
    NoStart,
    #[error("the addresses of the areas at the start are not real ones")]
    Hashed,
    #[error("areas were purged while the list of the start was read")]
    PurgedAtStart,
    #[error("it has no event of an area")]
    NoAreas,
}

impl Case {
    /// Reads a recording of the events of vmalloc, with the addresses of areas at its start.
    pub(super) fn of(mut trace: Trace) -> Result<Case, Unusable> {
        let mut events = Vec::new();
        while trace.events.read(&mut events).map_err(|why| Unusable::Unread(why.to_string()))? {}
        let Loss { events: lost, gaps, unreadable, .. } = trace.events.loss();
        if lost + gaps + unreadable > 0 {
            return Err(Unusable::Lost(lost.max(gaps + unreadable)));
        }
        let meta = &trace.meta;
        let taken = meta.start().ok_or(Unusable::NoStart)?;
        let start = areas_of(taken)?;
        let read_until = match taken.moment {
            Moment::During { end, .. } => end,
            Moment::Before | Moment::After => 0,
        };
        let space = busiest_window(&events).ok_or(Unusable::NoAreas)?;
        let inside = |listed: &Listed| space.covers(listed.span);
        let mut case = Case {
            release: meta.release.clone().unwrap_or_default(),
            cpus: meta.cpus.iter().copied().max().map_or(1, |highest| u32::from(highest) + 1),
            space,
            start: start.into_iter().filter(inside).collect(),
            steps: Vec::new(),
            elsewhere: 0,
            end: meta.end().and_then(|taken| areas_of(taken).ok()),
        };
        if let Some(end) = &mut case.end {
            end.retain(inside);
            end.sort_unstable();
        }
        case.take(&events, read_until)?;
        Ok(case)
    }

    /// Takes the events; those before `read_until` may be in the list of the start already.
    fn take(&mut self, events: &[Event], read_until: u64) -> Result<(), Unusable> {
        let listed = self.start.iter().map(|area| (area.span.start(), *area));
        let listed: HashMap<u64, Listed> = listed.collect();
        let mut unlisted = HashSet::new();
        for event in events {
            let change = match event.view() {
                View::VmapAlloc { addr, size, align, start, end, failed: false } => {
                    let Ok(window) = Span::new(start >> PAGE, (end >> PAGE) + 1) else { continue };
                    if !self.space.covers(window) {
                        self.elsewhere += 1;
                        continue;
                    }
                    Change::Alloc {
                        at: addr >> PAGE,
                        pages: size >> PAGE,
                        align_bytes: align,
                        window,
                    }
                }
                View::VmapFree { start, lazy, .. } => {
                    let at = start >> PAGE;
                    if !self.space.contains(at) {
                        continue;
                    }
                    Change::Free { at, lazy }
                }
                View::VmapPurge { start, end, purged } => {
                    let hull = Span::new(start >> PAGE, end >> PAGE);
                    let Ok(hull) = hull else { continue };
                    Change::Purge { hull, areas: purged }
                }
                _ => continue,
            };
            if event.at < read_until && is_listed(&change, &listed, &mut unlisted)? {
                continue;
            }
            self.steps.push(Step { cpu: event.cpu, thread: event.pid, change });
        }
        Ok(())
    }
}

/// Returns true if the list, which was read while events came, shows what the change left. `unlisted` are the areas
/// that were placed since and that it does not show.
fn is_listed(
    change: &Change,
    listed: &HashMap<u64, Listed>,
    unlisted: &mut HashSet<u64>,
) -> Result<bool, Unusable> {
    match change {
        Change::Alloc { at, .. } => Ok(listed.contains_key(at) || !unlisted.insert(*at)),
        Change::Free { at, .. } if unlisted.remove(at) => Ok(false),
        Change::Free { at, .. } => Ok(listed.get(at).is_none_or(|area| area.lazy)),
        Change::Purge { .. } => Err(Unusable::PurgedAtStart),
    }
}

/// Returns the areas of a snapshot, in the order of the file.
fn areas_of(taken: &TakenSnapshot) -> Result<Vec<Listed>, Unusable> {
    let areas = spaces::areas_of(&taken.files).map_err(|why| match why {
        NoAreas::Unlisted => Unusable::NoStart,
        NoAreas::Hashed(_) => Unusable::Hashed,
    })?;
    let listed = |(span, state)| Listed { span, lazy: state == AreaState::Lazy };
    Ok(areas.into_iter().map(listed).collect())
}

/// Returns the window of the most requests.
fn busiest_window(events: &[Event]) -> Option<Span> {
    let mut windows: Vec<(Span, u64)> = Vec::new();
    for event in events {
        let View::VmapAlloc { start, end, .. } = event.view() else { continue };
        let Ok(window) = Span::new(start >> PAGE, (end >> PAGE) + 1) else { continue };
        match windows.iter_mut().find(|(known, _)| *known == window) {
            Some((_, requests)) => *requests += 1,
            None => windows.push((window, 1)),
        }
    }
    windows.into_iter().max_by_key(|(_, requests)| *requests).map(|(window, _)| window)
}
