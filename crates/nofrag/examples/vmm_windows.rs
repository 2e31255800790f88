//! Device windows (BARs) of a virtual machine: guest-physical addresses from one `AddressSpace`.
//!
//! A window of 2^k bytes begins at a multiple of 2^k. The guest moves one by writing a new address while it runs, and
//! the monitor then has to map the device's memory there, which can fail: so a move has two steps, and both places are
//! held between them.
//!
//! ```text
//! cargo run -p nofrag --example vmm_windows
//! ```

use nofrag::check::Check;
use nofrag::mmap::{
    AddressSpace, AreaFlags, Attributes, Direction, Layout, MapFlags, Placement, Protection,
    SpaceConfig,
};
use nofrag::ranges::Span;
use nofrag::units::{PageCount, PageSize, Vpn};
use std::error::Error;

const PAGE: PageSize = PageSize::KIB_4;
const MIB: u64 = 1 << 20;

/// Attributes of a device window: `IO` areas never merge, so that each is freed as it was made.
const DEVICE: Attributes = Attributes::anonymous(Protection::READ_WRITE).with(AreaFlags::IO);

fn main() -> Result<(), Box<dyn Error>> {
    let below_4_gib = Span::new(PAGE.page_of(0xc000_0000).0, PAGE.page_of(0xfec0_0000).0)?;
    let layout = Layout::window(below_4_gib, Direction::Up);
    // The lowest aligned place, found without a walk over the areas.
    let mut space = AddressSpace::new(SpaceConfig::new(layout, Placement::ExactAligned));

    // The guest's tables name this address, so nothing may have it before.
    let tables = PAGE.page_of(0xe000_0000);
    space.map_fixed_noreplace(tables, PAGE.pages_for(256 * MIB), DEVICE)?;
    show("configuration space", tables, PAGE.pages_for(256 * MIB));

    let devices = [("serial port", 4096), ("network card", MIB), ("graphics", 256 * MIB)];
    let mut windows = Vec::new();
    for (name, bytes) in devices {
        let pages = PAGE.pages_for(bytes);
        let aligned = MapFlags { align: pages.0, ..MapFlags::default() };
        let start = space.map(pages, DEVICE, None, aligned)?;
        show(name, start, pages);
        windows.push((start, pages));
    }

    let [_, (card, card_pages), (graphics, graphics_pages)] = windows[..] else { unreachable!() };
    println!("\nThe guest moves graphics to the configuration space:");
    let refused = space.begin_move_to(graphics, graphics_pages, tables).expect_err("it is taken");
    println!("    refused, and nothing has changed: {refused}");

    let to = PAGE.page_of(0xf800_0000);
    println!("The guest moves the network card:");
    let pending = space.begin_move_to(card, card_pages, to)?;
    show("    held", card, card_pages);
    show("    and", to, card_pages);
    // Here the monitor maps the device's memory at `to`; if it cannot, `rollback_move` gives the new place back.
    space.commit_move(pending).map_err(|(_, why)| why)?;
    println!("    committed: the old place is free");

    space.unmap(graphics, graphics_pages)?;
    let largest = space.largest_aligned(graphics_pages.0).map_or(0, Span::len);
    println!("\nGraphics is unplugged. Free on 256 MiB: {} MiB", largest * PAGE.bytes() / MIB);
    Ok(space.check()?)
}

fn show(name: &str, start: Vpn, pages: PageCount) {
    let address = |page| page * PAGE.bytes();
    println!("{name:<20} {:#x}..{:#x}", address(start.0), address(start.0 + pages.0));
}
