//! Makes the files of a release, in `target/dist`: static programs for two architectures with licences, manual and
//! completions, the Debian packages of the same programs, and the sums of all.
//!
//! Zig's C compiler links for both, so that nothing of this machine gets into them (`pip install ziglang
//! cargo-zigbuild`). Each program is run before it is packed, the foreign one by QEMU.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::ci::succeeds;
use crate::deb::{self, BUILT, PROFILE, beside, git, said, target};

/// The targets, with what runs their programs where this machine cannot.
const TARGETS: [(&str, Option<&str>); 2] = [
    ("x86_64-unknown-linux-musl", None),
    ("aarch64-unknown-linux-musl", Some("qemu-aarch64-static")),
];

/// Commands that each program must carry out before it is packed: the second unpacks with a library in C.
const PROOFS: [&[&str]; 2] = [
    &["--version"],
    &["trace", "info", "crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag"],
];

/// Builds, runs and packs all programs.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    deb::needs_cargo_deb()?;
    if !succeeds(Command::new("cargo").args(["zigbuild", "--help"])) {
        bail!("cargo-zigbuild is not installed (`pip install ziglang cargo-zigbuild`)");
    }
    let built = target(root)?;
    let dist = built.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).with_context(|| dist.display().to_string())?;
    }
    fs::create_dir_all(&dist).with_context(|| dist.display().to_string())?;
    for (triple, runner) in TARGETS {
        build(root, triple)?;
        let folder = built.join(triple).join(BUILT);
        let program = folder.join("nofrag");
        for proof in PROOFS {
            let mut command = Command::new(runner.map_or(program.as_path(), Path::new));
            command.args(runner.map(|_| &program)).args(proof);
            said(command.current_dir(root))?;
        }
        match runner {
            // The texts do not depend on the processor; only what runs here can be asked for them.
            None => beside(&program, &folder.join("deb"))?,
            Some(_) => copy(&built.join(TARGETS[0].0).join(BUILT).join("deb"), &folder)?,
        }
        archive(root, triple, &folder, &dist)?;
        let output = dist.to_str().context("the target folder has an odd name")?;
        let packed = deb::pack(root, &["--target", triple, "--no-strip", "--output", output])?;
        ensure!(packed, "the Debian package for {triple} cannot be made");
    }
    sums(&dist)
}

fn build(root: &Path, triple: &str) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    command.args(["zigbuild", "--locked", "-p", "nofrag-cli", "--target", triple]).args(PROFILE);
    let status = command.env("CARGO_PROFILE_MEASURED_STRIP", "symbols").current_dir(root).status();
    ensure!(status.is_ok_and(|it| it.success()), "the command cannot be built for {triple}");
    Ok(())
}

/// Returns the name of the folder in an archive. With `.tar.gz` it is the archive's: cargo-binstall asks for it.
fn name(triple: &str) -> String {
    format!("nofrag-{}-{triple}", env!("CARGO_PKG_VERSION"))
}

/// Packs a folder into an archive: the same sources and tools make the same bytes.
fn archive(root: &Path, triple: &str, built: &Path, dist: &Path) -> anyhow::Result<()> {
    let name = name(triple);
    let folder = dist.join(&name);
    fs::create_dir(&folder)?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        fs::copy(root.join(file), folder.join(file)).with_context(|| file.to_owned())?;
    }
    fs::copy(built.join("nofrag"), folder.join("nofrag"))?;
    copy(&built.join("deb/."), &folder)?;
    let time = format!("--mtime={}", git(root, &["log", "-1", "--format=@%ct"])?);
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", &time, "-czf"]);
    said(tar.arg(format!("{name}.tar.gz")).arg(&name).current_dir(dist))?;
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    said(Command::new("cp").arg("-R").args([from, to])).map(|_| ())
}

/// Writes the sums of all files, and prints the sizes.
fn sums(dist: &Path) -> anyhow::Result<bool> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(dist)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        println!("{name}: {} KiB", entry.metadata()?.len() / 1024);
        names.push(name);
    }
    names.sort();
    let sums = said(Command::new("sha256sum").args(&names).current_dir(dist))?;
    fs::write(dist.join("SHA256SUMS"), sums)?;
    let made = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    Ok([".tar.gz", ".deb"].iter().all(|end| made(end) == TARGETS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binstall_asks_for_what_is_made() {
        let manifest: toml::Table =
            include_str!("../../crates/nofrag-cli/Cargo.toml").parse().unwrap();
        let said = &manifest["package"]["metadata"]["binstall"];
        for (triple, _) in TARGETS {
            let filled = |key: &str| {
                let template = said[key].as_str().unwrap();
                let filled = template.replace("{ version }", env!("CARGO_PKG_VERSION"));
                filled.replace("{ target }", triple)
            };
            let made = name(triple);
            assert!(filled("pkg-url").ends_with(&format!("/{made}.tar.gz")));
            assert_eq!(filled("bin-dir"), format!("{made}/{{ bin }}"));
        }
        assert_eq!(said["pkg-fmt"].as_str(), Some("tgz"));
    }
}
