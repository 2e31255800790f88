//! What each frame holds, and the order in which page cache was used.
//!
//! A node has one list by age, and reclaim takes the oldest page, whether it was read or not. A page comes in as the
//! youngest. With two lists, the second read in memory makes it the youngest again; with generations, reads change
//! nothing. The list is kept in parts, one per zone, and each entry has a serial number. The oldest of a node is then
//! the oldest of its zones, and a demand for low zones alone does not wade through the pages of high ones.

use nofrag::page::ZoneId;

/// A frame's number.
pub(crate) type FrameNumber = u32;

const NONE: u32 = u32::MAX;
const KIND_SHIFT: u32 = 29;
const REFERENCED: u32 = 1 << 28;
const DIRTY: u32 = 1 << 27;
const VALUE: u32 = DIRTY - 1;

/// What begins at a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Nothing of ours.
    Nothing,
    /// A page of a file, by its number among all pages of files.
    Cache(u32),
    /// A slab, by its number.
    Slab(u32),
    /// A short-lived unmovable block.
    Transient,
    /// A page of a process, by its place in the process.
    Process(u32),
}

/// What is known of a frame: sixteen bytes.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// [`Holds`] with the bits of page cache.
    word: u32,
    /// Neighbours on the list of the zone: older, younger.
    older: u32,
    younger: u32,
    /// When it was put on the list.
    serial: u32,
}

/// The part of an LRU that lies in one zone.
#[derive(Clone, Copy, Debug)]
struct Part {
    zone: ZoneId,
    node: u8,
    /// The frame behind the zone's last one.
    end: FrameNumber,
    oldest: u32,
    youngest: u32,
    len: u32,
}

/// A zone as the LRU has to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LruZone {
    pub(crate) zone: ZoneId,
    pub(crate) node: u8,
    /// The frame behind its last one; zones follow each other from frame 0 on.
    pub(crate) end: FrameNumber,
}

/// What each frame holds, and the LRU lists.
#[derive(Debug)]
pub(crate) struct Lru {
    frames: Vec<Frame>,
    parts: Vec<Part>,
    next_serial: u32,
}

impl Lru {
    pub(crate) fn new(zones: &[LruZone]) -> Lru {
        let empty = Frame { word: 0, older: NONE, younger: NONE, serial: 0 };
        let frames = zones.last().map_or(0, |zone| zone.end as usize);
        let part = |&LruZone { zone, node, end }: &LruZone| Part {
            zone,
            node,
            end,
            oldest: NONE,
            youngest: NONE,
            len: 0,
        };
        Lru { frames: vec![empty; frames], parts: zones.iter().map(part).collect(), next_serial: 0 }
    }

    /// How many frames there are.
    #[cfg(test)]
    pub(crate) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn holds(&self, frame: FrameNumber) -> Holds {
        let word = self.frames[frame as usize].word;
        let value = word & VALUE;
        match word >> KIND_SHIFT {
            0 => Holds::Nothing,
            1 => Holds::Cache(value),
            2 => Holds::Slab(value),
            3 => Holds::Transient,
            _ => Holds::Process(value),
        }
    }

    /// States what a frame holds; page cache comes by [`add`](Self::add).
    pub(crate) fn set(&mut self, frame: FrameNumber, holds: Holds) {
        let (kind, value) = match holds {
            Holds::Nothing => (0, 0),
            Holds::Cache(page) => (1, page),
            Holds::Slab(slab) => (2, slab),
            Holds::Transient => (3, 0),
            Holds::Process(place) => (4, place),
        };
        debug_assert!(value <= VALUE, "numbers of pages, slabs and places stay below 2^27");
        self.frames[frame as usize].word = kind << KIND_SHIFT | value;
    }

    fn part_of(&self, frame: FrameNumber) -> usize {
        let part = self.parts.iter().position(|part| frame < part.end);
        part.expect("the allocator hands out frames of its zones")
    }

    /// A page of a file comes into memory, as the youngest of its node.
    pub(crate) fn add(&mut self, frame: FrameNumber, page: u32) {
        self.set(frame, Holds::Cache(page));
        self.push_youngest(frame);
    }

    /// A page of a file leaves memory.
    pub(crate) fn remove(&mut self, frame: FrameNumber) {
        self.unlink(frame);
        self.set(frame, Holds::Nothing);
    }

    /// A page of a file is now in another frame, with its bits, as the youngest there.
    pub(crate) fn relocate(&mut self, from: FrameNumber, to: FrameNumber) {
        let word = self.frames[from as usize].word;
        self.remove(from);
        self.frames[to as usize].word = word;
        self.push_youngest(to);
    }

    /// The page becomes the youngest and loses its reference bit.
    pub(crate) fn rotate(&mut self, frame: FrameNumber) {
        self.unlink(frame);
        self.frames[frame as usize].word &= !REFERENCED;
        self.push_youngest(frame);
    }

    /// Somebody reads the page: the second time it becomes the youngest.
    pub(crate) fn touch(&mut self, frame: FrameNumber) {
        if self.frames[frame as usize].word & REFERENCED != 0 {
            self.rotate(frame);
        } else {
            self.frames[frame as usize].word |= REFERENCED;
        }
    }

    pub(crate) fn is_dirty(&self, frame: FrameNumber) -> bool {
        self.frames[frame as usize].word & DIRTY != 0
    }

    pub(crate) fn set_dirty(&mut self, frame: FrameNumber) {
        self.frames[frame as usize].word |= DIRTY;
    }

    pub(crate) fn set_clean(&mut self, frame: FrameNumber) {
        self.frames[frame as usize].word &= !DIRTY;
    }

    /// Pages on the lists of a node, up to `highest` among its zones.
    pub(crate) fn len(&self, node: u8, highest: ZoneId) -> u64 {
        self.eligible(node, highest).map(|part| u64::from(part.len)).sum()
    }

    /// The page of a node that was used longest ago, among zones up to `highest`.
    pub(crate) fn oldest(&self, node: u8, highest: ZoneId) -> Option<FrameNumber> {
        let now = self.next_serial;
        self.eligible(node, highest)
            .filter(|part| part.oldest != NONE)
            .map(|part| part.oldest)
            // Serial numbers wrap; ages do not, as every page is seen long before.
            .max_by_key(|&frame| now.wrapping_sub(self.frames[frame as usize].serial))
    }

    fn eligible(&self, node: u8, highest: ZoneId) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |part| part.node == node && part.zone <= highest)
    }

    fn push_youngest(&mut self, frame: FrameNumber) {
        let part = self.part_of(frame);
        let part = &mut self.parts[part];
        let before = part.youngest;
        let entry = &mut self.frames[frame as usize];
        (entry.older, entry.younger, entry.serial) = (before, NONE, self.next_serial);
        self.next_serial = self.next_serial.wrapping_add(1);
        part.youngest = frame;
        part.len += 1;
        if before == NONE {
            part.oldest = frame;
        } else {
            self.frames[before as usize].younger = frame;
        }
    }

    fn unlink(&mut self, frame: FrameNumber) {
        let Frame { older, younger, .. } = self.frames[frame as usize];
        let part = self.part_of(frame);
        let part = &mut self.parts[part];
        part.len -= 1;
        if older == NONE {
            part.oldest = younger;
        } else {
            self.frames[older as usize].younger = younger;
        }
        if younger == NONE {
            part.youngest = older;
        } else {
            self.frames[younger as usize].older = older;
        }
    }

    /// Every frame on a list, from each zone's oldest on.
    #[cfg(test)]
    pub(crate) fn listed(&self) -> Vec<FrameNumber> {
        let mut listed = Vec::new();
        for part in &self.parts {
            let mut at = part.oldest;
            while at != NONE {
                listed.push(at);
                at = self.frames[at as usize].younger;
            }
        }
        listed
    }
}
