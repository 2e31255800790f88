//! Areas that never merge, replaced at random: the work of a search that only its index helps.
//!
//! The program and its generator are those by which the historical rules are compared elsewhere in the project, number
//! by number; a rule of Linux that looks at another number of areas here than there is wrong.

use super::spaces::{AreaSpace, GapTree, Nofrag};
use super::{AreaContestant, AreaEntry, GAP_TREE, LINUX_TREE, OURS};
use crate::contest::{Outcome, Stop};
use crate::record::Measure;
use nofrag::mmap::{Layout, Placement};
use nofrag::ranges::Span;
use nofrag::units::Vpn;

/// Replacements of which the steps are counted.
const COUNTED: usize = 5_000;

pub const FIRST_FIT: &str = "nofrag FirstFit (2.4)";

pub const CACHED_HOLE_SIZE: &str = "nofrag CachedHoleSize (2.6.13)";

pub const AREAS: [usize; 2] = [1_000, 10_000];

/// Returns the name of the workload.
#[must_use]
pub fn workload(areas: usize) -> String {
    format!("unmergeable mix: {areas} areas of 1..4 pages, replaced at random")
}

/// Downward searches begin here, in a process without a stack above.
const TOP: u64 = 0x7_ffff_7ffd;

/// Makes the contestants whose searches count their steps: two that walk areas upwards, three that search an index of
/// gaps.
#[must_use]
pub fn contestants() -> Vec<Box<dyn AreaContestant>> {
    let up = |placement| move || Nofrag::within(Layout::X86_64_LEGACY, placement);
    let down = |placement| {
        let layout = Layout { top: Vpn(TOP), ..Layout::X86_64 };
        move || Nofrag::within(layout, placement)
    };
    let window = Span::new(Layout::X86_64.floor.0, TOP).expect("the floor lies below the top");
    vec![
        Box::new(AreaEntry::new(FIRST_FIT, up(Placement::FirstFit))),
        Box::new(AreaEntry::new(CACHED_HOLE_SIZE, up(Placement::CachedHoleSize))),
        Box::new(AreaEntry::new(LINUX_TREE, move || GapTree::new(window))),
        Box::new(AreaEntry::new(GAP_TREE, down(Placement::GapTree))),
        Box::new(AreaEntry::new(OURS, down(Placement::TwoEnded))),
    ]
}

/// The generator of the program: a xorshift of 64 bits.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pages(&mut self) -> u64 {
        1 + self.next() % 4
    }
}

/// Runs the program on `areas` areas and counts the steps of each search.
pub fn run<S: AreaSpace>(make: &impl Fn() -> S, areas: usize) -> Outcome {
    let mut space = make();
    let mut draws = Draws(88_172_645_463_325_252);
    let mut live = Vec::with_capacity(areas);
    for after in 0..areas {
        let pages = draws.pages();
        live.push((space.map(pages).ok_or(Stop::Refused { after })?, pages));
    }
    let (mut sum, mut most) = (0, 0);
    for done in 0..3 * areas + COUNTED {
        let area = &mut live[draws.below(areas)];
        if !space.unmap(area.0, area.1) {
            return Err(Stop::FreeRefused.into());
        }
        let pages = draws.pages();
        let before = space.steps().unwrap_or_default();
        *area = (space.map(pages).ok_or(Stop::Refused { after: done })?, pages);
        if done >= 3 * areas {
            let steps = space.steps().unwrap_or_default() - before;
            sum += steps;
            most = steps.max(most);
        }
    }
    let average = sum as f64 / COUNTED as f64;
    let samples = vec![(Measure::StepsPerSearch, average), (Measure::MostSteps, most as f64)];
    Ok(samples.into())
}
