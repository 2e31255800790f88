//! Runs of areas that move: their contents, refusals, and the state after failures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::maps;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::moving::pins::{Patience, Pinned};
use nofrag_backing::moving::userfaultfd::{Features, OpenError};
use nofrag_backing::moving::{
    Access, Fill, LiveArea, LiveError, LiveFile, Mappings, Method, MoveError, Mover, Reach, Step,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::io::Errno;

use super::userfaultfd;

const WORDS: usize = 512;
const PINS: Method = Method::Pins(Patience::NONE);
const PROTECT: Method = Method::WriteProtect(Fill::OnFault);

/// Returns every method that this system allows, with the access that it is for.
fn methods() -> Vec<(Method, Access)> {
    let mut methods = vec![(PINS, Access::Pinned), (Method::Mprotect, Access::Direct)];
    if userfaultfd(Features::WRITE_PROTECT_SHARED).is_some() {
        let fills = [Fill::OnFault, Fill::Populate];
        methods.extend(fills.map(|fill| (Method::WriteProtect(fill), Access::Direct)));
    }
    methods
}

fn area(file: &LiveFile, pages: u64, access: Access) -> LiveArea<'_> {
    file.map(0, pages, access, Reach::Processors).unwrap()
}

/// Writes a number to a page, at its beginning and its end.
fn write(area: &LiveArea<'_>, page: usize, value: u64) {
    let words = area.pin().unwrap();
    words[page * WORDS].store(value, Ordering::Relaxed);
    words[page * WORDS + WORDS - 1].store(value, Ordering::Relaxed);
}

fn read(area: &LiveArea<'_>, page: usize) -> u64 {
    let words = area.pin().unwrap();
    let both = [0, WORDS - 1].map(|word| words[page * WORDS + word].load(Ordering::Relaxed));
    assert_eq!(both[0], both[1], "page {page} is of one piece");
    both[0]
}

/// Checks that the area shows the pages of its table, and that the mappings are within the booked number.
fn check(area: &LiveArea<'_>, model: &[u64], shows: &[u64]) {
    for (page, (&value, &shown)) in model.iter().zip(shows).enumerate() {
        assert_eq!(
            (read(area, page), area.shows(page as u64)),
            (value, Some(shown)),
            "page {page}"
        );
    }
    let start = area.start().0;
    let end = start + (area.pages() << 12);
    let own = maps::own();
    let inside = own.iter().filter(|line| line.start < end && start < line.end).count() as u64;
    let booked = area.file().mappings().used();
    assert!(inside < booked, "{inside} mappings, and the window, where {booked} are booked");
}

#[test]
fn random_moves_agree_with_a_table_of_what_each_page_holds() {
    for (method, access) in methods() {
        let (pages, spare) = (24, 24);
        let file = LiveFile::new(pages + spare).unwrap();
        let area = area(&file, pages, access);
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut model = vec![0; pages as usize];
        let mut shows: Vec<u64> = (0..pages).collect();
        let mut mover = Mover::new();
        for step in 1..300 {
            let page = random.random_range(0..pages as usize);
            write(&area, page, step);
            model[page] = step;
            let start = random.random_range(0..pages);
            let run = start..random.random_range(start..pages) + 1;
            let to = random.random_range(0..pages + spare);
            let target = to..to + (run.end - run.start);
            let expected = if target.end > pages + spare {
                Err(MoveError::Outside)
            } else {
                let used = target.clone().find(|page| shows.contains(page));
                used.map_or(Ok(()), |page| Err(MoveError::InUse { page }))
            };
            assert_eq!(mover.move_run(&area, run.clone(), to, method), expected, "{run:?} to {to}");
            if expected.is_ok() {
                run.zip(target).for_each(|(page, to)| shows[page as usize] = to);
            }
            if step % 20 == 0 {
                check(&area, &model, &shows);
            }
        }
        check(&area, &model, &shows);
        let shown = (0..pages + spare).map(|page| file.shown(page)).sum::<u32>();
        assert_eq!(u64::from(shown), pages, "each page of the area shows one of the file");
        drop(area);
        assert_eq!((file.mappings().used(), file.left()), (1, 0), "the window is left");
    }
}

#[test]
fn what_may_not_move_is_refused() {
    let file = LiveFile::new(8).unwrap();
    let mut mover = Mover::new();
    let devices = file.map(0, 1, Access::Pinned, Reach::Devices).unwrap();
    assert_eq!(mover.move_run(&devices, 0..1, 4, PINS), Err(MoveError::NotProcessorsOnly));
    let direct = file.map(1, 1, Access::Direct, Reach::Processors).unwrap();
    assert_eq!(mover.move_run(&direct, 0..1, 4, PINS), Err(MoveError::UsedWithoutPins));
    let pinned = file.map(2, 2, Access::Pinned, Reach::Processors).unwrap();
    assert!(pinned.words().is_none());
    let pin = pinned.pin().unwrap();
    let held = Err(MoveError::Pinned(Pinned::Held { pins: 1 }));
    for method in [PINS, PROTECT, Method::Mprotect] {
        assert_eq!(mover.move_run(&pinned, 0..1, 4, method), held, "{method:?}");
    }
    drop(pin);
    for run in [0..0, 0..3, 2..3, u64::MAX - 1..u64::MAX] {
        assert_eq!(mover.move_run(&pinned, run, 4, PINS), Err(MoveError::Outside));
    }
    assert_eq!(mover.move_run(&pinned, 0..2, 7, PINS), Err(MoveError::Outside));
    assert_eq!(mover.move_run(&pinned, 0..2, u64::MAX, PINS), Err(MoveError::Outside));
    assert_eq!(mover.move_run(&pinned, 0..2, 1, PINS), Err(MoveError::InUse { page: 1 }));
    assert_eq!(mover.move_run(&pinned, 0..2, 4, PINS), Ok(()));
    assert_eq!(file.discard(4..5), Err(LiveError::InUse { page: 4 }));
    assert_eq!(file.discard(2..4), Ok(()));
    assert!(matches!(file.discard(7..9), Err(LiveError::Outside { .. })));
    assert!(matches!(
        file.map(8, 1, Access::Pinned, Reach::Processors),
        Err(LiveError::Outside { .. })
    ));
    assert!(matches!(LiveFile::new(0), Err(LiveError::Outside { .. })));
}

/// Moves runs until the budget of mappings is used up: each moved run is a mapping of its own, without bound otherwise.
/// Source: docs/sources/backing.md#mover-vma-growth.
#[test]
fn mover_vma_growth() {
    let budget = 40;
    for (method, access) in methods() {
        let file = LiveFile::with_budget(400, Mappings::new(budget)).unwrap();
        let area = area(&file, 200, access);
        let mut mover = Mover::new();
        let moved = (0..100).map(|at| mover.move_run(&area, 2 * at..2 * at + 1, 399 - at, method));
        let results: Vec<_> = moved.collect();
        let refused = results.iter().position(Result::is_err).expect("the budget is used up");
        assert_eq!(results[refused], Err(MoveError::MappingBudget { budget }));
        assert!(refused >= 15, "two mappings for each run: {refused}");
        let model = vec![0; 200];
        let shows: Vec<_> = (0..200).map(|page| area.shows(page).unwrap()).collect();
        check(&area, &model, &shows);
        assert!(file.mappings().used() <= budget);
        // Back beside its neighbours, a run needs no mapping; and then there is room again.
        assert_eq!(mover.move_run(&area, 2..3, 2, method), Ok(()), "{method:?}");
        assert_eq!(mover.move_run(&area, 150..151, 300, method), Ok(()));
        let full = budget - file.mappings().used();
        let kept: Vec<_> =
            (0..full).map(|_| file.map(399, 1, access, Reach::Processors).unwrap()).collect();
        let another = file.map(399, 1, access, Reach::Processors);
        assert_eq!(another.err(), Some(LiveError::MappingBudget { budget }));
        drop(kept);
    }
}

/// Returns the calls of a move that may be made to fail, each with the number of such calls before it.
fn calls(method: Method) -> Vec<(Call, u32)> {
    match method {
        Method::Pins(_) => vec![(Call::Mmap, 0)],
        Method::Mprotect => vec![(Call::Mprotect, 0), (Call::Mmap, 0)],
        // Register, protect, and after the mapping wake and read.
        Method::WriteProtect(_) => {
            let requests = (0..4).map(|after| (Call::UserfaultfdRequest, after));
            requests.chain([(Call::Mmap, 0)]).collect()
        }
    }
}

/// Returns true if all pages can be written, by a thread that is not the mover.
fn can_be_written(area: &LiveArea<'_>, value: u64) -> bool {
    let write = || (0..area.pages() as usize).for_each(|page| write(area, page, value));
    thread::scope(|scope| scope.spawn(write).join().is_ok())
}

#[test]
fn whatever_call_fails_a_move_is_done_or_undone_and_nobody_waits() {
    let errors = [Errno::NOMEM, Errno::AGAIN, Errno::INTR, Errno::PERM];
    for (method, access) in methods() {
        for (call, after) in calls(method) {
            for (error, times) in errors.into_iter().flat_map(|e| [(e, 1), (e, 1000)]) {
                let file = LiveFile::new(8).unwrap();
                let area = area(&file, 4, access);
                (0..4).for_each(|page| write(&area, page, page as u64));
                let mut mover = Mover::new();
                if let Method::WriteProtect(_) = method {
                    mover.userfaultfd().unwrap();
                }
                let armed = faults::inject([Fault { call, after, times, error }]);
                let result = mover.move_run(&area, 1..3, 5, method);
                drop(armed);
                let case = format!("{method:?}: {call:?} {after} {error} {times}: {result:?}");
                let passing = matches!(error, Errno::AGAIN | Errno::INTR) && times == 1;
                // A failure after the new mapping exists does not undo it.
                let late = call == Call::UserfaultfdRequest && after >= 2;
                assert_eq!(result.is_ok(), passing || late, "{case}");
                let shows = if result.is_ok() { [0, 5, 6, 3] } else { [0, 1, 2, 3] };
                mover.settle(&area).unwrap();
                check(&area, &[0, 1, 2, 3], &shows);
                assert!(can_be_written(&area, 9), "{case}");
                let again = if result.is_ok() { 1 } else { 5 };
                assert_eq!(mover.move_run(&area, 1..3, again, method), Ok(()), "{case}");
                let shows = if result.is_ok() { [0, 1, 2, 3] } else { [0, 5, 6, 3] };
                check(&area, &[9; 4], &shows);
            }
        }
    }
}

#[test]
fn writers_lose_nothing_while_calls_fail_at_random() {
    for (method, access) in methods() {
        let file = LiveFile::new(8).unwrap();
        let area = area(&file, 4, access);
        let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        let count_up = || {
            let mut last = [0; 4];
            while !stop.load(Ordering::Relaxed) {
                for (page, last) in last.iter_mut().enumerate() {
                    let pin = (access == Access::Pinned).then(|| area.pin().unwrap());
                    let words = pin.as_deref().or_else(|| area.words()).unwrap();
                    let word = &words[page * WORDS + 8];
                    assert_eq!(word.load(Ordering::Relaxed), *last, "a write was lost");
                    *last += 1;
                    word.store(*last, Ordering::Relaxed);
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| {
            let writer = scope.spawn(count_up);
            while writes.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            let mut random = Pcg64Mcg::seed_from_u64(11);
            let mut mover = Mover::new();
            let mut moved = 0;
            for _ in 0..200 {
                let calls =
                    [Call::Mmap, Call::Mprotect, Call::UserfaultfdRequest, Call::Userfaultfd];
                let faults = calls.map(|call| Fault {
                    call,
                    after: random.random_range(0..8),
                    times: random.random_range(0..3) * random.random_range(0..90),
                    error: [Errno::NOMEM, Errno::AGAIN, Errno::INTR][random.random_range(0..3)],
                });
                let armed = faults::inject(faults);
                let to = (area.shows(0).unwrap() + 4) % 8;
                let method = if method == PINS { Method::default() } else { method };
                moved += u64::from(mover.move_run(&area, 0..4, to, method).is_ok());
                drop(armed);
                let _ = mover.settle(&area);
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap();
            assert!(moved > 0, "{method:?}");
        });
        assert!(writes.into_inner() > 0);
    }
}

#[test]
fn without_permission_the_error_says_what_to_do() {
    let file = LiveFile::new(2).unwrap();
    let area = area(&file, 1, Access::Direct);
    for error in [Errno::PERM, Errno::ACCESS] {
        let armed = faults::inject([Fault::always(Call::Userfaultfd, error)]);
        let refused = Mover::new().move_run(&area, 0..1, 1, PROTECT).unwrap_err();
        drop(armed);
        assert_eq!(refused, MoveError::Userfaultfd(OpenError::NotAllowed(error)));
        assert!(refused.to_string().contains("vm.unprivileged_userfaultfd"), "{refused}");
    }
    let armed = faults::inject([Fault::always(Call::Userfaultfd, Errno::NOSYS)]);
    let refused = Mover::new().move_run(&area, 0..1, 1, PROTECT);
    drop(armed);
    assert_eq!(refused, Err(MoveError::Userfaultfd(OpenError::NotBuilt)));
    assert_eq!(Mover::new().move_run(&area, 0..1, 1, Method::Mprotect), Ok(()));
}

#[test]
fn an_area_that_cannot_be_unmapped_stays_booked_until_it_can() {
    let file = LiveFile::new(4).unwrap();
    let first = area(&file, 2, Access::Pinned);
    let armed = faults::inject([Fault::once(Call::Munmap, Errno::NOMEM)]);
    drop(first);
    drop(armed);
    assert_eq!((file.left(), file.mappings().used(), file.shown(0)), (1, 2, 1));
    let second = file.map(2, 2, Access::Pinned, Reach::Processors).unwrap();
    assert_eq!((file.left(), file.mappings().used(), file.shown(0)), (0, 2, 0));
    let armed = faults::inject([Fault::once(Call::Mmap, Errno::NOMEM)]);
    let refused = file.map(0, 2, Access::Pinned, Reach::Processors);
    drop(armed);
    assert_eq!(refused.err(), Some(LiveError::System(Errno::NOMEM)));
    assert_eq!((file.mappings().used(), file.shown(0), second.pages()), (2, 0, 2));
    for call in [Call::MemfdCreate, Call::Ftruncate, Call::Seal, Call::Mmap] {
        let armed = faults::inject([Fault::once(call, Errno::NOMEM)]);
        assert!(matches!(LiveFile::new(1), Err(LiveError::System(Errno::NOMEM))), "{call:?}");
        drop(armed);
    }
}

#[test]
fn a_protection_that_could_not_be_taken_back_is_owed() {
    let file = LiveFile::new(4).unwrap();
    let area = area(&file, 2, Access::Direct);
    let mut mover = Mover::new();
    let mapping = Fault::always(Call::Mmap, Errno::NOMEM);
    let protection = Fault { after: 1, ..Fault::always(Call::Mprotect, Errno::NOMEM) };
    let armed = faults::inject([mapping, protection]);
    let failed = Err(MoveError::System { step: Step::Map, error: Errno::NOMEM });
    assert_eq!(mover.move_run(&area, 0..2, 2, Method::Mprotect), failed);
    let owed = Err(MoveError::System { step: Step::Settle, error: Errno::NOMEM });
    assert_eq!(mover.settle(&area), owed);
    assert_eq!(mover.move_run(&area, 0..2, 2, PROTECT), owed, "it comes first");
    drop(armed);
    thread::scope(|scope| {
        // The writer tries again and again until the debt is paid.
        let writer = scope.spawn(|| area.words().unwrap()[0].store(5, Ordering::Relaxed));
        assert_eq!(mover.settle(&area), Ok(()));
        writer.join().unwrap();
    });
    assert_eq!(area.words().unwrap()[0].load(Ordering::Relaxed), 5);
}
