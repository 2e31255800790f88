//! The Python package: its lints, its wheel, the stubs held to it, and its tests, in an environment of its own. The
//! tests run the notebooks of docs and the questions of contrib/duckdb, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

const CRATE: &str = "crates/nofrag-python";
/// The packages that build, check and read the wheel. None of it is a dependency of the wheel.
const TOOLS: [&str; 13] = [
    "maturin",
    "mypy",
    "pytest",
    "pyarrow",
    "polars",
    "pandas>=3",
    "tqdm",
    "duckdb",
    "ray",
    "nbformat",
    "nbclient",
    "ipykernel",
    "kubernetes-validate",
];
/// The Job of Kubernetes, whose schema comes by pip.
const JOB: &str = "contrib/kubernetes/sweep.yaml";
const MOST_BYTES: u64 = 15_000_000;

/// Builds the wheel in `target/python`, and tests it; true if all of it holds.
pub(crate) fn run(root: &Path) -> anyhow::Result<bool> {
    let folder = root.join("target/python");
    fs::create_dir_all(&folder)?;
    let (manifest, cargo) = (root.join(CRATE).join("Cargo.toml"), folder.join("cargo"));
    let lints = ["clippy", "--release", "--locked", "--manifest-path"];
    let mut clippy = Command::new("cargo");
    clippy.args(lints).arg(&manifest).arg("--target-dir").arg(&cargo);
    done(clippy.args(["--", "-D", "warnings"]))?;
    let environment = folder.join("venv");
    if !environment.is_dir() {
        done(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let python = environment.join("bin/python");
    done(Command::new(&python).args(["-m", "pip", "install", "-q"]).args(TOOLS))?;
    done(
        Command::new(environment.join("bin/kubernetes-validate"))
            .arg("--strict")
            .arg(root.join(JOB)),
    )?;
    let wheels = folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = Command::new(environment.join("bin/maturin"));
    maturin.args(["build", "--release", "--locked", "--manifest-path"]).arg(&manifest);
    done(maturin.arg("--target-dir").arg(&cargo).arg("--out").arg(&wheels))?;
    let wheel = only_file(&wheels)?;
    let bytes = fs::metadata(&wheel)?.len();
    println!("{}: {bytes} bytes", wheel.display());
    ensure!(bytes <= MOST_BYTES, "the wheel may have {MOST_BYTES} bytes");
    let install = ["-m", "pip", "install", "-q", "--force-reinstall", "--no-deps"];
    done(Command::new(&python).args(install).arg(&wheel))?;
    // From a folder in which `nofrag` is the installed package and not its source.
    let there = |module: &str| {
        let mut command = Command::new(&python);
        command.current_dir(&folder).args(["-m", module]);
        command
    };
    done(there("mypy.stubtest").arg("nofrag._native"))?;
    done(there("mypy").args(["--strict", "--ignore-missing-imports", "-p", "nofrag"]))?;
    done(Command::new("cargo").args(["build", "--release", "-p", "nofrag-cli"]).current_dir(root))?;
    let tests = root.join(CRATE).join("tests");
    let mut pytest = there("pytest");
    pytest.env("NOFRAG_PROGRAM", root.join("target/release/nofrag"));
    done(pytest.args(["-q", "-p", "no:cacheprovider"]).arg(tests))?;
    Ok(true)
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    let name = Path::new(command.get_program()).display().to_string();
    let status = command.status().with_context(|| format!("{name} cannot be started"))?;
    if !status.success() {
        bail!("{name} has failed: {command:?}");
    }
    Ok(())
}

fn only_file(folder: &Path) -> anyhow::Result<PathBuf> {
    let mut files = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let file = files.next().context("maturin has made no wheel")??;
    Ok(file)
}
