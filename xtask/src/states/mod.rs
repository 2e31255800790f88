//! `cargo xtask states`: memory brought into known states, in guests that QEMU emulates, and labelled by their kernels.
//!
//! The plan (`plan`) says which states there are. A guest's script (`init.sh`) makes one, by a program that fills
//! memory and gives parts back (`state.c`); has the files of the kernel written to a second disk, past the page cache
//! (`carry.c`); and asks the kernel for blocks by faults (`take.c`): at once, after compaction, and after the page
//! cache was dropped. The uses of the frames (`frames`) say whether the state is what its name says; what the kernel
//! gave becomes its labels (`labels`), beside the files.

mod frames;
mod labels;
mod plan;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use self::plan::Run;
use crate::emulator::image::{Boot, Contents};
use crate::emulator::machine::{self, Machine, Place};
use crate::emulator::{self, FASTER, Run as _, Task, succeed};

/// Size of the second disk. The file is sparse; kpageflags of a guest has 10 MiB, and is written twice.
const CARRIED_BYTES: u64 = 64 << 20;
/// File of a guest that is not stored with its state, for its size; it stays beside the console, packed.
const KPAGEFLAGS: &str = "proc/kpageflags";

const EXAMPLES: &str = "\
Examples:
  cargo xtask states --list                     what is there and what is missing
  cargo xtask states --only 6.1-pinned-heavy    one state on one kernel
  cargo xtask states --only 7.2-fresh --again --out target/states
                                                the same anew, in another folder
  setsid nohup nice -n 10 cargo xtask states > states.log 2>&1 &
                                                all that is missing, beside other work; `kill -- -PID` ends it and its
                                                guests, the next call continues";

/// Request to the queue of states.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Request {
    #[command(flatten)]
    queue: emulator::Queue,
}

/// Makes the states that are missing, or lists them; true when none is missing at the end.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let contents = Contents {
        init: include_str!("init.sh"),
        files: &[],
        programs: &[
            ("state", include_str!("state.c")),
            ("take", include_str!("take.c")),
            ("carry", include_str!("carry.c")),
        ],
    };
    let task = Task { name: "states", runs: plan::plan(), contents, out: "data/states" };
    task.run(root, &request.queue)
}

/// Makes a state: its files first, its labels last. Returns what was given in one line.
fn make(run: &Run, boot: &Boot, place: &Place) -> anyhow::Result<String> {
    let name = run.name();
    let kept = place.folder.join(&name);
    made_anew(&kept)?;
    let disk = kept.join("carried.tar");
    File::create(&disk)?.set_len(CARRIED_BYTES)?;
    let machine = Machine {
        name: &name,
        memory_mib: run.state.memory_mib,
        nodes: run.state.nodes,
        cpus: run.state.cpus,
        words: &format!("{FASTER} state_name={}", run.state.name),
        second_disk: Some(&disk),
    };
    let console = machine::console_of(&machine, boot, place)?;
    succeed(Command::new("tar").arg("-xf").arg(&disk).arg("-C").arg(&kept))?;
    fs::remove_file(&disk)?;
    let [state, end] = ["state", "end"].map(|moment| kept.join(moment));
    let frames = map(&state)?.count(&map(&end)?, &read(&state.join("proc/zoneinfo"))?)?;
    run.state.verify(&frames)?;
    let rows = labels::rows(run, &console, &frames)?;
    let out = place.out.join(&name);
    made_anew(&out)?;
    succeed(Command::new("cp").arg("-r").arg("--").args(files_of(&state)?).arg(&out))?;
    emulator::write_rows(&rows, &place.out.join(run.file()))?;
    Ok(labels::said(&rows))
}

fn made_anew(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Reads the uses of all frames at a moment, and packs the file that says them.
fn map(moment: &Path) -> anyhow::Result<frames::Map> {
    let path = moment.join(KPAGEFLAGS);
    let flags = fs::read(&path).with_context(|| path.display().to_string())?;
    let map = frames::Map::read(&flags, &read(&moment.join("proc/iomem"))?)?;
    fs::write(path.with_added_extension("zst"), zstd::encode_all(&flags[..], 9)?)?;
    fs::remove_file(path)?;
    Ok(map)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
