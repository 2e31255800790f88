//! What a chunk of memory may be, and what each step makes of it.
//!
//! A chunk is the unit in which memory is made and mapped: addresses, then memory, then the two together, then access,
//! then owners who park it between uses. Managers that kept such states as flags have released a handle twice after an
//! error, or lost count of what was still mapped. Here the states are one table ([`next`]): a step that is not in it is
//! refused before anything is tried, and one that fails leaves a state of the table. A [`Chunk`] is a chunk that goes
//! by it over any backend.
//!
//! | state | step: next | if it fails |
//! |---|---|---|
//! | none | reserve: reserved | none |
//! | reserved | create: created; release: none | reserved |
//! | created | map: mapped, or granted where access comes with it; destroy: reserved | created |
//! | mapped | grant: granted; unmap: created | mapped |
//! | granted | park: parked, dirty | cannot |
//! | parked | adopt: granted; purge, zero: parked, clean; retire: quiescing | parked, dirty |
//! | quiescing | unmap, once the fence is ready: created; adopt by the same owner: granted | quiescing |
//!
//! What is dirty holds its last owner's bytes: nobody else adopts it. Memory keeps them when it is unmapped, so a
//! [`Chunk`] remembers whose they are, and is mapped again for that owner alone; for others it is destroyed, and made
//! anew.

use std::task::Poll;

use super::{Access, Backend, BackendError, Caps, Op, OpResult, Placement, Va};

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing yet, or no longer.
    None,
    /// Addresses.
    Reserved,
    /// Addresses, and memory that is not mapped there.
    Created,
    /// Mapped, without access.
    Mapped,
    /// In use.
    Granted,
    /// Mapped and out of use; kept for the next owner.
    Parked(Contents),
    /// To be unmapped when its last user's fence is ready.
    Quiescing,
}

/// What a parked chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Nothing of anybody.
    Clean,
    /// Its last owner's bytes.
    Dirty,
}

/// What is done to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Takes addresses.
    Reserve,
    /// Makes memory.
    Create,
    /// Gives addresses back.
    Release,
    /// Brings the two together.
    Map,
    /// Gives memory back.
    Destroy,
    /// Gives access.
    Grant,
    /// Takes the mapping away.
    Unmap,
    /// Ends the last use.
    Park,
    /// Begins a use by this owner.
    Adopt(Owner),
    /// Gives the contents back.
    Purge,
    /// Overwrites the contents by hand.
    Zero,
    /// Ends parking: it is going to be unmapped.
    Retire,
}

/// Who adopts a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Who parked it.
    Same,
    /// Somebody else.
    Other,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was tried, and refused.
    Failed,
}

/// When users may use a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granting {
    /// At once.
    WithMap,
    /// When access was granted ([`Caps::GRANT_SEPARATE`]).
    Separate,
}

impl State {
    /// All states.
    pub const ALL: [State; 8] = [
        State::None,
        State::Reserved,
        State::Created,
        State::Mapped,
        State::Granted,
        State::Parked(Contents::Clean),
        State::Parked(Contents::Dirty),
        State::Quiescing,
    ];

    /// Whether the chunk has memory.
    #[must_use]
    pub const fn has_memory(self) -> bool {
        !matches!(self, State::None | State::Reserved)
    }

    /// Whether its memory is mapped.
    #[must_use]
    pub const fn is_mapped(self) -> bool {
        self.has_memory() && !matches!(self, State::Created)
    }
}

impl Step {
    /// All steps.
    pub const ALL: [Step; 13] = [
        Step::Reserve,
        Step::Create,
        Step::Release,
        Step::Map,
        Step::Destroy,
        Step::Grant,
        Step::Unmap,
        Step::Park,
        Step::Adopt(Owner::Same),
        Step::Adopt(Owner::Other),
        Step::Purge,
        Step::Zero,
        Step::Retire,
    ];

    /// Whether the step asks anything of anybody: what only changes books cannot fail.
    #[must_use]
    pub const fn can_fail(self) -> bool {
        !matches!(self, Step::Park | Step::Adopt(_) | Step::Retire)
    }
}

/// What a step makes of a chunk; nothing where the step must not be tried.
#[must_use]
pub const fn next(state: State, step: Step, outcome: Outcome, granting: Granting) -> Option<State> {
    let Some(done) = after_success(state, step, granting) else { return None };
    match (outcome, step) {
        (Outcome::Done, _) => Some(done),
        (Outcome::Failed, Step::Purge | Step::Zero) => Some(State::Parked(Contents::Dirty)),
        (Outcome::Failed, _) if step.can_fail() => Some(state),
        (Outcome::Failed, _) => None,
    }
}

const fn after_success(state: State, step: Step, granting: Granting) -> Option<State> {
    Some(match (state, step) {
        (State::None, Step::Reserve) => State::Reserved,
        (State::Reserved, Step::Create) => State::Created,
        (State::Reserved, Step::Release) => State::None,
        (State::Created, Step::Map) => match granting {
            Granting::WithMap => State::Granted,
            Granting::Separate => State::Mapped,
        },
        (State::Created, Step::Destroy) => State::Reserved,
        (State::Mapped, Step::Grant) => State::Granted,
        (State::Mapped | State::Quiescing, Step::Unmap) => State::Created,
        (State::Granted, Step::Park) => State::Parked(Contents::Dirty),
        (State::Parked(_) | State::Quiescing, Step::Adopt(Owner::Same))
        | (State::Parked(Contents::Clean), Step::Adopt(Owner::Other)) => State::Granted,
        (State::Parked(_), Step::Purge | Step::Zero) => State::Parked(Contents::Clean),
        (State::Parked(_), Step::Retire) => State::Quiescing,
        _ => return None,
    })
}

/// Why a step of a chunk was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The step is not in the table; nothing was tried.
    #[error("a chunk that is {state:?} takes no {step:?}")]
    Illegal {
        /// What it is.
        state: State,
        /// What was wanted.
        step: Step,
    },
    /// Its last user may still be at it; nothing was tried. Ask again later.
    #[error("the fence of its last user is not ready")]
    InUse,
    /// Its memory holds another owner's bytes; nothing was tried.
    #[error("its memory holds bytes of owner {last}: destroy it, and make it anew for others")]
    Dirty {
        /// Whose they are.
        last: u64,
    },
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Some addresses and their memory, over any backend, by the table of this module.
///
/// It does nothing by itself: one that is dropped leaves what it has to the backend, which ends with it.
///
/// 1. It has a name of memory exactly in the states that have memory, so none can be given back twice.
/// 2. It has an owner exactly when it is granted, parked or quiescing, or holds bytes.
/// 3. It holds bytes of nobody but that owner, and none unless `contents` says so.
#[derive(Debug)]
#[must_use = "what it has stays reserved"]
pub struct Chunk<B: Backend> {
    va: Va,
    bytes: u64,
    state: State,
    memory: Option<B::Phys>,
    owner: Option<u64>,
    contents: Contents,
    /// Of its last use.
    fence: B::Fence,
}

impl<B: Backend> Chunk<B> {
    /// Reserves addresses for one.
    ///
    /// # Errors
    /// What the backend says.
    pub fn reserve(backend: &B, bytes: u64, align: u64) -> Result<Chunk<B>, BackendError> {
        let va = backend.reserve(bytes, align, None)?;
        let fence = B::Fence::default();
        let (state, contents) = (State::Reserved, Contents::Clean);
        Ok(Chunk { va, bytes, state, memory: None, owner: None, contents, fence })
    }

    /// Where it is.
    #[must_use]
    pub fn va(&self) -> Va {
        self.va
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it is.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Who has it, or had it last.
    #[must_use]
    pub fn owner(&self) -> Option<u64> {
        self.owner
    }

    /// Takes a step, if the table has it, and notes what became of it.
    fn step<T>(
        &mut self,
        backend: &B,
        step: Step,
        carry_out: impl FnOnce(&mut Chunk<B>) -> Result<T, BackendError>,
    ) -> Result<T, ChunkError> {
        let separate = backend.geometry().caps.has(Caps::GRANT_SEPARATE);
        let granting = if separate { Granting::Separate } else { Granting::WithMap };
        let state = self.state;
        let after = |outcome| {
            next(state, step, outcome, granting).ok_or(ChunkError::Illegal { state, step })
        };
        let done = after(Outcome::Done)?;
        match carry_out(self) {
            Ok(result) => {
                self.state = done;
                self.contents = match done {
                    State::Granted => Contents::Dirty,
                    State::Parked(contents) => contents,
                    State::None | State::Reserved => Contents::Clean,
                    // Nobody can write, and what is there stays.
                    State::Created | State::Mapped | State::Quiescing => self.contents,
                };
                Ok(result)
            }
            Err(error) => {
                self.state = after(Outcome::Failed)?;
                if let State::Parked(contents) = self.state {
                    self.contents = contents;
                }
                Err(error.into())
            }
        }
    }

    /// Refuses all but the owner whose bytes it holds.
    fn is_open_to(&self, owner: u64) -> Result<(), ChunkError> {
        match (self.contents, self.owner) {
            (Contents::Dirty, Some(last)) if last != owner => Err(ChunkError::Dirty { last }),
            _ => Ok(()),
        }
    }

    fn is_ready(&self, backend: &B) -> Result<(), ChunkError> {
        match backend.quiesce(&self.fence) {
            Poll::Ready(()) => Ok(()),
            Poll::Pending => Err(ChunkError::InUse),
        }
    }

    /// Makes its memory.
    ///
    /// # Errors
    /// See [`ChunkError`]; it stays reserved.
    pub fn create(&mut self, backend: &B, placement: Placement) -> Result<(), ChunkError> {
        self.step(backend, Step::Create, |chunk| {
            chunk.memory = Some(backend.create(chunk.bytes, placement)?);
            Ok(())
        })
    }

    /// Maps its memory, for `owner` where access comes with that.
    ///
    /// # Errors
    /// See [`ChunkError`]; it stays created.
    pub fn map(&mut self, backend: &B, owner: u64) -> Result<(), ChunkError> {
        if self.state == State::Created {
            self.is_open_to(owner)?;
        }
        self.step(backend, Step::Map, |chunk| {
            let phys = chunk.memory.expect("what is created has memory (law 1)");
            one(backend, Op::Map { va: chunk.va, phys, offset: 0, bytes: chunk.bytes })
        })?;
        if self.state == State::Granted {
            self.owner = Some(owner);
        }
        Ok(())
    }

    /// Gives `owner` access.
    ///
    /// # Errors
    /// See [`ChunkError`]; it stays mapped.
    pub fn grant(&mut self, backend: &B, owner: u64) -> Result<(), ChunkError> {
        if self.state == State::Mapped {
            self.is_open_to(owner)?;
        }
        self.step(backend, Step::Grant, |chunk| {
            let access = Access::ReadWrite;
            one(backend, Op::Grant { va: chunk.va, bytes: chunk.bytes, access })
        })?;
        self.owner = Some(owner);
        Ok(())
    }

    /// Ends its use: it may be used by others when `fence` is ready.
    ///
    /// # Errors
    /// See [`ChunkError`].
    pub fn park(&mut self, backend: &B, fence: B::Fence) -> Result<(), ChunkError> {
        self.step(backend, Step::Park, |chunk| {
            chunk.fence = fence;
            Ok(())
        })
    }

    /// Begins a use by `owner`: at once if it had it last, else when the fence is ready and nothing of the last owner
    /// is left in it.
    ///
    /// # Errors
    /// See [`ChunkError`]; it stays what it was.
    pub fn adopt(&mut self, backend: &B, owner: u64) -> Result<(), ChunkError> {
        let is_same = self.owner == Some(owner);
        if !is_same && matches!(self.state, State::Parked(Contents::Clean)) {
            self.is_ready(backend)?;
        }
        let step = Step::Adopt(if is_same { Owner::Same } else { Owner::Other });
        self.step(backend, step, |_| Ok(()))?;
        self.owner = Some(owner);
        Ok(())
    }

    /// Gives its contents back while it is parked.
    ///
    /// # Errors
    /// See [`ChunkError`]; it is dirty then.
    pub fn purge(&mut self, backend: &B) -> Result<(), ChunkError> {
        if matches!(self.state, State::Parked(_)) {
            self.is_ready(backend)?;
        }
        self.step(backend, Step::Purge, |chunk| {
            one(backend, Op::Purge { va: chunk.va, bytes: chunk.bytes })
        })
    }

    /// Notes that whoever calls has overwritten its contents: where purging is refused, or not to be had.
    ///
    /// # Errors
    /// See [`ChunkError`].
    pub fn zeroed(&mut self, backend: &B) -> Result<(), ChunkError> {
        self.step(backend, Step::Zero, |_| Ok(()))
    }

    /// Ends its parking: it is going to be unmapped.
    ///
    /// # Errors
    /// See [`ChunkError`].
    pub fn retire(&mut self, backend: &B) -> Result<(), ChunkError> {
        self.step(backend, Step::Retire, |_| Ok(()))
    }

    /// Takes its mapping away, once its last user's fence is ready.
    ///
    /// # Errors
    /// See [`ChunkError`]; it stays as it was.
    pub fn unmap(&mut self, backend: &B) -> Result<(), ChunkError> {
        if self.state == State::Quiescing {
            self.is_ready(backend)?;
        }
        self.step(backend, Step::Unmap, |chunk| {
            one(backend, Op::Unmap { va: chunk.va, bytes: chunk.bytes })
        })?;
        if self.contents == Contents::Clean {
            self.owner = None;
        }
        Ok(())
    }

    /// Gives its memory back. What was given back has no name here any more, so there is no second time.
    ///
    /// # Errors
    /// See [`ChunkError`]; it still has its memory.
    pub fn destroy(&mut self, backend: &B) -> Result<(), ChunkError> {
        self.step(backend, Step::Destroy, |chunk| {
            backend.destroy(chunk.memory.expect("what is created has memory (law 1)"))?;
            chunk.memory = None;
            Ok(())
        })?;
        self.owner = None;
        Ok(())
    }

    /// Gives its addresses back.
    ///
    /// # Errors
    /// See [`ChunkError`]; it is handed back as it was.
    pub fn release(mut self, backend: &B) -> Result<(), (Chunk<B>, ChunkError)> {
        let release = |chunk: &mut Chunk<B>| backend.release(chunk.va, chunk.bytes);
        self.step(backend, Step::Release, release).map_err(|error| (self, error))
    }
}

/// Submits one operation.
fn one<B: Backend>(backend: &B, op: Op<B::Phys>) -> OpResult {
    let mut done = [Ok(())];
    backend.submit(&[op], &mut done);
    done[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANTINGS: [Granting; 2] = [Granting::WithMap, Granting::Separate];

    /// The table of the module's text, row by row.
    #[test]
    fn the_table_is_the_documented_one() {
        use Contents::{Clean, Dirty};
        let (parked, done) = (State::Parked, Outcome::Done);
        let rows = [
            (State::None, Step::Reserve, State::Reserved),
            (State::Reserved, Step::Create, State::Created),
            (State::Reserved, Step::Release, State::None),
            (State::Created, Step::Map, State::Mapped),
            (State::Created, Step::Destroy, State::Reserved),
            (State::Mapped, Step::Grant, State::Granted),
            (State::Mapped, Step::Unmap, State::Created),
            (State::Granted, Step::Park, parked(Dirty)),
            (parked(Clean), Step::Adopt(Owner::Same), State::Granted),
            (parked(Clean), Step::Adopt(Owner::Other), State::Granted),
            (parked(Clean), Step::Purge, parked(Clean)),
            (parked(Clean), Step::Zero, parked(Clean)),
            (parked(Clean), Step::Retire, State::Quiescing),
            (parked(Dirty), Step::Adopt(Owner::Same), State::Granted),
            (parked(Dirty), Step::Purge, parked(Clean)),
            (parked(Dirty), Step::Zero, parked(Clean)),
            (parked(Dirty), Step::Retire, State::Quiescing),
            (State::Quiescing, Step::Unmap, State::Created),
            (State::Quiescing, Step::Adopt(Owner::Same), State::Granted),
        ];
        for state in State::ALL {
            for step in Step::ALL {
                let listed = rows.iter().find(|row| (row.0, row.1) == (state, step));
                let expected = listed.map(|row| row.2);
                assert_eq!(next(state, step, done, Granting::Separate), expected);
                let at_once = expected.map(|after| match step {
                    Step::Map => State::Granted,
                    _ => after,
                });
                assert_eq!(next(state, step, done, Granting::WithMap), at_once);
            }
        }
    }

    /// Oracle 14 of the specification: each state, step and injected failure ends in a listed state, the one it found
    /// except that a failed purge leaves dirt.
    #[test]
    fn every_failure_ends_in_a_listed_state() {
        for state in State::ALL {
            for step in Step::ALL {
                for granting in GRANTINGS {
                    let is_legal = next(state, step, Outcome::Done, granting).is_some();
                    let found = next(state, step, Outcome::Failed, granting);
                    let expected = match (state, step) {
                        _ if !is_legal || !step.can_fail() => None,
                        (State::Parked(_), Step::Purge | Step::Zero) => {
                            Some(State::Parked(Contents::Dirty))
                        }
                        _ => Some(state),
                    };
                    assert_eq!(found, expected, "{state:?} {step:?} {granting:?}");
                }
            }
        }
    }

    /// Whatever happens, dirt reaches no other owner, and what has memory is mapped before it is used.
    #[test]
    fn no_way_leads_from_one_owner_to_another_with_bytes_left() {
        for granting in GRANTINGS {
            let dirty = State::Parked(Contents::Dirty);
            assert_eq!(next(dirty, Step::Adopt(Owner::Other), Outcome::Done, granting), None);
            for state in State::ALL.into_iter().filter(|state| !state.is_mapped()) {
                for step in [Step::Grant, Step::Park, Step::Purge, Step::Unmap] {
                    assert_eq!(next(state, step, Outcome::Done, granting), None);
                }
            }
        }
    }
}
