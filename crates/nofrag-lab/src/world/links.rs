//! Linked lists of frames: each frame is on at most one list of a set, and leaves it in O(1).

use super::contents::FrameNumber;

const NONE: FrameNumber = FrameNumber::MAX;

/// The links of all frames for one set of lists.
#[derive(Debug)]
pub(crate) struct Links {
    /// For each frame its older and younger neighbour, and the number of its list.
    frames: Vec<([FrameNumber; 2], u16)>,
    lists: Vec<List>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    oldest: FrameNumber,
    youngest: FrameNumber,
    len: u64,
}

/// The list number of a frame that is on no list.
const NOWHERE: u16 = u16::MAX;

impl Links {
    /// Creates `lists` empty lists for `frames` frames.
    pub(crate) fn new(frames: usize, lists: usize) -> Links {
        assert!(lists < usize::from(NOWHERE), "a list is numbered by two bytes");
        let empty = List { oldest: NONE, youngest: NONE, len: 0 };
        Links { frames: vec![([NONE; 2], NOWHERE); frames], lists: vec![empty; lists] }
    }

    /// Returns the frame that has been on a list for longest.
    pub(crate) fn oldest(&self, list: usize) -> Option<FrameNumber> {
        let oldest = self.lists[list].oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// Returns the number of frames on a list.
    pub(crate) fn len(&self, list: usize) -> u64 {
        self.lists[list].len
    }

    /// Returns the list that a frame is on.
    pub(crate) fn list_of(&self, frame: FrameNumber) -> Option<usize> {
        let list = self.frames[frame as usize].1;
        (list != NOWHERE).then_some(usize::from(list))
    }

    /// Appends a frame that is on no list to one, as its youngest.
    pub(crate) fn push(&mut self, list: usize, frame: FrameNumber) {
        assert_eq!(self.frames[frame as usize].1, NOWHERE, "a frame is on one list");
        let before = self.lists[list].youngest;
        self.frames[frame as usize] = ([before, NONE], list as u16);
        match before {
            NONE => self.lists[list].oldest = frame,
            _ => self.frames[before as usize].0[1] = frame,
        }
        self.lists[list].youngest = frame;
        self.lists[list].len += 1;
    }

    /// Takes a frame off its list; returns the list, or `None` if the frame was on none.
    pub(crate) fn remove(&mut self, frame: FrameNumber) -> Option<usize> {
        let ([older, younger], list) = self.frames[frame as usize];
        if list == NOWHERE {
            return None;
        }
        let ends = &mut self.lists[usize::from(list)];
        ends.len -= 1;
        if younger == NONE {
            ends.youngest = older;
        }
        if older == NONE {
            ends.oldest = younger;
        }
        if younger != NONE {
            self.frames[younger as usize].0[0] = older;
        }
        if older != NONE {
            self.frames[older as usize].0[1] = younger;
        }
        self.frames[frame as usize] = ([NONE; 2], NOWHERE);
        Some(usize::from(list))
    }

    /// Returns the frames of a list, the oldest first.
    pub(crate) fn frames(&self, list: usize) -> impl Iterator<Item = FrameNumber> {
        let after = move |frame: &FrameNumber| {
            let younger = self.frames[*frame as usize].0[1];
            (younger != NONE).then_some(younger)
        };
        std::iter::successors(self.oldest(list), after)
    }

    /// Puts frame `to`, which is on no list, in the place of `from`; does nothing if that is on none either.
    pub(crate) fn replace(&mut self, from: FrameNumber, to: FrameNumber) {
        let entry @ ([older, younger], list) = self.frames[from as usize];
        if list == NOWHERE {
            return;
        }
        assert_eq!(self.frames[to as usize].1, NOWHERE, "a frame is on one list");
        self.frames[to as usize] = entry;
        self.frames[from as usize] = ([NONE; 2], NOWHERE);
        let ends = &mut self.lists[usize::from(list)];
        if younger == NONE {
            ends.youngest = to;
        } else {
            self.frames[younger as usize].0[0] = to;
        }
        if older == NONE {
            self.lists[usize::from(list)].oldest = to;
        } else {
            self.frames[older as usize].0[1] = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(links: &Links, list: usize, frames: &[FrameNumber]) {
        let found: Vec<FrameNumber> = links.frames(list).collect();
        assert!(found.iter().all(|&frame| links.list_of(frame) == Some(list)));
        assert_eq!(found, frames);
        assert_eq!(links.len(list), frames.len() as u64);
        assert_eq!(links.lists[list].youngest, frames.last().copied().unwrap_or(NONE));
    }

    #[test]
    fn frames_leave_from_anywhere_and_are_replaced_in_place() {
        let mut links = Links::new(8, 2);
        [3, 1, 4, 0].into_iter().for_each(|frame| links.push(1, frame));
        links.push(0, 5);
        check(&links, 1, &[3, 1, 4, 0]);
        assert_eq!(links.remove(1), Some(1));
        assert_eq!(links.remove(1), None);
        check(&links, 1, &[3, 4, 0]);
        links.replace(4, 7);
        links.replace(3, 2);
        links.replace(0, 6);
        check(&links, 1, &[2, 7, 6]);
        links.replace(1, 0);
        check(&links, 1, &[2, 7, 6]);
        [2, 6, 7].into_iter().for_each(|frame| assert_eq!(links.remove(frame), Some(1)));
        check(&links, 1, &[]);
        check(&links, 0, &[5]);
    }
}
