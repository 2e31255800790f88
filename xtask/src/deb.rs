//! Makes the Debian package: the command with its manual and its completions for shells.
//!
//! The pages and scripts come from the very binary that is packed, so it is built first and asked for them. What goes
//! where stands in `[package.metadata.deb]` of crates/nofrag-cli/Cargo.toml.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::ci::succeeds;

/// Profile with which a release is built.
pub(crate) const PROFILE: [&str; 2] = ["--profile", "measured"];
/// Folder of that profile, below the folder of a target.
pub(crate) const BUILT: &str = "measured";

/// Places of the scripts, below the folder that is made here; the shells look for these names.
const SCRIPTS: [(&str, &str); 3] =
    [("bash", "nofrag.bash"), ("zsh", "_nofrag"), ("fish", "nofrag.fish")];

/// Builds for this machine, and packs.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    needs_cargo_deb()?;
    let build = ["build", "--locked", "-p", "nofrag-cli"];
    ensure!(cargo(root, &[&build[..], &PROFILE].concat())?, "the command cannot be built");
    let built = target(root)?.join(BUILT);
    beside(&built.join("nofrag"), &built.join("deb"))?;
    pack(root, &[])
}

/// Fails without cargo-deb, before anything is begun.
pub(crate) fn needs_cargo_deb() -> anyhow::Result<()> {
    if !succeeds(Command::new("cargo").args(["deb", "--version"])) {
        bail!("cargo-deb is not installed (`cargo install cargo-deb --locked`)");
    }
    Ok(())
}

/// Packs the program that is built already.
pub(crate) fn pack(root: &Path, more: &[&str]) -> anyhow::Result<bool> {
    let pack = ["deb", "--no-build", "--locked", "-p", "nofrag-cli"];
    cargo(root, &[&pack[..], &PROFILE, more].concat())
}

/// Writes the manual and the scripts of `binary` to `folder`, which is made anew.
pub(crate) fn beside(binary: &Path, folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    said(Command::new(binary).arg("man").arg(folder.join("man")))?;
    for (shell, name) in SCRIPTS {
        let script = said(Command::new(binary).args(["completions", shell]))?;
        let path = folder.join(name);
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Runs a command and returns its output.
pub(crate) fn said(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Asks git in a folder; returns its answer without the space around it.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let answer = said(Command::new("git").args(arguments).current_dir(folder))?;
    Ok(String::from_utf8(answer)?.trim().to_owned())
}

/// Runs cargo; returns true if it succeeds.
pub(crate) fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<bool> {
    let status = Command::new("cargo").args(arguments).current_dir(root).status();
    Ok(status.context("cannot run cargo")?.success())
}

/// Returns the folder that cargo builds in.
pub(crate) fn target(root: &Path) -> anyhow::Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().current_dir(root).exec()?;
    Ok(metadata.target_directory.into())
}
