//! The host's memory, CPUs, huge pages, and room for the files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{statfs, statvfs};
use serde::{Deserialize, Serialize};

use crate::usage::field_bytes;

/// Memory, CPUs and huge pages of the host. Bytes, unless said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    pub release: String,
    /// Memory of the whole machine.
    pub memory: u64,
    /// Memory of node 0; the document's program touches a share of it.
    pub node_memory: u64,
    /// Memory that can be had without swapping, by the kernel's estimate and the limits of this process's groups.
    pub available: u64,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Number of nodes with memory.
    pub nodes: usize,
    /// The size of a huge page; `None` for a kernel without them.
    pub huge_page: Option<u64>,
    /// `transparent_hugepage/enabled`: the word in brackets.
    pub thp_enabled: Option<String>,
    /// `transparent_hugepage/defrag`: the word in brackets.
    pub thp_defrag: Option<String>,
    /// Sizes of folios below a huge page that anonymous memory may get, in KiB.
    pub smaller_folios: Vec<u64>,
}

/// Room on the disk of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disk {
    /// Bytes that this user may still write.
    pub free: u64,
    /// Files that may still be made; `None` where the file system does not count them.
    pub free_files: Option<u64>,
    /// True if its files are kept in memory alone.
    pub in_memory: bool,
}

const MEMINFO: &str = "/proc/meminfo";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `statfs(2)`.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

impl Host {
    /// Returns the present host.
    ///
    /// # Errors
    /// If `/proc/meminfo` cannot be read, or says nothing of memory.
    pub fn here() -> io::Result<Host> {
        let known = |name| field_bytes(MEMINFO, name).ok_or_else(|| missing(name));
        let (memory, available) = (known("MemTotal")?, known("MemAvailable")?);
        let nodes = nodes();
        Ok(Host {
            release: word("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memory,
            node_memory: node_memory().unwrap_or(memory / nodes as u64),
            available: allowed_by_groups().map_or(available, |allowed| available.min(allowed)),
            cpus: nofrag_show::cpus(),
            nodes,
            huge_page: word(&format!("{THP}/hpage_pmd_size")).and_then(|size| size.parse().ok()),
            thp_enabled: chosen(&format!("{THP}/enabled")),
            thp_defrag: chosen(&format!("{THP}/defrag")),
            smaller_folios: smaller_folios(),
        })
    }

    /// Returns the memory that is available at this moment, as in [`Host::available`].
    pub(super) fn available_now() -> Option<u64> {
        let available = field_bytes(MEMINFO, "MemAvailable")?;
        Some(allowed_by_groups().map_or(available, |allowed| available.min(allowed)))
    }
}

impl Disk {
    /// Returns the disk below `folder`.
    ///
    /// # Errors
    /// The error of `statfs`.
    pub fn below(folder: &Path) -> io::Result<Disk> {
        let room = statvfs(folder)?;
        let kind = statfs(folder)?.f_type as u64 & 0xffff_ffff;
        Ok(Disk {
            free: room.f_bavail.saturating_mul(room.f_frsize),
            free_files: (room.f_files > 0).then_some(room.f_favail),
            in_memory: IN_MEMORY.contains(&kind),
        })
    }
}

fn missing(name: &str) -> io::Error {
    io::Error::other(format!("/proc/meminfo does not say {name}"))
}

fn word(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Returns the word in brackets of the file `path`: the setting in force.
fn chosen(path: &str) -> Option<String> {
    let text = word(path)?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn nodes() -> usize {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node = |name: String| {
        let number = name.strip_prefix("node")?;
        number.parse::<u32>().ok()
    };
    let numbers = entries.filter_map(|entry| is_node(entry.file_name().into_string().ok()?));
    numbers.count().max(1)
}

fn node_memory() -> Option<u64> {
    field_bytes("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal")
}

/// Returns the sizes, in KiB, of the folios with a setting of their own (not `inherit`) other than `never`, ascending.
fn smaller_folios() -> Vec<u64> {
    let size_of = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
    let on = |size: &u64| {
        let mode = chosen(&format!("{THP}/hugepages-{size}kB/enabled"));
        mode.is_some_and(|mode| mode != "never" && mode != "inherit")
    };
    let entries = fs::read_dir(THP).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| size_of(entry.file_name().to_str()?));
    let mut sizes: Vec<u64> = sizes.filter(on).collect();
    sizes.sort_unstable();
    sizes
}

/// Returns the least memory that the limits of this process's control groups (version 2, from its own up to the root)
/// still allow: the limit less all charges that are not page cache.
fn allowed_by_groups() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let mut folder: Option<PathBuf> = Some(root.join(path));
    let mut least = None;
    while let Some(here) = folder.filter(|here| here.starts_with(root)) {
        if let Some(allowed) = allowed_by(&here) {
            least = Some(least.map_or(allowed, |least: u64| least.min(allowed)));
        }
        folder = here.parent().map(Path::to_owned);
    }
    least
}

/// Returns the memory that one group allows; `None` without a limit.
fn allowed_by(group: &Path) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number("memory.max")?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("file ")?.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(number("memory.current")?.saturating_sub(cache)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_of_a_machine_and_of_a_node_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meminfo");
        let path = path.to_str().unwrap();
        let read = |text: &str, name: &str| {
            fs::write(path, text).unwrap();
            field_bytes(path, name)
        };
        let machine = "MemTotal:       24683608 kB\nMemFree:         7869500 kB\n";
        assert_eq!(read(machine, "MemFree"), Some(7_869_500 << 10));
        let node = "Node 0 MemTotal:       16384 kB\n";
        assert_eq!(read(node, "Node 0 MemTotal"), Some(16 << 20));
        assert_eq!(read(node, "Node 0 MemAvailable"), None);
        assert_eq!(read("MemTotal: 99999999999999999999 kB", "MemTotal"), None);
    }

    #[test]
    fn a_group_with_a_limit_allows_what_is_left_of_it_and_its_cache() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        assert_eq!(allowed_by(group.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 100\nfile 500\n");
        assert_eq!(allowed_by(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(allowed_by(group.path()), Some(800));
    }

    #[test]
    fn this_host_has_memory_and_cpus() {
        let host = Host::here().unwrap();
        assert!(host.memory >= host.available && host.cpus > 0 && host.nodes > 0, "{host:?}");
        assert!(host.node_memory <= host.memory, "{host:?}");
    }
}
