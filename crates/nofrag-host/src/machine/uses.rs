//! The uses of memory, as `/proc/meminfo` sums them up: who holds it where little is free.

use serde::Serialize;

use crate::fields::meminfo_bytes;

/// Memory of one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryUse {
    pub name: UseName,
    pub bytes: u64,
}

/// The name of a use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
#[strum(const_into_str)]
pub enum UseName {
    #[strum(serialize = "memory of processes")]
    Processes,
    #[strum(serialize = "page cache")]
    PageCache,
    #[strum(serialize = "shared memory and tmpfs")]
    SharedMemory,
    #[strum(serialize = "the kernel's slabs")]
    Slabs,
    #[strum(serialize = "pools of huge pages")]
    HugePagePools,
    #[strum(serialize = "page tables and stacks")]
    PageTables,
}

impl UseName {
    /// Returns the command that names the holders, in a sentence without a full stop.
    pub(super) const fn named_by(self) -> Option<&'static str> {
        match self {
            UseName::Processes => {
                Some("`ps -eo rss,pid,comm --sort=-rss | head` names the processes")
            }
            UseName::SharedMemory => Some("`df -t tmpfs` and `ipcs -m` name what holds it"),
            UseName::Slabs => Some("`slabtop -o -s c` names the caches, as root"),
            UseName::HugePagePools => {
                Some("`cat /sys/kernel/mm/hugepages/*/nr_hugepages` shows the pools")
            }
            UseName::PageCache | UseName::PageTables => None,
        }
    }
}

/// Returns the uses that a `meminfo` tells, the largest first; those that it lacks are left out.
pub(crate) fn of_meminfo(text: &str) -> Vec<MemoryUse> {
    let sum = |fields: &[&str]| -> u64 {
        fields
            .iter()
            .map(|field| meminfo_bytes(text, field).unwrap_or(0))
            .fold(0, u64::saturating_add)
    };
    // The kernel counts shared memory as cached.
    let cached = sum(&["Cached", "Buffers"]).saturating_sub(sum(&["Shmem"]));
    let mut uses: Vec<MemoryUse> = [
        (UseName::Processes, sum(&["AnonPages"])),
        (UseName::PageCache, cached),
        (UseName::SharedMemory, sum(&["Shmem"])),
        (UseName::Slabs, sum(&["Slab"])),
        (UseName::HugePagePools, sum(&["Hugetlb"])),
        (UseName::PageTables, sum(&["PageTables", "KernelStack"])),
    ]
    .into_iter()
    .filter(|&(_, bytes)| bytes > 0)
    .map(|(name, bytes)| MemoryUse { name, bytes })
    .collect();
    uses.sort_by_key(|of| std::cmp::Reverse((of.bytes, of.name)));
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_use_stands_first_and_shared_memory_is_no_cache() {
        let text = "Buffers: 1 kB\nCached: 700 kB\nShmem: 500 kB\nAnonPages: 300 kB\nSlab: 9 kB\n";
        let uses = of_meminfo(text);
        let kib: Vec<(UseName, u64)> = uses.iter().map(|of| (of.name, of.bytes >> 10)).collect();
        assert_eq!(
            kib,
            [
                (UseName::SharedMemory, 500),
                (UseName::Processes, 300),
                (UseName::PageCache, 201),
                (UseName::Slabs, 9),
            ]
        );
        assert_eq!(of_meminfo("Cached: 1 kB\nShmem: 18446744073709551615 kB\n"), [kept(1)]);
    }

    fn kept(kib: u64) -> MemoryUse {
        MemoryUse { name: UseName::PageCache, bytes: kib << 10 }
    }
}
