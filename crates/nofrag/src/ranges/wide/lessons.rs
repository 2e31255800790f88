//! Alignment classes that requests teach.
//!
//! Which alignments a program uses is known when it asks, not when it builds the space; and a class has its price, a
//! row of maxima in each block that every change keeps up. So the classes of the configuration are kept from the start,
//! and the others are learned, as far as four are not used up.
//!
//! A search for an alignment without class ends at *dead ends*, leaves with a hole that is large enough and none that
//! is aligned. They are a debt of that alignment. Once the debt is that of the inner blocks, the class is added: its
//! row of each inner block begins as a copy of the row of the largest holes, which allows too much and never too
//! little. Then each dead end that a search meets is computed exactly, and changes keep exact what is, so no leaf is a
//! dead end twice. Adding the class costs no more than the searches before it did, and
//! correcting a leaf as much as coming to it: no request takes longer for it than it did by itself, and all later ones
//! are O(log n).
//!
//! With four classes an alignment whose debt is that of all leaves takes the place of the learned class that has not
//! been used for longest. So five alignments in turn cost at most twice what they would cost without classes.
//!
//! A learned class never decides which place is taken, only how soon it is found: the same requests get the same
//! addresses.

use alloc::vec::Vec;

use super::entry::Note;
use super::leaf::saturated;
use super::row::LANE_MAX;
use super::search::Wish;
use super::tree::{Node, Tree};
use crate::lists::put_all;
use crate::ranges::{Counters, OutOfMetadata, Request, Span};

/// Dead ends of one search that are no reason to learn: it costs a change less to do without the class.
const FREE: u64 = 4;

/// The largest exponent that a class can have.
const MOST: usize = 30;

/// The debts of alignments, and when each was last a class of use.
#[derive(Debug, Default)]
pub(super) struct Lessons {
    /// By exponent; empty before the first lesson, as most spaces need none.
    alignments: Vec<Alignment>,
    /// Number of lessons so far.
    now: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Alignment {
    /// Dead ends that it met.
    debt: u32,
    /// The lesson in which it was last of use.
    used: u32,
}

impl Lessons {
    /// Notes that a class guides a search.
    #[inline]
    pub(super) fn note_use<N: Note>(&mut self, tree: &Tree<N>, class: Option<usize>) {
        if let Some(class) = class {
            let exponent = usize::from(tree.classes.exponents()[class]);
            if let Some(alignment) = self.alignments.get_mut(exponent) {
                alignment.used = self.now;
            }
        }
    }

    /// Learns from a search that met dead ends in `searched`; none if it found its place at once.
    #[cold]
    pub(super) fn after<N: Note>(
        &mut self,
        tree: &mut Tree<N>,
        request: &Request,
        dead_ends: u64,
        searched: Option<Span>,
    ) {
        let exponent = request.align.trailing_zeros() as usize;
        if !(1..=MOST).contains(&exponent) || saturated(request.size) == LANE_MAX {
            return;
        }
        if self.alignments.is_empty() && self.begin().is_err() {
            return; // Without memory nothing is learned.
        }
        self.now = self.now.wrapping_add(1);
        let own = |&class: &u8| usize::from(class) == exponent;
        let is_useful = match tree.classes.exponents().iter().position(own) {
            Some(class) => tree.is_learned(class),
            None => self.pays(tree, exponent, dead_ends),
        };
        if !is_useful {
            return;
        }
        self.alignments[exponent].used = self.now;
        if let Some(searched) = searched {
            tree.correct(&Wish::new(&request.within(searched), tree), searched);
        }
    }

    #[cold]
    fn begin(&mut self) -> Result<(), OutOfMetadata> {
        self.alignments.try_reserve_exact(MOST + 1)?;
        put_all(&mut self.alignments, (0..=MOST).map(|_| Alignment::default()));
        Ok(())
    }

    /// Notes the dead ends of an alignment without class. Returns true if it has a class from now on.
    fn pays<N: Note>(&mut self, tree: &mut Tree<N>, exponent: usize, dead_ends: u64) -> bool {
        let Alignment { debt, .. } = &mut self.alignments[exponent];
        *debt = debt.saturating_add(dead_ends.saturating_sub(FREE).min(u64::from(u32::MAX)) as u32);
        let inners = tree.inners.in_use();
        let is_full = tree.classes.exponents().len() == 4;
        let price = if is_full { tree.leaves.in_use() + inners } else { inners };
        if *debt == 0 || (*debt as usize) < price {
            return false;
        }
        if is_full {
            let exponents = tree.classes.exponents();
            let learned = (0..exponents.len()).filter(|&class| tree.is_learned(class));
            let used = |class: usize| self.alignments[usize::from(exponents[class])].used;
            let age = |&class: &usize| self.now.wrapping_sub(used(class));
            let Some(oldest) = learned.max_by_key(age) else { return false };
            tree.unlearn(oldest);
        }
        self.alignments[exponent].debt = 0;
        tree.learn(exponent as u8).is_ok()
    }
}

impl<N: Note> Tree<N> {
    /// Returns true if this class was learned, so that its maxima may be larger than what fits.
    #[inline]
    pub(super) fn is_learned(&self, class: usize) -> bool {
        self.learned >> class & 1 == 1
    }

    /// Returns the next class from `class` downwards that is not learned.
    pub(super) fn given_class(&self, class: Option<usize>) -> Option<usize> {
        (0..=class?).rev().find(|&class| !self.is_learned(class))
    }

    /// Adds a class that allows the largest hole below each child.
    fn learn(&mut self, exponent: u8) -> Result<(), OutOfMetadata> {
        let (classes, class) = self.classes.with(exponent).ok_or(OutOfMetadata)?;
        self.inners.add_class(class)?;
        self.classes = classes;
        let below = (1 << class) - 1;
        self.learned = self.learned & below | 1 << class | (self.learned & !below) << 1;
        self.top.aligned[class..].rotate_right(1);
        self.top.aligned[class] = self.top.lane;
        if self.height == 0 {
            self.refresh(Node { level: 0, number: self.root });
        }
        Ok(())
    }

    /// Gives a learned class up.
    fn unlearn(&mut self, class: usize) {
        self.inners.remove_class(class);
        self.classes = self.classes.without(class);
        let below = (1 << class) - 1;
        self.learned = self.learned & below | self.learned >> 1 & !below;
        self.top.aligned[class..].rotate_left(1);
        self.top.aligned[3] = 0;
    }

    /// Computes the maxima of those leaves in `searched` that promise a place for the wish.
    fn correct(&mut self, wish: &Wish, searched: Span) {
        let mut uncounted = Counters::default();
        let Some(first) = self.locate(searched.start()) else { return };
        let mut next = Some(first.leaf);
        while let Some(leaf) = next.filter(|&leaf| self.leaves.start(leaf, 0) < searched.end()) {
            self.refresh(Node { level: 0, number: leaf });
            next = self.next_promising(leaf, wish, &mut uncounted);
        }
    }
}
