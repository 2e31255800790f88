//! Files and their pages in memory.

use super::contents::FrameNumber;
use super::setup::FIO_THREADS;
use super::slab::{SlabId, SlabKind};

/// Pages of a file: 64 KiB.
pub(crate) const FILE_PAGES: u32 = 16;

/// Returns the number of files of each of fio's threads; all their files together are 150 % of `pages` of memory.
pub(crate) const fn files_per_thread(pages: u64) -> u32 {
    (pages * 3 / 2 / FILE_PAGES as u64 / FIO_THREADS as u64) as u32
}

const NONE: u32 = u32::MAX;

/// The parts of a file that are in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Slabs of its objects, in the order of [`FilePart::ALL`].
    parts: [u32; FilePart::ALL.len()],
    pub(crate) cached: u8,
    /// Number of threads that have it open; inode and radix node stay meanwhile.
    pub(crate) users: u8,
}

/// A part of a file that is an object of a slab cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilePart {
    Inode,
    Dentry,
    /// An object of the file system's own, kept as long as the inode.
    Private,
    /// The journal's object, kept as long as the inode.
    LogItem,
    /// Kept as long as the file is open.
    Handle,
    /// Needed from the file's second page on.
    RadixNode,
}

impl FilePart {
    pub(crate) const ALL: [FilePart; 6] = [
        FilePart::Inode,
        FilePart::Dentry,
        FilePart::Private,
        FilePart::LogItem,
        FilePart::Handle,
        FilePart::RadixNode,
    ];

    /// The parts that come and go with the inode.
    pub(crate) const OF_INODE: [FilePart; 4] =
        [FilePart::Inode, FilePart::Dentry, FilePart::Private, FilePart::LogItem];

    pub(crate) const fn slab(self) -> SlabKind {
        match self {
            FilePart::Inode => SlabKind::Inode,
            FilePart::Dentry => SlabKind::Dentry,
            FilePart::Private => SlabKind::Private,
            FilePart::LogItem => SlabKind::LogItem,
            FilePart::Handle => SlabKind::Handle,
            FilePart::RadixNode => SlabKind::RadixNode,
        }
    }
}

impl File {
    const NEW: File = File { parts: [NONE; FilePart::ALL.len()], cached: 0, users: 0 };

    pub(crate) fn has(&self, part: FilePart) -> bool {
        self.parts[part as usize] != NONE
    }

    pub(crate) fn put(&mut self, part: FilePart, SlabId(slab): SlabId) {
        self.parts[part as usize] = slab;
    }

    pub(crate) fn take(&mut self, part: FilePart) -> Option<SlabId> {
        let slab = std::mem::replace(&mut self.parts[part as usize], NONE);
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

    /// Returns the frame of a page that is in memory.
    pub(crate) fn frame(&self, page: u32) -> Option<FrameNumber> {
        let frame = self.frames[page as usize];
        (frame != NONE).then_some(frame)
    }

    /// Notes that a page has come into memory.
    pub(crate) fn insert(&mut self, page: u32, frame: FrameNumber) {
        assert_eq!(self.frames[page as usize], NONE, "a page comes in once");
        self.frames[page as usize] = frame;
        self.files[(page / FILE_PAGES) as usize].cached += 1;
    }

    /// Notes that a page has moved to another frame.
    pub(crate) fn relocate(&mut self, page: u32, to: FrameNumber) {
        self.frames[page as usize] = to;
    }

    /// Notes that a page has left memory.
    pub(crate) fn remove(&mut self, page: u32) {
        self.frames[page as usize] = NONE;
        self.files[(page / FILE_PAGES) as usize].cached -= 1;
    }
}
