//! Facts in a recording that may concern other users of the host.

use serde::{Deserialize, Serialize};

/// Facts that may be private, and are recorded only if they are asked for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Sensitive {
    /// The names of all processes that the kernel remembers from tracing.
    Names,
    /// The mappings of every process, where the placing of mappings is recorded.
    Maps,
    /// The addresses of vmalloc areas as far as the kernel shows them, and the entries of physical memory beside RAM.
    Addresses,
    /// The arguments of the recorded command. The name of its program is always recorded.
    Arguments,
}

impl Sensitive {
    pub const ALL: &[Sensitive] = <Sensitive as strum::VariantArray>::VARIANTS;

    fn what(&self) -> &'static str {
        match self {
            Sensitive::Names => "names of processes",
            Sensitive::Maps => "what processes have mapped (mmap replays begin without it)",
            Sensitive::Addresses => {
                "addresses of vmalloc areas (vmalloc replays begin without them)"
            }
            Sensitive::Arguments => "arguments of the command",
        }
    }
}

/// Returns a sentence on the facts that were left out, and how to record them; `None` if none were.
pub(super) fn sentence(left_out: &[Sensitive]) -> Option<String> {
    let joined = |of: fn(&Sensitive) -> &'static str, between: &str| {
        left_out.iter().map(of).collect::<Vec<_>>().join(between)
    };
    (!left_out.is_empty()).then(|| {
        let (what, names) = (joined(Sensitive::what, ", "), joined(Sensitive::into_str, ","));
        format!("left out as it may be private: {what}; --with {names} records it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_with_the_way_to_have_it() {
        assert_eq!(sentence(&[]), None);
        let said = sentence(&[Sensitive::Names, Sensitive::Arguments]).unwrap();
        assert!(said.contains("names of processes, arguments of the command"), "{said}");
        assert!(said.ends_with("--with names,arguments records it"), "{said}");
    }
}
