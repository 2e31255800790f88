//! A request for pages that failed, read from a kernel's log.

use nofrag_host::failure::{Event, parse};

fn main() {
    let log = "[12.5] irq/9-x: page allocation failure: order:2, \
               mode:0x820(GFP_ATOMIC), nodemask=(null)";
    let report = &parse(log)[0];
    let Event::PageFailure(asked) = &report.event else { panic!("it is one") };
    assert_eq!((asked.order, report.process.as_deref()), (2, Some("irq/9-x")));
}
