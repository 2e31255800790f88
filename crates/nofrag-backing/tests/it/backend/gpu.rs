//! A GPU's rules: the fake driver refuses what the documentation forbids, and the backend over it asks for none of it.

use std::sync::Arc;
use std::task::Poll;

use nofrag::check::Check;
use nofrag_backing::backend::cuda::{
    Call, Cuda, Driver, DriverError, Fault, Fence, Granularity, Misuse, Rule, Shape,
};
use nofrag_backing::backend::cuda::{FakeDriver, Memory};
use nofrag_backing::backend::{Access, Backend, BackendError, Op, OpResult, Placement, Va};

use super::support::{check_rules, one, submit};

const GRANULE: u64 = 2 << 20;

fn driver() -> FakeDriver {
    FakeDriver::new(Shape { memory: 64 * GRANULE, ..Shape::default() })
}

fn backend() -> Cuda<FakeDriver> {
    Cuda::new(driver()).unwrap()
}

fn check_refused<T: std::fmt::Debug + PartialEq>(result: Result<T, DriverError>, rule: Rule) {
    assert_eq!(result, Err(DriverError::Invalid(rule)));
}

/// Oracle 13 of the specification, first half: each call that section 6 forbids.
#[test]
fn what_the_documentation_forbids_is_refused() {
    let driver = driver();
    assert_eq!(driver.granularity(Granularity::Minimum), Ok(GRANULE));
    for bytes in [0, 1, 4095, 4097] {
        check_refused(driver.address_reserve(bytes, 0, None), Rule::Multiple);
    }
    check_refused(driver.address_reserve(GRANULE, 3, None), Rule::Alignment);
    check_refused(driver.address_reserve(GRANULE, 0, Some(Va(5))), Rule::Multiple);
    let va = driver.address_reserve(8 * GRANULE, 0, None).unwrap();
    for bytes in [0, 4096, GRANULE + 4096] {
        check_refused(driver.create(bytes), Rule::Multiple);
    }
    let handle = driver.create(2 * GRANULE).unwrap();

    check_refused(driver.map(va.plus(4096), GRANULE, 0, handle), Rule::Multiple);
    check_refused(driver.map(va, 4096, 0, handle), Rule::Multiple);
    check_refused(driver.map(va, GRANULE, 4096, handle), Rule::Multiple);
    check_refused(driver.map(va, 2 * GRANULE, GRANULE, handle), Rule::PastTheEnd);
    check_refused(driver.map(va.plus(7 * GRANULE), 2 * GRANULE, 0, handle), Rule::NotReserved);
    check_refused(driver.map(Va(GRANULE), GRANULE, 0, handle), Rule::NotReserved);
    check_refused(driver.unmap(va, 2 * GRANULE), Rule::NotAMapping);
    driver.map(va, 2 * GRANULE, 0, handle).unwrap();
    check_refused(driver.map(va, 2 * GRANULE, 0, handle), Rule::OverMap);
    check_refused(driver.map(va.plus(GRANULE), GRANULE, 0, handle), Rule::OverMap);
    check_refused(driver.unmap(va, GRANULE), Rule::NotAMapping);
    check_refused(driver.unmap(va.plus(GRANULE), GRANULE), Rule::NotAMapping);
    check_refused(driver.unmap(va, 3 * GRANULE), Rule::NotAMapping);
    check_refused(driver.set_access(va, GRANULE, Access::ReadWrite), Rule::NotMapped);
    check_refused(driver.set_access(va, 3 * GRANULE, Access::ReadWrite), Rule::NotMapped);
    check_refused(driver.set_access(va, 4096, Access::ReadWrite), Rule::Multiple);
    check_refused(driver.address_free(va, 8 * GRANULE), Rule::StillMapped);
    check_refused(driver.address_free(va, GRANULE), Rule::NotAReservation);
    check_refused(driver.address_free(va.plus(GRANULE), GRANULE), Rule::NotAReservation);

    assert_eq!(driver.load(va), Err(Fault::NoAccess), "nothing was granted yet");
    assert_eq!(driver.load(va.plus(2 * GRANULE)), Err(Fault::Unmapped));
    driver.unmap(va, 2 * GRANULE).unwrap();
    driver.map(va, 2 * GRANULE, 0, handle).unwrap();
    driver.set_access(va, 2 * GRANULE, Access::ReadWrite).unwrap();
    driver.store(va, 7).unwrap();
    driver.unmap(va, 2 * GRANULE).unwrap();
    driver.map(va, 2 * GRANULE, 0, handle).unwrap();
    assert_eq!(driver.load(va), Err(Fault::NoAccess), "access goes with the mapping");
    driver.unmap(va, 2 * GRANULE).unwrap();
    driver.release(handle).unwrap();
    check_refused(driver.release(handle), Rule::NoHandle);
    check_refused(driver.map(va, GRANULE, 0, handle), Rule::NoHandle);
    driver.address_free(va, 8 * GRANULE).unwrap();
    check_refused(driver.address_free(va, 8 * GRANULE), Rule::NotAReservation);
}

#[test]
fn memory_lives_until_its_last_mapping_and_handle() {
    let driver = driver();
    let va = driver.address_reserve(4 * GRANULE, 0, None).unwrap();
    let other = va.plus(2 * GRANULE);
    let handle = driver.create(GRANULE).unwrap();
    for va in [va, other] {
        driver.map(va, GRANULE, 0, handle).unwrap();
        driver.set_access(va, GRANULE, Access::ReadWrite).unwrap();
    }
    driver.store(va, 7).unwrap();
    driver.release(handle).unwrap();
    driver.unmap(va, GRANULE).unwrap();
    assert_eq!((driver.load(other), driver.memory_in_use()), (Ok(7), GRANULE));
    driver.unmap(other, GRANULE).unwrap();
    assert_eq!(driver.memory_in_use(), 0);
}

#[test]
fn a_device_has_only_so_much_memory() {
    let driver = driver();
    driver.create(63 * GRANULE).unwrap();
    let refused = driver.create(2 * GRANULE);
    assert_eq!(refused, Err(DriverError::OutOfMemory));
    assert_eq!(BackendError::from(refused.unwrap_err()), BackendError::Driver { code: 2 });
}

#[test]
fn unmapping_what_is_in_use_is_noticed() {
    let backend = backend();
    let (va, _) = granted(&backend, 1);
    let event = backend.driver().launch(va, GRANULE).unwrap();
    let fence = Fence(Some(event));
    assert_eq!(backend.quiesce(&fence), Poll::Pending);
    backend.driver().refuse(Call::EventQuery, 0, 1, DriverError::Other(700));
    assert_eq!(backend.quiesce(&fence), Poll::Pending, "an error is no permission");
    one(&backend, Op::Unmap { va, bytes: GRANULE }).unwrap();
    assert_eq!(backend.driver().misuses(), [Misuse::UnmappedInUse { va, event }]);
    backend.driver().complete(event);
    assert_eq!(backend.quiesce(&fence), Poll::Ready(()));
    assert_eq!(backend.quiesce(&Fence::default()), Poll::Ready(()));
}

/// Some memory, mapped and granted.
fn granted(backend: &Cuda<FakeDriver>, granules: u64) -> (Va, Memory) {
    let bytes = granules * GRANULE;
    let va = backend.reserve(bytes, GRANULE, None).unwrap();
    let phys = backend.create(bytes, Placement::Anywhere).unwrap();
    one(backend, Op::Map { va, phys, offset: 0, bytes }).unwrap();
    one(backend, Op::Grant { va, bytes, access: Access::ReadWrite }).unwrap();
    (va, phys)
}

fn calls(backend: &Cuda<FakeDriver>, call: Call) -> usize {
    backend.driver().trace().iter().filter(|entry| entry.call == call).count()
}

#[test]
fn many_are_mapped_and_granted_at_once() {
    let backend = backend();
    let va = backend.reserve(8 * GRANULE, GRANULE, None).unwrap();
    let phys = backend.create(8 * GRANULE, Placement::Anywhere).unwrap();
    let at = |granule: u64| (va.plus(granule * GRANULE), granule * GRANULE);
    let map = |granule| {
        let (va, offset) = at(granule);
        Op::Map { va, phys, offset, bytes: GRANULE }
    };
    let grant =
        |granule| Op::Grant { va: at(granule).0, bytes: GRANULE, access: Access::ReadWrite };
    let ops: Vec<_> = (0..8).map(map).chain((0..8).map(grant)).collect();
    assert!(submit(&backend, &ops).iter().all(OpResult::is_ok));
    assert_eq!((calls(&backend, Call::Map), calls(&backend, Call::SetAccess)), (8, 1));
    check_rules(backend.driver());
}

/// What was mapped as one is unmapped as one, though each granule has a handle of its own.
#[test]
fn no_part_of_a_mapping_is_unmapped() {
    let backend = backend();
    let (va, phys) = granted(&backend, 4);
    for (first, granules) in [(0, 1), (1, 3), (1, 2)] {
        let part = Op::Unmap { va: va.plus(first * GRANULE), bytes: granules * GRANULE };
        assert_eq!(one(&backend, part), Err(BackendError::WrongState));
    }
    let over = Op::Map { va, phys, offset: 0, bytes: 4 * GRANULE };
    assert_eq!(one(&backend, over), Err(BackendError::WrongState));
    one(&backend, Op::Unmap { va, bytes: 4 * GRANULE }).unwrap();
    check_rules(backend.driver());
}

/// Each call of the driver made to fail once, at each place: what is refused can be tried again, and at the end nothing
/// is left of it.
#[test]
fn every_call_may_fail_at_every_place() {
    let kinds = [
        Call::AddressReserve,
        Call::AddressFree,
        Call::Create,
        Call::Release,
        Call::Map,
        Call::Unmap,
        Call::SetAccess,
    ];
    for call in kinds {
        for after in 0..10 {
            for times in [1, 2, 5] {
                let backend = backend();
                backend.driver().refuse(call, after, times, DriverError::Other(999));
                run_with_retries(&backend);
                check_rules(backend.driver());
                assert_eq!(backend.driver().memory_in_use(), 0, "{call:?} {after} {times}");
                assert_eq!(backend.driver().addresses_in_use(), 0, "{call:?} {after} {times}");
            }
        }
    }
}

/// Repeats what is refused until it is done.
fn insist<T>(backend: &Cuda<FakeDriver>, mut act: impl FnMut() -> Result<T, BackendError>) -> T {
    for _ in 0..10 {
        let result = act();
        backend.check().unwrap();
        match result {
            Ok(done) => return done,
            Err(error) => assert_eq!(error, BackendError::Driver { code: 999 }),
        }
    }
    panic!("it is refused for ever");
}

fn run_with_retries(backend: &Cuda<FakeDriver>) {
    let bytes = 4 * GRANULE;
    let insist_on = |op| insist(backend, || one(backend, op));
    let va = insist(backend, || backend.reserve(bytes, GRANULE, None));
    let memory = || insist(backend, || backend.create(bytes, Placement::Anywhere));
    let (first, second) = (memory(), memory());
    for phys in [first, second] {
        insist_on(Op::Map { va, phys, offset: 0, bytes });
        insist_on(Op::Grant { va, bytes, access: Access::ReadWrite });
        backend.driver().store(va.plus(GRANULE), 7).unwrap();
        insist_on(Op::Unmap { va, bytes });
    }
    // A mapping that was refused and is not wanted any more.
    let refused = one(backend, Op::Map { va, phys: first, offset: 0, bytes });
    if refused.is_ok() {
        insist_on(Op::Unmap { va, bytes });
    }
    insist(backend, || backend.destroy(first));
    assert_eq!(backend.destroy(first), Err(BackendError::WrongState));
    insist(backend, || backend.release(va, bytes));
    insist(backend, || backend.destroy(second));
    // What nobody got, because its making was refused half way, is given back with the next.
    let last = memory();
    insist(backend, || backend.destroy(last));
}

#[test]
fn nothing_of_a_gpu_stays_when_its_backend_goes() {
    let driver = Arc::new(driver());
    let backend = Cuda::new(Arc::clone(&driver)).unwrap();
    let va = backend.reserve(4 * GRANULE, GRANULE, None).unwrap();
    let phys = backend.create(2 * GRANULE, Placement::Anywhere).unwrap();
    one(&backend, Op::Map { va, phys, offset: 0, bytes: 2 * GRANULE }).unwrap();
    drop(backend);
    assert_eq!((driver.memory_in_use(), driver.addresses_in_use()), (0, 0));
    check_rules(&driver);
}
