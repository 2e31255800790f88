//! Saved results: `<scenario>/<date>-<what>/{README.md, raw.jsonl, summary.txt}`.
//!
//! `raw.jsonl` holds the measurements, one JSON object per line: the origin first, then for each report its settings,
//! every measurement with all its samples, every comparison, every oracle and the notes. `summary.txt` is the
//! terminal's text. `README.md` says where both come from and how to make them again.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::report::Report;
use nofrag_show::Origin;

/// A report and the text that people saw of it.
#[derive(Clone, Debug)]
pub struct Saved {
    pub report: Report,
    /// The text that the terminal showed.
    pub summary: String,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Origin { origin: &'a Origin },
    Settings { scenario: &'a str, document: &'a str, settings: &'a crate::report::Settings },
    Measurement { scenario: &'a str, measurement: &'a crate::report::Measurement },
    Comparison { scenario: &'a str, comparison: &'a crate::report::Comparison },
    Oracle { scenario: &'a str, oracle: &'a crate::oracle::Oracle },
    Note { scenario: &'a str, note: &'a str },
    Replay { scenario: &'a str, replay: &'a crate::replay::ReplayReport },
    Frames { scenario: &'a str, frames: &'a crate::frames::Followed },
    Kernels { scenario: &'a str, kernels: &'a crate::kernels::KernelsReport },
}

/// Writes a new folder below `root` for a result, named after its scenario, its day and `what` was run, and returns its
/// path; a folder that exists is left alone and the new one is numbered.
///
/// # Errors
/// The error of the file system.
pub fn save(root: &Path, origin: &Origin, what: &str, result: &Saved) -> io::Result<PathBuf> {
    let Saved { report, summary } = result;
    let folder = new_folder(&root.join(&report.scenario), &format!("{}-{what}", origin.date()))?;
    fs::write(folder.join("README.md"), readme(origin, report))?;
    let mut raw = io::BufWriter::new(fs::File::create(folder.join("raw.jsonl"))?);
    write_line(&mut raw, &Line::Origin { origin })?;
    write_report(&mut raw, report)?;
    raw.flush()?;
    fs::write(folder.join("summary.txt"), summary)?;
    Ok(folder)
}

/// Puts `bytes` in the place of `file`: a reader meanwhile, and whoever comes after a crash, sees the old file or the
/// new one, whole. It has this mode, or the usual one of new files.
///
/// # Errors
/// The error of the file system; the old file is untouched then.
pub fn replace(file: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    // A device or a pipe is written to, not replaced.
    if file.exists() && !file.is_file() {
        return fs::write(file, bytes);
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Processes of several hosts may write to one folder, and their numbers meet.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let draft = file.with_file_name(format!(".{name}.{}-{now}", std::process::id()));
    let written = fs::File::create(&draft)
        .and_then(|mut out| {
            mode.map_or(Ok(()), |mode| out.set_permissions(Permissions::from_mode(mode)))?;
            out.write_all(bytes)?;
            out.sync_data()
        })
        .and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        // The error of the write tells more than that of the removal would.
        drop(fs::remove_file(&draft));
    }
    written
}

/// Makes a folder of this name below `root`, or with the first number behind it that is free: no run overwrites
/// another.
///
/// # Errors
/// The error of the file system.
pub fn new_folder(root: &Path, name: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(root)?;
    let mut number = 1;
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let folder = root.join(format!("{name}{suffix}"));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

fn write_report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let Report { scenario, document, settings, .. } = report;
    write_line(out, &Line::Settings { scenario, document, settings })?;
    for measurement in &report.measurements {
        write_line(out, &Line::Measurement { scenario, measurement })?;
    }
    for comparison in &report.comparisons {
        write_line(out, &Line::Comparison { scenario, comparison })?;
    }
    for oracle in &report.oracles {
        write_line(out, &Line::Oracle { scenario, oracle })?;
    }
    for note in &report.notes {
        write_line(out, &Line::Note { scenario, note })?;
    }
    if let Some(replay) = &report.replay {
        write_line(out, &Line::Replay { scenario, replay })?;
    }
    for frames in report.frames.iter().flat_map(|frames| &frames.stretches) {
        write_line(out, &Line::Frames { scenario, frames })?;
    }
    if let Some(kernels) = &report.kernels {
        write_line(out, &Line::Kernels { scenario, kernels })?;
    }
    Ok(())
}

fn write_line(out: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Returns the name and value of each fact of an origin, for people.
#[must_use]
pub fn facts(origin: &Origin) -> [(&'static str, String); 6] {
    [
        ("command", format!("`{}`", origin.command)),
        ("started", origin.started.clone()),
        ("processor", format!("{}, {} CPUs", origin.processor, origin.cpus)),
        ("kernel", origin.kernel.clone()),
        ("compiler", format!("{}, profile {}", origin.rustc, origin.profile)),
        ("revision", origin.revision.clone()),
    ]
}

fn readme(origin: &Origin, report: &Report) -> String {
    let mut text = String::from("# Results of `nofrag run`\n\n");
    text.push_str("| | |\n|---|---|\n");
    for (name, value) in facts(origin) {
        text.push_str(&format!("| {name} | {value} |\n"));
    }
    text.push_str(
        "\n`summary.txt` is what the terminal showed, `raw.jsonl` every sample behind it.\n",
    );
    let Report { scenario, document, settings, oracles, elapsed_s, .. } = report;
    let broken = report.broken().count();
    let driven = if settings.conditions.is_empty() {
        format!("{} repetitions of {} loops", settings.repeats, settings.loops)
    } else {
        settings.conditions.join("; ")
    };
    text.push_str(&format!(
        "\n## {scenario}\n\n{document}. Mode {}, seed {}, {driven}, {} threads; \
         designs {}; {:.0} s.\n\
         {} claims were judged, {broken} exact ones broken.\n",
        settings.mode,
        settings.seed,
        settings.threads,
        settings.designs.join(", "),
        elapsed_s,
        oracles.len(),
    ));
    for note in &report.notes {
        text.push_str(&format!("\n- {note}"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use nofrag_show::Build;

    use super::*;
    use crate::report::tests::report;

    /// The build information in results that tests save.
    pub(crate) const BUILD: Build = Build { rustc: "rustc", profile: "test", revision: "none" };

    #[test]
    fn a_file_takes_the_place_of_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.html");
        replace(&file, b"old", None).unwrap();
        replace(&file, b"new", None).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(replace(&folder.path().join("no/a.html"), b"new", None).is_err());
    }

    #[test]
    fn a_folder_holds_every_sample_and_is_never_overwritten() {
        let root = std::env::temp_dir().join(format!("nofrag-record-{}", std::process::id()));
        let mut origin = Origin::here(BUILD, "nofrag run sample".to_owned());
        origin.started = "2026-01-02T03:04:05Z".to_owned();
        let saved = Saved { report: report(), summary: "seen\n".to_owned() };
        let first = save(&root, &origin, "full", &saved).unwrap();
        let second = save(&root, &origin, "full", &saved).unwrap();
        let raw = fs::read_to_string(first.join("raw.jsonl")).unwrap();
        let readme = fs::read_to_string(second.join("README.md")).unwrap();
        let summary = fs::read_to_string(first.join("summary.txt")).unwrap();
        fs::remove_dir_all(&root).unwrap();

        let folder = root.join(&saved.report.scenario);
        assert_eq!(first, folder.join("2026-01-02-full"));
        assert_eq!(second, folder.join("2026-01-02-full-2"));
        assert_eq!(summary, "seen\n");
        assert!(readme.contains("nofrag run sample") && readme.contains("seed 1"), "{readme}");
        let lines: Vec<serde_json::Value> =
            raw.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let count = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
        assert_eq!((count("origin"), count("measurement"), count("oracle")), (1, 4, 1));
        assert_eq!(lines[2]["measurement"]["time"]["samples"].as_array().unwrap().len(), 3);
    }
}
