//! The states, the machines that they are made on, and what each must look like.

use std::path::PathBuf;

use anyhow::ensure;

use super::frames::Frames;
use crate::emulator;
use crate::emulator::image::Boot;
use crate::emulator::machine::Place;

/// Kernels by the worth of their rows.
const KERNELS: [&str; 4] = ["6.1", "7.2", "6.12", "5.10"];

/// A state of memory and its machine.
#[derive(Debug)]
pub(super) struct State {
    /// The name by which the guests' script knows it.
    pub(super) name: &'static str,
    pub(super) memory_mib: u64,
    pub(super) nodes: u64,
    pub(super) cpus: u64,
    /// Bounds that hold if the state is what its name says, in percent, both inclusive.
    bounds: &'static [(Share, u64, u64)],
}

/// A part of memory in percent.
#[derive(Clone, Copy, Debug)]
enum Share {
    /// Frames that are free.
    Free,
    /// Frames that can move.
    Movable,
    /// Pageblocks with a page of the kernel that was still there at the end.
    Pinned,
    /// Pageblocks that are wholly free.
    FreeBlocks,
    /// Frames of slabs.
    Slab,
}

impl Share {
    fn of(self, frames: &Frames) -> u64 {
        let (part, whole) = match self {
            Share::Free => (frames.free, frames.frames),
            Share::Movable => (frames.movable, frames.frames),
            Share::Slab => (frames.slab, frames.frames),
            Share::Pinned => (frames.lasting_blocks, frames.blocks),
            Share::FreeBlocks => (frames.free_blocks, frames.blocks),
        };
        100 * part / whole.max(1)
    }
}

const fn small(name: &'static str, bounds: &'static [(Share, u64, u64)]) -> State {
    State { name, memory_mib: 512, nodes: 1, cpus: 1, bounds }
}

/// The states by the worth of their rows.
const STATES: [State; 16] = [
    small("fresh", &[(Share::Free, 80, 100), (Share::FreeBlocks, 70, 100)]),
    small("pinned-heavy", &[(Share::Free, 70, 100), (Share::Pinned, 80, 100)]),
    small("movable-sparse", &[(Share::Movable, 35, 60), (Share::FreeBlocks, 0, 30)]),
    State {
        memory_mib: 768,
        ..small("cache-full", &[(Share::Movable, 60, 100), (Share::Free, 0, 20)])
    },
    small("pinned-light", &[(Share::Free, 70, 100), (Share::Pinned, 25, 70)]),
    small("low-memory", &[(Share::Free, 0, 12), (Share::Movable, 70, 100)]),
    small("slab-mixed", &[(Share::Free, 0, 25), (Share::Slab, 5, 60)]),
    small("cache-pinned", &[(Share::Free, 0, 20), (Share::Pinned, 80, 100)]),
    small("io-held", &[(Share::Free, 70, 100), (Share::FreeBlocks, 0, 25)]),
    small("tmpfs-sparse", &[(Share::Movable, 35, 60), (Share::FreeBlocks, 0, 30)]),
    State { memory_mib: 768, ..small("aged", &[(Share::Free, 5, 95), (Share::Pinned, 10, 100)]) },
    small("slab-dropped", &[(Share::Free, 40, 95), (Share::Slab, 5, 60)]),
    State {
        memory_mib: 1024,
        nodes: 2,
        cpus: 2,
        ..small("two-nodes", &[(Share::Movable, 35, 60), (Share::FreeBlocks, 0, 30)])
    },
    small("mlocked-kept", &[(Share::Movable, 35, 60), (Share::FreeBlocks, 0, 30)]),
    small("pinned-sparse", &[(Share::Movable, 25, 50), (Share::Pinned, 25, 70)]),
    small("mlocked-sparse", &[(Share::Movable, 35, 60), (Share::FreeBlocks, 0, 30)]),
];

impl State {
    /// Fails if the frames are not those of this state.
    pub(super) fn verify(&self, frames: &Frames) -> anyhow::Result<()> {
        for (share, least, most) in self.bounds {
            let is = share.of(frames);
            ensure!(
                (*least..=*most).contains(&is),
                "{} came out with {is} % in {share:?}, wanted are {least} to {most} %: {frames:?}",
                self.name
            );
        }
        Ok(())
    }
}

/// A state on a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) kernel: &'static str,
    pub(super) state: &'static State,
}

/// Returns every run: state after state, so that what has come when the queue is stopped has each kernel.
pub(super) fn plan() -> Vec<Run> {
    let kernels_of = |state| KERNELS.map(|kernel| Run { kernel, state });
    STATES.iter().flat_map(kernels_of).collect()
}

impl emulator::Run for Run {
    fn cell(&self) -> String {
        self.name()
    }

    fn name(&self) -> String {
        format!("{}-{}", self.kernel, self.state.name)
    }

    fn kernel(&self) -> &'static str {
        self.kernel
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(self.name()).join("labels.json")
    }

    fn make(&self, boot: &Boot, place: &Place) -> anyhow::Result<String> {
        super::make(self, boot, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_not_what_its_name_says_fails() {
        let state = small("sparse", &[(Share::Movable, 35, 60), (Share::FreeBlocks, 0, 30)]);
        let frames = Frames { frames: 1000, movable: 400, blocks: 10, ..Frames::default() };
        assert!(state.verify(&frames).is_ok());
        assert!(state.verify(&Frames { movable: 300, ..frames.clone() }).is_err());
        assert!(state.verify(&Frames { free_blocks: 4, ..frames }).is_err());
    }
}
