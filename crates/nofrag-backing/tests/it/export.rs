//! Frames and areas that other processes see, use after withdrawal, and processes that die or scribble.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use nofrag::check::Check as _;
use nofrag::cpu::CpuId;
use nofrag::page::Migratetype;
use nofrag::units::{Order, PageCount, Pfn, Vpn};
use nofrag_backing::export::{ExportError, Table, TableConfig};
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::{FrameBlock, FrameRequest, Frames, FramesConfig, Use, UseError};
use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocArea, VmallocRequest};
use nofrag_backing::shared::{Guest, Handle, Invitation, SharedError};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rustix::io::Errno;

use crate::children::{Process, hear, parent, say};

const PAGE_WORDS: u64 = 512;
const SMALL: TableConfig = TableConfig { entries: 64, processes: 4 };

fn space() -> (Arc<Frames>, Mapped, CpuId) {
    let frames = Arc::new(Frames::new(&FramesConfig::new(4 << 20)).unwrap());
    let owner = frames.owners().by_rank(0).unwrap();
    let mapped = Mapped::new(Arc::clone(&frames), &MappedConfig::new(16 << 20)).unwrap();
    (frames, mapped, owner)
}

fn page(frames: &Frames, owner: CpuId) -> FrameBlock {
    frames.alloc(owner, FrameRequest::new(Order::ZERO, Migratetype::Unmovable)).unwrap()
}

/// An area of single frames, no two of them adjacent, with a number of its own in each word; and what lies between.
fn scattered(mapped: &Mapped, owner: CpuId, pages: u64) -> (VmallocArea, Vec<FrameBlock>) {
    let frames = mapped.frames();
    let all: Vec<_> = std::iter::from_fn(|| {
        let request = FrameRequest::new(Order::ZERO, Migratetype::Unmovable);
        frames.alloc(owner, request).ok()
    })
    .collect();
    let (free, between): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.pfn.0 % 2 == 0);
    free.iter().for_each(|block| frames.free(owner, block.pfn).unwrap());
    let area = mapped.vmalloc(owner, &VmallocRequest::new(pages * 4096)).unwrap();
    (0..pages * PAGE_WORDS).for_each(|at| write(mapped, &area, at, number(at)));
    (area, between)
}

fn number(at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn write(mapped: &Mapped, area: &VmallocArea, at: u64, word: u64) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let vpn = Vpn(area.start().0 + at / PAGE_WORDS);
    let page = mapped.address(vpn).unwrap().cast::<u64>();
    let to = page.wrapping_add((at % PAGE_WORDS) as usize);
    // SAFETY: the word is of an area of the test, where all that are used are used as atomics.
    unsafe { AtomicU64::from_ptr(to) }.store(word, Ordering::Release);
}

/// A child that has pinned and seen what the handles name.
fn child_with(table: &Table, handles: &[Handle]) -> Process {
    let child = Process::run("export::map_read_and_wait");
    table.invite().unwrap().send(&child.socket).unwrap();
    say(&child.socket, handles.len() as u64);
    handles.iter().for_each(|handle| say(&child.socket, handle.to_bits()));
    assert_eq!(hear(&child.socket), 1);
    child
}

/// The child: checks all words, tells what is in the first one when asked (1), maps anew (2), lets go (3).
#[test]
#[ignore = "a child of another test"]
fn map_read_and_wait() {
    let socket = parent();
    let guest = Guest::attach(Invitation::receive(&socket).unwrap()).unwrap();
    let count = hear(&socket);
    let handles: Vec<_> = (0..count).map(|_| Handle::from_bits(hear(&socket))).collect();
    let mut area = Some(guest.map(&handles).unwrap());
    let view = area.as_ref().unwrap();
    assert_eq!(view.handles(), handles.len());
    (0..view.len() / 8).for_each(|at| assert_eq!(view.word(at).unwrap(), number(at)));
    // SAFETY: the owner waits for our answer, and writes nothing meanwhile; nobody breaks the protocol.
    let bytes = unsafe { view.bytes() };
    assert_eq!(bytes[..8], number(0).to_ne_bytes());
    say(&socket, 1);
    loop {
        match hear(&socket) {
            1 => say(&socket, area.as_ref().unwrap().word(0).unwrap()),
            2 => say(&socket, u64::from(guest.map(&handles).unwrap_err() == SharedError::Stale)),
            3 => {
                area = None;
                say(&socket, 3);
            }
            _ => return,
        }
    }
}

#[test]
fn another_process_sees_an_area_until_it_lets_go() {
    let (frames, mapped, owner) = space();
    let (area, between) = scattered(&mapped, owner, 16);
    let free = frames.stats().free;
    let table = Table::new(Arc::clone(&frames), SMALL).unwrap();
    let handles = table.export_area(&mapped, &area).unwrap();
    assert_eq!(handles.len(), 16, "no two frames are adjacent");
    let child = child_with(&table, &handles);
    // It sees the frames themselves, and no copy.
    write(&mapped, &area, 0, 77);
    say(&child.socket, 1);
    assert_eq!(hear(&child.socket), 77);

    // Withdrawn and given back, the frames are still its.
    handles.iter().for_each(|&handle| table.withdraw(handle).unwrap());
    assert!(handles.iter().all(|&handle| table.withdraw(handle) == Err(SharedError::Stale)));
    mapped.vfree(owner, area).unwrap();
    mapped.settle();
    assert_eq!((table.collect(), frames.stats().free), (0, free));
    assert_eq!(table.exported(), (PageCount(0), PageCount(16)));
    let taken = std::iter::from_fn(|| {
        let request = FrameRequest::new(Order::ZERO, Migratetype::Unmovable);
        frames.alloc(owner, request).ok()
    });
    let taken: Vec<_> = taken.collect();
    assert_eq!(taken.len() as u64, free.0);
    say(&child.socket, 1);
    assert_eq!(hear(&child.socket), 77, "nobody else has got the frame");
    // A late use is refused.
    say(&child.socket, 2);
    assert_eq!(hear(&child.socket), 1);
    assert_eq!((table.check(), mapped.check()), (Ok(()), Ok(())));

    say(&child.socket, 3);
    assert_eq!(hear(&child.socket), 3);
    assert_eq!((table.collect(), frames.stats().free), (16, PageCount(16)));
    // Also when the entries and the frames are another's.
    let page = page(&frames, owner);
    let fresh = table.export_block(page.pfn).unwrap();
    assert!(!handles.contains(&fresh));
    say(&child.socket, 2);
    assert_eq!(hear(&child.socket), 1);
    say(&child.socket, 0);
    child.succeeds();
    taken.iter().chain(&between).for_each(|block| frames.free(owner, block.pfn).unwrap());
    assert_eq!((table.check(), mapped.check()), (Ok(()), Ok(())));
}

#[test]
fn frames_that_a_killed_process_had_pinned_come_back() {
    let (frames, mapped, owner) = space();
    let (area, _between) = scattered(&mapped, owner, 8);
    let free = frames.stats().free;
    let table = Table::new(Arc::clone(&frames), SMALL).unwrap();
    let handles = table.export_area(&mapped, &area).unwrap();
    let mut children = [child_with(&table, &handles), child_with(&table, &handles)];
    handles.iter().for_each(|&handle| table.withdraw(handle).unwrap());
    mapped.vfree(owner, area).unwrap();
    mapped.settle();
    children[0].kill();
    assert_eq!((table.collect(), table.attached()), (0, 1), "one lives and has them pinned");
    assert_eq!(frames.stats().free, free);
    children[1].kill();
    assert_eq!((table.collect(), table.attached()), (8, 0));
    assert_eq!(frames.stats().free.0, free.0 + 8);
    assert_eq!((table.check(), mapped.check()), (Ok(()), Ok(())));
}

#[test]
fn what_is_exported_is_neither_moved_nor_released() {
    let (frames, _mapped, owner) = space();
    let block = page(&frames, owner);
    let table = Table::new(Arc::clone(&frames), SMALL).unwrap();
    let refused = |pfn| table.export_block(pfn).unwrap_err();
    frames.set_use(block.pfn, Use::Handle { id: 1 }).unwrap();
    assert_eq!(refused(block.pfn), UseError::Movable(block.pfn).into());
    frames.set_use(block.pfn, Use::Pinned).unwrap();
    let handle = table.export_block(block.pfn).unwrap();
    assert_eq!(refused(block.pfn), UseError::Exported.into());
    let moved = frames.set_use(block.pfn, Use::Handle { id: 1 });
    assert_eq!(moved, Err(UseError::Exported));
    assert!(frames.release(owner, block.pfn).is_err(), "that hold is not the caller's");
    assert!(frames.moved(block.pfn, Pfn(block.pfn.0 + 1)).is_err());
    frames.free(owner, block.pfn).unwrap();
    assert!(frames.free(owner, block.pfn).is_err());
    assert!(matches!(refused(block.pfn), ExportError::Block(UseError::Free(_))));
    assert!(matches!(refused(Pfn(u64::MAX)), ExportError::Block(UseError::Free(_))));
    assert_eq!(frames.check(), Ok(()));
    table.withdraw(handle).unwrap();
    assert_eq!(frames.block(block.pfn), None);
    assert_eq!((table.check(), frames.check()), (Ok(()), Ok(())));
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let (frames, mapped, owner) = space();
    let (area, _between) = scattered(&mapped, owner, 8);
    let (_, other, _) = space();
    let few = TableConfig { entries: 5, processes: 1 };
    let table = Table::new(Arc::clone(&frames), few).unwrap();
    let second = Table::new(Arc::clone(&frames), few).unwrap_err();
    assert_eq!(second, SharedError::OwnerLives);
    let foreign = table.export_area(&other, &area).unwrap_err();
    assert_eq!(foreign, ExportError::ForeignArea);
    let full = table.export_area(&mapped, &area).unwrap_err();
    assert_eq!(full, SharedError::TooManyEntries { entries: 5 }.into());
    assert_eq!(table.exported(), (PageCount(0), PageCount(0)));
    assert_eq!((table.check(), mapped.check()), (Ok(()), Ok(())));
    // All of it can be had afterwards, by another table.
    drop(table);
    let table = Table::new(Arc::clone(&frames), SMALL).unwrap();
    let handles = table.export_area(&mapped, &area).unwrap();
    let guest = Guest::attach(table.invite().unwrap()).unwrap();
    assert_eq!(guest.map(&[]).unwrap_err(), SharedError::NoHandles);
    let late = [handles[0], Handle::from_bits(u64::MAX)];
    assert_eq!(guest.map(&late).unwrap_err(), SharedError::Stale);
    let twice = guest.map(&[handles[1], handles[0], handles[1]]).unwrap();
    assert_eq!(
        (twice.len(), twice.word(0), twice.word(1024)),
        (3 * 4096, twice.word(1024), twice.word(0))
    );
    assert_eq!(twice.word(PAGE_WORDS).unwrap(), number(0));
    assert!(matches!(twice.word(3 * PAGE_WORDS), Err(SharedError::Outside { .. })));
    assert!(matches!(twice.word(u64::MAX), Err(SharedError::Outside { .. })));
    drop(twice);
    // Dropped, a table withdraws all.
    drop(table);
    assert_eq!(guest.map(&handles).unwrap_err(), SharedError::Stale);
    mapped.vfree(owner, area).unwrap();
    mapped.settle();
    assert_eq!(mapped.check(), Ok(()));
}

#[test]
fn a_refused_call_leaves_nothing_behind() {
    let (frames, mapped, owner) = space();
    let (area, _between) = scattered(&mapped, owner, 4);
    let table = Table::new(Arc::clone(&frames), SMALL).unwrap();
    let handles = table.export_area(&mapped, &area).unwrap();
    let guest = Guest::attach(table.invite().unwrap()).unwrap();
    for (call, times) in [(Call::Mmap, 5), (Call::Madvise, 1)] {
        for after in 0..times {
            let fault = Fault { after, ..Fault::once(call, Errno::NOMEM) };
            let armed = faults::inject([fault]);
            let before = faults::made();
            let refused = guest.map(&handles).unwrap_err();
            assert!(
                matches!(refused, SharedError::System { error: Errno::NOMEM, .. }),
                "{refused}"
            );
            let unmapped = faults::made().since(&before).of(Call::Munmap);
            assert_eq!(unmapped, u64::from(call != Call::Mmap || after > 0));
            drop(armed);
        }
    }
    assert_eq!(guest.map(&handles).unwrap().word(0).unwrap(), number(0));
    // Nothing is pinned.
    handles.iter().for_each(|&handle| table.withdraw(handle).unwrap());
    assert_eq!(table.exported(), (PageCount(0), PageCount(0)));
}

#[test]
fn who_scribbles_over_the_table_harms_no_frames() {
    let (frames, mapped, owner) = space();
    let (area, _between) = scattered(&mapped, owner, 16);
    let table = Table::new(Arc::clone(&frames), SMALL).unwrap();
    let (file, data) = table.invite().unwrap().into_descriptors();
    let (file, data) = (File::from(file), File::from(data));
    assert!(data.write_at(b"no", 0).is_err(), "a guest cannot write to the frames");
    let guest = Guest::attach(table.invite().unwrap()).unwrap();
    let mut handles = table.export_area(&mapped, &area).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    let bytes = file.metadata().unwrap().len();
    let mut damaged = 0;
    for round in 0..500 {
        for _ in 0..8 {
            // Behind the processes, whose words say who is attached.
            let at = rng.random_range(96..bytes.min(4096) / 8) * 8;
            let mut word = [0; 8];
            file.read_at(&mut word, at).unwrap();
            let word = match rng.random_range(0..3) {
                0 => rng.next_u64(),
                1 => u64::from_le_bytes(word) ^ 1 << rng.random_range(0..64),
                _ => u64::from_le_bytes(word).wrapping_add(1 << 16),
            };
            file.write_at(&word.to_le_bytes(), at).unwrap();
        }
        let few = [0; 3].map(|_| handles[rng.random_range(0..handles.len())]);
        match guest.map(&few) {
            Ok(area) => area.read(0, &mut vec![0; area.len() as usize]).unwrap(),
            Err(SharedError::Damaged { .. }) => damaged += 1,
            Err(_) => {}
        }
        if round % 50 == 0 {
            // Pins that nobody holds keep frames in use, which is all that they do.
            handles.iter().for_each(|&handle| table.withdraw(handle).unwrap());
            table.collect();
            assert_eq!((table.check(), frames.check()), (Ok(()), Ok(())));
            let blocks: Vec<_> = (0..8)
                .filter_map(|_| {
                    let request = FrameRequest::new(Order::ZERO, Migratetype::Unmovable);
                    frames.alloc(owner, request).ok()
                })
                .collect();
            let fresh = blocks.iter().filter_map(|block| table.export_block(block.pfn).ok());
            handles = fresh.collect();
            blocks.iter().for_each(|block| frames.free(owner, block.pfn).unwrap());
            if handles.is_empty() {
                break;
            }
        }
        assert_eq!(table.check(), Ok(()));
    }
    assert!(damaged > 0);
    drop((guest, table));
    assert_eq!((frames.check(), mapped.check()), (Ok(()), Ok(())));
}
