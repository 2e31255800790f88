//! Before anything is timed: is a contestant right, and does it place where it promises to?
//!
//! A plain list of areas, walked from the top, knows the highest place of every request; every area handed out must lie
//! in the window and overlap no other. A contestant that promises the highest place must give it every time.

use super::plan::{AreaSizes, AreasPlan};
use super::spaces::{AreaSpace, Found, WINDOW};
use crate::contest::{Effort, Outcome};
use crate::record::Measure;
use crate::trace::Replacement;
use std::collections::BTreeMap;

/// Place that a contestant promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    Highest,
    Any,
}

/// Areas that are mapped during the check.
const LIVE: u32 = 1000;

pub const WORKLOAD: &str = "1000 areas of each of the sizes, against a list; then all unmapped";

/// Areas by first page, with their ends: too simple to be wrong.
#[derive(Debug, Default)]
struct List(BTreeMap<u64, u64>);

impl List {
    /// Returns the highest place of `pages` pages.
    fn highest(&self, pages: u64) -> Option<u64> {
        let mut top = WINDOW.end();
        for (&start, &end) in self.0.iter().rev() {
            if top - end >= pages {
                return Some(top - pages);
            }
            top = start;
        }
        top.checked_sub(pages).filter(|&start| start >= WINDOW.start())
    }

    /// Notes a new area, unless it is wrong.
    fn add(&mut self, start: u64, pages: u64) -> Result<(), String> {
        let end = start + pages;
        if start < WINDOW.start() || end > WINDOW.end() {
            return Err(format!("wrong: {pages} pages at {start:#x} lie outside the window"));
        }
        let below = self.0.range(..end).next_back();
        if below.is_some_and(|(_, &below)| below > start) {
            return Err(format!("wrong: {pages} pages at {start:#x} overlap others"));
        }
        self.0.insert(start, end);
        Ok(())
    }
}

struct Observed<S> {
    space: S,
    list: List,
    promise: Promise,
    placed: u64,
    highest: u64,
}

impl<S: AreaSpace> Observed<S> {
    fn map(&mut self, pages: u32) -> Result<u64, String> {
        let pages = u64::from(pages);
        let highest = self.list.highest(pages);
        let start = self.space.map(pages).ok_or("wrong: refuses a request in a roomy space")?;
        self.list.add(start, pages)?;
        self.placed += 1;
        if highest == Some(start) {
            self.highest += 1;
        } else if self.promise == Promise::Highest {
            let highest = highest.unwrap_or_default();
            return Err(format!("wrong: {pages} pages at {start:#x}, {highest:#x} is higher"));
        }
        self.check_found(start, Some(start))?;
        self.check_found(start + pages - 1, Some(start))?;
        Ok(start)
    }

    fn unmap(&mut self, start: u64, pages: u32) -> Result<(), String> {
        self.list.0.remove(&start);
        if !self.space.unmap(start, u64::from(pages)) {
            return Err("wrong: refuses to unmap".to_owned());
        }
        self.check_found(start, None)
    }

    fn check_found(&self, at: u64, expected: Option<u64>) -> Result<(), String> {
        match self.space.find(at) {
            Found::Unsupported => Ok(()),
            found if found == Found::from(expected) => Ok(()),
            found => Err(format!("wrong: {found:?} at {at:#x}, not {expected:?}")),
        }
    }

    /// Maps, replaces and unmaps areas.
    fn run(&mut self, plan: &AreasPlan) -> Result<(), String> {
        let mut live = Vec::with_capacity(plan.live());
        for &pages in &plan.build {
            live.push((self.map(pages)?, pages));
        }
        for &Replacement { slot, size } in plan.cycles.iter().chain(&plan.singles) {
            let (start, pages) = live[slot as usize];
            self.unmap(start, pages)?;
            live[slot as usize] = (self.map(size)?, size);
        }
        live.into_iter().try_for_each(|(start, pages)| self.unmap(start, pages))
    }
}

/// Checks one contestant against the list.
pub fn run<S: AreaSpace>(make: &impl Fn() -> S, promise: Promise, seed: u64) -> Outcome {
    let list = List::default();
    let mut observed = Observed { space: make(), list, promise, placed: 0, highest: 0 };
    let effort = Effort { replacements: 2 * LIVE as usize, ..Effort::quick() };
    for sizes in AreaSizes::ALL {
        observed.run(&AreasPlan::new(seed, sizes, LIVE, &effort))?;
    }
    let highest = observed.highest as f64 / observed.placed as f64 * 100.0;
    let is_whole = observed.space.map(WINDOW.len()) == Some(WINDOW.start());
    let samples = vec![
        (Measure::Disjoint, 1.0),
        (Measure::HighestPercent, highest),
        (Measure::WholeAgain, f64::from(u8::from(is_whole))),
    ];
    Ok(samples.into())
}
