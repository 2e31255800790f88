//! One guest: QEMU without hardware virtualisation, from its start to the text of its console.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::cells::{Run, Settings};
use super::image::Boot;
use super::shell::succeed;

pub(super) const QEMU: &str = "qemu-system-x86_64";
const CPUS: u64 = 2;
/// Seconds that readers run before huge pages are asked for.
const WARM_SECONDS: u64 = 25;
/// Reads a second that the disk serves.
const READS_A_SECOND: u64 = 4000;
/// fio's processes, the files of a process are equal in number.
const JOBS: u64 = 4;
const FILE_BYTES: u64 = 64 << 10;

/// Files of guests on this machine, and their limit of time.
pub(super) struct Place<'a> {
    /// The disk that each guest gets a copy of.
    pub(super) disk: &'a Path,
    /// Folder of the copies and consoles.
    pub(super) folder: &'a Path,
    /// Longest time of a guest of 1 GiB; larger ones have more in proportion.
    pub(super) limit: Duration,
}

/// Runs a guest and returns the text of its console. The console stays in the folder, the copy of the disk goes.
pub(super) fn console_of(run: &Run, boot: &Boot, place: &Place) -> anyhow::Result<String> {
    fs::create_dir_all(place.folder)?;
    let disk = place.folder.join(format!("{}.disk", run.name()));
    let console = place.folder.join(format!("{}.console", run.name()));
    succeed(Command::new("cp").arg("--sparse=always").arg(place.disk).arg(&disk))?;
    let limit = place.limit * u32::try_from(run.settings.memory_mib.div_ceil(1024))?;
    let status = qemu(run, boot, &disk, &console).and_then(|child| wait(child, limit));
    fs::remove_file(&disk)?;
    let status = status.with_context(|| format!("see {}", console.display()))?;
    ensure!(status.success(), "QEMU failed ({status}); see {}", console.display());
    let text = fs::read(&console)?;
    Ok(String::from_utf8_lossy(&text).replace('\r', ""))
}

fn qemu(run: &Run, boot: &Boot, disk: &Path, console: &PathBuf) -> anyhow::Result<Child> {
    let settings = &run.settings;
    let memory = settings.memory_mib;
    // As in the dataset, 3/8 of memory lies below 4 GiB, so that the zone Normal is the largest.
    let machine = format!("pc,max-ram-below-4g={}M", memory * 3 / 8);
    let drive = format!(
        "file={},if=virtio,format=raw,cache=unsafe,throttling.iops-read={READS_A_SECOND}",
        disk.display()
    );
    let mut command = Command::new(QEMU);
    command.args(["-machine", &machine, "-accel", "tcg,thread=multi,tb-size=192"]);
    command.args(["-cpu", "max,-cx16", "-smp", &CPUS.to_string(), "-m", &memory.to_string()]);
    command.args(nodes(settings)).args(["-nographic", "-no-reboot", "-drive", &drive]);
    command.arg("-kernel").arg(&boot.kernel).arg("-initrd").arg(&boot.initramfs);
    command.args(["-append", &command_line(settings)]);
    let output = File::create(console)?;
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    command.spawn().with_context(|| format!("cannot run {QEMU}"))
}

/// Makes nodes of equal size, each with its CPUs.
fn nodes(settings: &Settings) -> Vec<String> {
    if settings.nodes == 1 {
        return Vec::new();
    }
    let size = settings.memory_mib / settings.nodes;
    let node = |node| {
        [
            "-object".to_owned(),
            format!("memory-backend-ram,id=node{node},size={size}M"),
            "-numa".to_owned(),
            format!("node,nodeid={node},memdev=node{node},cpus={node}"),
        ]
    };
    (0..settings.nodes).flat_map(node).collect()
}

/// Makes the kernel's command line. Files take 3/2 of memory, the huge page program 3/4 of the first node's, as in
/// mmtests.
fn command_line(settings: &Settings) -> String {
    let memory = settings.memory_mib << 20;
    let mut words = vec![
        "console=ttyS0 panic=-1 quiet no_timer_check nowatchdog mitigations=off".to_owned(),
        format!("cell_files={}", memory * 3 / 2 / FILE_BYTES / JOBS),
        format!("cell_thp_bytes={}", memory / settings.nodes * 3 / 4),
        format!("cell_madvise={}", u8::from(settings.madvise)),
        format!("cell_defrag={}", settings.thp_defrag),
        format!("cell_boost={}", settings.boost),
        format!("cell_warm={WARM_SECONDS}"),
    ];
    words.extend(settings.defrag_mode.map(|mode| format!("cell_defrag_mode={mode}")));
    words.extend(settings.lru_gen.map(|enabled| format!("cell_lru_gen={enabled}")));
    words.join(" ")
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
