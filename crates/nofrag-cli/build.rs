//! Notes the compiler and the revision that made the binary; a saved result names both.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown rustc".to_owned());
    println!("cargo::rustc-env=NOFRAG_RUSTC={compiler}");
    println!("cargo::rustc-env=NOFRAG_REVISION={}", revision());
    println!("cargo::rustc-env=NOFRAG_PROFILE={}", profile());

    for source in ["../nofrag/src", "../nofrag-lab/src", "../nofrag-show/src", "../nofrag-cli/src"]
    {
        if Path::new(source).exists() {
            println!("cargo::rerun-if-changed={source}");
        }
    }
}

/// Returns the profile by its own name, which cargo tells only in the folder that it builds in; `PROFILE` is the
/// profile that it inherits from.
fn profile() -> String {
    let out = env::var("OUT_DIR").unwrap_or_default();
    let before_build = out.rsplit_once("/build/").and_then(|(folder, _)| folder.rsplit('/').next());
    before_build.unwrap_or("unknown profile").to_owned()
}

/// Returns the commit that was built, with a mark when the sources differ from it. A package names its commit itself: a
/// repository around it is another one.
fn revision() -> String {
    if is_packed() {
        let packed = std::fs::read_to_string(".cargo_vcs_info.json").unwrap_or_default();
        return packed_revision(&packed).unwrap_or_else(|| "unknown revision".to_owned());
    }
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    let Some(commit) = output("git", &["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown revision".to_owned();
    };
    match output("git", &["status", "--porcelain", "--", "..", "../../Cargo.toml"]) {
        Some(changes) if !changes.is_empty() => format!("{commit} with uncommitted changes"),
        _ => commit,
    }
}

/// Returns true if this is a package, and not the repository: `cargo package` puts this file there.
fn is_packed() -> bool {
    Path::new("Cargo.toml.orig").exists()
}

/// Returns the commit in the file that `cargo package` writes, behind `"sha1": "`.
fn packed_revision(packed: &str) -> Option<String> {
    let (_, hash) = packed.split_once("\"sha1\": \"")?;
    let changed = if packed.contains("\"dirty\": true") { " with uncommitted changes" } else { "" };
    Some(format!("{}{changed}", hash.get(..12)?))
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
