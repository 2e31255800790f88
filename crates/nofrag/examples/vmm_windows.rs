//! Address windows of a virtual machine: a facade in the shape of the crate `vm-allocator`, on one `AddressSpace` each.
//!
//! A monitor hands out guest-physical addresses: device windows (BARs) that want natural alignment, fixed claims, and
//! windows that the guest moves while it runs. The facade adds bytes and device semantics. The address space sees to
//! the rest: no range is given out twice, every aligned place is found, and a move which fails loses nothing.
//!
//! ```text
//! cargo run -p nofrag --example vmm_windows
//! ```

#![allow(clippy::disallowed_types)] // an example has the standard library

use nofrag::check::Check;
use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Direction, FixedError, Layout, MapError, MapFlags,
    MoveError, PendingMove, Placement, Protection, SpaceConfig, UnmapError,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, PageSize, Vpn};
use std::error::Error;
use std::fmt;

const PAGE: PageSize = PageSize::KIB_4;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The place of an allocation in the window.
#[derive(Clone, Copy, Debug)]
enum Policy {
    First,
    Last,
    Exact(u64),
}

/// A range of addresses, `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start, self.end)
    }
}

/// One window of guest-physical addresses.
struct Window {
    name: &'static str,
    space: AddressSpace,
}

/// The attributes of a device: an area that never merges, so that a free gives back exactly the allocated range.
const DEVICE: Attributes = Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::IO);

impl Window {
    fn new(name: &'static str, start: u64, end: u64) -> Result<Window, Box<dyn Error>> {
        let pages = Span::new(PAGE.page_of(Vpn(start).0).0, PAGE.page_of(end).0)?;
        let layout = Layout::window(pages, Direction::Up);
        // First and last fit, exact to the alignment, without walking the areas.
        let config = SpaceConfig::new(layout, Placement::ExactAligned);
        Ok(Window { name, space: AddressSpace::new(config) })
    }

    /// `size` bytes at a multiple of the power of two `alignment`.
    fn allocate(&mut self, size: u64, alignment: u64, policy: Policy) -> Result<Range, NoRange> {
        let pages = PAGE.pages_for(size);
        let align = (alignment / PAGE.bytes()).max(1);
        let start = match policy {
            Policy::Exact(address) => {
                if address % alignment.max(PAGE.bytes()) != 0 {
                    return Err(NoRange::Misaligned);
                }
                let start = PAGE.page_of(address);
                self.space.map_fixed_noreplace(start, pages, DEVICE)?;
                start
            }
            Policy::First | Policy::Last => {
                let direction = match policy {
                    Policy::Last => Direction::Down,
                    _ => Direction::Up,
                };
                let flags = MapFlags { align, direction: Some(direction), ..MapFlags::default() };
                self.space.map(pages, DEVICE, None, flags)?
            }
        };
        Ok(range(start, pages))
    }

    /// Gives back exactly the allocated range.
    fn free(&mut self, range: Range) -> Result<(), NoRange> {
        let start = PAGE.page_of(range.start);
        let allocated = self
            .space
            .lookup(start)
            .filter(|area| area.start == start && PAGE.address_of(area.end()) == Some(range.end));
        let area = allocated.ok_or(NoRange::NotAllocated)?;
        Ok(self.space.unmap(area.start, area.pages)?)
    }

    /// Holds the new place of a BAR, to which the guest has written a new address, beside the old one.
    fn begin_move(&mut self, range: Range, to: u64) -> Result<PendingMove, NoRange> {
        let pages = PAGE.pages_for(range.end - range.start);
        if !to.is_multiple_of(range.end - range.start) {
            return Err(NoRange::Misaligned);
        }
        Ok(self.space.begin_move_to(PAGE.page_of(range.start), pages, PAGE.page_of(to))?)
    }

    fn describe(&self) {
        let stats = self.space.hole_stats();
        println!(
            "{}: {} ranges, {} holes, {} free, largest {}",
            self.name,
            self.space.area_count(),
            stats.holes,
            bytes(stats.free),
            bytes(stats.largest),
        );
        for alignment in [2 * MIB, 256 * MIB, GIB] {
            let aligned = self.space.largest_aligned(alignment / PAGE.bytes());
            let found = aligned.map_or("none".into(), |span| bytes(PageCount(span.len())));
            println!("    on {:>8}: {found}", bytes(PAGE.pages_for(alignment)));
        }
        for (least, bucket) in self.space.hole_histogram().occupied() {
            println!("    holes from {:>8}: {:3}", bytes(least), bucket.holes);
        }
    }
}

/// Reason why there is no range; nothing changed.
#[derive(Debug)]
enum NoRange {
    Misaligned,
    NotAllocated,
    Map(MapError),
    Fixed(FixedError),
    Unmap(UnmapError),
    Move(MoveError),
}

impl fmt::Display for NoRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRange::Misaligned => f.write_str("the address is not a multiple of the alignment"),
            NoRange::NotAllocated => f.write_str("nothing of that kind is allocated"),
            NoRange::Map(why) => why.fmt(f),
            NoRange::Fixed(why) => why.fmt(f),
            NoRange::Unmap(why) => why.fmt(f),
            NoRange::Move(why) => why.fmt(f),
        }
    }
}

impl Error for NoRange {}

impl From<MapError> for NoRange {
    fn from(why: MapError) -> NoRange {
        NoRange::Map(why)
    }
}

impl From<FixedError> for NoRange {
    fn from(why: FixedError) -> NoRange {
        NoRange::Fixed(why)
    }
}

impl From<UnmapError> for NoRange {
    fn from(why: UnmapError) -> NoRange {
        NoRange::Unmap(why)
    }
}

impl From<MoveError> for NoRange {
    fn from(why: MoveError) -> NoRange {
        NoRange::Move(why)
    }
}

fn range(start: Vpn, pages: PageCount) -> Range {
    let address = |page: u64| page * PAGE.bytes();
    Range { start: address(start.0), end: address(start.0 + pages.0) }
}

fn bytes(pages: PageCount) -> String {
    let bytes = pages.0 * PAGE.bytes();
    match bytes {
        GIB.. => format!("{:.1} GiB", bytes as f64 / GIB as f64),
        MIB.. => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        _ => format!("{} KiB", bytes >> 10),
    }
}

/// A guest boots: claims that stand in its tables, then devices with BARs of all sizes, then the guest rearranges them.
fn boot() -> Result<(), Box<dyn Error>> {
    let mut low = Window::new("MMIO below 4 GiB", 0xc000_0000, 0xfec0_0000)?;
    let mut high = Window::new("MMIO above 4 GiB", 64 * GIB, 128 * GIB)?;

    println!("A guest boots.");
    let tables = low.allocate(256 * MIB, 256 * MIB, Policy::Exact(0xe000_0000))?;
    println!("  PCI configuration space  {tables}");
    let refused = low.allocate(4096, 4096, Policy::Exact(0xe800_0000));
    println!("  a page inside of it      {}", refused.expect_err("it is taken"));

    // Natural alignment: a BAR of 2^k bytes begins at a multiple of 2^k.
    let mut bars = Vec::new();
    for (device, size) in [
        ("serial port", 4096),
        ("network card", MIB),
        ("disk controller", 16 * 1024),
        ("graphics", 256 * MIB),
        ("second network card", MIB),
    ] {
        let bar = low.allocate(size, size, Policy::First)?;
        println!("  {device:<24} {bar}");
        bars.push((bar, size));
    }
    for (device, size) in [("persistent memory", 16 * GIB), ("frame buffer", 32 * GIB)] {
        let bar = high.allocate(size, size, Policy::Last)?;
        println!("  {device:<24} {bar}");
        bars.push((bar, size));
    }
    // When the frame buffer came, 48 GiB were left, and `end - size - alignment`, the usual shortcut, would have been
    // below the window. Rounding `end - size` down finds the place.
    low.describe();
    high.describe();

    println!("\nThe guest rearranges its windows.");
    let (graphics, _) = bars[3];
    let refused = low.begin_move(graphics, tables.start).expect_err("it is taken");
    println!("  graphics to configuration space: {refused}");
    let held = low.space.lookup(PAGE.page_of(graphics.start)).is_some();
    println!("  graphics still has its addresses: {held}");
    let (memory, size) = bars[5];
    let to = 96 * GIB;
    let pending = high.begin_move(memory, to)?;
    let new = range(Vpn(pending.to().start()), PAGE.pages_for(size));
    println!("  persistent memory holds {memory} and {new}");
    let refused = high.allocate(4096, 4096, Policy::Exact(to)).expect_err("it is held");
    println!("  another device asks for the new place: {refused}");
    high.space.rollback_move(pending).map_err(|(_, why)| why)?;
    println!(
        "  the memory cannot be mapped there: rolled back, {} ranges",
        high.space.area_count()
    );
    let pending = high.begin_move(memory, to)?;
    high.space.commit_move(pending).map_err(|(_, why)| why)?;
    println!("  the second time it can: committed, {} ranges", high.space.area_count());

    for (bar, _) in bars.iter().take(3) {
        low.free(*bar)?;
    }
    println!(
        "\nThree devices are unplugged; a second time is an error: {}",
        low.free(bars[0].0).expect_err("gone")
    );
    low.describe();
    low.space.check()?;
    high.space.check()?;
    Ok(())
}

/// Stacks in one reservation: the cost of a guard depends on its kind.
fn stacks() -> Result<(), Box<dyn Error>> {
    const STACKS: u64 = 20_000;
    let stack = PAGE.pages_for(8 * MIB);
    let reservation = Span::sized(1 << 24, STACKS * stack.0)?;
    let memory = Attributes::anonymous(Protection::READ_WRITE);
    println!("\n{STACKS} stacks of {} in one reservation.", bytes(stack));
    for protected_guards in [true, false] {
        let layout = Layout::window(reservation, Direction::Up);
        let mut space = AddressSpace::new(SpaceConfig::new(layout, Placement::ExactAligned));
        let mut made = 0;
        while made < STACKS {
            let Ok(start) = space.map(stack, memory, None, MapFlags::default()) else { break };
            if protected_guards
                && let Err(why) = space.protect(start, PageCount(1), Protection::NONE)
            {
                println!("  guards by mprotect: {why}");
                break;
            }
            // A thread writes to its stack before the next one starts.
            space.touch(Vpn(start.0 + stack.0 - 1), PageCount(1))?;
            made += 1;
        }
        let guards = space.guard_share();
        let kind =
            if protected_guards { "guards by mprotect" } else { "guards by MADV_GUARD_INSTALL" };
        println!(
            "  {kind}: {made} stacks, {} areas, {} of them guards; room for {} more areas",
            space.area_count(),
            guards.areas,
            space.headroom().maps,
        );
        space.check()?;
        assert!(
            protected_guards || space.area_count() <= 100,
            "guards in page tables cost no area"
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    boot()?;
    stacks()
}
