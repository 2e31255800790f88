//! Twenty thousand live threads whose guarded stacks are one area of the process.
//!
//! The C library maps every stack by itself, and its guard splits it, so that many threads exhaust `vm.max_map_count`.
//! Here one reservation holds all stacks, an `AddressSpace` over it places each, and guards are in the page tables
//! (`MADV_GUARD_INSTALL`, Linux 6.13), where they split nothing.
//!
//! ```sh
//! cargo run -p nofrag-backing --example thread_stacks -- 20000
//! ```
//!
//! That the guards hold is tried out in a child process, which recurses until its stack is used up.

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

use nofrag::mmap::{
    AddressSpace, Attributes, Direction, Layout, MapFlags, Placement, Protection, SpaceConfig,
};
use nofrag::ranges::Span;
use nofrag::units::PageCount;
use nofrag_backing::maps;
use nofrag_backing::reservation::Reservation;
use nofrag_backing::threads::{Crowd, Stacks};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Pages of a stack with its guard, which is its lowest page.
const STACK_PAGES: u64 = 256;

/// The argument with which the example starts itself again, as a child that overflows a stack.
const OVERFLOW: &str = "overflow";

/// The number of the signal `SIGSEGV`.
const SEGMENTATION_FAULT: i32 = 11;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let argument = env::args().nth(1).unwrap_or_else(|| "20000".to_owned());
    if argument == OVERFLOW {
        // The process is meant to end: no image of it is left behind.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let stacks = place(1)?;
        // SAFETY: `place` puts a guard below the stack.
        drop(unsafe { Crowd::start_running(1, stacks, use_up_the_stack) }?);
        return Ok(ExitCode::SUCCESS);
    }
    let count: usize = argument.parse()?;

    let begin = Instant::now();
    let before = maps::own_count()?;
    let stacks = match place(count) {
        Ok(stacks) => stacks,
        Err(why) => {
            println!("skipped: guards that split nothing need Linux 6.13 or later: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let crowd = Crowd::start(count, stacks)?;
    let areas = maps::own_count()?;
    println!("{} threads live, each with a guarded stack of its own", crowd.len());
    println!("areas of the process: {before} before, {areas} with them");
    drop(crowd);
    println!("ended after {:.2} s", begin.elapsed().as_secs_f64());
    assert!(areas <= 100, "{areas} areas");

    let child = Command::new(env::current_exe()?).arg(OVERFLOW).status()?;
    let stopped = child.signal() == Some(SEGMENTATION_FAULT);
    println!("a thread that uses up its stack: {child}");
    Ok(if stopped { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes one reservation with `count` guarded stacks in it.
fn place(count: usize) -> Result<Stacks, Box<dyn Error>> {
    let bytes = count * ((STACK_PAGES as usize) << 12);
    let mut reservation = Reservation::new(bytes, Protection::READ_WRITE)?;
    // A kernel without huge pages has nothing to refuse.
    let _ = reservation.without_huge_pages();

    let layout = Layout::window(reservation.pages(), Direction::Down);
    let mut space = AddressSpace::new(SpaceConfig::new(layout, Placement::TwoEnded));
    let memory = Attributes::anonymous(Protection::READ_WRITE);
    let mut stacks = Vec::with_capacity(count);
    for _ in 0..count {
        let start = space.map(PageCount(STACK_PAGES), memory, None, MapFlags::default())?;
        let guard = Span::sized(start.0, 1).expect("one page");
        reservation.guard(guard)?;
        stacks.push(Span::sized(start.0 + 1, STACK_PAGES - 1).expect("a stack has pages"));
    }
    assert_eq!(space.area_count(), 1, "equal neighbours are one area");
    Ok(Stacks::Placed { reservation, stacks })
}

/// Recurses until the stack is used up.
fn use_up_the_stack() {
    fn deeper(depth: u64) -> u64 {
        let here = black_box([depth; 64]);
        if depth == u64::MAX { 0 } else { deeper(depth + 1) + here[0] }
    }
    black_box(deeper(black_box(0)));
}
