//! The files of a snapshot, as the kernel gave them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::budget::{Budget, Room};
use crate::process::printable;
use crate::source::{Entry, Root};

/// The files of a snapshot by their names below `/proc` or `debugfs/extfrag`, with their bytes.
///
/// | name | contents |
/// |---|---|
/// | `version`, `meminfo`, `vmstat`, `iomem` | as in `/proc` |
/// | `sysctl` | a line `NAME VALUE..` for each setting of `vm` |
/// | `zoneinfo`, `buddyinfo`, `pagetypeinfo` | as in `/proc` |
/// | `extfrag_index`, `unusable_index` | as in debugfs |
/// | `kpageflags` | eight little-endian bytes for each frame from 0 on |
/// | `vmallocinfo`, `slabinfo` | as in `/proc` |
/// | `maps/PID` | as in `/proc/PID` |
///
/// Files of a recording stay packed until a caller asks for their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files(BTreeMap<String, Content>);

/// The bytes of a file in a snapshot.
#[derive(Clone)]
enum Content {
    Plain(Vec<u8>),
    Packed(Packed),
}

/// A file as a zstd frame, which is unpacked when it is first used.
#[derive(Clone)]
pub(crate) struct Packed {
    /// The memory of the frame, which all frames of one snapshot share.
    within: Arc<Vec<u8>>,
    frame: Range<usize>,
    /// Bytes of the unpacked file.
    bytes: usize,
    unpacked: OnceLock<Option<Vec<u8>>>,
}

impl Packed {
    /// Makes a file from the frame in this range, which unpacks to `bytes`; `None` if the range lies outside, or the
    /// frame states another length itself.
    pub(crate) fn new(within: &Arc<Vec<u8>>, frame: Range<usize>, bytes: usize) -> Option<Packed> {
        let said = zstd::zstd_safe::get_frame_content_size(within.get(frame.clone())?).ok()?;
        let agrees = said.is_none_or(|said| usize::try_from(said) == Ok(bytes));
        let (within, unpacked) = (Arc::clone(within), OnceLock::new());
        agrees.then_some(Packed { within, frame, bytes, unpacked })
    }

    /// Unpacks the frame; `None` unless it has exactly the promised number of bytes.
    fn unpack(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.bytes).ok()?;
        let mut unpack = zstd::bulk::Decompressor::new().ok()?;
        let frame = &self.within[self.frame.clone()];
        let unpacked = unpack.decompress_to_buffer(frame, &mut bytes).ok()?;
        (unpacked == self.bytes).then_some(bytes)
    }
}

impl Content {
    /// Returns the bytes; `None` if the frame is damaged, or there is no memory for its contents.
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Content::Plain(bytes) => Some(bytes),
            Content::Packed(packed) => packed.unpacked.get_or_init(|| packed.unpack()).as_deref(),
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Plain(bytes) => write!(f, "{} bytes", bytes.len()),
            Content::Packed(packed) => write!(f, "{} bytes, packed", packed.bytes),
        }
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Content {}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.bytes().unwrap_or_default().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        Vec::deserialize(deserializer).map(Content::Plain)
    }
}

/// The files of a snapshot, and their paths on a live host, relative to its root.
const PLACES: [(&str, &str); 14] = [
    ("version", "proc/version"),
    ("meminfo", "proc/meminfo"),
    ("vmstat", "proc/vmstat"),
    ("iomem", "proc/iomem"),
    ("zoneinfo", "proc/zoneinfo"),
    ("buddyinfo", "proc/buddyinfo"),
    ("pagetypeinfo", "proc/pagetypeinfo"),
    ("extfrag_index", "sys/kernel/debug/extfrag/extfrag_index"),
    ("unusable_index", "sys/kernel/debug/extfrag/unusable_index"),
    ("transparent_hugepage_enabled", "sys/kernel/mm/transparent_hugepage/enabled"),
    ("transparent_hugepage_defrag", "sys/kernel/mm/transparent_hugepage/defrag"),
    ("kpageflags", "proc/kpageflags"),
    ("slabinfo", "proc/slabinfo"),
    ("vmallocinfo", "proc/vmallocinfo"),
];

/// Returns the path on a live host of the file of this name, relative to the host's root; `None` for a file that is
/// made of several.
#[must_use]
pub fn path_of(name: &str) -> Option<&'static str> {
    PLACES.iter().find(|(known, _)| *known == name).map(|(_, path)| *path)
}

/// Returns the path of a file that is known to be one.
pub(crate) fn place_of(name: &str) -> &'static str {
    path_of(name).expect("every file of a snapshot has its place")
}

impl Files {
    /// Adds a file with its bytes; an earlier file of this name is replaced.
    pub fn insert(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.0.insert(name.into(), Content::Plain(bytes));
    }

    /// Adds a file that stays packed until it is used.
    pub(crate) fn insert_packed(&mut self, name: String, packed: Packed) {
        self.0.insert(name, Content::Packed(packed));
    }

    /// Keeps only the files of these names. Unpacks none of them.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    /// Returns the bytes of a file; O(bytes) when a packed one is first asked for. `None` also where it cannot be
    /// unpacked.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).and_then(Content::bytes)
    }

    /// Returns a file as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.bytes(name).map(String::from_utf8_lossy)
    }

    /// Returns the names of all files, in order. Unpacks none of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns all files by name, each unpacked, except those that cannot be.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().filter_map(|(name, content)| Some((name.as_str(), content.bytes()?)))
    }

    /// Returns the kernel's release: the third word of `version`.
    #[must_use]
    pub fn release(&self) -> Option<String> {
        self.text("version")?.split_ascii_whitespace().nth(2).map(printable)
    }

    /// Reads a folder: its files under their names, those that end in `.zst` unpacked and without that end. Files of a
    /// folder in it have its name before theirs: `maps/PID`. Entries that are neither files nor folders are skipped,
    /// links included; all files together take no more memory than [`Budget::of_path`] allows.
    ///
    /// # Errors
    /// The error of the system; `FileTooLarge` beyond the budget.
    pub fn read_folder(folder: &Path) -> io::Result<Files> {
        Files::read_folder_within(folder, &Budget::of_path(folder)?)
    }

    /// Reads a folder as [`read_folder`](Self::read_folder) does, with the caller's budget.
    ///
    /// # Errors
    /// Those of [`read_folder`](Self::read_folder).
    pub fn read_folder_within(folder: &Path, budget: &Budget) -> io::Result<Files> {
        let root = Root::Captured(folder.to_owned());
        Files::read_below(&root, "", &mut Room::new(folder, *budget))
    }

    /// Reads a folder below another one as [`read_folder`](Self::read_folder) does, within the other's room.
    pub(crate) fn read_below(root: &Root, folder: &str, room: &mut Room) -> io::Result<Files> {
        let mut files = Files::default();
        for entry in root.entries_here(folder)? {
            if entry.is_folder {
                for inner in root.entries_here(&format!("{folder}/{}", entry.name))? {
                    let name = format!("{}/{}", entry.name, inner.name);
                    files.read_entry(root, folder, &name, &inner, room)?;
                }
            }
            files.read_entry(root, folder, &entry.name, &entry, room)?;
        }
        Ok(files)
    }

    /// Adds the entry of a folder under `name`, if it is a file.
    fn read_entry(
        &mut self,
        root: &Root,
        folder: &str,
        name: &str,
        entry: &Entry,
        room: &mut Room,
    ) -> io::Result<()> {
        if !entry.is_file {
            return Ok(());
        }
        let bytes = root.read_here(&format!("{folder}/{name}"), room.left());
        let bytes = bytes.map_err(|cause| match cause.kind() {
            io::ErrorKind::FileTooLarge => room.refuse_folder(),
            _ => cause,
        })?;
        room.take(bytes.len() as u64).map_err(io::Error::other)?;
        self.insert(name.strip_suffix(".zst").unwrap_or(name), bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_is_read_with_the_maps_in_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("maps/deeper")).unwrap();
        fs::write(folder.path().join("version"), "Linux version 6.1.0").unwrap();
        fs::write(folder.path().join("maps/17"), "1000-2000 r--p").unwrap();
        fs::write(folder.path().join("maps/deeper/1"), "left out").unwrap();
        let packed = zstd::bulk::compress(b"MemTotal", 3).unwrap();
        fs::write(folder.path().join("meminfo.zst"), packed).unwrap();
        let files = Files::read_folder(folder.path()).unwrap();
        let names: Vec<&str> = files.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["maps/17", "meminfo", "version"]);
        assert_eq!(files.release().as_deref(), Some("6.1.0"));
        assert_eq!(files.bytes("meminfo"), Some(&b"MemTotal"[..]));
    }
}
