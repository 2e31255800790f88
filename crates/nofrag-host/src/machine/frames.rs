//! The uses of a machine's frames, zone by zone, in one pass over `kpageflags`.
//!
//! The file has eight bytes for each frame: 2 GiB on a host of 1 TiB. It is read in pieces, and only sums are kept for
//! each zone and, in 20 bytes, for each pageblock.

use std::io::{self, Read};

use super::pageblocks::{ZoneFrames, ZoneWalk};
use crate::snapshot::{FrameUse, PageFlags, Snapshot, ZoneName};

/// The result of a pass over `kpageflags`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameReport {
    /// Number of frames in `kpageflags`.
    pub frames: u64,
    /// The zones whose place in memory is known.
    pub zones: Vec<ZoneFrames>,
    /// True if the file ends inside a frame's bytes.
    pub is_cut: bool,
}

impl FrameReport {
    /// Returns the result of the walk over one zone.
    #[must_use]
    pub fn of(&self, zone: &ZoneName) -> Option<&ZoneFrames> {
        self.zones.iter().find(|each| each.pageblocks.zone == *zone)
    }
}

/// Bytes of `kpageflags` for each frame.
const WORD: usize = size_of::<u64>();
/// Bytes that are read at a time.
const PIECE: usize = WORD << 16;

/// Frames that `kpageflags` may have behind the last zone: it ends with a section of memory, of 512 MiB at most on many
/// machines.
const SLACK: u64 = 1 << 18;
/// Most frames that are read where the place of no zone is known: 16 TiB of small pages.
const MOST_FRAMES: u64 = 1 << 32;

/// Reads `kpageflags` to its end, for the zones of `snapshot`. O(frames) time.
///
/// # Errors
/// The error of `source`; `InvalidData` for a file that goes on far behind the last zone.
pub fn read(snapshot: &Snapshot<'_>, mut source: impl Read) -> io::Result<FrameReport> {
    let mut walks: Vec<ZoneWalk<'_>> =
        snapshot.populated().filter_map(|zone| ZoneWalk::new(snapshot, zone)).collect();
    let end = walks.iter().map(|walk| walk.range().end).max();
    let most = end.map_or(MOST_FRAMES, |end| end.saturating_add(SLACK));
    let mut report = FrameReport::default();
    let mut piece = Vec::new();
    let mut uses = Vec::new();
    let mut before = None;
    let keeps_locked = snapshot.sysctl.get("compact_unevictable_allowed") == Some(0);
    loop {
        piece.clear();
        source.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        uses.clear();
        uses.extend(piece.chunks_exact(WORD).map(|word| {
            let flags = PageFlags(u64::from_le_bytes(word.try_into().expect("eight bytes")));
            let usage = flags.usage_behind(before);
            before = Some(usage);
            let is_locked = usage.is_movable() && keeps_locked && flags.has(PageFlags::UNEVICTABLE);
            let usage = if is_locked { FrameUse::Locked } else { usage };
            (usage, flags.has(PageFlags::COMPOUND_TAIL))
        }));
        walks.iter_mut().for_each(|walk| add(walk, report.frames, &uses));
        report.frames += uses.len() as u64;
        if report.frames > most {
            let why = "it goes on far behind the last zone: it is not of this host, or damaged";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if piece.len() < PIECE {
            report.is_cut = !piece.len().is_multiple_of(WORD);
            break;
        }
    }
    report.zones = walks.into_iter().map(ZoneWalk::finish).collect();
    Ok(report)
}

/// Adds to the walk over a zone those frames that lie in the zone; `uses` are the uses of the frames from `first` on,
/// and whether they are tails.
fn add(walk: &mut ZoneWalk<'_>, first: u64, uses: &[(FrameUse, bool)]) {
    let range = walk.range();
    let end = first + uses.len() as u64;
    for pfn in range.start.max(first)..range.end.min(end) {
        let (usage, is_tail) = uses[(pfn - first) as usize];
        walk.add(pfn, usage, is_tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::pageblocks;
    use crate::snapshot::{PageMap, zoneinfo};

    /// A reader that gives few bytes at a time, and never a whole number of frames.
    struct Dripping<'a>(&'a [u8]);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let few = buffer.len().min(4093);
            self.0.read(&mut buffer[..few])
        }
    }

    /// Reads two zones, neither of which begins at a pageblock, from more than one piece of the file: the sums must be
    /// those of the whole file read at once.
    #[test]
    fn pieces_say_what_the_whole_says() {
        const FRAMES: u64 = (PIECE / WORD) as u64 * 2 + 77;
        let flags = [
            PageFlags::BUDDY,
            PageFlags::BUDDY,
            PageFlags::COMPOUND_HEAD,
            PageFlags::COMPOUND_TAIL,
            PageFlags::LRU,
            PageFlags::RESERVED,
            PageFlags::BUDDY,
        ];
        let bytes: Vec<u8> = (0..FRAMES)
            .flat_map(|pfn| flags[(pfn / 600 % 5 + pfn % 3) as usize].0.to_le_bytes())
            .collect();
        let zone = |name, start, spanned| {
            format!(
                "Node 0, zone {name}\n  pages free 1\n spanned {spanned}\n managed {spanned}\n start_pfn: {start}\n"
            )
        };
        let zones = zone("DMA32", 1, 70_000) + &zone("Normal", 70_001, FRAMES);
        let release = Some("6.12.107".to_owned());
        let snapshot = Snapshot { release, zones: zoneinfo(&zones).0.0, ..Snapshot::default() };
        let report = read(&snapshot, Dripping(&bytes)).unwrap();
        assert_eq!((report.frames, report.zones.len(), report.is_cut), (FRAMES, 2, false));
        let map = PageMap::new(&bytes);
        for zone in &snapshot.zones {
            let found = report.of(&zone.zone).unwrap();
            let whole = pageblocks::survey(&snapshot, &map, zone).unwrap();
            assert_eq!(found.pageblocks, whole, "{}", zone.zone);
            let range = zone.start_pfn.unwrap()..zone.end_pfn().unwrap();
            let mut blocks = vec![0; 11];
            map.free_blocks(range, 10).for_each(|(_, order)| blocks[order as usize] += 1);
            assert_eq!(found.free_blocks, blocks, "{}", zone.zone);
        }
        assert!(read(&snapshot, &bytes[..20]).unwrap().is_cut);
    }
}
