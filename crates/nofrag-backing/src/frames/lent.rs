//! Blocks that other processes see: such a block is held and stays where it is, whatever this process says of it.

use nofrag::page::FrameState;
use nofrag::units::Pfn;

use super::word::Word;
use super::{FrameBlock, Frames, Use, UseError};

impl Frames {
    /// From now on other processes may see a block: it is neither handed out again nor moved before
    /// [`end_lending`](Self::end_lending).
    pub(crate) fn lend(&self, pfn: Pfn) -> Result<FrameBlock, UseError> {
        let home = self.home(pfn)?;
        // A move begins under this lock, and only of what may be moved; see `set_use`.
        let pool = self.shards[home].lock();
        let is_free = |word: Word| word.is_none() || word.is_zombie();
        let word = self.words.get(pfn.0);
        let known = pool.known_as(pfn);
        let stays = match pool.pages.frame(known) {
            Some((FrameState::Used, head, order)) => {
                head == known && !word.is_none() && order == word.order()
            }
            _ => false,
        };
        let lend = |word: Word| match is_free(word) || word.used_for() != Some(Use::Pinned) {
            true => None,
            false => word.exported().filter(|_| stays),
        };
        match self.words.change(pfn.0, lend) {
            Ok(word) => Ok(FrameBlock { pfn, order: word.order() }),
            Err(word) if is_free(word) => Err(self.why_not(&pool.pages, pfn).into()),
            Err(word) if word.is_exported() => Err(UseError::Exported),
            Err(word) if word.used_for() != Some(Use::Pinned) || !stays => {
                Err(UseError::Movable(pfn))
            }
            Err(_) => Err(UseError::TooManyHolds),
        }
    }

    /// No other process sees the block any more. If it was given back meanwhile, it is free now.
    pub(crate) fn end_lending(&self, pfn: Pfn) {
        let ended = self.words.change(pfn.0, |word| {
            let word = word.unexported()?;
            Some(if word.is_zombie() && word.holds() == 0 { Word::NONE } else { word })
        });
        let word = ended.expect("who ends it has begun it, and it has not moved");
        if word.is_zombie() && word.holds() == 1 {
            self.give(self.stranger, pfn);
        }
    }
    /// The block that begins at `pfn`, if other processes see it.
    pub(crate) fn lent(&self, pfn: Pfn) -> Option<FrameBlock> {
        let word = self.words.get(pfn.0);
        word.is_exported().then(|| FrameBlock { pfn, order: word.order() })
    }
}
