//! Ranges of numbers for one owner, each at the lowest place that fits.

use nofrag::ranges::{AlignClasses, Config, RangeAllocator, Request, Span};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // An alignment that is asked for often is a class: its search is O(log n), too.
    let align_classes = AlignClasses::new(&[12]).expect("2^12 can be a class");
    let mut window = RangeAllocator::new(Config { align_classes, ..Config::default() });
    window.add_span(Span::new(0x1000, 0x9000)?)?; // any numbers: addresses, pages, slots
    let table = window.alloc(&Request::new(0x600))?;
    let buffer = window.alloc(&Request::new(0x1000).align(0x1000))?;
    assert_eq!((table.start(), buffer.start()), (0x1000, 0x2000)); // the lowest places, exactly
    window.free(table)?;
    assert_eq!(window.largest(), 0x6000);
    Ok(())
}
