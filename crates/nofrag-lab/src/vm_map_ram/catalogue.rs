//! The programs: Pen's workloads, then those that test remarks about them, then those that fill gaps he left.

/// A program, by its name in `scenario.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(super) enum Program {
    W1,
    W2,
    W3,
    #[strum(serialize = "w2_keys")]
    Keys,
    OtherBits,
    Exhaustion,
    Creators,
    Lifetimes,
    Rounding,
    Aliases,
}
