//! Notes which compiler and which revision made the binary; a saved result names both.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown rustc".to_owned());
    println!("cargo::rustc-env=NOFRAG_RUSTC={compiler}");
    println!("cargo::rustc-env=NOFRAG_REVISION={}", revision());
    println!("cargo::rustc-env=NOFRAG_PROFILE={}", env::var("PROFILE").unwrap_or_default());

    for source in ["../nofrag/src", "../nofrag-lab/src", "../nofrag-cli/src"] {
        if Path::new(source).exists() {
            println!("cargo::rerun-if-changed={source}");
        }
    }
    if let Some(log) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// The commit that was built, with a mark when the sources differ from it.
fn revision() -> String {
    let Some(commit) = output("git", &["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown revision".to_owned();
    };
    match output("git", &["status", "--porcelain", "--", "..", "../../Cargo.toml"]) {
        Some(changes) if !changes.is_empty() => format!("{commit} with uncommitted changes"),
        _ => commit,
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
