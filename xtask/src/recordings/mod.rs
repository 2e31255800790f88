//! `cargo xtask recordings`: kernels of Debian recorded under settings that matter, in guests that QEMU emulates.
//!
//! A guest's script (`init.sh`) has `nofrag record` take down what `nofrag workload thpfioscale` makes the kernel do,
//! or `nofrag run vmap-live` what it does with areas of vmalloc; the program comes on the second disk, and recordings
//! leave on it. Those of pages judge what a replay foretells (`nofrag replay A --against B`), those of areas the rules
//! for areas (`nofrag run vmap-live --states DIR`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::emulator::image::{Boot, Contents};
use crate::emulator::machine::{self, Machine, Place};
use crate::emulator::{self, FASTER, Task, succeed};

/// Size of the second disk. The file is sparse.
const SECOND_DISK_BYTES: u64 = 256 << 20;
/// Memory of a guest.
const MEMORY_MIB: u64 = 768;
const CPUS: u64 = 2;
/// Seconds that the load takes at most.
const SECONDS: u64 = 90;
const REPEATS: u32 = 2;

/// A target that a guest's program is built for, and the flag by which it needs no libraries.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const STATIC: &str =
    "target.x86_64-unknown-linux-gnu.rustflags=['-C','target-feature=+crt-static']";

const EXAMPLES: &str = "\
Examples:
  cargo xtask recordings --list                 what is there and what is missing
  cargo xtask recordings --only 6.1-scale-300   the repeats of one cell
  setsid nohup nice -n 10 cargo xtask recordings > recordings.log 2>&1 &
                                                all that is missing, beside other work; `kill -- -PID` ends it and its
                                                guests, the next call continues";

/// Request to the queue of recordings.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Request {
    #[command(flatten)]
    queue: emulator::Queue,
}

/// Makes the recordings that are missing, or lists them; true when none is missing at the end.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let contents = Contents {
        init: include_str!("init.sh"),
        files: &[],
        programs: &[("carry", include_str!("../states/carry.c"))],
    };
    let task = Task { name: "recordings", runs: plan(), contents, out: "data/recordings" };
    if request.queue.makes() {
        build(root)?;
    }
    task.run(root, &request.queue)
}

/// Builds the program, and packs it as the second disk that each guest gets a copy of.
fn build(root: &Path) -> anyhow::Result<()> {
    let folder = root.join("target/guests/program");
    fs::create_dir_all(&folder)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "-p", "nofrag-cli", "--target", TARGET]);
    cargo.args(["--config", STATIC, "--target-dir"]).arg(&folder).current_dir(root);
    ensure!(cargo.status()?.success(), "the program for the guests cannot be built");
    let built = folder.join(TARGET).join("release");
    let stripped = folder.join("nofrag");
    succeed(Command::new("strip").arg("-o").arg(&stripped).arg(built.join("nofrag")))?;
    succeed(Command::new("tar").arg("-cf").arg(packed(root)).arg("-C").arg(&folder).arg("nofrag"))
}

fn packed(root: &Path) -> PathBuf {
    root.join("target/guests/program/nofrag.tar")
}

const DEFAULT: Cell = cell("default", "");
const SCALE: Cell = cell("scale-300", "watermark_scale_factor=300");
const PROACTIVE: Cell = cell("proactive-100", "compaction_proactiveness=100");
const NO_BOOST: Cell = cell("boost-0", "watermark_boost_factor=0");
const DEFRAG_MODE: Cell = cell("defrag-mode", "defrag_mode=1");
const AREAS: Cell = Cell { load: Load::Areas, ..cell("vmalloc", "") };
const LISTS: Cell = Cell { load: Load::Lists, ..cell("vmalloc", "") };

/// Cells by the worth of their recordings. Kernels before 6.2 have no events of areas, but lists.
const CELLS: [(&str, Cell); 13] = [
    ("6.1", DEFAULT),
    ("6.1", LISTS),
    ("5.10", LISTS),
    ("6.12", AREAS),
    ("7.2", AREAS),
    ("6.1", SCALE),
    ("7.2", DEFAULT),
    ("7.2", DEFRAG_MODE),
    ("6.1", PROACTIVE),
    ("7.2", SCALE),
    ("6.12", DEFAULT),
    ("6.12", SCALE),
    ("6.1", NO_BOOST),
];

/// The load of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Files and huge pages, under a recorder of pages.
    Pages,
    /// Areas of vmalloc, under a recorder of areas.
    Areas,
    /// Areas of vmalloc, with the kernel's list before and after.
    Lists,
}

/// A guest: its load and settings.
#[derive(Clone, Copy, Debug)]
struct Cell {
    name: &'static str,
    load: Load,
    /// Files of /proc/sys/vm with their values, `NAME=VALUE`, several between commas.
    set: &'static str,
}

const fn cell(name: &'static str, set: &'static str) -> Cell {
    Cell { name, load: Load::Pages, set }
}

/// A recording to make.
#[derive(Clone, Copy, Debug)]
struct Run {
    kernel: &'static str,
    cell: Cell,
    /// Number of the repeat, counted from one; it seeds the load.
    repeat: u32,
}

/// Returns every run, round after round, so that what has come when the queue is stopped has each cell.
fn plan() -> Vec<Run> {
    let round = |repeat| CELLS.map(|(kernel, cell)| Run { kernel, cell, repeat });
    (1..=REPEATS).flat_map(round).collect()
}

impl emulator::Run for Run {
    fn cell(&self) -> String {
        format!("{}-{}", self.kernel, self.cell.name)
    }

    fn name(&self) -> String {
        format!("{}-r{}", self.cell(), self.repeat)
    }

    fn kernel(&self) -> &'static str {
        self.kernel
    }

    fn file(&self) -> PathBuf {
        match self.cell.load {
            Load::Pages => format!("linux-{}.nofrag", self.name()).into(),
            Load::Areas => Path::new(&format!("linux-{}", self.name())).join("racing-5.nofrag"),
            Load::Lists => Path::new(&format!("linux-{}", self.name())).join("lists-6.lists"),
        }
    }

    fn make(&self, boot: &Boot, place: &Place) -> anyhow::Result<String> {
        let name = self.name();
        let kept = place.folder.join(&name);
        fs::create_dir_all(&kept)?;
        let disk = kept.join("second.tar");
        fs::copy(packed(place.root), &disk)?;
        File::options().write(true).open(&disk)?.set_len(SECOND_DISK_BYTES)?;
        let words = [
            FASTER.to_owned(),
            match self.cell.load {
                Load::Pages => "cell_load=pages".to_owned(),
                Load::Areas => "cell_load=areas".to_owned(),
                Load::Lists => "cell_load=lists".to_owned(),
            },
            format!("cell_set={}", self.cell.set),
            format!("cell_repeat={}", self.repeat),
            format!("cell_memory_mib={MEMORY_MIB}"),
            format!("cell_seconds={SECONDS}"),
        ];
        let machine = Machine {
            name: &name,
            memory_mib: MEMORY_MIB,
            nodes: 1,
            cpus: CPUS,
            words: &words.join(" "),
            second_disk: Some(&disk),
        };
        let console = machine::console_of(&machine, boot, place)?;
        emulator::console::Console::read(&console)?;
        succeed(Command::new("tar").arg("-xf").arg(&disk).arg("-C").arg(&kept))?;
        let file = place.out.join(self.file());
        let carried = kept.join("out/mnt");
        let said = match self.cell.load {
            Load::Pages => copy(&carried.join("recording.nofrag"), &file)?,
            Load::Areas | Load::Lists => {
                let folder = file.parent().context("it is in a folder of its own")?;
                fs::create_dir_all(folder)?;
                let entries = fs::read_dir(carried.join("kept"))?;
                let recordings: Vec<_> = entries.collect::<Result<_, _>>()?;
                for recording in &recordings {
                    copy(&recording.path(), &folder.join(recording.file_name()))?;
                }
                format!("{} recordings", recordings.len())
            }
        };
        fs::remove_dir_all(&kept)?;
        Ok(said)
    }
}

/// Copies a file; returns its size in words.
fn copy(from: &Path, to: &Path) -> anyhow::Result<String> {
    let bytes = fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(format!("{bytes} bytes"))
}
