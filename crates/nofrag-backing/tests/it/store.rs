//! Objects in shared memory: against a model, to the last bytes, and when processes die.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nofrag::check::Check as _;
use nofrag_backing::faults::{self, Call, Fault};
use nofrag_backing::shared::{Handle, Invitation, Peer, SharedError, Succession};
use nofrag_backing::store::{Compaction, Config, Memory, ObjectStore, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rustix::io::Errno;

use crate::children::{Process, hear, parent, say};

/// Bytes that tell what they should be: a seed, then numbers that follow from it and their place.
fn fill(bytes: &mut [u8], seed: u64, from: usize) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        let at = from + at;
        *byte = if at < 8 { seed.to_le_bytes()[at] } else { expected(seed, at) };
    }
}

fn expected(seed: u64, at: usize) -> u8 {
    (seed.wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some((seed, rest)) = bytes.split_first_chunk::<8>() else { return false };
    let seed = u64::from_le_bytes(*seed);
    rest.iter().enumerate().all(|(at, &byte)| byte == expected(seed, at + 8))
}

fn put(store: &ObjectStore, seed: u64, bytes: u64) -> Result<Handle, StoreError> {
    let mut writer = store.create_object(bytes)?;
    fill(&mut writer, seed, 0);
    Ok(writer.seal())
}

fn put_more(store: &ObjectStore, handle: Handle, more: u64) -> Result<Handle, StoreError> {
    let (seed, old) = {
        let object = store.get(handle)?;
        (u64::from_le_bytes(*object.first_chunk().unwrap()), object.len())
    };
    let mut writer = store.grow(handle, more)?;
    fill(&mut writer, seed, old);
    Ok(writer.seal())
}

fn small(bytes: u64) -> Config {
    Config { objects: 512, processes: 4, ..Config::new(bytes) }
}

/// What is in the store by a model that knows no places.
#[derive(Default)]
struct Model(HashMap<u64, Vec<u8>>);

impl Model {
    fn any(&self, rng: &mut SmallRng) -> Option<Handle> {
        let mut all: Vec<u64> = self.0.keys().copied().collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| Handle::from_bits(all[rng.random_range(0..all.len())]))
    }

    fn check(&self, store: &ObjectStore, peer: &Peer) {
        store.check().unwrap();
        assert_eq!(store.stats().objects, self.0.len() as u64);
        for (&bits, bytes) in &self.0 {
            let handle = Handle::from_bits(bits);
            assert_eq!(&*store.get(handle).unwrap(), bytes);
            assert_eq!(&peer.try_pin(handle).unwrap().to_vec().unwrap(), bytes);
        }
    }
}

fn check_against_model(seed: u64, compaction: Compaction) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let config = Config { compaction, patience: Duration::ZERO, ..small(64 << 10) };
    let store = ObjectStore::create(config).unwrap();
    let peer = Peer::attach(&store.invite().unwrap()).unwrap();
    let mut model = Model::default();
    let mut ended = Vec::new();
    let mut pinned = Vec::new();
    for step in 0..600 {
        match rng.random_range(0..100) {
            0..40 => {
                let bytes = rng.random_range(8..4000);
                match put(&store, rng.next_u64(), bytes) {
                    Ok(handle) => {
                        let object = store.get(handle).unwrap().to_vec();
                        assert!(is_whole(&object) && object.len() as u64 == bytes);
                        assert_eq!(model.0.insert(handle.to_bits(), object), None);
                    }
                    Err(StoreError::Exhausted { bytes, largest, .. }) => {
                        assert!(largest < bytes, "seed {seed}, step {step}");
                    }
                    Err(why) => panic!("seed {seed}, step {step}: {why}"),
                }
            }
            40..65 => {
                let Some(handle) = model.any(&mut rng) else { continue };
                store.delete(handle).unwrap();
                model.0.remove(&handle.to_bits());
                ended.push(handle);
            }
            65..80 => {
                let Some(handle) = model.any(&mut rng) else { continue };
                if put_more(&store, handle, rng.random_range(1..2000)).is_ok() {
                    let object = store.get(handle).unwrap().to_vec();
                    assert!(is_whole(&object), "seed {seed}, step {step}");
                    let old = model.0.insert(handle.to_bits(), object).unwrap();
                    assert!(old.len() < model.0[&handle.to_bits()].len());
                }
            }
            80..85 => drop(store.create_object(rng.random_range(1..4000))),
            85..88 => _ = model.any(&mut rng).map(|handle| store.grow(handle, 100).map(drop)),
            88..92 => {
                let done = store.compact(rng.random_range(0..20_000));
                assert!(done.after >= done.before, "seed {seed}, step {step}: {done:?}");
            }
            92..96 => {
                let Some(handle) = model.any(&mut rng) else { continue };
                let pin = peer.try_pin(handle).unwrap();
                pinned.push((pin.offset(), model.0[&handle.to_bits()].clone(), pin));
            }
            96..98 => pinned.clear(),
            _ => _ = store.purge().unwrap(),
        }
        model.check(&store, &peer);
        for (offset, bytes, pin) in &pinned {
            assert_eq!((pin.offset(), &pin.to_vec().unwrap()), (*offset, bytes));
        }
    }
    for handle in ended {
        assert_eq!(store.get(handle).unwrap_err(), SharedError::Stale);
        assert_eq!(peer.try_pin(handle).unwrap_err(), SharedError::Stale);
        assert!(store.delete(handle).is_err());
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..6 {
        check_against_model(seed, Compaction::OnDemand);
        check_against_model(seed, Compaction::Manual);
    }
}

/// Random objects up to nine tenths, then growing ones: half of the small ones go, and larger ones come, until nothing
/// fits. No request is refused while what it asks for and what lives make less than 99 of 100.
#[test]
fn nothing_is_refused_below_99_percent() {
    let bytes = 8 << 20;
    let store = ObjectStore::create(Config::new(bytes)).unwrap();
    let mut rng = SmallRng::seed_from_u64(7);
    let mut live = Vec::new();
    while store.stats().live < bytes * 9 / 10 {
        live.push(put(&store, rng.next_u64(), rng.random_range(8..8 << 10)).unwrap());
    }
    let mut size = 16 << 10;
    let refused = loop {
        while store.stats().live + size > bytes * 92 / 100 && live.len() > 100 {
            store.delete(live.swap_remove(rng.random_range(0..live.len()))).unwrap();
        }
        let which = live[rng.random_range(0..live.len())];
        let grown = put_more(&store, which, rng.random_range(1..8 << 10)).map(drop);
        let result = grown.and_then(|()| put(&store, rng.next_u64(), size));
        match result {
            Ok(handle) => live.push(handle),
            Err(StoreError::Exhausted { bytes, free, .. }) => break (bytes, free),
            Err(why) => panic!("{why}"),
        }
        size += size / 16;
        if size > bytes / 3 {
            // Larger ones would leave too few: go on to the brim with those.
            size = 40 << 10;
            live.truncate(0);
            live.extend(store.handles());
            while let Ok(handle) = put(&store, rng.next_u64(), size) {
                live.push(handle);
            }
            let stats = store.stats();
            break (40 << 10, stats.free);
        }
    };
    store.check().unwrap();
    assert!(refused.1 < refused.0, "{refused:?} was refused although it fits: {:?}", store.stats());
    let stats = store.stats();
    assert!(stats.live + refused.0 >= bytes / 100 * 99, "{stats:?}");
    assert!(stats.moved <= stats.least * 3, "{stats:?}");
    assert!(live.iter().all(|&handle| is_whole(&store.get(handle).unwrap())));
}

#[test]
fn what_is_pinned_stays_where_it_is() {
    let config = Config { patience: Duration::from_millis(1), ..small(64 << 10) };
    let store = ObjectStore::create(config).unwrap();
    let all: Vec<Handle> = (0..16).map(|seed| put(&store, seed, 4096).unwrap()).collect();
    let held = [store.get(all[7]).unwrap(), store.get(all[9]).unwrap()];
    all.iter().step_by(2).for_each(|&handle| store.delete(handle).unwrap());
    let addresses = held.each_ref().map(|object| object.as_ptr());
    // Half is free, but there are only seven places in a row without a pinned one.
    let refused = store.create_object(32 << 10);
    assert!(matches!(refused, Err(StoreError::Exhausted { pinned: 2, .. })));
    assert!(put(&store, 99, 28 << 10).is_ok());
    assert_eq!(held.each_ref().map(|object| object.as_ptr()), addresses);
    assert!(held.iter().all(|object| is_whole(object)));
    drop(held);
    assert!(put(&store, 99, 4 << 10).is_ok());
    store.check().unwrap();
}

#[test]
fn objects_that_were_given_up_can_be_read_by_those_who_have_them() {
    let store = ObjectStore::create(small(8 << 10)).unwrap();
    let peer = Peer::attach(&store.invite().unwrap()).unwrap();
    let handle = put(&store, 5, 8 << 10).unwrap();
    let pin = peer.try_pin(handle).unwrap();
    store.delete(handle).unwrap();
    assert_eq!(peer.try_pin(handle).unwrap_err(), SharedError::Stale);
    assert!(matches!(store.create_object(64), Err(StoreError::Exhausted { .. })));
    assert!(is_whole(&pin.to_vec().unwrap()));
    drop(pin);
    // The place is collected before anything is refused.
    assert!(store.create_object(64).is_ok());
}

#[test]
fn guards_that_were_forgotten_end_with_their_peer() {
    let store = ObjectStore::create(small(8 << 10)).unwrap();
    let peer = Peer::attach(&store.invite().unwrap()).unwrap();
    let handle = put(&store, 5, 8 << 10).unwrap();
    std::mem::forget(peer.try_pin(handle).unwrap());
    store.delete(handle).unwrap();
    assert_eq!((store.collect(), store.attached()), (0, 1));
    drop(peer);
    assert_eq!((store.collect(), store.attached()), (8 << 10, 0));
}

#[test]
fn handles_that_were_made_up_name_nothing() {
    let store = ObjectStore::create(small(8 << 10)).unwrap();
    let peer = Peer::attach(&store.invite().unwrap()).unwrap();
    let good = put(&store, 1, 100).unwrap();
    for bits in [0, 1, u64::MAX, good.to_bits() + 1, good.to_bits() + (1 << 32), 511, 512, 1 << 63]
    {
        let handle = Handle::from_bits(bits);
        assert_eq!(store.get(handle).unwrap_err(), SharedError::Stale);
        assert_eq!(peer.try_pin(handle).unwrap_err(), SharedError::Stale);
        assert_eq!(store.delete(handle).unwrap_err(), SharedError::Stale.into());
        assert_eq!(store.grow(handle, 1).unwrap_err(), SharedError::Stale.into());
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let store = ObjectStore::create(Config { objects: 2, ..small(8 << 10) }).unwrap();
    assert_eq!(store.create_object(0).unwrap_err(), StoreError::Empty);
    for bytes in [8193, u64::MAX] {
        assert!(matches!(store.create_object(bytes), Err(StoreError::Exhausted { .. })));
    }
    let handle = put(&store, 1, 100).unwrap();
    assert_eq!(store.grow(handle, 0).unwrap_err(), StoreError::Empty);
    assert_eq!(store.grow(handle, u64::MAX).unwrap_err(), StoreError::Empty);
    let writer = store.grow(handle, 100).unwrap();
    assert_eq!(store.grow(handle, 1).unwrap_err(), StoreError::Busy);
    assert_eq!(store.delete(handle).unwrap_err(), StoreError::Busy);
    drop(writer);
    let second = store.create_object(1).unwrap();
    let none_left = SharedError::TooManyEntries { entries: 2 };
    assert_eq!(store.create_object(1).unwrap_err(), none_left.into());
    drop(second);
    for config in [Config::new(0), Config { objects: 0, ..small(1) }, Config::new(u64::MAX)] {
        assert!(ObjectStore::create(config).is_err(), "{config:?}");
    }
    store.check().unwrap();
}

#[test]
fn a_store_has_one_owner() {
    let store = ObjectStore::create(small(8 << 10)).unwrap();
    let succession = store.succession().unwrap();
    let refused = ObjectStore::take_over(&succession, small(0)).unwrap_err();
    assert_eq!(refused, SharedError::OwnerLives.into());
    let handle = put(&store, 3, 1000).unwrap();
    drop(store);
    let (store, recovered) = ObjectStore::take_over(&succession, small(0)).unwrap();
    assert_eq!((recovered.objects, recovered.damaged), (1, 0));
    assert!(is_whole(&store.get(handle).unwrap()));
    store.check().unwrap();
}

#[test]
fn memory_of_holes_is_given_back() {
    let config = Config { memory: Memory::AtOnce, ..small(1 << 20) };
    let store = ObjectStore::create(config).unwrap();
    let keep = put(&store, 1, 300_000).unwrap();
    let handle = put(&store, 2, 300_000).unwrap();
    store.delete(handle).unwrap();
    let purged = store.purge().unwrap();
    assert!(purged >= (1 << 20) - 300_000 - 8192 && purged.is_multiple_of(4096));
    assert!(is_whole(&store.get(keep).unwrap()));
    assert!(put(&store, 3, 600_000).is_ok());
    let _armed = faults::inject([Fault::once(Call::Fallocate, Errno::NOMEM)]);
    assert!(matches!(store.purge(), Err(SharedError::System { error: Errno::NOMEM, .. })));
    store.check().unwrap();
}

#[test]
fn whatever_the_system_refuses_is_an_error_that_changes_nothing() {
    let store = ObjectStore::create(small(64 << 10)).unwrap();
    let handle = put(&store, 1, 1000).unwrap();
    let invitation = store.invite().unwrap();
    let tried: [(&str, &dyn Fn() -> bool); 4] = [
        ("create", &|| {
            ObjectStore::create(Config { memory: Memory::AtOnce, ..small(4096) }).is_err()
        }),
        ("invite", &|| store.invite().is_err()),
        ("attach", &|| Peer::attach(&invitation).is_err()),
        ("take over", &|| {
            let other = ObjectStore::create(small(4096)).unwrap();
            put(&other, 1, 100).unwrap();
            let succession = other.succession().unwrap();
            drop(other);
            ObjectStore::take_over(&succession, small(0)).is_err()
        }),
    ];
    for (name, action) in tried {
        let before = faults::made();
        assert!(!action(), "{name}");
        let made = faults::made().since(&before);
        for call in Call::ALL {
            // What was made to prepare the last one fails there with a panic, so only calls of its own are refused.
            let skip = if name == "take over" { prepared(call) } else { 0 };
            // Giving memory and locks back cannot fail in a way that matters.
            let must = if call == Call::Munmap { 0 } else { made.of(call) };
            for after in skip..must {
                let fault = Fault { after: after as u32, ..Fault::once(call, Errno::NOMEM) };
                let _armed = faults::inject([fault]);
                assert!(action(), "{name} does without its {call:?} number {after}");
            }
        }
    }
    assert!(is_whole(&store.get(handle).unwrap()));
    store.check().unwrap();
}

/// Calls that making a store and asking for its succession take.
fn prepared(call: Call) -> u64 {
    let before = faults::made();
    let other = ObjectStore::create(small(4096)).unwrap();
    drop(other.succession().unwrap());
    drop(other);
    faults::made().since(&before).of(call)
}

// Other processes.

#[test]
fn another_process_reads_while_objects_move() {
    let store = ObjectStore::create(small(256 << 10)).unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    let all: Vec<Handle> = (0..60).map(|seed| put(&store, seed, 3000).unwrap()).collect();
    let child = Process::run("store::read_everything_again_and_again");
    store.invite().unwrap().send(&child.socket).unwrap();
    say(&child.socket, all.len() as u64);
    all.iter().for_each(|handle| say(&child.socket, handle.to_bits()));
    assert_eq!(hear(&child.socket), 1);
    let begin = Instant::now();
    let mut extra: Vec<Handle> = Vec::new();
    while begin.elapsed() < Duration::from_millis(500) {
        if extra.len() > 8 {
            store.delete(extra.swap_remove(rng.random_range(0..extra.len()))).unwrap();
        }
        if let Ok(handle) = put(&store, rng.next_u64(), rng.random_range(8..20_000)) {
            extra.push(handle);
        }
        store.compact(1 << 16);
    }
    say(&child.socket, 0);
    let read = hear(&child.socket);
    assert!(store.stats().moves > 0 && read > 0, "{:?}, {read} objects read", store.stats());
    child.succeeds();
    store.check().unwrap();
}

/// The child of the test above.
#[test]
#[ignore = "a child of another test"]
fn read_everything_again_and_again() {
    let socket = parent();
    let peer = Peer::attach(&Invitation::receive(&socket).unwrap()).unwrap();
    let count = hear(&socket);
    let all: Vec<Handle> = (0..count).map(|_| Handle::from_bits(hear(&socket))).collect();
    say(&socket, 1);
    socket.set_nonblocking(true).unwrap();
    let mut read = 0_u64;
    let mut end = [0; 8];
    while rustix::net::recv(&socket, &mut end, rustix::net::RecvFlags::PEEK).is_err() {
        for &handle in &all {
            let object = peer.pin(handle, Duration::from_secs(10)).unwrap().to_vec().unwrap();
            assert!(is_whole(&object) && object.len() == 3000);
            read += 1;
        }
    }
    socket.set_nonblocking(false).unwrap();
    assert_eq!(hear(&socket), 0);
    say(&socket, read);
}

#[test]
fn pins_of_a_dead_process_are_released_and_those_of_the_living_are_not() {
    let config = Config { patience: Duration::from_millis(1), ..small(64 << 10) };
    let store = ObjectStore::create(config).unwrap();
    let handle = put(&store, 1, 64 << 10).unwrap();
    let mut children: Vec<Process> = (0..2)
        .map(|_| {
            let child = Process::run("store::pin_and_wait");
            store.invite().unwrap().send(&child.socket).unwrap();
            say(&child.socket, handle.to_bits());
            assert_eq!(hear(&child.socket), 1);
            child
        })
        .collect();
    assert_eq!((store.attached(), store.reap()), (2, 0));
    store.delete(handle).unwrap();
    children[0].kill();
    assert_eq!((store.reap(), store.attached()), (1, 1));
    assert_eq!(store.collect(), 0);
    {
        // Who cannot be asked about is taken to live.
        children[1].kill();
        let _armed = faults::inject([Fault::always(Call::PidfdOpen, Errno::MFILE)]);
        assert_eq!(store.collect(), 0);
    }
    assert_eq!(store.collect(), 64 << 10);
    assert_eq!(store.attached(), 0);
    store.check().unwrap();
}

/// The child of the test above.
#[test]
#[ignore = "a child of another test"]
fn pin_and_wait() {
    let socket = parent();
    let peer = Peer::attach(&Invitation::receive(&socket).unwrap()).unwrap();
    let handle = Handle::from_bits(hear(&socket));
    let _pin = peer.try_pin(handle).unwrap();
    say(&socket, 1);
    hear(&socket);
}

#[test]
fn an_owner_may_be_killed_at_any_moment() {
    let mut rng = SmallRng::seed_from_u64(11);
    let (mut found, mut finished) = (0, 0);
    for round in 0..24 {
        let mut child = Process::run("store::own_until_killed");
        say(&child.socket, round);
        let succession = Succession::receive(&child.socket).unwrap();
        let peer = Peer::attach(&Invitation::receive(&child.socket).unwrap()).unwrap();
        assert_eq!(hear(&child.socket), 1);
        std::thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
        child.kill();
        let config = Config { patience: Duration::from_millis(1), ..Config::new(0) };
        let (store, recovered) = ObjectStore::take_over(&succession, config).unwrap();
        store.check().unwrap();
        assert_eq!(recovered.damaged, 0, "round {round}: {recovered:?}");
        let handles = store.handles();
        assert_eq!(handles.len() as u64, recovered.objects);
        for &handle in &handles {
            assert!(is_whole(&store.get(handle).unwrap()), "round {round}, {recovered:?}");
            assert!(is_whole(&peer.try_pin(handle).unwrap().to_vec().unwrap()));
        }
        found += recovered.objects;
        finished += u64::from(recovered.finished_move);
        // It is a store like any other.
        handles.iter().step_by(2).for_each(|&handle| store.delete(handle).unwrap());
        let free = store.stats().free;
        assert!(put(&store, 1, free).is_ok(), "round {round}: {:?}", store.stats());
        store.check().unwrap();
    }
    assert!(found > 0);
    eprintln!("24 owners killed, {found} objects found, {finished} moves finished by successors");
}

/// The child of the test above: creates, grows, deletes and moves, with little room.
#[test]
#[ignore = "a child of another test"]
fn own_until_killed() {
    let socket = parent();
    let mut rng = SmallRng::seed_from_u64(hear(&socket));
    let store = ObjectStore::create(small(512 << 10)).unwrap();
    store.succession().unwrap().send(&socket).unwrap();
    store.invite().unwrap().send(&socket).unwrap();
    let mut live = Vec::new();
    let mut told = false;
    loop {
        match put(&store, rng.next_u64(), rng.random_range(8..16 << 10)) {
            Ok(handle) => live.push(handle),
            Err(_) => {
                if !told {
                    told = true;
                    say(&socket, 1);
                }
                for _ in 0..3 {
                    store.delete(live.swap_remove(rng.random_range(0..live.len()))).unwrap();
                }
            }
        }
        let which = live[rng.random_range(0..live.len())];
        let _ = put_more(&store, which, rng.random_range(1..4000));
        store.compact(1 << 20);
    }
}

#[test]
fn who_scribbles_over_the_table_harms_no_memory() {
    let mut rng = SmallRng::seed_from_u64(1);
    let config = Config { patience: Duration::from_micros(10), ..small(64 << 10) };
    let store = ObjectStore::create(config).unwrap();
    let invitation = store.invite().unwrap();
    let peer = Peer::attach(&invitation).unwrap();
    let (table, data) = invitation.into_descriptors();
    let (table, data) = (File::from(table), File::from(data));
    assert!(data.write_at(b"no", 0).is_err(), "a guest cannot write to the data");
    assert!(table.set_len(0).is_err() && data.set_len(0).is_err(), "nobody can shrink the files");
    let bytes = table.metadata().unwrap().len();
    let all: Vec<Handle> = (0..32).map(|seed| put(&store, seed, 1000).unwrap()).collect();
    let mut damaged = 0;
    for _ in 0..2000 {
        for _ in 0..8 {
            // Entries are in the first pages; words near what stands there do more harm than noise.
            let at = rng.random_range(0..bytes.min(20_000) / 8) * 8;
            let mut word = [0; 8];
            table.read_at(&mut word, at).unwrap();
            let word = match rng.random_range(0..3) {
                0 => rng.next_u64(),
                1 => u64::from_le_bytes(word) ^ 1 << rng.random_range(0..64),
                _ => u64::from_le_bytes(word).wrapping_add(1 << 16),
            };
            table.write_at(&word.to_le_bytes(), at).unwrap();
        }
        let handle = all[rng.random_range(0..all.len())];
        match peer.try_pin(handle) {
            Ok(pinned) => assert!(pinned.to_vec().unwrap().len() <= 64 << 10),
            Err(SharedError::Damaged { .. }) => damaged += 1,
            Err(_) => {}
        }
        // The owner has books of its own.
        assert!(is_whole(&store.get(handle).unwrap()));
        let fresh = put(&store, 1, rng.random_range(8..3000));
        if let Ok(handle) = fresh {
            assert!(is_whole(&store.get(handle).unwrap()));
            store.delete(handle).unwrap();
        }
        store.compact(4096);
    }
    assert!(damaged > 0);
    // A successor believes what makes sense, and counts the rest.
    let succession = store.succession().unwrap();
    drop((peer, store));
    if let Ok((store, _)) = ObjectStore::take_over(&succession, config) {
        store.check().unwrap();
    }
}

#[test]
fn a_file_that_could_shrink_or_is_none_of_ours_is_refused() {
    let store = ObjectStore::create(small(8 << 10)).unwrap();
    let plain =
        || rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    let (table, data) = store.invite().unwrap().into_descriptors();
    let copy = |file: &std::os::fd::OwnedFd| file.try_clone().unwrap();
    let attach =
        |table, data| Peer::attach(&Invitation::from_descriptors(table, data)).unwrap_err();
    assert_eq!(attach(plain(), copy(&data)), SharedError::Unsealed);
    assert_eq!(attach(copy(&table), plain()), SharedError::Unsealed);
    assert_eq!(
        attach(copy(&data), copy(&data)),
        SharedError::System { what: "map a file in memory", error: Errno::ACCESS }
    );
    let other = ObjectStore::create(small(16 << 10)).unwrap();
    let (other_table, other_data) = other.invite().unwrap().into_descriptors();
    assert!(matches!(attach(copy(&table), other_data), SharedError::OtherData { .. }));
    let file = File::from(copy(&other_table));
    file.write_at(&[7], 20).unwrap();
    assert_eq!(attach(other_table, data), SharedError::NotATable);
}

#[test]
fn a_child_of_a_fork_has_no_part_in_it() {
    let store = ObjectStore::create(small(64 << 10)).unwrap();
    let peer = Peer::attach(&store.invite().unwrap()).unwrap();
    let handle = put(&store, 1, 1000).unwrap();
    let mut pin = Some(peer.try_pin(handle).unwrap());
    let mut writer = Some(store.create_object(100).unwrap());
    // SAFETY: the child uses atomics and its own stack, and ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = peer.try_pin(handle).is_err()
            && store.get(handle).is_err()
            && store.create_object(1).is_err()
            && store.delete(handle).is_err()
            && pin.as_ref().unwrap().read(0, &mut [0]).is_err();
        drop((pin.take(), writer.take()));
        // SAFETY: ends the child, and nothing else.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    // The parent has what it had.
    assert!(is_whole(&pin.take().unwrap().to_vec().unwrap()));
    fill(writer.as_mut().unwrap(), 4, 0);
    assert!(is_whole(&store.get(writer.unwrap().seal()).unwrap()));
    store.check().unwrap();
}

/// A child that does nothing, and ends with the test.
struct Idle(i32);

impl Idle {
    fn new() -> Idle {
        // SAFETY: the child waits for a signal, and runs nothing else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: waits for a signal.
                let _ = unsafe { libc::pause() };
            }
        }
        assert!(child > 0);
        Idle(child)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // SAFETY: a signal to our own child, which nobody has waited for.
        let _ = unsafe { libc::kill(self.0, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: waits for our own child.
        let _ = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
    }
}

/// A child that was forked a moment ago gives up what is its parent's when it first runs, and that may take a while.
fn take_over_soon(succession: &Succession) -> ObjectStore {
    let begin = Instant::now();
    loop {
        match ObjectStore::take_over(succession, small(0)) {
            Ok((store, _)) => return store,
            Err(why) => assert!(begin.elapsed() < Duration::from_secs(10), "{why}"),
        }
    }
}

#[test]
fn an_owner_does_not_live_on_in_its_children() {
    let store = ObjectStore::create(small(8 << 10)).unwrap();
    let handle = put(&store, 3, 1000).unwrap();
    let succession = store.succession().unwrap();
    let child = Idle::new();
    // The child has given up its own part only.
    let refused = ObjectStore::take_over(&succession, small(0)).unwrap_err();
    assert_eq!(refused, SharedError::OwnerLives.into());
    drop(store);
    let store = take_over_soon(&succession);
    assert!(is_whole(&store.get(handle).unwrap()));
    // Nor does a successor.
    let second = Idle::new();
    drop(store);
    drop(take_over_soon(&succession));
    drop((child, second));
}

#[test]
fn signals_do_not_keep_memory_from_a_store() {
    let config = Config { memory: Memory::AtOnce, ..small(1 << 20) };
    let interrupted = Fault { times: 3, ..Fault::once(Call::Fallocate, Errno::INTR) };
    let armed = faults::inject([interrupted]);
    let store = ObjectStore::create(config).unwrap();
    drop(armed);
    store.check().unwrap();
    // No call takes so long that signals could come faster than it ends.
    let before = faults::made();
    drop(ObjectStore::create(Config { memory: Memory::AtOnce, ..small(40 << 20) }).unwrap());
    assert_eq!(faults::made().since(&before).of(Call::Fallocate), 3);
}

#[test]
fn what_nobody_can_read_yet_is_no_object() {
    let store = ObjectStore::create(small(64 << 10)).unwrap();
    let peer = Peer::attach(&store.invite().unwrap()).unwrap();
    let objects = || {
        store.check().unwrap();
        store.stats().objects
    };
    let writer = store.create_object(100).unwrap();
    assert_eq!((objects(), store.handles().len()), (0, 0));
    drop(writer);
    let handle = put(&store, 1, 100).unwrap();
    assert_eq!(objects(), 1);
    // While it grows it can be read as it was.
    let growing = store.grow(handle, 100).unwrap();
    assert_eq!((objects(), store.handles().len()), (1, 1));
    let _ = growing.seal();
    assert_eq!(objects(), 1);
    let pin = peer.try_pin(handle).unwrap();
    store.delete(handle).unwrap();
    assert_eq!(objects(), 0);
    drop(pin);
    store.collect();
    assert_eq!(objects(), 0);
    store.check().unwrap();
}
