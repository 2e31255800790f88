//! Kernels without events of areas: their list before and after requests.
//!
//! Up to Linux 6.8 there are no pools, and a list tells all on which a search depends, but for the shape of the tree.
//! Since 5.16 that does not matter to areas that are aligned to one page. So each *turn* begins anew: the model gets
//! the areas of a list, makes the requests of the turn in their order, and must then have the areas of the next list.
//! Between the two the program frees nothing, so what the kernel purges meanwhile, and when, does not matter either.
//!
//! From 5.2 to 5.15 a search for whole pages asks for one page more, but a hole of exactly the size serves if the way
//! through the tree comes by it (docs/sources/vmap.md#length-rule). The kernel's tree has a history that no list tells,
//! the model's has the order of addresses. So the areas that came have a say there, and nowhere else: if the kernel
//! left a hole of exactly the size free into which the model would put a request, the model is asked again without the
//! hole; and if it then finds none of the areas that came, the request gets an equal hole below, in which one came.
//!
//! A turn in which others placed or freed areas, too, is left out and counted: sizes and lazy areas tell.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nofrag::cpu::{CpuId, CpuSet};
use nofrag::ranges::{AlignRule, Index, Span};
use nofrag::units::Vpn;
use nofrag::vmap::{AreaState, Guard, VmapConfig, VmapPolicy, VmapSpace};
use nofrag_host::region::{self, Facts, Name, State};
use nofrag_host::{addresses, vmallocinfo};

use crate::spaces::{self, PAGE};

/// Bytes of a page, which is what the areas of the turns are aligned to.
const PAGE_BYTES: u64 = 1 << PAGE;

/// Requests of a program, and the lists between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// The kernel's release.
    pub(super) release: String,
    /// `VmallocTotal` in bytes.
    pub(super) total: u64,
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The text of `/proc/vmallocinfo`.
    List(String),
    /// Sizes of the areas that were asked for, in pages, guards included.
    Take(Vec<u64>),
}

impl Lists {
    /// Writes a file: the kernel's own lines, and between them lines that begin with `@`.
    pub(super) fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        const LEVEL: i32 = 9;
        let mut text = format!("@release {}\n@total {}\n", self.release, self.total);
        for entry in &self.entries {
            match entry {
                Entry::List(list) => text += &format!("@list\n{list}"),
                Entry::Take(sizes) => {
                    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
                    let _ = writeln!(text, "@take {}", sizes.join(" "));
                }
            }
        }
        zstd::bulk::compress(text.as_bytes(), LEVEL)
    }

    /// Reads a file.
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Lists, String> {
        let text = zstd::decode_all(bytes).map_err(|why| why.to_string())?;
        let text = String::from_utf8(text).map_err(|why| why.to_string())?;
        let mut lists = Lists::default();
        for (number, line) in (1..).zip(text.lines()) {
            let number_of = |word: &str| word.parse().map_err(|_| format!("line {number}: {word}"));
            match line.strip_prefix('@').map(|line| line.split_once(' ').unwrap_or((line, ""))) {
                None => match lists.entries.last_mut() {
                    Some(Entry::List(list)) => *list += &format!("{line}\n"),
                    _ => return Err(format!("line {number} is of no list")),
                },
                Some(("release", release)) => release.clone_into(&mut lists.release),
                Some(("total", total)) => lists.total = number_of(total)?,
                Some(("list", "")) => lists.entries.push(Entry::List(String::new())),
                Some(("take", sizes)) => {
                    let sizes = sizes.split_whitespace().map(number_of).collect::<Result<_, _>>();
                    lists.entries.push(Entry::Take(sizes?));
                }
                Some(_) => return Err(format!("line {number}: {line}")),
            }
        }
        Ok(lists)
    }
}

/// The areas of a list, in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listing {
    span: Span,
    busy: BTreeSet<Span>,
    lazy: BTreeSet<Span>,
}

impl Listing {
    fn of(text: &str, total: u64) -> Result<Listing, String> {
        let areas = vmallocinfo::parse(text.as_bytes()).areas;
        if addresses::judge(&areas) != addresses::Addresses::Real {
            return Err("the addresses of the areas are not real ones".to_owned());
        }
        let facts = Facts {
            arch: Some("x86_64"),
            version: None,
            vmalloc_total: Some(total),
            page_bytes: Some(PAGE_BYTES),
        };
        let regions = region::regions(&areas, &facts);
        let region = regions.into_iter().find(|region| region.name == Name::Vmalloc);
        let region = region.ok_or("no area of vmalloc is listed")?;
        let pages = |span: Span| {
            Span::new(span.start() >> PAGE, span.end() >> PAGE).expect("areas are of whole pages")
        };
        let in_state = |state: State| {
            let areas = region.areas.iter().filter(move |area| area.state == state);
            areas.map(|area| pages(area.span)).collect()
        };
        let (busy, lazy) = (in_state(State::Live), in_state(State::Lazy));
        Ok(Listing { span: pages(region.span), busy, lazy })
    }

    fn lazy_pages(&self) -> u64 {
        self.lazy.iter().map(|span| span.len()).sum()
    }
}

/// The outcome of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// All areas are explained.
    Same(Placed),
    /// Others placed or freed areas.
    Disturbed,
    /// In words.
    Different(String),
}

/// Numbers of areas of turns, by who knew where the kernel put them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Placed {
    /// The model.
    pub(super) alone: u64,
    /// The model, once it passed by holes of exactly the size that the kernel left free.
    pub(super) told: u64,
    /// The list: they came in holes of exactly their size that the model does not come by.
    pub(super) taken: u64,
}

impl Placed {
    /// Returns the number of areas that the model's search puts where the kernel did.
    pub(super) fn searched(self) -> u64 {
        self.alone + self.told
    }

    pub(super) fn plus(self, other: Placed) -> Placed {
        Placed {
            alone: self.alone + other.alone,
            told: self.told + other.told,
            taken: self.taken + other.taken,
        }
    }

    pub(super) fn areas(self) -> u64 {
        self.alone + self.told + self.taken
    }
}

/// Lists that were compared with the model.
#[derive(Clone, Debug, Default)]
pub(super) struct Compared {
    pub(super) placed: Placed,
    pub(super) turns: u64,
    /// Turns that were left out, as others placed or freed areas.
    pub(super) disturbed: u64,
    /// Times that the number of lazy pages fell between two lists.
    pub(super) purges: u64,
    /// Of each turn that differs, the first area that does.
    pub(super) differences: Vec<String>,
    /// Time of the model alone.
    pub(super) took: Duration,
}

/// Compares lists with the model.
pub(super) fn compare(lists: &Lists, policy: VmapPolicy) -> Result<Compared, String> {
    let mut compared = Compared::default();
    let mut before: Option<Listing> = None;
    let mut taken: &[u64] = &[];
    for entry in &lists.entries {
        let text = match entry {
            Entry::Take(sizes) => {
                taken = sizes;
                continue;
            }
            Entry::List(text) => text,
        };
        let after = Listing::of(text, lists.total)?;
        if let Some(before) = &before {
            compared.purges += u64::from(after.lazy_pages() < before.lazy_pages());
        }
        if let (Some(before), false) = (&before, taken.is_empty()) {
            compared.turns += 1;
            let begin = Instant::now();
            let outcome = turn(before, taken, &after, policy)?;
            compared.took += begin.elapsed();
            match outcome {
                Outcome::Same(placed) => compared.placed = compared.placed.plus(placed),
                Outcome::Disturbed => compared.disturbed += 1,
                Outcome::Different(how) => {
                    compared.differences.push(format!("turn {}: {how}", compared.turns));
                }
            }
        }
        (before, taken) = (Some(after), &[]);
    }
    Ok(compared)
}

/// Makes the requests of a turn in a space with the areas of `before`.
fn turn(
    before: &Listing,
    taken: &[u64],
    after: &Listing,
    policy: VmapPolicy,
) -> Result<Outcome, String> {
    /// 166 were enough for each of 662 turns.
    const TRIES: usize = 1_000;
    let sizes = |spans: &mut dyn Iterator<Item = u64>| {
        let mut sizes: Vec<u64> = spans.collect();
        sizes.sort_unstable();
        sizes
    };
    let come: BTreeSet<Span> = after.busy.difference(&before.busy).copied().collect();
    let alone = before.busy.is_subset(&after.busy)
        && before.lazy == after.lazy
        && sizes(&mut come.iter().map(|span| span.len())) == sizes(&mut taken.iter().copied());
    if !alone {
        return Ok(Outcome::Disturbed);
    }
    // For each request the number of its place among those that it may have: a wrong one shows some requests later.
    let mut choices = Vec::new();
    let mut furthest = (0, String::new());
    for _ in 0..TRIES {
        let mut model = Model::load(before, come.clone(), policy)?;
        let Some((at, how)) = model.refuses(taken, &mut choices)? else {
            return Ok(Outcome::Same(model.placed));
        };
        if furthest.0 <= at {
            furthest = (at, how);
        }
        choices.truncate(at);
        match choices.last_mut() {
            Some(last) if model.is_by_chance => *last += 1,
            _ => break,
        }
    }
    Ok(Outcome::Different(furthest.1))
}

/// The space at a request of a turn.
struct Model {
    space: VmapSpace,
    cpu: CpuId,
    /// True where a hole of exactly the size is found by chance.
    is_by_chance: bool,
    /// Areas that came and are no request's yet.
    left: BTreeSet<Span>,
    placed: Placed,
}

impl Model {
    fn load(before: &Listing, left: BTreeSet<Span>, policy: VmapPolicy) -> Result<Model, String> {
        // Without pools it does not matter which CPU asks.
        let cpus = CpuSet::first(1).map_err(|why| why.to_string())?;
        let config = VmapConfig { span: before.span, cpus, policy };
        let space = VmapSpace::new(config, (), ()).map_err(|why| why.to_string())?;
        let cpu = space.cpus().by_rank(0).expect("there is a CPU");
        for (spans, state) in [(&before.busy, AreaState::Busy), (&before.lazy, AreaState::Lazy)] {
            for &span in spans {
                space.load_area(cpu, span, Guard::None, state).map_err(|why| why.to_string())?;
            }
        }
        let is_by_chance = policy.index == Index::AugmentedTree(AlignRule::Padded);
        Ok(Model { space, cpu, is_by_chance, left, placed: Placed::default() })
    }

    /// Makes requests, and `choices` of places for those that have none yet; returns the first that has no place where
    /// an area came, and in words where the model puts it.
    fn refuses(
        &mut self,
        requests: &[u64],
        choices: &mut Vec<usize>,
    ) -> Result<Option<(usize, String)>, String> {
        for (at, &pages) in requests.iter().enumerate() {
            if choices.len() == at {
                choices.push(0);
            }
            if let Err(model) = self.place(pages, choices[at])? {
                return Ok(Some((at, told(at + 1, pages, model, &self.left))));
            }
        }
        Ok(None)
    }

    /// Makes a request; of the places where an area came it gets the one with the number `choice`, those that the model
    /// finds first. Returns the model's place for it if there is no such one.
    fn place(&mut self, pages: u64, mut choice: usize) -> Result<Result<(), Option<Span>>, String> {
        let request = spaces::request(pages, PAGE_BYTES, self.space.span());
        let holes = self.space.holes().map_err(|why| why.to_string())?;
        let is_exact = |span: &Span| self.is_by_chance && holes.binary_search(span).is_ok();
        let mut passed = BTreeSet::new();
        let found = loop {
            let Ok(area) = self.space.alloc(self.cpu, &request) else { break None };
            let span = area.span();
            if self.left.contains(&span) {
                if choice == 0 {
                    break Some(span);
                }
                choice -= 1;
            }
            passed.insert(span);
            if !is_exact(&span) {
                break None;
            }
        };
        let place = found.or_else(|| {
            // The last one that was passed by is the lowest of the larger holes.
            let below = holes.iter().take_while(|hole| Some(*hole) < passed.last());
            let came = |hole: &&Span| hole.len() == pages && self.left.contains(hole);
            let mut others = below.filter(came).filter(|hole| !passed.contains(hole));
            others.nth(choice).copied().filter(|_| self.is_by_chance)
        });
        for span in &passed {
            self.space.cancel(Vpn(span.start())).map_err(|why| why.to_string())?;
        }
        let Some(place) = place else { return Ok(Err(passed.first().copied())) };
        self.left.remove(&place);
        match (found, passed.is_empty()) {
            (Some(_), true) => self.placed.alone += 1,
            (Some(_), false) => self.placed.told += 1,
            (None, _) => {
                let loaded = self.space.load_area(self.cpu, place, Guard::None, AreaState::Busy);
                loaded.map_err(|why| why.to_string())?;
                self.placed.taken += 1;
            }
        }
        Ok(Ok(()))
    }
}

/// Describes the first request that the model serves elsewhere.
fn told(number: usize, pages: u64, model: Option<Span>, left: &BTreeSet<Span>) -> String {
    let hex = |span: Span| format!("{:#x}-{:#x}", span.start() << PAGE, span.end() << PAGE);
    let kernel = left.iter().find(|span| span.len() == pages).copied();
    let [kernel, model] = [kernel, model].map(|span| span.map_or("nowhere".to_owned(), hex));
    format!(
        "request {number}, {pages} pages: the model places at {model}, the kernel at {kernel} or above"
    )
}
