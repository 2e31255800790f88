//! Scattered frames at adjacent addresses, and their state after they are freed.

mod areas;
mod faults;
mod huge;
mod law;
mod model;
mod moves;

use std::sync::Arc;

use crate::maps::{self, MapsLine};
use nofrag::cpu::CpuId;
use nofrag::page::Migratetype;
use nofrag::units::{Order, Vpn};
use nofrag_backing::frames::{Effort, FrameBlock, FrameRequest, Frames, FramesConfig};
use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocArea};

use crate::frames::MIB;

/// Makes a space of `va_mib` over `mib` of frames, for two owners.
fn space(mib: u64, va_mib: u64) -> Mapped {
    space_with(mib, &MappedConfig::new(va_mib * MIB))
}

fn space_with(mib: u64, config: &MappedConfig) -> Mapped {
    let frames = FramesConfig { owners: 2, ..FramesConfig::new(mib * MIB) };
    let frames = Frames::new(&frames).expect("there is memory for a test");
    Mapped::new(Arc::new(frames), config).expect("there are addresses for a test")
}

fn owner(mapped: &Mapped, rank: usize) -> CpuId {
    mapped.frames().owners().by_rank(rank).expect("an owner of the test")
}

/// Takes `count` single frames, none beside the next: every second one stays in use.
fn scatter(mapped: &Mapped, count: usize) -> Vec<FrameBlock> {
    let here = owner(mapped, 0);
    let page = FrameRequest::new(Order::ZERO, Migratetype::Unmovable).effort(Effort::AtHand);
    let mut all: Vec<_> =
        (0..4 * count).filter_map(|_| mapped.frames().alloc(here, page).ok()).collect();
    all.sort_unstable_by_key(|block| block.pfn);
    let (odd, even): (Vec<_>, Vec<_>) = all.into_iter().partition(|block| block.pfn.0 % 2 == 1);
    assert!(even.len() >= count, "the test has memory for that");
    for block in odd.into_iter().chain(even[count..].iter().copied()) {
        mapped.frames().free(here, block.pfn).expect("it was just taken");
    }
    even[..count].to_vec()
}

fn pages(area: &VmallocArea) -> impl Iterator<Item = Vpn> {
    let start = area.start().0;
    (start..start + area.pages().0).map(Vpn)
}

/// Writes a stamp and the number of the page to a page.
fn stamp(mapped: &Mapped, vpn: Vpn, stamp: u64) {
    let at = mapped.address(vpn).expect("a page of the space").cast::<u64>();
    // SAFETY: the page belongs to an area of the test, whose one thread alone uses it.
    unsafe { at.write(stamp) };
    // SAFETY: as above; the last word of the page.
    unsafe { at.add(511).write(vpn.0) };
}

/// Reads the beginning and the end of a page.
fn seen(mapped: &Mapped, vpn: Vpn) -> (u64, u64) {
    let at = mapped.address(vpn).expect("a page of the space").cast::<u64>();
    // SAFETY: the page belongs to an area of the test, whose one thread alone uses it.
    let first = unsafe { at.read() };
    // SAFETY: as above; the last word of the page.
    (first, unsafe { at.add(511).read() })
}

/// Reads the beginning and the end of a frame, through the window.
fn seen_in_frame(mapped: &Mapped, pfn: nofrag::units::Pfn) -> (u64, u64) {
    let at = mapped.frames().address(pfn).expect("a frame").cast::<u64>();
    // SAFETY: the frame belongs to the test, whose one thread alone uses it.
    let first = unsafe { at.read() };
    // SAFETY: as above; the last word of the frame.
    (first, unsafe { at.add(511).read() })
}

/// Returns the kernel's areas in a space that show frames.
fn shown_areas(mapped: &Mapped) -> Vec<MapsLine> {
    let span = mapped.span();
    let own = maps::own();
    let inside = own.into_iter().filter(|line| span.contains(line.start >> 12));
    inside.filter(|line| line.name.contains("nofrag-frames")).collect()
}

/// The end of a child that reads the page: with the lowest byte that it saw, or by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Byte(u8),
    Signal(i32),
}

/// Reads a page in a child, which may fault.
fn read_in_child(mapped: &Mapped, vpn: Vpn) -> Read {
    let at = mapped.address(vpn).expect("a page of the space");
    let mut status = 0;
    // SAFETY: the child reads a byte and ends at once: it takes no lock and allocates nothing.
    match unsafe { libc::fork() } {
        0 => {
            // A fault shall end the child, also if the parent has a handler.
            // SAFETY: sets the default action, in the child alone.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            // SAFETY: a volatile read of an address of the space: at worst the child faults, which is expected.
            let byte = unsafe { at.read_volatile() };
            // SAFETY: ends the child without running code of the parent.
            unsafe { libc::_exit(i32::from(byte)) }
        }
        child => {
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            // SAFETY: waits for the child alone, and writes to the local.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        }
    }
    if libc::WIFSIGNALED(status) {
        Read::Signal(libc::WTERMSIG(status))
    } else {
        Read::Byte(libc::WEXITSTATUS(status) as u8)
    }
}
