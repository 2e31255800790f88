//! Children of a fork and the moving memory of their parent, and movers whose requests are refused.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nofrag::units::Order;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::frames::FramesConfig;
use nofrag_backing::moving::userfaultfd::Features;
use nofrag_backing::moving::{
    Access, Background, Fill, HandleError, Handles, LiveArea, LiveError, LiveFile, Method,
    MoveError, Mover, NoHandle, Pace, Reach, Step, Worked,
};
use rustix::io::Errno;

use super::userfaultfd;
use crate::children::{ends, fork};

const PROTECT: Method = Method::WriteProtect(Fill::OnFault);

fn area(file: &LiveFile) -> LiveArea<'_> {
    file.map(0, 2, Access::Direct, Reach::Processors).unwrap()
}

#[test]
fn a_child_does_not_use_its_parents_descriptor() {
    if userfaultfd(Features::WRITE_PROTECT_SHARED).is_none() {
        return;
    }
    let file = LiveFile::new(4).unwrap();
    let shown = area(&file);
    let mut mover = Mover::new();
    assert_eq!(mover.move_run(&shown, 0..2, 2, PROTECT), Ok(()));
    let child = fork(|| {
        let own = LiveFile::new(4).unwrap();
        let own_area = area(&own);
        own_area.words().unwrap()[0].store(3, Ordering::Relaxed);
        mover.move_run(&shown, 0..2, 0, PROTECT) == Err(MoveError::Forked)
            && mover.settle(&shown) == Err(MoveError::Forked)
            && file.map(0, 1, Access::Direct, Reach::Processors).err() == Some(LiveError::Forked)
            && file.discard(0..1) == Err(LiveError::Forked)
            && mover.move_run(&own_area, 0..2, 2, PROTECT) == Ok(())
            && own_area.words().unwrap()[0].load(Ordering::Relaxed) == 3
    });
    assert_eq!(ends(child), 0);
    assert_eq!(mover.move_run(&shown, 0..2, 0, PROTECT), Ok(()));
}

#[test]
fn a_child_takes_and_gives_back_none_of_its_parents_blocks() {
    let handles = Handles::new(&FramesConfig::new(4 << 20), 8).unwrap();
    let owner = handles.owners().by_rank(0).unwrap();
    let kept = handles.alloc(owner, Order::ZERO).unwrap();
    handles.pin(kept).unwrap()[0].store(5, Ordering::Relaxed);
    let daemon = Background::of_handles(&handles, Pace::default()).unwrap();
    let child = fork(|| {
        let refused = handles.alloc(owner, Order::ZERO) == Err(NoHandle::Forked)
            && handles.pin(kept).err() == Some(HandleError::Forked)
            && handles.free(owner, kept) == Err(HandleError::Forked)
            && handles.compact() == Default::default()
            && daemon.worked() == Worked::default();
        daemon.nudge();
        // The child has no thread to wait for.
        drop(daemon);
        drop(handles);
        refused
    });
    assert_eq!(ends(child), 0);
}

#[test]
fn a_registration_that_is_refused_is_undone() {
    let Some(_) = userfaultfd(Features::WRITE_PROTECT_SHARED) else { return };
    let file = LiveFile::new(4).unwrap();
    let area = area(&file);
    let mut mover = Mover::new();
    mover.userfaultfd().unwrap();
    let refused = |step, error| Err(MoveError::System { step, error });
    let armed = faults::inject([Fault::always(Call::UserfaultfdRequest, Errno::NOMEM)]);
    let first = mover.move_run(&area, 0..2, 2, PROTECT);
    assert_eq!(first, refused(Step::Register, Errno::NOMEM));
    // A part of the run may be registered.
    let second = mover.move_run(&area, 0..2, 2, PROTECT);
    assert_eq!(second, refused(Step::Settle, Errno::NOMEM));
    drop(armed);
    assert_eq!(mover.settle(&area), Ok(()));
    // A registration of another userfaultfd is left alone.
    let armed = faults::inject([Fault::always(Call::UserfaultfdRequest, Errno::BUSY)]);
    let before = faults::made();
    let busy = mover.move_run(&area, 0..2, 2, PROTECT);
    assert_eq!(busy, refused(Step::Register, Errno::BUSY));
    let made = faults::made().since(&before).of(Call::UserfaultfdRequest);
    assert_eq!(made, 2, "it, and the reading of messages");
    drop(armed);
    assert_eq!(mover.move_run(&area, 0..2, 2, PROTECT), Ok(()));
}

#[test]
fn writers_go_on_though_a_child_has_the_descriptor_too() {
    if userfaultfd(Features::WRITE_PROTECT_SHARED).is_none() {
        return;
    }
    let file = LiveFile::new(4).unwrap();
    let area = area(&file);
    let words = area.words().unwrap();
    (0..2).for_each(|page| words[page * 512].store(1, Ordering::Relaxed));
    let mut mover = Mover::new();
    mover.userfaultfd().unwrap();
    let child = fork(|| {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
        true
    });
    // No request works any more once the run is protected.
    let requests = Fault { after: 2, ..Fault::always(Call::UserfaultfdRequest, Errno::NOMEM) };
    let armed = faults::inject([requests, Fault::always(Call::Mmap, Errno::NOMEM)]);
    let refused = Err(MoveError::System { step: Step::Map, error: Errno::NOMEM });
    assert_eq!(mover.move_run(&area, 0..2, 2, PROTECT), refused);
    drop(armed);
    let went_on = thread::scope(|scope| {
        let writer = scope.spawn(|| words[0].store(2, Ordering::Relaxed));
        assert_eq!(mover.settle(&area), Ok(()));
        let end = Instant::now() + Duration::from_secs(5);
        while !writer.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        let went_on = writer.is_finished();
        // With the child its descriptor goes, and waiting threads are woken.
        // SAFETY: the child is ours.
        unsafe { libc::kill(child, libc::SIGKILL) };
        ends(child);
        went_on
    });
    assert!(went_on, "the writer waits for a descriptor that only a child has");
}
