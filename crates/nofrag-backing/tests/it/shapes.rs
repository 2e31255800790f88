//! A buffer that is never copied, a ring without a seam, and guarded memories in one area.

use std::collections::VecDeque;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::thread;

use crate::maps;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::shapes::{GrowableBuffer, Guards, PoolSizes, ShapeError, SlotPool, ring};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rustix::io::Errno;

use crate::children::Process;

#[test]
fn a_growable_buffer_is_a_vec_that_never_moves() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut buffer = GrowableBuffer::with_capacity(100_000).unwrap();
    assert_eq!(buffer.capacity(), 102_400);
    let (address, mut model) = (buffer.as_ptr(), Vec::new());
    for _ in 0..2000 {
        match rng.random_range(0..6) {
            0 | 1 => {
                let mut bytes = vec![0; rng.random_range(0..5000)];
                rng.fill_bytes(&mut bytes);
                match buffer.extend_from_slice(&bytes) {
                    Ok(()) => model.extend_from_slice(&bytes),
                    Err(why) => {
                        let wanted = model.len() + bytes.len();
                        assert_eq!(why, ShapeError::Full { wanted, capacity: 102_400 });
                    }
                }
            }
            2 => {
                let len = rng.random_range(0..110_000);
                match buffer.resize(len) {
                    Ok(()) => model.resize(len, 0),
                    Err(_) => assert!(len > 102_400),
                }
            }
            3 => {
                let len = rng.random_range(0..110_000);
                buffer.truncate(len);
                model.truncate(len);
            }
            4 => _ = buffer.purge().unwrap(),
            _ => {
                let _armed = faults::inject([Fault::once(Call::Madvise, Errno::NOMEM)]);
                let _ = buffer.purge();
            }
        }
        assert_eq!(*buffer, *model);
        assert_eq!(buffer.as_ptr(), address);
    }
    buffer.resize(102_400 - 3).unwrap();
    assert_eq!(buffer.write(b"hello").unwrap(), 3);
}

#[test]
fn growing_makes_no_system_call() {
    let mut buffer = GrowableBuffer::with_capacity(64 << 30).unwrap();
    let before = faults::made();
    buffer.resize(32 << 30).unwrap();
    buffer.extend_from_slice(b"end").unwrap();
    assert_eq!(faults::made().since(&before).total(), 0);
    assert_eq!((buffer[1 << 30], &buffer[32 << 30..]), (0, &b"end"[..]));
    buffer.truncate(0);
    buffer.purge().unwrap();
    assert_eq!(faults::made().since(&before).total(), 1);
}

#[test]
fn shapes_say_what_the_system_refused() {
    for capacity in [0, usize::MAX, usize::MAX / 2 + 1] {
        assert_eq!(GrowableBuffer::with_capacity(capacity).unwrap_err(), ShapeError::Sizes);
    }
    assert_eq!(ring(usize::MAX).unwrap_err(), ShapeError::Sizes);
    let sizes = PoolSizes { slots: 4, memory: 4096, guard: 4096, batch: 2 };
    for none in [PoolSizes { slots: 0, ..sizes }, PoolSizes { memory: 0, ..sizes }] {
        assert_eq!(SlotPool::new(none).unwrap_err(), ShapeError::Sizes);
    }
    type Make<'a> = &'a dyn Fn() -> Result<(), ShapeError>;
    let make: [(&str, Make<'_>); 3] = [
        ("buffer", &|| GrowableBuffer::with_capacity(1 << 20).map(drop)),
        ("ring", &|| ring(1 << 16).map(drop)),
        ("pool", &|| SlotPool::new(sizes).map(drop)),
    ];
    for (name, make) in make {
        // Work that is done once in a process is done now.
        make().unwrap();
        let before = faults::made();
        let areas = maps::own().len();
        make().unwrap();
        let made = faults::made().since(&before);
        for call in Call::ALL.into_iter().filter(|&call| call != Call::Munmap) {
            for after in 0..made.of(call) {
                let fault = Fault { after: after as u32, ..Fault::once(call, Errno::NOMEM) };
                let _armed = faults::inject([fault]);
                let refused = make().unwrap_err();
                let said = matches!(refused, ShapeError::System { error: Errno::NOMEM, .. });
                assert!(said, "{name}, {call:?} {after}: {refused}");
            }
        }
        // Other tests map too, but not by the dozen.
        assert!(maps::own().len() < areas + 100, "{name} leaves mappings behind");
    }
}

#[test]
fn a_ring_is_a_queue_of_bytes_without_a_seam() {
    let mut rng = SmallRng::seed_from_u64(2);
    let (mut producer, mut consumer) = ring(1).unwrap();
    assert_eq!((producer.capacity(), consumer.capacity()), (4096, 4096));
    let mut model: VecDeque<u8> = VecDeque::new();
    for _ in 0..5000 {
        let bytes = rng.random_range(0..5000);
        if rng.random_bool(0.5) {
            let fits = model.len() + bytes <= 4096;
            let Some(mut room) = producer.room(bytes) else {
                assert!(!fits);
                continue;
            };
            assert!(fits && room.len() == bytes);
            rng.fill_bytes(&mut room);
            let used = rng.random_range(0..=bytes);
            model.extend(&room[..used]);
            room.publish(used);
        } else {
            let readable = consumer.readable();
            assert!(readable.iter().eq(&model));
            let used = bytes.min(readable.len());
            model.drain(..used);
            consumer.release(if used == bytes { used } else { bytes });
        }
    }
    assert!(!producer.push(&[0; 4097]));
    drop(producer);
    assert!(consumer.is_closed() && consumer.readable().iter().eq(&model));
}

#[test]
fn threads_pass_messages_through_a_ring() {
    let (mut producer, mut consumer) = ring(1 << 14).unwrap();
    let writer = thread::spawn(move || {
        let mut rng = SmallRng::seed_from_u64(3);
        for number in 0..20_000_u32 {
            let bytes = rng.random_range(4..2000);
            let mut room = loop {
                // The borrow checker does not see that a refusal borrows nothing, so this asks twice.
                if producer.room(bytes).is_some() {
                    break producer.room(bytes).unwrap();
                }
                thread::yield_now();
            };
            room.fill(number as u8);
            room[..4].copy_from_slice(&number.to_ne_bytes());
            room.publish(bytes);
        }
    });
    let mut rng = SmallRng::seed_from_u64(3);
    for number in 0..20_000_u32 {
        let bytes = rng.random_range(4..2000);
        while consumer.readable().len() < bytes {
            thread::yield_now();
        }
        let message = &consumer.seen()[..bytes];
        assert_eq!(message[..4], number.to_ne_bytes());
        assert!(message[4..].iter().all(|&byte| byte == number as u8));
        consumer.release(bytes);
    }
    writer.join().unwrap();
    assert!(consumer.is_closed() && consumer.readable().is_empty());
}

fn pool(slots: u32) -> SlotPool {
    SlotPool::new(PoolSizes { slots, memory: 16 << 10, guard: 4096, batch: 16 }).unwrap()
}

#[test]
fn contents_never_reach_the_next_user() {
    let mut rng = SmallRng::seed_from_u64(4);
    let pool = pool(64);
    let mut slots = Vec::new();
    let refusals = [Call::Madvise, Call::ProcessMadvise];
    for _ in 0..3000 {
        // Now and then the system refuses to take contents back, for a while.
        let refuse = rng.random_bool(0.2);
        let faults = refusals.map(|call| Fault::always(call, Errno::NOMEM));
        let _armed = refuse.then(|| faults::inject(faults));
        if rng.random_bool(0.5) {
            match pool.take() {
                Ok(mut slot) => {
                    assert!(slot.iter().all(|&byte| byte == 0), "slot {}", slot.number());
                    slot.fill(7);
                    slots.push(slot);
                }
                Err(why) => {
                    assert_eq!(why, ShapeError::NoSlot { slots: 64 });
                    assert_eq!(slots.len(), 64);
                }
            }
        } else if !slots.is_empty() {
            slots.swap_remove(rng.random_range(0..slots.len()));
        }
    }
    // From here on it always refuses: the last resort is to overwrite.
    let _armed = faults::inject(refusals.map(|call| Fault::always(call, Errno::NOMEM)));
    slots.clear();
    slots.extend((0..64).map(|_| pool.take().unwrap()));
    assert!(slots.iter().all(|slot| slot.iter().all(|&byte| byte == 0)));
    let counts = pool.counts();
    assert!(counts.refused > 0 && counts.zeroed > 0 && counts.purged > counts.purges, "{counts:?}");
}

#[test]
fn a_pool_is_one_area_and_its_purges_are_few_calls() {
    let pool = pool(2000);
    if pool.guards() == Guards::Areas {
        return eprintln!("skipped: guards in page tables need Linux 6.13");
    }
    let mut slots: Vec<_> = (0..2000).map(|_| pool.take().unwrap()).collect();
    let first = slots[0].as_ptr().addr() as u64;
    slots.iter_mut().for_each(|slot| slot[0] = 1);
    let own = maps::own();
    let inside =
        |line: &&maps::MapsLine| line.start < first + 2000 * (20 << 10) && line.end > first;
    // A neighbour may have become one area with it.
    assert_eq!(own.iter().filter(inside).count(), 1);
    let before = faults::made();
    drop(slots);
    let made = faults::made().since(&before);
    assert!(made.total() <= 2000 / 16, "{made:?}");
    assert!(pool.take().unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn old_kernels_get_areas_for_guards_within_the_budget() {
    // The first pool of a process gives advice about the page that tells children apart, too.
    drop(pool(1));
    let old = || faults::inject([Fault::once(Call::Madvise, Errno::INVAL)]);
    // The first advice keeps the pool from children.
    let second = Fault { after: 1, ..Fault::once(Call::Madvise, Errno::INVAL) };
    {
        let _armed = faults::inject([second]);
        let pool = pool(8);
        assert_eq!(pool.guards(), Guards::Areas);
        assert!(pool.take().unwrap().iter().all(|&byte| byte == 0));
    }
    {
        let _armed = faults::inject([second]);
        let sizes = PoolSizes { slots: 1 << 24, memory: 4096, guard: 4096, batch: 1 };
        assert!(matches!(SlotPool::new(sizes), Err(ShapeError::TooManyAreas { .. })));
    }
    let _armed = old();
    assert!(matches!(
        SlotPool::new(PoolSizes { slots: 1, memory: 1, guard: 1, batch: 1 }),
        Err(ShapeError::System { error: Errno::INVAL, .. })
    ));
}

#[test]
fn who_runs_over_a_memory_ends() {
    for test in ["shapes::run_over_a_memory", "shapes::run_over_a_memory_that_was_purged"] {
        let status = Process::run(test).ends();
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{test}: {status}");
    }
}

fn run_over(pool: &SlotPool) {
    // The process is meant to end: no image of it is left behind.
    let none = rustix::process::DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(none).unwrap();
    let slot = pool.take().unwrap();
    let end = slot.as_ptr().wrapping_add(slot.len()).cast_mut();
    // SAFETY: none: this tests the guard, and the process ends here.
    unsafe { end.write_volatile(1) };
}

/// Writes behind a memory: as a child of `who_runs_over_a_memory_ends`.
#[test]
#[ignore = "ends the process, as it should"]
fn run_over_a_memory() {
    run_over(&pool(2));
}

/// Writes behind a memory that was purged: as a child of `who_runs_over_a_memory_ends`.
#[test]
#[ignore = "ends the process, as it should"]
fn run_over_a_memory_that_was_purged() {
    let pool = pool(2);
    drop((pool.take().unwrap(), pool.take().unwrap()));
    assert_eq!(pool.purge(), 2);
    run_over(&pool);
}
