//! Chunks over backends that fail: by the table of states, and with nothing lost.

use nofrag_backing::backend::cuda::{Call, Cuda, DriverError, FakeDriver, Fence, Shape};
use nofrag_backing::backend::state::{
    Chunk, ChunkError, Contents, Granting, Outcome, Owner, State, Step, next,
};
use nofrag_backing::backend::{Anonymous, Backend, BackendError, Budget, Memfd, Placement};
use nofrag_backing::faults::{self, Fault};
use rustix::io::Errno;

use super::support::{Random, check_rules, load, store};

const GRANULE: u64 = 2 << 20;

fn gpu(granules: u64) -> Cuda<FakeDriver> {
    let shape = Shape { memory: granules * GRANULE, ..Shape::default() };
    Cuda::new(FakeDriver::new(shape)).unwrap()
}

type GpuChunk = Chunk<Cuda<FakeDriver>>;

/// Takes a step of a chunk, whatever it is, for `owner`.
fn take(
    backend: &Cuda<FakeDriver>,
    chunk: &mut GpuChunk,
    step: Step,
) -> Option<Result<(), ChunkError>> {
    let owner = chunk.owner().unwrap_or(1);
    Some(match step {
        Step::Create => chunk.create(backend, Placement::Anywhere),
        Step::Map => chunk.map(backend, owner),
        Step::Destroy => chunk.destroy(backend),
        Step::Grant => chunk.grant(backend, owner),
        Step::Unmap => chunk.unmap(backend),
        Step::Park => chunk.park(backend, Fence::default()),
        Step::Adopt(Owner::Same) => chunk.adopt(backend, owner),
        Step::Adopt(Owner::Other) => chunk.adopt(backend, owner + 1),
        Step::Purge => chunk.purge(backend),
        Step::Zero => chunk.zeroed(backend),
        Step::Retire => chunk.retire(backend),
        Step::Reserve | Step::Release => return None,
    })
}

/// Oracle 14 on a driver: random steps, any of which may be refused, against the table.
#[test]
fn a_chunk_goes_by_the_table_whatever_fails() {
    let calls = [Call::Create, Call::Release, Call::Map, Call::Unmap, Call::SetAccess];
    for seed in 0..20 {
        let backend = gpu(1);
        let mut random = Random(seed);
        let mut chunk = Chunk::reserve(&backend, GRANULE, GRANULE).unwrap();
        for _ in 0..500 {
            let step = *random.pick(&Step::ALL).unwrap();
            let call = *random.pick(&calls).unwrap();
            if random.one_in(3) {
                backend.driver().refuse(call, 0, 1, DriverError::Other(999));
            }
            let state = chunk.state();
            let table = |outcome| next(state, step, outcome, Granting::Separate);
            let Some(result) = take(&backend, &mut chunk, step) else { continue };
            backend.driver().allow_all();
            let expected = match result {
                Ok(()) => table(Outcome::Done),
                Err(ChunkError::Backend(_)) => table(Outcome::Failed),
                Err(_) => {
                    // Adopted by somebody else without an owner before is a step of its own in the table.
                    assert_eq!(table(Outcome::Done), None, "{state:?} {step:?} {result:?}");
                    Some(state)
                }
            };
            assert_eq!(Some(chunk.state()), expected, "{state:?} {step:?} {result:?}");
            assert!(State::ALL.contains(&chunk.state()));
            let memory = if chunk.state().has_memory() { GRANULE } else { 0 };
            assert_eq!(backend.driver().memory_in_use(), memory);
        }
        check_rules(backend.driver());
    }
}

/// vLLM released a handle again because it looked at the error of an older call.
#[test]
fn vllm_36651_double_release() {
    let backend = gpu(1);
    let mut chunk = Chunk::reserve(&backend, GRANULE, GRANULE).unwrap();
    chunk.create(&backend, Placement::Anywhere).unwrap();
    backend.driver().refuse(Call::Release, 0, 1, DriverError::Other(999));
    let refused = ChunkError::Backend(BackendError::Driver { code: 999 });
    assert_eq!(chunk.destroy(&backend), Err(refused));
    assert_eq!(chunk.state(), State::Created);
    chunk.destroy(&backend).unwrap();
    let illegal = ChunkError::Illegal { state: State::Reserved, step: Step::Destroy };
    assert_eq!(chunk.destroy(&backend), Err(illegal));
    let releases = |entry: &&nofrag_backing::backend::cuda::Entry| entry.call == Call::Release;
    assert_eq!(backend.driver().trace().iter().filter(releases).count(), 2, "one was done");
    // Below the chunk, the backend's own name is gone too.
    let memory = backend.create(GRANULE, Placement::Anywhere).unwrap();
    backend.destroy(memory).unwrap();
    assert_eq!(backend.destroy(memory), Err(BackendError::WrongState));
    check_rules(backend.driver());
    chunk.release(&backend).unwrap();
}

/// vLLM kept more memory with each cycle of sleeping and waking, until what it read was garbage.
#[test]
fn vllm_21336_pinned_growth() {
    let backend = gpu(16);
    let mut chunks: Vec<GpuChunk> =
        (0..12).map(|_| Chunk::reserve(&backend, GRANULE, GRANULE).unwrap()).collect();
    for cycle in 0..10 {
        for chunk in &mut chunks {
            chunk.create(&backend, Placement::Anywhere).unwrap();
            chunk.map(&backend, 1).unwrap();
            chunk.grant(&backend, 1).unwrap();
            backend.driver().store(chunk.va(), cycle).unwrap();
        }
        assert_eq!(backend.driver().memory_in_use(), 12 * GRANULE, "awake, cycle {cycle}");
        // Each call of falling asleep is refused now and then, and tried again.
        for call in [Call::Unmap, Call::Release] {
            backend.driver().refuse(call, 3, 2, DriverError::Other(999));
        }
        for chunk in &mut chunks {
            assert_eq!(backend.driver().load(chunk.va()), Ok(cycle));
            chunk.park(&backend, Fence::default()).unwrap();
            chunk.retire(&backend).unwrap();
            while chunk.unmap(&backend).is_err() {}
            while chunk.destroy(&backend).is_err() {}
        }
        assert_eq!(backend.driver().memory_in_use(), 0, "asleep, cycle {cycle}");
    }
    check_rules(backend.driver());
}

#[test]
fn nobody_else_has_a_chunk_before_its_fence() {
    let backend = gpu(1);
    let mut chunk = Chunk::reserve(&backend, GRANULE, GRANULE).unwrap();
    chunk.create(&backend, Placement::Anywhere).unwrap();
    chunk.map(&backend, 1).unwrap();
    chunk.grant(&backend, 1).unwrap();
    let event = backend.driver().launch(chunk.va(), GRANULE).unwrap();
    chunk.park(&backend, Fence(Some(event))).unwrap();
    chunk.zeroed(&backend).unwrap();
    assert_eq!(chunk.adopt(&backend, 2), Err(ChunkError::InUse));
    assert_eq!(chunk.adopt(&backend, 1), Ok(()), "its own work is in order anyway");
    chunk.park(&backend, Fence(Some(event))).unwrap();
    chunk.retire(&backend).unwrap();
    assert_eq!(chunk.unmap(&backend), Err(ChunkError::InUse));
    backend.driver().complete(event);
    chunk.unmap(&backend).unwrap();
    check_rules(backend.driver());
}

/// After a purge that failed, a chunk still holds its owner's bytes, and only that owner gets it.
#[test]
fn a_dirty_chunk_changes_no_owner() {
    let backend = Anonymous::new();
    let mut chunk = Chunk::reserve(&backend, 1 << 16, 4096).unwrap();
    chunk.create(&backend, Placement::Anywhere).unwrap();
    chunk.map(&backend, 1).unwrap();
    assert_eq!(chunk.state(), State::Granted, "access comes with the mapping");
    store(&backend, chunk.va(), 7);
    chunk.park(&backend, ()).unwrap();
    let armed = faults::inject([Fault::once(faults::Call::Madvise, Errno::AGAIN)]);
    chunk.purge(&backend).unwrap_err();
    drop(armed);
    assert_eq!(chunk.state(), State::Parked(Contents::Dirty));
    let step = Step::Adopt(Owner::Other);
    let illegal = ChunkError::Illegal { state: State::Parked(Contents::Dirty), step };
    assert_eq!(chunk.adopt(&backend, 2), Err(illegal));
    chunk.adopt(&backend, 1).unwrap();
    assert_eq!(load(&backend, chunk.va()), 7);
    chunk.park(&backend, ()).unwrap();
    chunk.purge(&backend).unwrap();
    chunk.adopt(&backend, 2).unwrap();
    assert_eq!(load(&backend, chunk.va()), 0);
    chunk.park(&backend, ()).unwrap();
    chunk.retire(&backend).unwrap();
    chunk.unmap(&backend).unwrap();
    chunk.destroy(&backend).unwrap();
    chunk.release(&backend).unwrap();
}

/// Memory keeps what it holds when it is unmapped.
#[test]
fn a_dirty_chunk_that_was_unmapped_changes_no_owner() {
    let backend = Memfd::new(Budget::Half).unwrap();
    let mut chunk = Chunk::reserve(&backend, 1 << 16, 4096).unwrap();
    chunk.create(&backend, Placement::Anywhere).unwrap();
    chunk.map(&backend, 1).unwrap();
    store(&backend, chunk.va(), 7);
    chunk.park(&backend, ()).unwrap();
    chunk.retire(&backend).unwrap();
    chunk.unmap(&backend).unwrap();
    assert_eq!(chunk.map(&backend, 2), Err(ChunkError::Dirty { last: 1 }));
    assert_eq!(chunk.state(), State::Created);
    chunk.map(&backend, 1).unwrap();
    assert_eq!(load(&backend, chunk.va()), 7);
    // Purged, it is anybody's; and so is memory that was made anew.
    chunk.park(&backend, ()).unwrap();
    chunk.purge(&backend).unwrap();
    chunk.retire(&backend).unwrap();
    chunk.unmap(&backend).unwrap();
    chunk.map(&backend, 2).unwrap();
    assert_eq!(load(&backend, chunk.va()), 0);
    chunk.park(&backend, ()).unwrap();
    chunk.retire(&backend).unwrap();
    chunk.unmap(&backend).unwrap();
    chunk.destroy(&backend).unwrap();
    chunk.create(&backend, Placement::Anywhere).unwrap();
    chunk.map(&backend, 3).unwrap();
}

#[test]
fn a_dirty_chunk_of_a_gpu_is_granted_to_its_owner_alone() {
    let backend = gpu(1);
    let mut chunk = Chunk::reserve(&backend, GRANULE, GRANULE).unwrap();
    chunk.create(&backend, Placement::Anywhere).unwrap();
    chunk.map(&backend, 1).unwrap();
    chunk.grant(&backend, 1).unwrap();
    chunk.park(&backend, Fence::default()).unwrap();
    chunk.retire(&backend).unwrap();
    chunk.unmap(&backend).unwrap();
    assert_eq!(chunk.map(&backend, 2), Err(ChunkError::Dirty { last: 1 }));
    chunk.map(&backend, 1).unwrap();
    assert_eq!(chunk.grant(&backend, 2), Err(ChunkError::Dirty { last: 1 }));
    assert_eq!(chunk.state(), State::Mapped);
    chunk.grant(&backend, 1).unwrap();
}
