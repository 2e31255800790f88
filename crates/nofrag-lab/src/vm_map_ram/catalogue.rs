//! The programs around Pen's workloads.

use crate::scenario::ProgramInfo;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    W1,
    W2,
    W3,
    Keys,
    OtherBits,
    LeftOver,
    Objection,
    ListBound,
    Exhaustion,
    Creators,
    Lifetimes,
    Rounding,
    Aliases,
}

/// Describes a program for lists.
const fn spec(program: Program, name: &'static str, body: &'static str) -> (Program, ProgramInfo) {
    (program, ProgramInfo { name, bit: 1 << program as u64, body })
}

/// All programs: Pen's workloads, then those that test remarks about them, then those that fill gaps he left.
pub(super) const SPECS: [(Program, ProgramInfo); 13] = [
    spec(Program::W1, "w1", "map 16 pages once, 8 pages 125 times, each unmapped at once"),
    spec(Program::W2, "w2", "ten mappings of 1..64 pages, each unmapped at once"),
    spec(Program::W3, "w3", "of each power of two one less than a block holds, then one"),
    spec(Program::Keys, "w2_keys", "w2 with 20 keys of its generator"),
    spec(Program::OtherBits, "other_bits", "w1, w2 and w3 with blocks of 512, 256 and 128 pages"),
    spec(Program::LeftOver, "left_over", "what w1 leaves, and which purge takes it"),
    spec(Program::Objection, "objection", "Kim's: 85 times 85 mappings of 3 pages, blocks of 256"),
    spec(Program::ListBound, "list_bound", "random powers of two: how long a list becomes"),
    spec(Program::Exhaustion, "exhaustion", "w1 until no place is left, in small and large spaces"),
    spec(
        Program::Creators,
        "creators",
        "w2 with at most 64 and at most 32 pages: who makes blocks",
    ),
    spec(Program::Lifetimes, "lifetimes", "one page; one mapping in so many lives long"),
    spec(Program::Rounding, "rounding", "w2 under each set of size classes"),
    spec(Program::Aliases, "aliases", "unmap_aliases over 100,000 blocks, few of them dirty"),
];

impl Program {
    pub(super) fn name(self) -> &'static str {
        SPECS[self as usize].1.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_stand_at_their_places_and_fit_a_listing() {
        for (at, (program, info)) in SPECS.iter().enumerate() {
            assert_eq!((*program as usize, info.bit), (at, 1 << at));
            assert!(info.body.len() < 65 && info.name.len() <= 20, "{}", info.name);
        }
    }
}
