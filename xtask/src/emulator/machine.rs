//! One guest: QEMU without hardware virtualisation, from its start to the text of its console.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::image::Boot;
use super::shell::succeed;

pub(crate) const QEMU: &str = "qemu-system-x86_64";
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 quiet no_timer_check nowatchdog mitigations=off";
/// Reads a second that the disk serves.
const READS_A_SECOND: u64 = 4000;

/// A machine to emulate.
pub(crate) struct Machine<'a> {
    /// Name of its files.
    pub(crate) name: &'a str,
    pub(crate) memory_mib: u64,
    /// Nodes of equal size; if there are several, each has one CPU.
    pub(crate) nodes: u64,
    pub(crate) cpus: u64,
    /// Words of the kernel's command line beside those of every guest.
    pub(crate) words: &'a str,
    /// An image that is its second disk.
    pub(crate) second_disk: Option<&'a Path>,
}

/// Files of guests on this machine, and their limit of time.
pub(crate) struct Place<'a> {
    /// The disk that each guest gets a copy of.
    pub(crate) disk: &'a Path,
    /// Folder of the copies and consoles.
    pub(crate) folder: &'a Path,
    /// Folder of the rows.
    pub(crate) out: &'a Path,
    /// Folder of the repository.
    pub(crate) root: &'a Path,
    /// Longest time of a guest of 1 GiB; larger ones have more in proportion.
    pub(crate) limit: Duration,
}

/// Runs a guest and returns the text of its console. The console stays in the folder, the copy of the disk goes.
pub(crate) fn console_of(machine: &Machine, boot: &Boot, place: &Place) -> anyhow::Result<String> {
    fs::create_dir_all(place.folder)?;
    let disk = place.folder.join(format!("{}.disk", machine.name));
    let console = place.folder.join(format!("{}.console", machine.name));
    succeed(Command::new("cp").arg("--sparse=always").arg(place.disk).arg(&disk))?;
    let limit = place.limit * u32::try_from(machine.memory_mib.div_ceil(1024))?;
    let status = qemu(machine, boot, &disk, &console).and_then(|child| wait(child, limit));
    fs::remove_file(&disk)?;
    let status = status.with_context(|| format!("see {}", console.display()))?;
    ensure!(status.success(), "QEMU failed ({status}); see {}", console.display());
    let text = fs::read(&console)?;
    Ok(String::from_utf8_lossy(&text).replace('\r', ""))
}

fn qemu(machine: &Machine, boot: &Boot, disk: &Path, console: &PathBuf) -> anyhow::Result<Child> {
    let memory = machine.memory_mib;
    // As in the dataset, 3/8 of memory lies below 4 GiB, so that the zone Normal is the largest.
    let board = format!("pc,max-ram-below-4g={}M", memory * 3 / 8);
    let drive = format!(
        "file={},if=virtio,format=raw,cache=unsafe,throttling.iops-read={READS_A_SECOND}",
        disk.display()
    );
    let mut command = Command::new(QEMU);
    command.args(["-machine", &board, "-accel", "tcg,thread=multi,tb-size=192"]);
    command.args([
        "-cpu",
        "max,-cx16",
        "-smp",
        &machine.cpus.to_string(),
        "-m",
        &memory.to_string(),
    ]);
    command.args(nodes(machine)).args(["-nographic", "-no-reboot", "-drive", &drive]);
    // A network card's boot program would run before the kernel.
    command.args(["-nic", "none"]);
    if let Some(path) = machine.second_disk {
        let drive = format!("file={},if=virtio,format=raw,cache=unsafe", path.display());
        command.args(["-drive", &drive]);
    }
    command.arg("-kernel").arg(&boot.kernel).arg("-initrd").arg(&boot.initramfs);
    command.args(["-append", &format!("{COMMAND_LINE} {}", machine.words)]);
    let output = File::create(console)?;
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    command.spawn().with_context(|| format!("cannot run {QEMU}"))
}

/// Makes nodes of equal size, each with its CPUs.
fn nodes(machine: &Machine) -> Vec<String> {
    if machine.nodes == 1 {
        return Vec::new();
    }
    let size = machine.memory_mib / machine.nodes;
    let node = |node| {
        [
            "-object".to_owned(),
            format!("memory-backend-ram,id=node{node},size={size}M"),
            "-numa".to_owned(),
            format!("node,nodeid={node},memdev=node{node},cpus={node}"),
        ]
    };
    (0..machine.nodes).flat_map(node).collect()
}

/// Waits for a guest's end, and ends it when its time is over.
fn wait(mut guest: Child, limit: Duration) -> anyhow::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = guest.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > limit {
            guest.kill()?;
            guest.wait()?;
            bail!("the guest took longer than {} minutes", limit.as_secs() / 60);
        }
        thread::sleep(Duration::from_millis(500));
    }
}
