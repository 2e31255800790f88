//! A set of numbers as sorted runs: too simple to be wrong, and slow.

use nofrag::ranges::Span;

/// Numbers as maximal runs by ascending address; two runs never touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    runs: Vec<Span>,
}

impl Runs {
    /// The runs by ascending address.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.runs.iter().copied()
    }

    /// How many numbers.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().map(Span::len).sum()
    }

    /// The length of the longest run; zero if there is none.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.iter().map(Span::len).max().unwrap_or(0)
    }

    /// Whether every number of `span` is in the set.
    #[must_use]
    pub fn covers(&self, span: Span) -> bool {
        self.iter().any(|run| run.covers(span))
    }

    /// Whether any number of `span` is in the set.
    #[must_use]
    pub fn meets(&self, span: Span) -> bool {
        self.iter().any(|run| run.intersection(span).is_some())
    }

    /// Adds `span`, no number of which is in the set.
    pub fn add(&mut self, span: Span) {
        assert!(!self.meets(span), "the model was given {span:?} twice");
        self.runs.push(span);
        self.runs.sort();
        let mut merged: Vec<Span> = Vec::new();
        for run in self.runs.drain(..) {
            match merged.last_mut() {
                Some(last) if last.end() == run.start() => {
                    *last = Span::new(last.start(), run.end()).expect("both parts are not empty");
                }
                _ => merged.push(run),
            }
        }
        self.runs = merged;
    }

    /// Removes `span`, all of which is in the set.
    pub fn remove(&mut self, span: Span) {
        assert!(
            self.covers(span),
            "the model was asked to remove {span:?}, which it does not hold"
        );
        let whole = self.runs.iter().position(|run| run.covers(span)).expect("it is covered");
        let run = self.runs.remove(whole);
        let rest = [Span::new(run.start(), span.start()), Span::new(span.end(), run.end())];
        self.runs.extend(rest.into_iter().flatten());
        self.runs.sort();
    }
}

/// The parts of `span` that lie below and above `other`.
#[must_use]
pub fn outside(span: Span, other: Span) -> Vec<Span> {
    let below = Span::new(span.start(), span.end().min(other.start()));
    let above = Span::new(span.start().max(other.end()), span.end());
    [below, above].into_iter().flatten().collect()
}
