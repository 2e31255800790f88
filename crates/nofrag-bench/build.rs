//! Tells the binary what compiled it, so that a saved result can say so.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = first_line(Command::new(rustc).arg("--version"));
    println!("cargo::rustc-env=COMPARE_RUSTC={version}");
    // Cargo tells a profile's own name only in the folder that it builds in.
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let before_build = out.rsplit_once("/build/").and_then(|(folder, _)| folder.rsplit('/').next());
    let profile = before_build.unwrap_or("unknown");
    println!("cargo::rustc-env=COMPARE_PROFILE={profile}");
}

fn first_line(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or("unknown").to_owned()
}
