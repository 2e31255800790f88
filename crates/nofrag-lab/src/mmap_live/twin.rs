//! The kernel and the model side by side.
//!
//! Every operation is done in the model first. The model's outcome becomes the expectation with which the operation is
//! sent to a [`Probe`], a batch at a time; while the kernel works on one batch, the model makes the next. After each
//! batch the kernel's list of areas is read and compared with the model's at that moment.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::apparatus::probe::{
    Difference, Errno, Kind, MapAt, Operation, Outcome, Probe, ProbeError, Step, Width,
};
use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Direction, FixedError, MapError, MapFlags, Placement,
    ProtectError, Protection, SpaceConfig, UnmapError, WindowChoice,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, Vpn};
use nofrag_host::proc_maps::{Area, MapKind};
use serde::Deserialize;
use thiserror::Error;

use super::catalogue::Layout;
use super::kernel::Kernel;

/// Number of steps in a batch, and so of operations from one comparison of whole lists to the next.
pub(super) const BATCH: usize = 1000;

/// Bytes of a page, as a shift.
const PAGE: u32 = 12;

/// Address width and direction of search, the same in kernel and model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Layout")]
pub(super) struct Setting {
    pub(super) width: Width,
    pub(super) direction: Direction,
}

/// The reason why a comparison ended early.
#[derive(Debug, Error)]
pub(super) enum Trouble {
    /// The comparison cannot be made here.
    #[error("{0}")]
    Skipped(String),
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    #[error("{0}")]
    Broken(String),
}

impl From<ProbeError> for Trouble {
    fn from(error: ProbeError) -> Trouble {
        match error {
            ProbeError::Unavailable { .. } => Trouble::Skipped(error.to_string()),
            other => Trouble::Broken(other.to_string()),
        }
    }
}

/// The first disagreement of kernel and model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// The operation's number, from 1.
    pub(super) operation: u64,
    /// The request; `None` where only the lists of areas differ.
    pub(super) request: Option<Operation>,
    /// The answers of the kernel, and below, of the model.
    pub(super) kernel: String,
    pub(super) model: String,
    /// Number of the process's areas at that moment.
    pub(super) areas: usize,
    pub(super) around: BTreeSet<(u64, u64)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}, ", self.operation)?;
        match self.request {
            Some(request) => write!(f, "{}: ", shown(&request))?,
            None => write!(f, "lists of areas: ")?,
        }
        write!(f, "the kernel says {}, the model {}; ", self.kernel, self.model)?;
        write!(f, "there are {} areas, around:", self.areas)?;
        self.around.iter().try_for_each(|(start, end)| write!(f, " {start:x}-{end:x}"))
    }
}

/// An area as kernel and model are compared: first page, page behind the last, protection.
type Entry = (u64, u64, Protection);

/// A batch that the kernel works on.
struct InFlight {
    steps: Vec<Step>,
    /// Number of operations before it.
    before: u64,
    /// The model's areas after it.
    areas: Vec<Entry>,
}

/// Numbers of compared operations and lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Operations, each with its outcome.
    pub(super) operations: u64,
    /// Operations that left the place to the kernel.
    pub(super) placements: u64,
    pub(super) lists: u64,
    /// Areas in the longest list.
    pub(super) most_areas: usize,
    /// Operations that the kernel refused, as the model foresaw.
    pub(super) refused: u64,
}

pub(super) struct Twin {
    probe: Probe,
    model: AddressSpace,
    map_limit: usize,
    /// Areas that the probe itself needs, in addresses.
    own: Vec<Span>,
    steps: Vec<Step>,
    in_flight: Option<InFlight>,
    compared: Compared,
    began: Instant,
    /// Time spent on comparing, not on the model.
    comparing: Duration,
}

/// The numbers of comparisons, and the time of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) compared: Compared,
    /// Processor time of the probe.
    pub(super) kernel: Option<Duration>,
    /// Time of the model, drawing of operations included.
    pub(super) model: Duration,
}

impl Twin {
    /// Starts a probe and loads its first areas into a model with the kernel's rules.
    pub(super) fn start(setting: Setting, kernel: &Kernel) -> Result<Twin, Trouble> {
        Twin::with_rules(setting, kernel.rules.placement, kernel.map_limit)
    }

    /// Starts a probe, and a model with rules that may be wrong: with such, tests see that a difference is noticed.
    pub(super) fn with_rules(
        setting: Setting,
        placement: Placement,
        map_limit: usize,
    ) -> Result<Twin, Trouble> {
        let probe = Probe::start(setting.width, setting.direction)?;
        let config = SpaceConfig { map_limit, ..SpaceConfig::new(*probe.layout(), placement) };
        let mut model = AddressSpace::new(config);
        for line in probe.own() {
            let pages = PageCount((line.end - line.start) >> PAGE);
            let loaded = model.load(Vpn(line.start >> PAGE), pages, attributes_of(line));
            loaded.map_err(|why| Trouble::Broken(format!("{line:?} cannot be loaded: {why}")))?;
        }
        let spans = probe.own().iter().map(|line| Span::new(line.start, line.end));
        let own = spans.collect::<Result<_, _>>().expect("no line of maps is empty");
        let steps = Vec::with_capacity(BATCH);
        let (compared, began, comparing) = (Compared::default(), Instant::now(), Duration::ZERO);
        let in_flight = None;
        Ok(Twin { probe, model, map_limit, own, steps, in_flight, compared, began, comparing })
    }

    /// Returns true if an address of this range belongs to an area that the probe itself needs.
    pub(super) fn is_own(&self, start: u64, end: u64) -> bool {
        self.own.iter().any(|own| own.start() < end && start < own.end())
    }

    pub(super) fn model(&self) -> &AddressSpace {
        &self.model
    }

    /// Returns the number of operations so far, those that are not compared yet included.
    pub(super) fn operations(&self) -> u64 {
        let in_flight = self.in_flight.as_ref().map_or(0, |batch| batch.steps.len());
        self.compared.operations + (in_flight + self.steps.len()) as u64
    }

    /// Maps `bytes` bytes; returns the address, or `None` if the kernel must refuse.
    pub(super) fn map(
        &mut self,
        at: MapAt,
        kind: Kind,
        bytes: u64,
        protection: Protection,
    ) -> Result<Option<u64>, Trouble> {
        let pages = PageCount(bytes >> PAGE);
        let attributes = Attributes::anonymous(protection).with(AreaFlags::NO_RESERVE);
        let attributes = match kind {
            Kind::Plain => attributes,
            Kind::Stack => attributes.with(AreaFlags::GROWS_DOWN),
        };
        let expected = match at {
            MapAt::Anywhere => self.place(pages, attributes, None, WindowChoice::Usual)?,
            MapAt::Hint(hint) => self.place(pages, attributes, Some(hint), WindowChoice::Usual)?,
            MapAt::Low => self.place(pages, attributes, None, WindowChoice::Low)?,
            MapAt::Above4G => self.place(pages, attributes, None, WindowChoice::Above4G)?,
            MapAt::Fixed(start) => {
                fixed(start, self.model.map_fixed(Vpn(start >> PAGE), pages, attributes))?
            }
            MapAt::Unless(start) => {
                fixed(start, self.model.map_fixed_noreplace(Vpn(start >> PAGE), pages, attributes))?
            }
        };
        self.push(Operation::Map { at, kind, bytes, protection }, expected)?;
        Ok(expected.ok())
    }

    fn place(
        &mut self,
        pages: PageCount,
        attributes: Attributes,
        hint: Option<u64>,
        window: WindowChoice,
    ) -> Result<Outcome, Trouble> {
        let flags = MapFlags { window, ..MapFlags::default() };
        // A hint goes down to its page, in both layouts, and up to the lowest page that may be mapped.
        let hint = hint.map(|hint| hint >> PAGE).filter(|&page| page > 0);
        let hint = hint.map(|page| Vpn(page.max(self.model.layout().floor.0)));
        match self.model.map(pages, attributes, hint, flags) {
            Ok(start) => Ok(Ok(start.0 << PAGE)),
            Err(MapError::NoPlace { .. } | MapError::TooManyAreas { .. } | MapError::TooLong) => {
                Ok(Err(Errno::NOMEM))
            }
            Err(other) => Err(Trouble::Broken(other.to_string())),
        }
    }

    /// Unmaps `bytes` bytes; returns whether the kernel does, which it may refuse at the limit of areas.
    pub(super) fn unmap(&mut self, start: u64, bytes: u64) -> Result<bool, Trouble> {
        let expected = match self.model.unmap(Vpn(start >> PAGE), PageCount(bytes >> PAGE)) {
            Ok(()) => Ok(0),
            Err(UnmapError::TooManyAreas { .. }) => Err(Errno::NOMEM),
            Err(UnmapError::Outside) => Err(Errno::INVAL),
            Err(other) => return Err(Trouble::Broken(other.to_string())),
        };
        self.push(Operation::Unmap { start, bytes }, expected)?;
        Ok(expected.is_ok())
    }

    /// Changes the protection of `bytes` bytes, unless the areas are so many that a split could be refused: then Linux
    /// may leave one of two splits behind, where the model changes nothing.
    pub(super) fn protect(
        &mut self,
        start: u64,
        bytes: u64,
        protection: Protection,
    ) -> Result<(), Trouble> {
        if self.model.area_count() + 2 > self.map_limit {
            return Ok(());
        }
        let pages = PageCount(bytes >> PAGE);
        let expected = match self.model.protect(Vpn(start >> PAGE), pages, protection) {
            Ok(()) => Ok(0),
            Err(ProtectError::OutOfMetadata) => {
                return Err(Trouble::Broken("out of memory".to_owned()));
            }
            Err(_) => Err(Errno::NOMEM),
        };
        self.push(Operation::Protect { start, bytes, protection }, expected)
    }

    fn push(&mut self, operation: Operation, expected: Outcome) -> Result<(), Trouble> {
        self.compared.refused += u64::from(expected.is_err());
        self.steps.push(Step { operation, expected });
        if self.steps.len() < BATCH {
            return Ok(());
        }
        let begin = Instant::now();
        let outcome = self.dispatch();
        self.comparing += begin.elapsed();
        outcome
    }

    /// Compares the batch that the kernel has worked on, and sends it the next one.
    fn dispatch(&mut self) -> Result<(), Trouble> {
        self.settle()?;
        if self.steps.is_empty() {
            return Ok(());
        }
        let steps = std::mem::replace(&mut self.steps, Vec::with_capacity(BATCH));
        self.probe.send(&steps)?;
        let areas = self.model.areas();
        let areas = areas.map(|area| (area.start.0, area.end().0, area.attributes.protection));
        let areas = areas.collect();
        self.in_flight = Some(InFlight { steps, before: self.compared.operations, areas });
        Ok(())
    }

    /// Waits for the batch that the kernel works on, and compares outcomes and lists.
    fn settle(&mut self) -> Result<(), Trouble> {
        let Some(batch) = self.in_flight.take() else { return Ok(()) };
        let difference = self.probe.receive()?;
        let areas = self.probe.areas().map_err(|why| Trouble::Broken(why.to_string()))?;
        if let Some(difference) = difference {
            return Err(Trouble::Mismatch(Box::new(of_outcome(&batch, difference, &areas))));
        }
        let placements = batch.steps.iter().filter(|step| is_placement(&step.operation)).count();
        self.compared.operations += batch.steps.len() as u64;
        self.compared.placements += placements as u64;
        self.compared.lists += 1;
        self.compared.most_areas = self.compared.most_areas.max(areas.len());
        match of_lists(&batch, &areas) {
            Some(mismatch) => Err(Trouble::Mismatch(Box::new(mismatch))),
            None => Ok(()),
        }
    }

    /// Compares the remaining batches, and returns the numbers of comparisons and the times.
    pub(super) fn finish(&mut self) -> Result<Finished, Trouble> {
        let model = self.began.elapsed().saturating_sub(self.comparing);
        self.dispatch()?;
        self.settle()?;
        let kernel = self.probe.processor_time();
        Ok(Finished { compared: self.compared, kernel, model })
    }

    /// Returns the kernel's areas except for the probe's own, once no batch is under way.
    pub(super) fn kernel_areas(&mut self) -> Result<Vec<Area>, Trouble> {
        self.dispatch()?;
        self.settle()?;
        let areas = self.probe.areas().map_err(|why| Trouble::Broken(why.to_string()))?;
        Ok(areas.into_iter().filter(|area| !self.is_own(area.start, area.end)).collect())
    }
}

/// Returns true if the kernel chooses the address.
fn is_placement(operation: &Operation) -> bool {
    let Operation::Map { at, .. } = operation else { return false };
    !matches!(at, MapAt::Fixed(_) | MapAt::Unless(_))
}

/// Returns attributes for an area that the probe had from its start: with them it never merges.
fn attributes_of(line: &Area) -> Attributes {
    let flags = AreaFlags::OPAQUE;
    let flags =
        if line.kind() == MapKind::Stack { flags.with(AreaFlags::GROWS_DOWN) } else { flags };
    Attributes::anonymous(Protection(line.access.0)).with(flags)
}

fn fixed(start: u64, result: Result<(), FixedError>) -> Result<Outcome, Trouble> {
    match result {
        Ok(()) => Ok(Ok(start)),
        Err(FixedError::Taken { .. }) => Ok(Err(Errno::EXIST)),
        Err(FixedError::Outside | FixedError::TooManyAreas { .. }) => Ok(Err(Errno::NOMEM)),
        Err(other) => Err(Trouble::Broken(other.to_string())),
    }
}

/// Number of areas on each side of an address that a report shows.
const NEIGHBOURS: usize = 3;

fn around(areas: &[Area], address: u64) -> impl Iterator<Item = (u64, u64)> {
    let at = areas.partition_point(|area| area.end <= address);
    let near = areas[at.saturating_sub(NEIGHBOURS)..].iter().take(2 * NEIGHBOURS + 1);
    near.map(|area| (area.start, area.end))
}

fn of_outcome(batch: &InFlight, difference: Difference, areas: &[Area]) -> Mismatch {
    let step = batch.steps[difference.step];
    let places = match step.operation {
        Operation::Map { .. } => [difference.outcome, step.expected],
        Operation::Unmap { start, bytes } | Operation::Protect { start, bytes, .. } => {
            [Ok(start), Ok(start + bytes)]
        }
    };
    let near = places.into_iter().flatten().flat_map(|address| around(areas, address)).collect();
    Mismatch {
        operation: batch.before + difference.step as u64 + 1,
        request: Some(step.operation),
        kernel: outcome(difference.outcome),
        model: outcome(step.expected),
        areas: areas.len(),
        around: near,
    }
}

/// Returns the first place where the lists of kernel and model differ; `None` if they agree.
fn of_lists(batch: &InFlight, areas: &[Area]) -> Option<Mismatch> {
    let entry = |line: &Area| (line.start >> PAGE, line.end >> PAGE, Protection(line.access.0));
    let kernel: Vec<Entry> = areas.iter().map(entry).collect();
    if kernel == batch.areas {
        return None;
    }
    let at = kernel.iter().zip(&batch.areas).take_while(|(kernel, model)| kernel == model).count();
    let show = |entry: Option<&Entry>| match entry {
        Some((start, end, Protection(bits))) => {
            format!("{:x}-{:x} allowing {bits}", start << PAGE, end << PAGE)
        }
        None => "no area".to_owned(),
    };
    let address = kernel.get(at).or(batch.areas.get(at)).map_or(0, |(start, ..)| start << PAGE);
    Some(Mismatch {
        operation: batch.before + batch.steps.len() as u64,
        request: None,
        kernel: show(kernel.get(at)),
        model: show(batch.areas.get(at)),
        areas: areas.len(),
        around: around(areas, address).collect(),
    })
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Ok(address) => format!("{address:#x}"),
        Err(errno) => errno.to_string(),
    }
}

/// Shows an operation as people read it.
fn shown(operation: &Operation) -> String {
    match *operation {
        Operation::Map { at, kind, bytes, protection } => {
            let place = match at {
                MapAt::Anywhere => "anywhere".to_owned(),
                MapAt::Hint(hint) => format!("near {hint:#x}"),
                MapAt::Low => "below 2 GiB".to_owned(),
                MapAt::Above4G => "above 4 GiB".to_owned(),
                MapAt::Fixed(start) => format!("at {start:#x}"),
                MapAt::Unless(start) => format!("at {start:#x} if free"),
            };
            let what = match kind {
                Kind::Plain => "",
                Kind::Stack => " of stack",
            };
            format!("map {bytes:#x} bytes{what} {place} allowing {}", protection.0)
        }
        Operation::Unmap { start, bytes } => format!("unmap {bytes:#x} bytes from {start:#x}"),
        Operation::Protect { start, bytes, protection } => {
            format!("allow {} for {bytes:#x} bytes from {start:#x}", protection.0)
        }
    }
}
