//! Failures by plan, for code that makes no system calls.

/// Calls of kinds `C` that shall fail with errors `E`.
#[derive(Debug)]
pub(super) struct Refusals<C, E>(Vec<Refusal<C, E>>);

#[derive(Debug)]
struct Refusal<C, E> {
    call: C,
    after: u32,
    times: u32,
    error: E,
}

impl<C, E> Default for Refusals<C, E> {
    fn default() -> Refusals<C, E> {
        Refusals(Vec::new())
    }
}

impl<C: Copy + PartialEq, E: Copy> Refusals<C, E> {
    /// Plans to let `after` calls of the kind `call` through, and then to refuse `times` of them.
    pub(super) fn plan(&mut self, call: C, after: u32, times: u32, error: E) {
        self.0.push(Refusal { call, after, times, error });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Refuses a call if a plan says so; asked before every call.
    pub(super) fn before(&mut self, call: C) -> Result<(), E> {
        let planned = self.0.iter_mut().find(|refusal| refusal.call == call && refusal.times > 0);
        match planned {
            Some(refusal) if refusal.after > 0 => {
                refusal.after -= 1;
                Ok(())
            }
            Some(refusal) => {
                refusal.times -= 1;
                Err(refusal.error)
            }
            None => Ok(()),
        }
    }
}
