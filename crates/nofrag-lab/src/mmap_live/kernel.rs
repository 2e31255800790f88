//! Rules by which the running kernel places, as far as its version tells.

use std::fs;

use nofrag::mmap::{Placement, PlacementPreset};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// The release, as `uname` gives it.
    pub(super) release: String,
    pub(super) rules: PlacementPreset,
    pub(super) standing: Standing,
    /// Largest number of areas of a process.
    pub(super) map_limit: usize,
}

/// Evidence that the rules are those of one version of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Rules that were compared with a kernel of this version, over millions of operations.
    Proved,
    /// Rules that are taken from a neighbouring version.
    Assumed,
}

/// The version of the kernel with which the rules were compared.
const PROVED: (u32, u32) = (6, 18);

/// The first version whose searches look at guard gaps (docs/sources/mmap.md#guard-retry).
const FIRST: (u32, u32) = (6, 3);

impl Kernel {
    /// Returns the kernel that runs here.
    ///
    /// # Errors
    /// The reason why it cannot be an oracle, in words.
    pub(super) fn here() -> Result<Kernel, String> {
        let uname = rustix::system::uname();
        let system = uname.sysname().to_string_lossy().into_owned();
        if system != "Linux" || !cfg!(target_arch = "x86_64") {
            let machine = uname.machine().to_string_lossy();
            return Err(format!("needs Linux on x86-64; this is {system} on {machine}"));
        }
        overcommit(&fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default())?;
        let limit = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let limit = limit.and_then(|text| text.trim().parse().ok());
        let map_limit = limit.ok_or("vm.max_map_count cannot be read")?;
        Kernel::of(&uname.release().to_string_lossy(), map_limit)
    }

    fn of(release: &str, map_limit: usize) -> Result<Kernel, String> {
        let version = version(release).ok_or_else(|| format!("unknown version {release:?}"))?;
        if version < FIRST {
            let (major, minor) = FIRST;
            return Err(format!("needs Linux {major}.{minor} or later; this is {release}"));
        }
        let standing = if version == PROVED { Standing::Proved } else { Standing::Assumed };
        let name = format!("linux-{}.{}", version.0, version.1);
        let rules = Placement::preset(&name).map_err(|unknown| format!("{release}: {unknown}"))?;
        Ok(Kernel { release: release.to_owned(), rules, standing, map_limit })
    }
}

/// Checks that the host overcommits memory. Where it does not, mappings are refused for want of memory, and those that
/// were writable once are accounted, so that they merge with others no longer.
fn overcommit(setting: &str) -> Result<(), String> {
    match setting.trim() {
        "2" => Err("needs vm.overcommit_memory 0 or 1; here it is 2".to_owned()),
        _ => Ok(()),
    }
}

/// Returns the first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use nofrag::mmap::HugePages;

    use super::*;

    fn check_rules(release: &str, huge_pages: HugePages, standing: Standing) {
        let kernel = Kernel::of(release, 65_530).unwrap();
        assert_eq!(kernel.rules.placement, Placement::MapleTreeGuarded(huge_pages), "{release}");
        assert_eq!(kernel.standing, standing, "{release}");
    }

    #[test]
    fn the_huge_page_rule_goes_by_the_version() {
        check_rules("6.6.87-generic", HugePages::Ignored, Standing::Assumed);
        check_rules("6.7", HugePages::AllSizes, Standing::Assumed);
        check_rules("6.11.0-29-generic", HugePages::AllSizes, Standing::Assumed);
        check_rules("6.12.117", HugePages::Multiples, Standing::Assumed);
        check_rules("6.18.5-cloud", HugePages::Multiples, Standing::Proved);
        check_rules("7.0-rc1", HugePages::Multiples, Standing::Assumed);
    }

    #[test]
    fn a_host_that_counts_promises_is_no_oracle() {
        assert!(overcommit("2\n").unwrap_err().contains("overcommit_memory"));
        assert!(["", "0\n", "1\n"].into_iter().all(|setting| overcommit(setting).is_ok()));
    }

    #[test]
    fn other_kernels_are_no_oracle() {
        for (release, part) in
            [("5.15.0-91", "6.3 or later"), ("6.1.192", "6.3"), ("gVisor", "unknown")]
        {
            assert!(Kernel::of(release, 1).unwrap_err().contains(part), "{release}");
        }
    }
}
