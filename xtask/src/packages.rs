//! Packs the crates that are published, and uses them like a user who has only a registry.
//!
//! A folder stands in for the registry: all dependencies of `Cargo.lock` and our own packages, unpacked. Each package's
//! tests run in it; `cargo install nofrag-cli` installs from it, with a `CARGO_HOME` and a root that were empty; and
//! what README tells people to type is run with the installed program, in a folder outside of the
//! repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::json;

use crate::deb::{cargo, said, target};
use crate::readme::{self, Extent};

/// Request to try the packages.
#[derive(clap::Args)]
pub(crate) struct Request {
    /// Only pack, install and run; leave the tests of the packages out
    #[arg(long)]
    no_tests: bool,
}

/// Packs, tests, installs, and runs.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let away = std::env::temp_dir().join(format!("nofrag-packages-{}", std::process::id()));
    fs::create_dir_all(&away).with_context(|| away.display().to_string())?;
    let passed = in_folder(root, &away, request);
    fs::remove_dir_all(&away).with_context(|| away.display().to_string())?;
    passed
}

fn in_folder(root: &Path, away: &Path, request: &Request) -> anyhow::Result<bool> {
    let packed = pack(root)?;
    let registry = away.join("registry");
    let at = registry.to_str().context("the folder for temporary files has an odd name")?;
    ensure!(cargo(root, &["vendor", "--locked", "--quiet", at])?, "no registry could be made");
    let unpacked: Vec<PathBuf> =
        packed.iter().map(|package| unpack(package, &registry)).collect::<anyhow::Result<_>>()?;
    let home = away.join("home");
    fs::create_dir_all(home.join(".cargo"))?;
    let source = "[source.crates-io]\nreplace-with = \"folder\"\n[source.folder]\ndirectory = ";
    fs::write(home.join(".cargo/config.toml"), format!("{source}{at:?}\n"))?;
    let cargo = |folder: &Path, arguments: &[&str]| -> anyhow::Result<bool> {
        let status = Command::new("cargo")
            .args(arguments)
            .current_dir(folder)
            .env("CARGO_HOME", home.join(".cargo"))
            .env("CARGO_TARGET_DIR", root.join("target/packages"))
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .status();
        Ok(status.context("cannot run cargo")?.success())
    };
    let mut passed = true;
    for folder in unpacked.iter().filter(|_| !request.no_tests) {
        println!("-- the tests of {}", folder.display());
        passed &= cargo(folder, &["test", "--offline", "--quiet"])?;
    }
    let at = home.to_str().context("the folder for temporary files has an odd name")?;
    let install = ["install", "nofrag-cli", "--locked", "--offline", "--root", at];
    ensure!(cargo(&home, &install)?, "the command cannot be installed");
    let program = home.join("bin/nofrag");
    Ok(readme::hold(root, &program, &home, Extent::All)? && passed)
}

/// Packs the crates that are published.
fn pack(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().current_dir(root).exec()?;
    let published = |it: &&cargo_metadata::Package| it.publish.is_none();
    let packages: Vec<_> = metadata.packages.iter().filter(published).collect();
    // What is packed is compiled when it is tested and installed.
    let mut arguments = vec!["package", "--locked", "--no-verify", "--allow-dirty", "--quiet"];
    arguments.extend(packages.iter().flat_map(|it| ["-p", it.name.as_str()]));
    ensure!(cargo(root, &arguments)?, "the crates cannot be packed");
    let folder = target(root)?.join("package");
    packages
        .iter()
        .map(|it| {
            let path = folder.join(format!("{}-{}.crate", it.name, it.version));
            let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
            println!("{}: {} KiB", path.display(), bytes / 1024);
            Ok(path)
        })
        .collect()
}

/// Puts a package into a folder that stands in for the registry; returns its place there.
fn unpack(package: &Path, registry: &Path) -> anyhow::Result<PathBuf> {
    said(Command::new("tar").arg("-xzf").arg(package).arg("-C").arg(registry))?;
    let name = package.file_stem().context("a package has a name")?;
    let folder = registry.join(name);
    for text in ["LICENSE-MIT", "LICENSE-APACHE", "README.md"] {
        let path = folder.join(text);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() && it.len() > 500);
        ensure!(is_file, "{} is not there as a text", path.display());
    }
    let sum = String::from_utf8(said(Command::new("sha256sum").arg(package))?)?;
    let sum = sum.split(' ').next().context("sha256sum says a sum")?;
    let known = json!({ "files": {}, "package": sum }).to_string();
    fs::write(folder.join(".cargo-checksum.json"), known)?;
    Ok(folder)
}
