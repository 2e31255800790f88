//! The documented cost of the operations, each on its worst input: instructions are counted at two sizes, and must not
//! grow faster than the documentation says, the growth of lists left out. docs/complexity.md has the table of all of
//! them.
//!
//! ```text
//! cargo test -p nofrag-backing --test it complexity -- --ignored
//! NOFRAG_COMPLEXITY=write cargo test -p nofrag-backing --test it complexity::the_page
//! ```

mod arena;
mod mmap;
mod page;
mod ranges;
mod steps;
mod vmap;

use std::fmt;
use std::path::Path;

/// The growth of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    Constant,
    Logarithmic,
    Linear,
    Linearithmic,
}

impl Cost {
    /// The two sizes at which instructions are counted. To step through a linear walk over 1e5 would take minutes.
    fn sizes(self) -> [u64; 2] {
        match self {
            // Beyond what bounded searches look at anyhow, such as 256 leaves of an index.
            Cost::Constant | Cost::Logarithmic => [10_000, 100_000],
            Cost::Linear | Cost::Linearithmic => [50, 250],
        }
    }

    /// Returns true if instructions that have grown from `few` to `many` have grown as the cost says. Some hundred are
    /// the same at any size.
    fn holds(self, few: u64, many: u64) -> bool {
        match self {
            Cost::Constant => many <= few + few / 4 + 100,
            // log(1e5) / log(1e4) is 5/4, and one level of a tree more.
            Cost::Logarithmic => many <= few + few * 3 / 4 + 200,
            // Five times as many, and not fewer: then the documentation would say too much.
            Cost::Linear => many <= 7 * few && many >= 2 * few,
            Cost::Linearithmic => many <= 9 * few && many >= 2 * few,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cost::Constant => "O(1)",
            Cost::Logarithmic => "O(log n)",
            Cost::Linear => "O(n)",
            Cost::Linearithmic => "O(n log n)",
        })
    }
}

/// An operation, its worst input, and how its cost grows.
struct Operation {
    name: &'static str,
    input: &'static str,
    cost: Cost,
    /// Returns the instructions of the operation on that input of a size.
    count: fn(u64) -> u64,
}

const fn operation(
    name: &'static str,
    input: &'static str,
    cost: Cost,
    count: fn(u64) -> u64,
) -> Operation {
    Operation { name, input, cost, count }
}

/// The operations of one module, and what their n counts.
struct Chapter {
    name: &'static str,
    counted: &'static str,
    operations: &'static [Operation],
}

const CHAPTERS: [Chapter; 5] =
    [ranges::CHAPTER, mmap::CHAPTER, vmap::CHAPTER, page::CHAPTER, arena::CHAPTER];

fn check(chapter: &Chapter) {
    let mut broken = Vec::new();
    for &Operation { name, input, cost, count } in chapter.operations {
        // The room of a list that happens to grow is paid for by all the operations that fill it, so of a few sizes the
        // one counts at which none grows.
        let (mut few, mut many) = (u64::MAX, u64::MAX);
        for more in [0, 7, 30] {
            let [small, large] = cost.sizes().map(|n| count(n + more));
            (few, many) = (few.min(small), many.min(large));
            if cost.holds(few, many) {
                break;
            }
        }
        println!("{name}, {input}: {cost}, {few} and {many} instructions");
        if !cost.holds(few, many) {
            broken.push(format!("{name}, {input}: {few} and {many} are not {cost}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
#[ignore = "minutes: every instruction is a stop for the parent"]
fn ranges_cost_what_their_documentation_says() {
    check(&ranges::CHAPTER);
}

#[test]
#[ignore = "minutes: every instruction is a stop for the parent"]
fn address_spaces_cost_what_their_documentation_says() {
    check(&mmap::CHAPTER);
}

#[test]
#[ignore = "minutes: every instruction is a stop for the parent"]
fn virtual_areas_cost_what_their_documentation_says() {
    check(&vmap::CHAPTER);
}

#[test]
#[ignore = "minutes: every instruction is a stop for the parent"]
fn page_frames_cost_what_their_documentation_says() {
    check(&page::CHAPTER);
}

#[test]
#[ignore = "minutes: every instruction is a stop for the parent"]
fn arenas_cost_what_their_documentation_says() {
    check(&arena::CHAPTER);
}

#[test]
fn growth_is_told_apart() {
    assert!(Cost::Constant.holds(500, 700) && !Cost::Constant.holds(500, 800));
    assert!(Cost::Logarithmic.holds(900, 1_500) && !Cost::Logarithmic.holds(900, 2_000));
    assert!(Cost::Linear.holds(9_000, 45_000) && !Cost::Linear.holds(9_000, 225_000));
    assert!(!Cost::Linear.holds(9_000, 9_500), "it is not linear at all");
    let [few, many] = [100, 1_000].map(|rounds| {
        steps::instructions(|| (0..rounds).fold(1_u64, |sum, at| std::hint::black_box(sum ^ at)))
    });
    assert!(many > 5 * few && many < 12 * few, "{few} and {many}");
}

/// The page in docs/ has the table that the operations above make. A package has no such page.
#[test]
fn the_page_has_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/complexity.md");
    let Ok(text) = std::fs::read_to_string(&page) else { return };
    let (begin, end) = ("<!-- operations -->\n", "<!-- /operations -->\n");
    let (before, rest) = text.split_once(begin).expect("the table has a beginning");
    let (found, after) = rest.split_once(end).expect("the table has an end");
    let table = table();
    if std::env::var_os("NOFRAG_COMPLEXITY").is_some_and(|what| what == "write") {
        std::fs::write(page, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(found, table, "rewrite it: the command stands at the head of this file");
}

fn table() -> String {
    let mut table = String::new();
    for Chapter { name, counted, operations } in CHAPTERS {
        table += &format!(
            "\n## `{name}`\n\nn is {counted}.\n\n| operation | worst input | cost |\n|---|---|---|\n"
        );
        for Operation { name, input, cost, .. } in operations {
            table += &format!("| `{name}` | {input} | {cost} |\n");
        }
    }
    table + "\n"
}
