//! Files and their pages in memory.

use super::lru::FrameNumber;
use super::slab::SlabId;

/// Pages of a file: 64 KiB.
pub(crate) const FILE_PAGES: u32 = 16;

const NONE: u32 = u32::MAX;

/// What memory holds of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    inode: u32,
    dentry: u32,
    radix_node: u32,
    /// Pages in memory.
    pub(crate) cached: u8,
    /// Who is working with it; it keeps inode and radix node meanwhile.
    pub(crate) users: u8,
    /// Whether it was created on disk.
    pub(crate) exists: bool,
}

/// A part of a file that is an object of a slab cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilePart {
    Inode,
    Dentry,
    RadixNode,
}

impl File {
    const NEW: File =
        File { inode: NONE, dentry: NONE, radix_node: NONE, cached: 0, users: 0, exists: false };

    fn slot(&mut self, part: FilePart) -> &mut u32 {
        match part {
            FilePart::Inode => &mut self.inode,
            FilePart::Dentry => &mut self.dentry,
            FilePart::RadixNode => &mut self.radix_node,
        }
    }

    pub(crate) fn has(mut self, part: FilePart) -> bool {
        *self.slot(part) != NONE
    }

    pub(crate) fn put(&mut self, part: FilePart, SlabId(slab): SlabId) {
        *self.slot(part) = slab;
    }

    pub(crate) fn take(&mut self, part: FilePart) -> Option<SlabId> {
        let slot = self.slot(part);
        let slab = std::mem::replace(slot, NONE);
        (slab != NONE).then_some(SlabId(slab))
    }
}

/// All files. A page is known by its number among all pages of all files.
#[derive(Debug)]
pub(crate) struct Files {
    files: Vec<File>,
    frames: Vec<FrameNumber>,
}

impl Files {
    pub(crate) fn new(count: u32) -> Files {
        Files {
            files: vec![File::NEW; count as usize],
            frames: vec![NONE; count as usize * FILE_PAGES as usize],
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.files.len() as u32
    }

    pub(crate) fn file(&self, file: u32) -> &File {
        &self.files[file as usize]
    }

    pub(crate) fn file_mut(&mut self, file: u32) -> &mut File {
        &mut self.files[file as usize]
    }

    /// Where a page is in memory.
    pub(crate) fn frame(&self, page: u32) -> Option<FrameNumber> {
        let frame = self.frames[page as usize];
        (frame != NONE).then_some(frame)
    }

    /// A page comes into memory.
    pub(crate) fn insert(&mut self, page: u32, frame: FrameNumber) {
        debug_assert_eq!(self.frames[page as usize], NONE, "a page comes in once");
        self.frames[page as usize] = frame;
        self.files[(page / FILE_PAGES) as usize].cached += 1;
    }

    /// A page is now elsewhere in memory.
    pub(crate) fn relocate(&mut self, page: u32, to: FrameNumber) {
        self.frames[page as usize] = to;
    }

    /// A page leaves memory.
    pub(crate) fn remove(&mut self, page: u32) {
        self.frames[page as usize] = NONE;
        self.files[(page / FILE_PAGES) as usize].cached -= 1;
    }
}
