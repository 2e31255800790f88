//! A set of numbers as sorted runs: too simple to be wrong, and slow.

use nofrag::ranges::Span;

/// Numbers as maximal runs by ascending address; two runs never touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    runs: Vec<Span>,
}

impl Runs {
    /// Returns the runs by ascending address.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Span> + ExactSizeIterator + '_ {
        self.runs.iter().copied()
    }

    /// Returns the count of numbers in the set.
    pub(crate) fn total(&self) -> u64 {
        self.iter().map(Span::len).sum()
    }

    /// Returns the length of the longest run; zero if there is none.
    pub(crate) fn longest(&self) -> u64 {
        self.iter().map(Span::len).max().unwrap_or(0)
    }

    /// Returns the index of the first run that ends above the start of `span`.
    fn first_at(&self, span: Span) -> usize {
        self.runs.partition_point(|run| run.end() <= span.start())
    }

    /// Returns the run that holds every number of `span`.
    pub(crate) fn around(&self, span: Span) -> Option<Span> {
        self.runs.get(self.first_at(span)).filter(|run| run.covers(span)).copied()
    }

    /// Returns true if every number of `span` is in the set.
    pub(crate) fn covers(&self, span: Span) -> bool {
        self.around(span).is_some()
    }

    /// Returns true if any number of `span` is in the set.
    pub(crate) fn meets(&self, span: Span) -> bool {
        self.runs.get(self.first_at(span)).is_some_and(|run| run.start() < span.end())
    }

    /// Adds `span`, no number of which is in the set.
    pub(crate) fn add(&mut self, span: Span) {
        assert!(!self.meets(span), "the model was given {span:?} twice");
        let at = self.first_at(span);
        let before = at.checked_sub(1).filter(|&at| self.runs[at].end() == span.start());
        let after = self.runs.get(at).filter(|run| run.start() == span.end());
        let start = before.map_or(span.start(), |at| self.runs[at].start());
        let end = after.map_or(span.end(), |run| run.end());
        let joined = before.unwrap_or(at)..at + usize::from(after.is_some());
        self.runs.splice(joined, Span::new(start, end));
    }

    /// Removes `span`, all of which is in the set.
    pub(crate) fn remove(&mut self, span: Span) {
        let run = self.around(span);
        let run = run.unwrap_or_else(|| panic!("the model does not hold {span:?}"));
        let at = self.first_at(span);
        self.runs.splice(at..=at, outside(run, span));
    }
}

/// Returns the parts of `span` that lie below and above `other`.
pub(crate) fn outside(span: Span, other: Span) -> impl Iterator<Item = Span> {
    let below = Span::new(span.start(), span.end().min(other.start()));
    let above = Span::new(span.start().max(other.end()), span.end());
    [below, above].into_iter().flatten()
}
