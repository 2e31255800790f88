//! Everything of the backing crate that makes system calls, with one kind of call refused at some point: a refusal is
//! an error, every law holds after it, and without refusals the same works.

use std::sync::Arc;

use nofrag::check::Check;
use nofrag::mmap::Protection;
use nofrag::ranges::Span;
use nofrag::units::Order;
use nofrag_backing::arena::{Arena, Budget as Blocks, Config, OwnerId, Owners, Purge};
use nofrag_backing::backend::{Anonymous, Budget, HostMemory, Memfd};
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::{Frames, FramesConfig};
use nofrag_backing::mapped::{Mapped, MappedConfig, VmallocRequest};
use nofrag_backing::moving::{Access, Fill, Handles, LiveFile, Method, Mover, Reach};
use nofrag_backing::reservation::Reservation;
use nofrag_backing::shapes::{GrowableBuffer, PoolSizes, SlotPool, ring};
use rustix::io::Errno;

use crate::steps;

/// The result of a subject, with whatever error: the tests of the backing crate say which one.
type Outcome = Result<(), Box<dyn std::error::Error>>;

const SUBJECTS: [fn() -> Outcome; 9] = [
    reservation,
    || arena(Anonymous::new()),
    || arena(Memfd::new(Budget::Half)?),
    buffer,
    ring_of_bytes,
    pool,
    mapped,
    handles,
    live,
];

const ERRORS: [Errno; 5] = [Errno::NOMEM, Errno::AGAIN, Errno::INTR, Errno::PERM, Errno::INVAL];

/// Runs the subjects that `data` names, five bytes each: the subject, the kind of call that is refused in it, after how
/// many calls, how often, and with which error.
pub fn run(data: &[u8]) {
    for (at, bytes) in data.chunks_exact(5).take(40).enumerate() {
        let [subject, call, after, times, error] = bytes.try_into().expect("a chunk has five");
        let subject = SUBJECTS[usize::from(subject) % SUBJECTS.len()];
        let fault = Fault {
            call: Call::ALL[usize::from(call) % Call::COUNT],
            after: u32::from(after % 20),
            times: 1 + u32::from(times % 3),
            error: ERRORS[usize::from(error) % ERRORS.len()],
        };
        steps::count();
        let armed = faults::inject([fault]);
        // What is refused is said, or done in another way.
        let _ = subject();
        drop(armed);
        if at == 0 {
            subject().expect("nothing is refused");
        }
    }
}

fn reservation() -> Outcome {
    let mut memory = Reservation::new(16 << 12, Protection::READ_WRITE)?;
    let first = memory.pages().start();
    memory.protect(Span::sized(first, 4)?, Protection::READ)?;
    // Kernels before 6.13 have no such guards.
    let _ = memory.guard(Span::sized(first + 8, 1)?);
    memory.discard(memory.pages())?;
    Ok(())
}

fn arena<B: HostMemory + 'static>(backing: B) -> Outcome {
    let config = Config {
        block: 64 << 12,
        align: 64 << 12,
        owners: Owners::Count(2),
        purge: Purge::Manual,
        ..Config::over(backing)
    };
    let arena = Arena::reserve((8 * 64) << 12, config)?;
    let mut worked = Ok(());
    for owner in [OwnerId(0), OwnerId(1)] {
        match arena.lease(owner, 70, 1) {
            Ok(mut lease) => {
                assert!(lease.iter().step_by(4096).all(|&byte| byte == 0), "another's contents");
                lease.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            }
            Err(why) => worked = Err(why),
        }
        arena.purge(Blocks::ALL);
        arena.check().unwrap_or_else(|broken| panic!("{broken}"));
    }
    assert_eq!(arena.stats().live, 0);
    Ok(worked?)
}

fn buffer() -> Outcome {
    let mut buffer = GrowableBuffer::with_capacity(64 << 12)?;
    buffer.resize(40 << 12)?;
    buffer.fill(3);
    buffer.truncate(1);
    let purged = buffer.purge();
    buffer.resize(40 << 12)?;
    assert!(buffer[1..].iter().step_by(512).all(|&byte| byte == 0), "what was cut off is back");
    purged?;
    Ok(())
}

fn ring_of_bytes() -> Outcome {
    let (mut producer, mut consumer) = ring(4096)?;
    for _ in 0..3 {
        assert!(producer.push(&[5; 3000]));
        assert_eq!(consumer.readable(), [5; 3000]);
        consumer.release(3000);
    }
    Ok(())
}

fn pool() -> Outcome {
    let pool = SlotPool::new(PoolSizes { slots: 6, memory: 8192, guard: 4096, batch: 2 })?;
    for _ in 0..9 {
        let mut slot = pool.take()?;
        assert!(slot.iter().all(|&byte| byte == 0), "another's contents");
        slot.fill(9);
    }
    Ok(())
}

fn mapped() -> Outcome {
    let frames = Arc::new(Frames::new(&FramesConfig::new(4 << 20))?);
    let owner = frames.owners().by_rank(0).expect("there is one");
    let space = Mapped::new(Arc::clone(&frames), &MappedConfig::new(16 << 20))?;
    let area = space.vmalloc(owner, &VmallocRequest::new(100 << 12));
    let freed = area.map(|area| space.vfree(owner, area));
    space.settle();
    frames.purge(frames.len());
    space.check().unwrap_or_else(|broken| panic!("{broken}"));
    frames.check().unwrap_or_else(|broken| panic!("{broken}"));
    freed??;
    Ok(())
}

fn handles() -> Outcome {
    let handles = Handles::new(&FramesConfig::new(4 << 20), 50)?;
    let owner = handles.owners().by_rank(0).expect("there is one");
    let all: Vec<_> = (0..40).map_while(|_| handles.alloc(owner, Order::ZERO).ok()).collect();
    for handle in all.iter().step_by(2) {
        handles.free(owner, *handle)?;
    }
    handles.compact();
    handles.check().unwrap_or_else(|broken| panic!("{broken}"));
    Ok(())
}

fn live() -> Outcome {
    let file = LiveFile::new(8)?;
    let area = file.map(0, 4, Access::Pinned, Reach::Processors)?;
    area.pin()?[0].store(7, std::sync::atomic::Ordering::Relaxed);
    let mut mover = Mover::new();
    let moved = mover.move_run(&area, 0..2, 4, Method::Mprotect);
    // Not everybody may have a userfaultfd.
    let _ = mover.move_run(&area, 2..4, 6, Method::WriteProtect(Fill::OnFault));
    let settled = mover.settle(&area);
    assert_eq!(area.pin()?[0].load(std::sync::atomic::Ordering::Relaxed), 7, "a write is lost");
    drop(area);
    moved?;
    settled?;
    Ok(())
}
