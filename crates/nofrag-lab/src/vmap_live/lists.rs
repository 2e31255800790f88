//! Kernels without events of areas: their list before and after requests.
//!
//! Up to Linux 6.8 there are no pools, and a list tells all on which a search depends, but for the shape of the tree.
//! Since 5.16 that does not matter to areas that are aligned to one page. So each *turn* begins anew: the model gets
//! the areas of a list, makes the requests of the turn in their order, and must then have the areas of the next list.
//! Between the two the program frees nothing, so what the kernel purges meanwhile, and when, does not matter either.
//!
//! From 5.2 to 5.15 a search for whole pages asks for one page more, but a hole of exactly the size serves if the way
//! through the tree comes by it (docs/sources/vmap.md#length-rule). Each request must be placed in the lowest hole that
//! is larger than it, or in an equal one below: which, the areas that came must tell.
//!
//! A turn in which others placed or freed areas, too, is left out and counted: sizes and lazy areas tell.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nofrag::cpu::CpuSet;
use nofrag::ranges::{AlignRule, Index, Span};
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
    /// This number of areas lies in holes of exactly their size, to which the shape of the tree led.
    Same(u64),
    /// Others placed or freed areas.
    Disturbed,
    /// In words.
    Different(String),
}

/// Lists that were compared with the model.
#[derive(Clone, Debug, Default)]
pub(super) struct Compared {
    /// Areas that the model placed where the kernel did.
    pub(super) equal: u64,
    /// Areas in holes of exactly their size, where the shape of the tree decides about those.
    pub(super) exact: u64,
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
                Outcome::Same(exact) => {
                    compared.equal += taken.len() as u64 - exact;
                    compared.exact += exact;
                }
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
    if policy.index == Index::AugmentedTree(AlignRule::Padded) {
        return Ok(match padded(before, taken, come) {
            Ok(exact) => Outcome::Same(exact),
            Err(number) => Outcome::Different(format!("no order explains request {number}")),
        });
    }
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
    let mut left = come;
    for (number, &pages) in (1..).zip(taken) {
        let request = spaces::request(pages, PAGE_BYTES, before.span);
        let model = space.alloc(cpu, &request).ok().map(|area| area.span());
        if !model.is_some_and(|model| left.remove(&model)) {
            return Ok(Outcome::Different(told(number, pages, model, &left)));
        }
    }
    Ok(Outcome::Same(0))
}

fn span(start: u64, end: u64) -> Span {
    Span::new(start, end).expect("it ends above its start")
}

/// A part of a turn under the padded rule.
#[derive(Clone, Debug)]
struct Placed {
    /// Number of requests that have a place.
    made: usize,
    /// By address.
    holes: Vec<Span>,
    /// Areas that came and are no request's yet.
    left: BTreeSet<Span>,
    exact: u64,
}

impl Placed {
    /// Returns the positions of the holes that may serve a request: the lowest that is larger, and the lowest equal one
    /// below it; each only if such an area came.
    fn choices(&self, pages: u64) -> [Option<usize>; 2] {
        let fits = |hole: &Span| self.left.contains(&span(hole.start(), hole.start() + pages));
        let larger = self.holes.iter().position(|hole| hole.len() > pages);
        let below = &self.holes[..larger.unwrap_or(self.holes.len())];
        let equal = below.iter().position(|hole| hole.len() == pages && fits(hole));
        [larger.filter(|&at| fits(&self.holes[at])), equal]
    }

    /// Places a request at the start of a hole.
    fn place(mut self, at: usize, pages: u64) -> Placed {
        let hole = self.holes[at];
        let end = hole.start() + pages;
        self.left.remove(&span(hole.start(), end));
        if hole.len() == pages {
            self.holes.remove(at);
            self.exact += 1;
        } else {
            self.holes[at] = span(end, hole.end());
        }
        Placed { made: self.made + 1, ..self }
    }
}

/// Looks for places of all requests under the padded rule; returns the number of those in holes of exactly their size,
/// or the number of the first request that none of the tries could place.
fn padded(before: &Listing, taken: &[u64], come: BTreeSet<Span>) -> Result<u64, usize> {
    /// A choice that was wrong shows some requests later; 11 tries were enough for each of 662 turns.
    const TRIES: usize = 10_000;
    let mut holes = Vec::new();
    let mut at = before.span.start();
    let listed: BTreeSet<&Span> = before.busy.iter().chain(&before.lazy).collect();
    for span in listed {
        holes.extend(Span::new(at, span.start()));
        at = at.max(span.end());
    }
    holes.extend(Span::new(at, before.span.end()));
    let mut open = vec![Placed { made: 0, holes, left: come, exact: 0 }];
    let mut furthest = 0;
    for _ in 0..TRIES {
        let Some(mut placed) = open.pop() else { break };
        while let Some(&pages) = taken.get(placed.made) {
            let mut choices = placed.choices(pages).into_iter().flatten();
            let (Some(first), second) = (choices.next(), choices.next()) else { break };
            open.extend(second.map(|at| placed.clone().place(at, pages)));
            placed = placed.place(first, pages);
        }
        furthest = furthest.max(placed.made);
        if placed.made == taken.len() {
            return Ok(placed.exact);
        }
    }
    Err(furthest + 1)
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
