//! Every backend against one model, under the same random operations: pages by address, with the contents that each
//! shows. The model has the outcome of each operation, legal or not, and the contents of every granule afterwards.

use std::collections::{BTreeMap, BTreeSet};

use nofrag_backing::backend::{
    Access, Anonymous, Backend as _, BackendError, Budget, Caps, Geometry, HUGE, Memfd, Op,
    OpResult, Va,
};

use nofrag_backing::faults::{self, Armed, Call, Fault};
use rustix::io::Errno;

use crate::arena::ghosts::Simulated;

use super::support::{Contents, Random, Subject, submit};

/// The state of one mapped granule of addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    /// Number of the memory, and of the granule in it.
    memory: (usize, u64),
    /// Number of the mapping among all that were made.
    mapping: u64,
    access: Access,
}

#[derive(Debug)]
struct Model {
    geometry: Geometry,
    contents_of: Contents,
    /// Bytes by first address.
    reserved: BTreeMap<u64, u64>,
    /// Bytes of each memory, `None` once it is destroyed.
    memory: Vec<Option<u64>>,
    /// Mapped granules by address.
    shown: BTreeMap<u64, Shown>,
    /// Contents other than zero, by memory or by address.
    contents: BTreeMap<(usize, u64), u64>,
    /// Granules that a refused purge may have emptied, with their contents before.
    unsure: BTreeMap<(usize, u64), u64>,
    mappings: u64,
}

type Plain = Op<usize>;

impl Model {
    fn new<B: Subject>(backend: &B) -> Model {
        Model {
            geometry: backend.geometry().clone(),
            contents_of: B::CONTENTS,
            reserved: BTreeMap::new(),
            memory: Vec::new(),
            shown: BTreeMap::new(),
            contents: BTreeMap::new(),
            unsure: BTreeMap::new(),
            mappings: 0,
        }
    }

    fn has(&self, caps: Caps) -> bool {
        self.geometry.caps.has(caps)
    }

    fn granules(&self, va: u64, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        (va..va + bytes).step_by(self.geometry.granule as usize)
    }

    fn fits(&self, va: Va, bytes: u64) -> bool {
        bytes > 0
            && bytes.is_multiple_of(self.geometry.granule)
            && va.0.is_multiple_of(self.geometry.va_align)
    }

    fn is_reserved(&self, va: u64, bytes: u64) -> bool {
        self.reserved.iter().any(|(start, size)| *start <= va && va + bytes <= start + size)
    }

    /// Returns true for a range that is mapped throughout, in one reservation, and cuts no mapping where that is
    /// forbidden.
    fn is_mapped(&self, va: u64, bytes: u64) -> bool {
        self.is_reserved(va, bytes)
            && self.granules(va, bytes).all(|at| self.shown.contains_key(&at))
    }

    fn cuts(&self, va: u64, bytes: u64) -> bool {
        let mapping = |at: u64| self.shown.get(&at).map(|shown| shown.mapping);
        [va, va + bytes].into_iter().any(|edge| {
            let before = mapping(edge.wrapping_sub(self.geometry.granule));
            before.is_some() && before == mapping(edge)
        })
    }

    /// Returns the expected outcome of an operation; carries it out if it is legal.
    fn apply(&mut self, op: &Plain) -> OpResult {
        let (va, bytes) = op.range();
        match *op {
            _ if !self.fits(va, bytes) => Err(BackendError::Misfit),
            Op::Map { va, phys, offset, bytes } => self.map(va.0, phys, offset, bytes),
            Op::Unmap { va, bytes } => self.unmap(va.0, bytes),
            Op::Grant { va, bytes, access } => self.grant(va.0, bytes, access),
            Op::Purge { va, bytes } => self.purge(va.0, bytes),
        }
    }

    fn map(&mut self, va: u64, memory: usize, offset: u64, bytes: u64) -> OpResult {
        let size = self.memory[memory].ok_or(BackendError::WrongState)?;
        let part = offset.is_multiple_of(self.geometry.granule) && offset + bytes <= size;
        if !part || (bytes < size && !self.has(Caps::SUBRANGE_MAP)) {
            return Err(BackendError::Misfit);
        }
        let occupied = self.granules(va, bytes).any(|at| self.shown.contains_key(&at));
        if !self.is_reserved(va, bytes) || (occupied && !self.has(Caps::OVER_MAP)) {
            return Err(BackendError::WrongState);
        }
        let part = offset / self.geometry.granule..(offset + bytes) / self.geometry.granule;
        let shows = |shown: &Shown| shown.memory.0 == memory && part.contains(&shown.memory.1);
        if self.contents_of == Contents::OfMemory
            && !self.has(Caps::ALIAS)
            && self.shown.values().any(shows)
        {
            return Err(BackendError::WrongState);
        }
        self.mappings += 1;
        let access = Access::ReadWrite;
        for (number, at) in self.granules(va, bytes).enumerate() {
            let granule = offset / self.geometry.granule + number as u64;
            let shown = Shown { memory: (memory, granule), mapping: self.mappings, access };
            self.shown.insert(at, shown);
            if self.contents_of == Contents::OfMapping {
                self.contents.remove(&(0, at));
            }
        }
        Ok(())
    }

    fn unmap(&mut self, va: u64, bytes: u64) -> OpResult {
        if !self.is_mapped(va, bytes) || (self.cuts(va, bytes) && !self.has(Caps::PARTIAL_UNMAP)) {
            return Err(BackendError::WrongState);
        }
        for at in self.granules(va, bytes) {
            self.shown.remove(&at);
        }
        Ok(())
    }

    fn grant(&mut self, va: u64, bytes: u64, access: Access) -> OpResult {
        if !self.is_mapped(va, bytes) || (self.cuts(va, bytes) && !self.has(Caps::PARTIAL_UNMAP)) {
            return Err(BackendError::WrongState);
        }
        for at in self.granules(va, bytes) {
            self.shown.get_mut(&at).unwrap().access = access;
        }
        Ok(())
    }

    fn purge(&mut self, va: u64, bytes: u64) -> OpResult {
        if !self.has(Caps::PURGE_IN_PLACE) {
            return Err(BackendError::Unsupported);
        }
        if !self.is_mapped(va, bytes) {
            return Err(BackendError::WrongState);
        }
        for at in self.granules(va, bytes) {
            self.contents.remove(&self.key(at));
        }
        Ok(())
    }

    /// Returns the key of the contents that an address shows.
    fn key(&self, at: u64) -> (usize, u64) {
        match self.contents_of {
            Contents::OfMapping => (0, at),
            Contents::OfMemory => self.shown[&at].memory,
        }
    }

    /// Returns the expected outcome of each operation: those on ranges that a failure has touched are skipped.
    ///
    /// An operation that the system refused is not done, if it was legal at all.
    fn submit(&mut self, ops: &[Plain], real: &[OpResult]) -> Vec<OpResult> {
        let mut failed: Vec<(u64, u64)> = Vec::new();
        let mut results = Vec::new();
        for (op, &real) in ops.iter().zip(real) {
            let (va, bytes) = op.range();
            let range = (va.0, va.0 + bytes);
            let meets = failed.iter().any(|a| a.0 < range.1 && range.0 < a.1);
            let result = match real {
                _ if meets => Err(BackendError::Skipped),
                Err(BackendError::System(_)) => self.refused(op, real),
                _ => self.apply(op),
            };
            if result.is_err() {
                failed.push(range);
            }
            results.push(result);
        }
        results
    }

    /// Takes an operation as refused by the system: the mappings are as before. A purge may have emptied a part.
    fn refused(&mut self, op: &Plain, real: OpResult) -> OpResult {
        let before = (self.shown.clone(), self.contents.clone());
        self.apply(op)?;
        let emptied = before.1.iter().filter(|&(key, _)| !self.contents.contains_key(key));
        self.unsure.extend(emptied);
        (self.shown, self.contents) = before;
        real
    }

    fn with_access(&self, least: &[Access]) -> Vec<u64> {
        let shown = self.shown.iter().filter(|(_, shown)| least.contains(&shown.access));
        shown.map(|(&at, _)| at).collect()
    }
}

/// When the laws can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Laws {
    /// After each step: no other thread uses the backend.
    EachStep,
    /// At the end: other threads use it meanwhile.
    AtTheEnd,
}

/// A backend and its model, or a part of a backend that other threads use too.
struct Pair<'a, B: Subject> {
    backend: &'a B,
    laws: Laws,
    model: Model,
    /// The backend's own names of each memory.
    phys: Vec<B::Phys>,
    random: Random,
}

impl<B: Subject> Pair<'_, B> {
    fn granule(&self) -> u64 {
        self.model.geometry.granule
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0 => self.reserve(),
            1 if self.random.one_in(3) => self.release(),
            2 | 3 => self.create(),
            4 => self.destroy(),
            5..8 => self.store(),
            _ => self.submit(),
        }
    }

    /// Makes one of the calls fail, once or more often, soon or a little later.
    fn faults(&mut self, calls: &[Call]) -> Option<Armed> {
        let call = *self.random.pick(calls).filter(|_| self.random.one_in(2))?;
        let errors = [Errno::NOMEM, Errno::AGAIN, Errno::INTR, Errno::INVAL, Errno::PERM];
        let error = errors[self.random.below(5) as usize];
        let after = self.random.below(4) as u32;
        Some(faults::inject([Fault { call, after, times: 1 + self.random.below(3) as u32, error }]))
    }

    fn reserve(&mut self) {
        if self.model.reserved.len() > 6 {
            return;
        }
        let bytes = (1 + self.random.below(24)) * self.granule();
        let align = self.granule() << self.random.below(4);
        let va = match self.backend.reserve(bytes, align, None) {
            Err(BackendError::System(_)) => return,
            reserved => reserved.unwrap(),
        };
        assert!(va.0.is_multiple_of(align) && va.0.is_multiple_of(self.model.geometry.va_align));
        assert!(
            self.model
                .reserved
                .iter()
                .all(|(start, size)| { va.0 + bytes <= *start || start + size <= va.0 })
        );
        self.model.reserved.insert(va.0, bytes);
    }

    fn a_reservation(&mut self) -> Option<(u64, u64)> {
        let all: Vec<_> = self.model.reserved.iter().map(|(&va, &bytes)| (va, bytes)).collect();
        self.random.pick(&all).copied()
    }

    fn release(&mut self) {
        let Some((va, bytes)) = self.a_reservation() else { return };
        let less = bytes - self.granule();
        let misfit = self.backend.release(Va(va), less);
        assert_eq!(misfit, Err(BackendError::WrongState), "a part of a reservation");
        let mapped = self.model.granules(va, bytes).any(|at| self.model.shown.contains_key(&at));
        let result = self.backend.release(Va(va), bytes);
        if mapped && !self.model.has(Caps::PARTIAL_UNMAP) {
            assert_eq!(result, Err(BackendError::WrongState), "what is mapped must be unmapped");
            return;
        }
        result.unwrap();
        self.model.reserved.remove(&va);
        for at in self.model.granules(va, bytes) {
            self.model.shown.remove(&at);
        }
        // Another thread may have reserved the same addresses since.
        if self.laws == Laws::EachStep {
            assert_eq!(self.backend.release(Va(va), bytes), Err(BackendError::WrongState));
        }
    }

    fn create(&mut self) {
        let bytes = (1 + self.random.below(6)) * self.granule();
        if self.model.memory.iter().flatten().count() > 12 {
            return;
        }
        let phys = match self.backend.create(bytes) {
            Err(BackendError::System(_)) => return,
            created => created.unwrap(),
        };
        assert!(!self.phys.contains(&phys), "{phys:?} was made before");
        self.phys.push(phys);
        self.model.memory.push(Some(bytes));
    }

    fn destroy(&mut self) {
        if self.phys.is_empty() {
            return;
        }
        let which = self.random.below(self.phys.len() as u64) as usize;
        let expected = self.model.memory[which].take().map(drop).ok_or(BackendError::WrongState);
        assert_eq!(self.backend.destroy(self.phys[which]), expected);
    }

    fn store(&mut self) {
        let writable = self.model.with_access(&[Access::ReadWrite]);
        let Some(&at) = self.random.pick(&writable) else { return };
        let value = 1 + self.random.below(1 << 40);
        self.backend.store(Va(at), value);
        self.model.contents.insert(self.model.key(at), value);
    }

    fn submit(&mut self) {
        let count = 1 + self.random.below(8);
        let ops: Vec<Plain> = (0..count).filter_map(|_| self.an_operation()).collect();
        let phys = &self.phys;
        let real: Vec<Op<B::Phys>> = ops.iter().map(|op| with_phys(op, phys)).collect();
        let results = submit(self.backend, &real);
        assert_eq!(results, self.model.submit(&ops, &results), "{ops:x?}");
    }

    /// Draws an operation, usually a legal one.
    fn an_operation(&mut self) -> Option<Plain> {
        let (start, size) = self.a_reservation()?;
        let granule = self.granule();
        let first = self.random.below(size / granule);
        let most = size / granule - first + u64::from(self.random.one_in(12));
        let mut va = Va(start + first * granule);
        let mut bytes = (1 + self.random.below(most.min(6))) * granule;
        if self.random.one_in(20) {
            va = va.plus(self.random.below(2) * granule / 2);
            bytes -= self.random.below(2) * granule / 2;
        }
        Some(match self.random.below(8) {
            0..3 => return self.a_mapping(va, bytes),
            3 => {
                let (va, bytes) = self.whole_mappings(va, bytes);
                Op::Unmap { va, bytes }
            }
            4 => {
                let access = [Access::None, Access::Read, Access::ReadWrite, Access::ReadWrite];
                let access = access[self.random.below(4) as usize];
                let (va, bytes) = self.whole_mappings(va, bytes);
                Op::Grant { va, bytes, access }
            }
            _ => Op::Purge { va, bytes },
        })
    }

    /// Widens a range that begins in a mapping to all of that mapping, mostly, where the backend may not cut one.
    fn whole_mappings(&mut self, va: Va, bytes: u64) -> (Va, u64) {
        let shown = self.model.shown.get(&va.0);
        let Some(shown) = shown.filter(|_| !self.model.has(Caps::PARTIAL_UNMAP)) else {
            return (va, bytes);
        };
        if self.random.one_in(4) {
            return (va, bytes);
        }
        let same = self.model.shown.iter().filter(|(_, other)| other.mapping == shown.mapping);
        let places: BTreeSet<u64> = same.map(|(&at, _)| at).collect();
        (Va(*places.first().unwrap()), places.len() as u64 * self.granule())
    }

    fn a_mapping(&mut self, va: Va, bytes: u64) -> Option<Plain> {
        let live = |(_, size): &(usize, &Option<u64>)| size.is_some();
        let live: Vec<usize> =
            self.model.memory.iter().enumerate().filter(live).map(|(which, _)| which).collect();
        let all: Vec<usize> = (0..self.phys.len()).collect();
        let from = if self.random.one_in(16) { &all } else { &live };
        let phys = *self.random.pick(from)?;
        let size = self.model.memory[phys].unwrap_or(bytes);
        if !self.model.has(Caps::SUBRANGE_MAP) && !self.random.one_in(8) {
            return Some(Op::Map { va, phys, offset: 0, bytes: size });
        }
        let offset = self.random.below(size / self.granule()) * self.granule();
        let bytes = if self.random.one_in(8) { bytes } else { bytes.min(size - offset) };
        Some(Op::Map { va, phys, offset, bytes })
    }

    /// Checks the contents of every granule, and every law.
    fn compare(&mut self) {
        for at in self.model.with_access(&[Access::Read, Access::ReadWrite]) {
            let key = self.model.key(at);
            if self.model.unsure.contains_key(&key) && self.backend.holds(Va(at), 0) {
                self.model.contents.remove(&key);
            }
            match self.model.contents.get(&key) {
                None if !self.model.has(Caps::ZEROED) => {}
                value => {
                    let value = value.copied().unwrap_or(0);
                    assert!(self.backend.holds(Va(at), value), "{value} at {at:#x}");
                }
            }
        }
        if self.laws == Laws::EachStep {
            self.backend.laws();
        }
    }
}

fn with_phys<P: Copy>(op: &Plain, phys: &[P]) -> Op<P> {
    match *op {
        Op::Map { va, phys: which, offset, bytes } => {
            Op::Map { va, phys: phys[which], offset, bytes }
        }
        Op::Unmap { va, bytes } => Op::Unmap { va, bytes },
        Op::Grant { va, bytes, access } => Op::Grant { va, bytes, access },
        Op::Purge { va, bytes } => Op::Purge { va, bytes },
    }
}

/// Runs random operations on a backend and its model, and compares after each.
pub(super) fn check_backend<B: Subject>(backend: &B, seed: u64, steps: u32) {
    check_with_faults(backend, seed, steps, &[]);
}

/// Runs random operations while calls of these kinds fail now and then.
pub(super) fn check_with_faults<B: Subject>(backend: &B, seed: u64, steps: u32, calls: &[Call]) {
    run(backend, Laws::EachStep, seed, steps, calls);
}

/// Runs several threads on one backend, each with a model of its own operations; some of their calls fail.
fn check_threads<B: Subject>(backend: &B, steps: u32, calls: &[Call]) {
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || run(backend, Laws::AtTheEnd, seed, steps, calls));
        }
    });
    backend.laws();
}

fn run<B: Subject>(backend: &B, laws: Laws, seed: u64, steps: u32, calls: &[Call]) {
    let (model, random) = (Model::new(backend), Random(seed));
    let mut pair = Pair { backend, laws, model, phys: Vec::new(), random };
    for step in 0..steps {
        let number = format!("seed {seed}, step {step}");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let armed = pair.faults(calls);
            pair.step();
            drop(armed);
            pair.compare();
        }));
        if let Err(panic) = outcome {
            eprintln!("{number}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn private_memory_is_as_the_model() {
    for seed in 0..6 {
        check_backend(&Anonymous::new(), seed, 1_500);
    }
}

#[test]
fn shared_memory_is_as_the_model() {
    for seed in 0..6 {
        check_backend(&Memfd::new(Budget::Unlimited).unwrap(), seed, 1_500);
    }
}

#[test]
fn threads_share_a_backend() {
    let calls = [Call::Mmap, Call::Munmap, Call::Madvise, Call::ProcessMadvise, Call::Fallocate];
    check_threads(&Anonymous::new(), 600, &calls);
    check_threads(&Memfd::new(Budget::Unlimited).unwrap(), 600, &calls);
    check_threads(&Simulated::new(geometry()).unwrap(), 600, &[]);
}

#[test]
fn private_huge_pages_are_as_the_model() {
    check_backend(&Anonymous::huge(), 0, 300);
}

#[test]
fn shared_huge_pages_are_as_the_model() {
    check_backend(&Memfd::huge(Budget::Unlimited).unwrap(), 0, 300);
}

#[test]
fn set_aside_huge_pages_are_as_the_model() {
    match Memfd::hugetlb(Budget::Unlimited) {
        Ok(backend) => check_few_pages(&backend),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

/// Checks a backend with few pages, as a host has only few huge pages set aside: each mapping needs its own.
fn check_few_pages(backend: &Memfd) {
    let va = backend.reserve(HUGE, HUGE, None).unwrap();
    let phys = backend.create(HUGE).unwrap();
    match submit(backend, &[Op::Map { va, phys, offset: 0, bytes: HUGE }])[0] {
        Err(why @ BackendError::NoHugePages { .. }) => eprintln!("skipped: {why}"),
        mapped => {
            mapped.unwrap();
            backend.store(va, 7);
            let ops = [Op::Purge { va, bytes: HUGE }];
            assert_eq!(submit(backend, &ops), [Ok(())]);
            assert_eq!(backend.load(va), 0);
            assert_eq!(submit(backend, &[Op::Unmap { va, bytes: HUGE }]), [Ok(())]);
            backend.destroy(phys).unwrap();
            backend.laws();
        }
    }
}

/// Compares simulated memory with the model under all combinations of the capabilities that change the set of legal
/// operations.
#[test]
fn simulated_memory_is_as_the_model_whatever_it_can_do() {
    let all = [
        Caps::PARTIAL_UNMAP,
        Caps::OVER_MAP,
        Caps::ALIAS,
        Caps::SUBRANGE_MAP,
        Caps::PURGE_IN_PLACE,
    ];
    for set in 0..1 << all.len() {
        let has = |bit: &usize| set >> bit & 1 == 1;
        let caps = (0..all.len()).filter(has).fold(Caps::ZEROED, |caps, bit| caps | all[bit]);
        let geometry = Geometry { caps, granule: 1 << (set % 13), ..geometry() };
        check_backend(&Simulated::new(geometry).unwrap(), set, 300);
    }
}

fn geometry() -> Geometry {
    Geometry {
        granule: 4096,
        recommended: 2 << 20,
        va_align: 4096,
        max_va: 1 << 40,
        caps: Caps::NONE,
        max_mappings: None,
        vector_max: 3,
    }
}
