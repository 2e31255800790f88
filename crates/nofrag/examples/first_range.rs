//! Ranges of numbers for one owner, each at the lowest place that fits.

use nofrag::ranges::{RangeAllocator, Request, Span};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Any numbers: addresses, pages, slots.
    let mut window = RangeAllocator::over(Span::new(0x1000, 0x9000)?)?;
    let table = window.alloc(&Request::new(0x600))?;
    let buffer = window.alloc(&Request::new(0x1000).align(0x1000))?;
    assert_eq!((table.start(), buffer.start()), (0x1000, 0x2000)); // the lowest places, exactly
    window.free(table)?;
    assert_eq!(window.largest(), 0x6000);
    Ok(())
}
