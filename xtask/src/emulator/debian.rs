//! Packages of Debian by a private configuration of apt: its own sources, lists, status and cache, so that nothing
//! changes on this machine. apt checks what it fetches by the archive's signatures.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

use super::shell::{said, succeed};

const ARCHIVE: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Suite of the programs of every guest, so that all kernels have the same load.
const PROGRAMS_SUITE: &str = "bookworm";
const PROGRAMS: [&str; 3] = ["fio", "xfsprogs", "busybox-static"];

/// A kernel of Debian, and the packages that hold it.
pub(crate) struct Kernel {
    /// The version as people say it.
    pub(crate) name: &'static str,
    /// Debian's suite whose packages these are.
    pub(crate) suite: &'static str,
    /// The packages with its image and its modules.
    pub(crate) packages: &'static [&'static str],
}

/// The kernels that guests run, each at the version of the datasets in `data` that were made with it.
pub(crate) const KERNELS: [Kernel; 4] = [
    Kernel {
        name: "5.10",
        suite: "bullseye-security",
        packages: &["linux-image-5.10.0-46-cloud-amd64"],
    },
    Kernel {
        name: "6.1",
        suite: "bookworm-security",
        packages: &["linux-image-6.1.0-53-cloud-amd64"],
    },
    Kernel { name: "6.12", suite: "trixie", packages: &["linux-image-6.12.107+deb13-cloud-amd64"] },
    Kernel {
        name: "7.2",
        suite: "sid",
        packages: &[
            "linux-binary-7.2.13+deb14-cloud-amd64",
            "linux-modules-7.2.13+deb14-cloud-amd64",
        ],
    },
];

/// Packages that apt fetched, unpacked.
pub(crate) struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Fetches and unpacks below `folder` the packages that are not there yet, of the kernels with these names and no
    /// other: an archive may have lost one that nobody asks for.
    pub(crate) fn fetch(folder: &Path, kernels: &BTreeSet<&str>) -> anyhow::Result<Packages> {
        let packages = Packages { folder: folder.to_owned() };
        let done = folder.join("complete");
        let there = fs::read_to_string(&done).unwrap_or_default();
        let is_there = |kernel: &&Kernel| kernel.packages.iter().all(|name| there.contains(name));
        let wanted = KERNELS.iter().filter(|kernel| kernels.contains(kernel.name));
        let missing: Vec<&Kernel> = wanted.filter(|kernel| !is_there(kernel)).collect();
        if !missing.is_empty() {
            println!("guests: fetching packages of Debian");
            packages.configure(&missing)?;
            succeed(packages.apt("apt-get").arg("update"))?;
            packages.programs()?;
            let mut there = there;
            for kernel in missing {
                packages.kernel(kernel.name, kernel.suite, kernel.packages)?;
                there += &(kernel.packages.join("\n") + "\n");
                fs::write(&done, &there)?;
            }
        }
        Ok(packages)
    }

    /// Returns the folder of the programs and their libraries.
    pub(crate) fn programs_root(&self) -> PathBuf {
        self.folder.join("programs")
    }

    /// Returns the folder of a kernel and its modules.
    pub(crate) fn kernel_root(&self, kernel: &str) -> PathBuf {
        self.folder.join(format!("linux-{kernel}"))
    }

    /// Returns name, version and SHA-256 of each package that was fetched.
    pub(crate) fn list(&self) -> anyhow::Result<Map<String, Value>> {
        let mut list = Map::new();
        for file in debs(&self.archives())? {
            let sum = said(Command::new("sha256sum").arg(&file))?;
            let sum = sum.split_whitespace().next().context("sha256sum prints no sum")?.to_owned();
            let [name, version] = ["Package", "Version"]
                .map(|field| said(Command::new("dpkg-deb").arg("-f").arg(&file).arg(field)));
            let (name, version) = (name?.trim().to_owned(), version?.trim().to_owned());
            list.insert(name, json!({ "version": version, "sha256": sum }));
        }
        Ok(list)
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("archives")
    }

    /// Writes the sources and makes the folders that apt wants.
    fn configure(&self, kernels: &[&Kernel]) -> anyhow::Result<()> {
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing (package debian-archive-keyring): apt could check nothing"
        );
        for folder in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        let mut sources = String::new();
        let suites: BTreeSet<&str> =
            kernels.iter().map(|kernel| kernel.suite).chain([PROGRAMS_SUITE]).collect();
        for suite in suites {
            let archive = if suite.ends_with("-security") { SECURITY } else { ARCHIVE };
            sources += &format!("deb [arch=amd64 signed-by={KEYRING}] {archive} {suite} main\n");
        }
        fs::write(self.folder.join("sources.list"), sources)?;
        Ok(fs::write(self.folder.join("status"), "")?)
    }

    /// Makes an apt command that reads and writes in this folder alone.
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, name) in [
            ("Dir::Etc::SourceList", "sources.list"),
            ("Dir::State", ""),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::Status", "status"),
            ("Dir::Cache", ""),
            ("Dir::Cache::Archives", "archives"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(name).display()));
        }
        for option in [
            "Dir::Etc::Main=/dev/null",
            "Dir::Etc::Parts=/dev/null",
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::Etc::PreferencesParts=/dev/null",
            "APT::Architecture=amd64",
            "APT::Sandbox::User=root",
            "Debug::NoLocking=1",
        ] {
            command.args(["-o", option]);
        }
        command.args(["-qq", "-y"]);
        command
    }

    /// Unpacks the programs with all libraries that they need.
    fn programs(&self) -> anyhow::Result<()> {
        let mut install = self.apt("apt-get");
        install.args(["install", "--download-only", "--no-install-recommends"]);
        install.args(["-t", PROGRAMS_SUITE]);
        succeed(install.args(PROGRAMS.map(|name| format!("{name}/{PROGRAMS_SUITE}"))))?;
        unpack(&debs(&self.archives())?, &self.programs_root())
    }

    /// Unpacks a kernel's packages, without those that they depend on.
    fn kernel(&self, name: &str, suite: &str, packages: &[&str]) -> anyhow::Result<()> {
        let mut download = self.apt("apt-get");
        download.arg("download").args(packages.iter().map(|package| format!("{package}/{suite}")));
        let missing = || {
            format!(
                "cannot fetch Linux {name} from {suite}; if Debian has taken a later version, name that one in \
                 xtask/src/emulator/debian.rs and write to another folder with --out"
            )
        };
        succeed(download.current_dir(self.archives())).with_context(missing)?;
        let is_of = |file: &PathBuf, package: &str| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&format!("{package}_"))
        };
        let mut files = debs(&self.archives())?;
        files.retain(|file| packages.iter().any(|package| is_of(file, package)));
        ensure!(files.len() == packages.len(), missing());
        unpack(&files, &self.kernel_root(name))
    }
}

/// Returns the packages in a folder.
fn debs(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<anyhow::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "deb"));
    files.sort();
    Ok(files)
}

fn unpack(files: &[PathBuf], folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    for file in files {
        succeed(Command::new("dpkg-deb").arg("-x").arg(file).arg(folder))?;
    }
    Ok(())
}
