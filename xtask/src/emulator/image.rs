//! The images that a guest starts from: an initramfs for each kernel, and a disk that every guest gets a copy of.
//!
//! The initramfs stays in memory as long as the guest runs, so it holds no more than busybox, the kernel's modules for
//! the disk, and what the task brings. fio and its libraries lie on the disk, beside the files of the load.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::debian::Packages;
use super::shell::{said, succeed};

const LOADER: &str = "ld-linux-x86-64.so.2";
/// Folder of the disk's programs in a guest.
const TOOLS: &str = "/mnt/tools";
/// Size of a guest's disk: the load of the largest guest, 6 GiB, and room beside it. The file is sparse.
const DISK_BYTES: u64 = 16 << 30;
/// The modules that a guest needs beside those that its kernel has built in; each with what it depends on.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c-intel", "xfs"];

/// A kernel with its initramfs.
pub(crate) struct Boot {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
}

/// Files of a task in the initramfs.
pub(crate) struct Contents {
    /// Script of the first process, which follows `boot.sh`.
    pub(crate) init: &'static str,
    /// Other files by their names.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Sources in C, by the names of the programs that they make.
    pub(crate) programs: &'static [(&'static str, &'static str)],
}

/// Makes images below one folder.
pub(crate) struct Images<'a> {
    packages: &'a Packages,
    folder: PathBuf,
}

impl<'a> Images<'a> {
    pub(crate) fn new(packages: &'a Packages, folder: &Path) -> anyhow::Result<Images<'a>> {
        fs::create_dir_all(folder)?;
        Ok(Images { packages, folder: folder.to_owned() })
    }

    fn busybox(&self) -> PathBuf {
        self.packages.programs_root().join("bin/busybox")
    }

    /// Makes the kernel's image and an initramfs for it, made anew.
    pub(crate) fn boot(&self, kernel: &str, contents: &Contents) -> anyhow::Result<Boot> {
        let from = self.packages.kernel_root(kernel);
        let root = self.folder.join(format!("initramfs-{kernel}"));
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        for folder in ["bin", "proc", "sys", "dev", "mnt", "modules", "lib64"] {
            fs::create_dir_all(root.join(folder))?;
        }
        let init = include_str!("boot.sh").to_owned() + contents.init;
        program(&root.join("init"), &init)?;
        let fio = format!("#!/bin/sh\nLD_LIBRARY_PATH={TOOLS} exec {TOOLS}/fio \"$@\"\n");
        program(&root.join("bin/fio"), &fio)?;
        symlink(format!("{TOOLS}/{LOADER}"), root.join("lib64").join(LOADER))?;
        fs::copy(self.busybox(), root.join("bin/busybox"))?;
        for (name, text) in contents.files {
            fs::write(root.join(name), text)?;
        }
        for (name, text) in contents.programs {
            let source = self.folder.join(format!("{name}.c"));
            fs::write(&source, text)?;
            let mut compile = Command::new("cc");
            compile.args(["-O2", "-Wall", "-static", "-o"]).arg(root.join("bin").join(name));
            succeed(compile.arg(&source))?;
        }
        let modules = self.modules(&from, &root.join("modules"));
        modules.with_context(|| format!("the modules of Linux {kernel}"))?;
        let initramfs = self.pack(&root)?;
        Ok(Boot { kernel: image_in(&from)?, initramfs })
    }

    /// Copies the modules, in plain form, with their order to `to`.
    fn modules(&self, kernel_root: &Path, to: &Path) -> anyhow::Result<()> {
        let lib = ["lib/modules", "usr/lib/modules"].map(|name| kernel_root.join(name));
        let lib = lib.into_iter().find(|path| path.exists()).context("there is no lib/modules")?;
        let version = fs::read_dir(&lib)?.next().context("no version there")??.path();
        let tree = version.join("kernel");
        let find = said(Command::new("find").arg(&tree).args(["-name", "*.ko*", "-type", "f"]))?;
        let files: BTreeMap<String, &Path> =
            find.lines().map(|path| (module_name(path), Path::new(path))).collect();
        let mut order = Vec::new();
        for name in MODULES {
            self.take(name, &files, to, &mut order)?;
        }
        Ok(fs::write(to.join("order"), order.join("\n") + "\n")?)
    }

    /// Copies a module after those that it depends on, and appends its file's name to `order`. One that has no file is
    /// built in.
    fn take(
        &self,
        name: &str,
        files: &BTreeMap<String, &Path>,
        to: &Path,
        order: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let file_name = format!("{}.ko", name.replace('-', "_"));
        let Some(file) = files.get(&name.replace('-', "_")) else { return Ok(()) };
        if order.contains(&file_name) {
            return Ok(());
        }
        let bytes = if file.extension().is_some_and(|extension| extension == "xz") {
            let output = Command::new(self.busybox()).arg("xzcat").arg(file).output()?;
            ensure!(output.status.success(), "cannot unpack {}", file.display());
            output.stdout
        } else {
            fs::read(file)?
        };
        for needed in depends(&bytes) {
            self.take(&needed, files, to, order)?;
        }
        fs::write(to.join(&file_name), bytes)?;
        order.push(file_name);
        Ok(())
    }

    /// Packs a folder as an initramfs, as small as it goes: its pages are not yet free when the kernel sets its marks.
    fn pack(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let list = said(Command::new("find").arg(".").current_dir(root))?;
        let names = self.folder.join("names");
        fs::write(&names, list)?;
        let archive = root.with_added_extension("cpio");
        let status = Command::new(self.busybox())
            .args(["cpio", "-o", "-H", "newc"])
            .current_dir(root)
            .stdin(File::open(&names)?)
            .stdout(File::create(&archive)?)
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "cannot pack {}", root.display());
        succeed(Command::new(self.busybox()).args(["gzip", "-1", "-f"]).arg(&archive))?;
        Ok(archive.with_added_extension("gz"))
    }

    /// Makes the disk that guests get a copy of: XFS with fio and its libraries.
    pub(crate) fn disk(&self) -> anyhow::Result<PathBuf> {
        let disk = self.folder.join("disk.xfs");
        if disk.exists() {
            return Ok(disk);
        }
        let part = self.folder.join("disk.part");
        File::create(&part)?.set_len(DISK_BYTES)?;
        let root = self.packages.programs_root();
        let loader = root.join("lib/x86_64-linux-gnu").join(LOADER);
        let folders = ["lib", "usr/lib", "usr/lib/x86_64-linux-gnu/ceph"];
        let [lib, usr, ceph] = folders.map(|name| root.join(name).display().to_string());
        let path = format!("{lib}/x86_64-linux-gnu:{usr}/x86_64-linux-gnu:{ceph}");
        let with_loader = |program: &Path| {
            let mut command = Command::new(&loader);
            command.args(["--library-path", &path]).arg(program);
            command
        };
        let fio = root.join("usr/bin/fio");
        let libraries =
            said(Command::new(&loader).args(["--library-path", &path, "--list"]).arg(&fio))?;
        let contents = self.folder.join("disk.contents");
        fs::write(&contents, contents_of_disk(&fio, &loader, &libraries)?)?;
        let mut make = with_loader(&root.join("sbin/mkfs.xfs"));
        succeed(make.arg("-q").arg("-p").arg(&contents).arg(&part))?;
        fs::rename(&part, &disk)?;
        Ok(disk)
    }
}

/// Returns the contents that mkfs.xfs is to put on the disk, in the form of its prototype files.
fn contents_of_disk(fio: &Path, loader: &Path, libraries: &str) -> anyhow::Result<String> {
    let mut lines = vec![
        "/".to_owned(),
        "0 0".to_owned(),
        "d--755 0 0".to_owned(),
        "tools d--755 0 0".to_owned(),
        format!("fio ---755 0 0 {}", fio.display()),
        format!("{LOADER} ---755 0 0 {}", loader.display()),
    ];
    for line in libraries.lines().filter(|line| !line.contains(LOADER)) {
        if let [name, "=>", file, ..] = line.split_whitespace().collect::<Vec<_>>()[..] {
            ensure!(Path::new(file).exists(), "fio needs {name}, which no package holds: {line}");
            lines.push(format!("{name} ---755 0 0 {}", fs::canonicalize(file)?.display()));
        }
    }
    lines.extend(["$".to_owned(), "$".to_owned()]);
    Ok(lines.join("\n") + "\n")
}

fn program(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Returns a module's name by its file: underscores for dashes, no folder, no ending.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// Returns the modules that a module names in its field `depends`.
fn depends(module: &[u8]) -> Vec<String> {
    let mark = b"\0depends=";
    let Some(at) = module.windows(mark.len()).position(|window| window == mark) else {
        return Vec::new();
    };
    let field: Vec<u8> =
        module[at + mark.len()..].iter().copied().take_while(|byte| *byte != 0).collect();
    let names = String::from_utf8_lossy(&field).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the kernel's own file in its unpacked packages.
fn image_in(root: &Path) -> anyhow::Result<PathBuf> {
    let find = said(Command::new("find").arg(root).args(["-name", "vmlinuz*", "-type", "f"]))?;
    find.lines().next().map(PathBuf::from).context("the packages hold no kernel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_depends_on() {
        assert_eq!(
            depends(b"\x7fELF\0depends=virtio,virtio_ring\0name=x\0"),
            ["virtio", "virtio_ring"]
        );
        assert!(depends(b"\0license=GPL\0depends=\0name=x\0").is_empty());
        assert!(depends(b"\0name=x\0").is_empty());
        assert_eq!(module_name("a/crc32c-intel.ko.xz"), "crc32c_intel");
    }
}
