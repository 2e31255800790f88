//! A file that is replaced as a whole: a reader finds the old text or the new one, never a part.
//!
//! Source: docs/sources/trace.md#export.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The ending of the files that the collector reads.
const ENDING: &str = "prom";

/// The mode of the file, which other users read: node_exporter has a user of its own.
const MODE: u32 = 0o644;

/// Refuses a name of which the collector reads no file.
pub(super) fn check_name(path: &Path) -> Result<()> {
    ensure!(
        path.extension().is_some_and(|ending| ending == ENDING),
        "{}: the textfile collector reads only files whose names end in .{ENDING}",
        path.display()
    );
    Ok(())
}

/// Replaces the file by one with this text.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    nofrag_lab::saved::replace(path, text.as_bytes(), Some(MODE)).with_context(|| {
        let help = "name a file in a folder that is there and that this user may write to";
        format!("{}: cannot be written: {help}", path.display())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    /// Checks that half a file is never seen, at any rate of writes and reads (`partial_prom`).
    #[test]
    fn partial_prom() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nofrag.prom");
        let texts = ["a", "b"].map(|letter| letter.repeat(200_000) + "\n");
        replace(&path, &texts[0]).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..50 {
                    replace(&path, &texts[round % 2]).unwrap();
                }
                ended.store(true, Ordering::Relaxed);
            });
            while !ended.load(Ordering::Relaxed) {
                let read = fs::read_to_string(&path).unwrap();
                assert!(texts.contains(&read), "{} bytes of {}", read.len(), texts[0].len());
            }
        });
        assert_eq!(entries(folder.path()), ["nofrag.prom"]);
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nofrag.prom");
        fs::create_dir(&path).unwrap();
        let error = replace(&path, "new").unwrap_err();
        assert!(format!("{error:#}").contains("nofrag.prom: cannot be written"), "{error:#}");
        assert_eq!(entries(folder.path()), ["nofrag.prom"]);
        let error = replace(&folder.path().join("none/a.prom"), "new").unwrap_err();
        assert!(format!("{error:#}").contains("No such file"), "{error:#}");
    }

    #[test]
    fn others_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nofrag.prom");
        replace(&path, "x\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
    }

    #[test]
    fn a_name_that_the_collector_passes_over_is_refused() {
        assert!(check_name(Path::new("a/nofrag.prom")).is_ok());
        for bad in ["nofrag.txt", "nofrag", ".prom", "a/"] {
            assert!(check_name(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
