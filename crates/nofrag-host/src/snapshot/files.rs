//! The files of a snapshot, as the kernel gave them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::process::printable;

/// The files of a snapshot by their names below `/proc` or `debugfs/extfrag`, with their bytes.
///
/// | name | what |
/// |---|---|
/// | `version`, `meminfo`, `vmstat`, `iomem` | as in `/proc` |
/// | `sysctl` | a line `NAME VALUE..` for each setting of `vm` |
/// | `zoneinfo`, `buddyinfo`, `pagetypeinfo` | as in `/proc` |
/// | `extfrag_index`, `unusable_index` | as in debugfs |
/// | `kpageflags`, `kpagecount` | eight little-endian bytes for each frame from 0 on |
/// | `vmallocinfo` | as in `/proc` |
/// | `maps/PID` | as in `/proc/PID` |
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files(BTreeMap<String, Vec<u8>>);

/// The files of a snapshot and where a live host has them, relative to its root.
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
    ("kpagecount", "proc/kpagecount"),
    ("vmallocinfo", "proc/vmallocinfo"),
];

/// Where a live host has the file of this name, relative to its root; `None` for what is made of several files.
#[must_use]
pub fn path_of(name: &str) -> Option<&'static str> {
    PLACES.iter().find(|(known, _)| *known == name).map(|(_, path)| *path)
}

impl Files {
    /// Adds a file.
    pub fn insert(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.0.insert(name.into(), bytes);
    }

    /// The bytes of a file.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// A file as text; what is no UTF-8 is replaced.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.bytes(name).map(String::from_utf8_lossy)
    }

    /// All files by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// The kernel's release: the third word of `version`.
    #[must_use]
    pub fn release(&self) -> Option<String> {
        self.text("version")?.split_ascii_whitespace().nth(2).map(printable)
    }

    /// Reads a folder: its files under their names, those that end in `.zst` unpacked and without that end. Files of a
    /// folder in it have its name before theirs: `maps/PID`.
    ///
    /// # Errors
    /// What reading gives.
    pub fn read_folder(folder: &Path) -> io::Result<Files> {
        let mut files = Files::default();
        files.read_below(folder, "")?;
        Ok(files)
    }

    fn read_below(&mut self, folder: &Path, before: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if path.is_dir() && before.is_empty() {
                self.read_below(&path, &format!("{name}/"))?;
            }
            if !path.is_file() {
                continue;
            }
            let mut bytes = Vec::new();
            let name = match name.strip_suffix(".zst") {
                Some(name) => {
                    zstd::Decoder::new(File::open(&path)?)?.read_to_end(&mut bytes)?;
                    name
                }
                None => {
                    File::open(&path)?.read_to_end(&mut bytes)?;
                    name
                }
            };
            self.insert(format!("{before}{name}"), bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
