//! `/proc/slabinfo`: the memory of each cache of kernel objects.
//!
//! ```text
//! dentry            134562 136290    192   21    1 : tunables    0    0    0 : slabdata   6490   6490      0
//! ```
//!
//! After the name: objects in use, objects, bytes of one, objects in a slab, pages in a slab; behind `slabdata`: slabs
//! in use, slabs. The kernel merges caches of like objects, and lists them under one name.
//!
//! Source: docs/sources/trace.md#slabinfo.

use serde::Serialize;

use super::lines::is_name;

/// The memory of one cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlabCache {
    /// Name of the cache, such as `dentry`.
    pub name: String,
    /// Pages in its slabs.
    pub pages: u64,
}

/// Returns the caches that hold memory, the largest first; lines that do not name one are skipped.
#[must_use]
pub fn slabinfo(text: &str) -> Vec<SlabCache> {
    let mut caches: Vec<SlabCache> = text.lines().filter_map(cache).collect();
    caches.retain(|cache| cache.pages > 0);
    caches.sort_by(|one, other| other.pages.cmp(&one.pages).then(one.name.cmp(&other.name)));
    caches
}

fn cache(line: &str) -> Option<SlabCache> {
    let (sizes, slabs) = line.split_once(": slabdata")?;
    let mut sizes = sizes.split_ascii_whitespace();
    let name = sizes.next().filter(|name| is_name(name))?;
    let pages_in_slab: u64 = sizes.nth(4)?.parse().ok()?;
    let slabs: u64 = slabs.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(SlabCache { name: name.to_owned(), pages: slabs.saturating_mul(pages_in_slab) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_caches_come_first_and_other_lines_are_skipped() {
        let text = "slabinfo - version: 2.1\n# name <active_objs> : tunables <limit> : slabdata <active_slabs>\n\
                    empty 0 0 312 13 1 : tunables 0 0 0 : slabdata 0 0 0\n\
                    dentry 134562 136290 192 21 1 : tunables 0 0 0 : slabdata 6400 6490 0\n\
                    inode\u{1b}[2J 1 1 1 1 1 : tunables 0 0 0 : slabdata 9 9 0\n\
                    ext4_inode_cache 9 9 1096 29 8 : tunables 0 0 0 : slabdata 900 900 0\n\
                    huge 1 1 1 1 18446744073709551615 : tunables 0 0 0 : slabdata 2 2 0\n\
                    cut 1 1 1 1\n";
        let caches = slabinfo(text);
        let found: Vec<(&str, u64)> =
            caches.iter().map(|cache| (cache.name.as_str(), cache.pages)).collect();
        assert_eq!(found, [("huge", u64::MAX), ("ext4_inode_cache", 7200), ("dentry", 6490)]);
    }
}
