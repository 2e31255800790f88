//! `cargo xtask guests`: mmtests' thpfioscale on kernels of Debian, in guests that QEMU emulates.
//!
//! The plan (`cells`) says which kernels run under which settings. The script of the guests (`init.sh`) runs the load
//! with Debian's fio; what their kernels traced and counted (`traced`, `names`) becomes rows (`rows`).

mod cells;
mod names;
mod rows;
mod traced;

use std::path::{Path, PathBuf};

use anyhow::Context;

use self::cells::Run;
use crate::emulator::image::{Boot, Contents};
use crate::emulator::machine::{self, Machine, Place};
use crate::emulator::{self, Task};

/// Event by which fallbacks between types are traced.
const EXTFRAG: &str = "mm_page_alloc_extfrag";
const CPUS: u64 = 2;
/// Seconds that readers run before huge pages are asked for.
const WARM_SECONDS: u64 = 25;
/// fio's processes, the files of a process are equal in number.
const JOBS: u64 = 4;
const FILE_BYTES: u64 = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  cargo xtask guests --list                     what is there and what is missing
  cargo xtask guests --only 6.1-centre          the three repeats of one cell
  cargo xtask guests --only 7.2-defrag-mode-r1  one run
  cargo xtask guests --jobs 2                   all that is missing, two guests at a time
  setsid nohup nice -n 10 cargo xtask guests > guests.log 2>&1 &
                                                the same beside other work; `kill -- -PID` ends it and its guests,
                                                the next call continues";

/// Request to the queue of guests.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Request {
    #[command(flatten)]
    queue: emulator::Queue,
}

/// Makes the runs that are missing, or lists them; true when none is missing at the end.
pub(crate) fn run(root: &Path, request: &Request) -> anyhow::Result<bool> {
    let contents = Contents {
        init: include_str!("init.sh"),
        files: &[("write.fio", include_str!("write.fio")), ("read.fio", include_str!("read.fio"))],
        programs: &[("thp", include_str!("thp.c"))],
    };
    let task = Task { name: "guests", runs: cells::plan(), contents, out: "data/guests-2018" };
    task.run(root, &request.queue)
}

impl emulator::Run for Run {
    fn cell(&self) -> String {
        format!("{}-{}", self.kernel, self.factor)
    }

    fn name(&self) -> String {
        format!("{}-r{}", self.cell(), self.repeat)
    }

    fn kernel(&self) -> &'static str {
        self.kernel
    }

    fn file(&self) -> PathBuf {
        format!("{}.json", self.name()).into()
    }

    fn make(&self, boot: &Boot, place: &Place) -> anyhow::Result<String> {
        let machine = Machine {
            name: &self.name(),
            memory_mib: self.settings.memory_mib,
            nodes: self.settings.nodes,
            cpus: CPUS,
            words: &words(self),
            second_disk: None,
        };
        let console = machine::console_of(&machine, boot, place)?;
        let rows = rows::rows(self, &console)?;
        emulator::write_rows(&rows, &place.out.join(self.file()))?;
        let thp = &rows.last().context("a run has phases")?["thp"];
        Ok(format!("{} of {} units are huge", thp["huge"], thp["units"]))
    }
}

/// Makes the words of the kernel's command line that say what the guest does. Files take 3/2 of memory, the huge page
/// program 3/4 of the first node's, as in mmtests.
fn words(run: &Run) -> String {
    let settings = &run.settings;
    let memory = settings.memory_mib << 20;
    let mut words = vec![
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
