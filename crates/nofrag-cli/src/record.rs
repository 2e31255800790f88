//! `nofrag record`: the running kernel's events, in a file.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use nofrag_host::record::{
    self, Buffer, Bulk, CommandStdout, Ended, Frames, Keeper, Now, Options, Orders, Output, Phase,
    RecordError, Recorded, Selection, Sensitive, ToRun, Until, Which,
};
use nofrag_host::recording::{Existing, RecordingError};
use nofrag_show::bytes_text;
use nofrag_show::host::recorded;
use nofrag_show::{Look, Schema};

use crate::Status;
use crate::caller::Caller;
use crate::offer::seconds;
use crate::output::{print, print_document, tell};

const AFTER_HELP: &str = "\
Tracing needs root. It happens in a tracefs instance of its own, which is removed again however the
recording ends; after kill -9 the kernel stops tracing by itself, and what is left is removed at once, or
by the next start. No setting of the host is changed, and no other tracing is disturbed.

Under sudo a small process keeps root's rights, to open what only root may and to remove the instance.
All else goes on as who called sudo, for good: the recording is written where he may write and belongs
to him, and the command runs as he does, not as root; sudo inside it gives no rights. --as-root leaves
that out, as does a root who was not called by sudo. Nobody else may read the recording. What may be
private is left out of it, and the summary says so: --with LIST records it.

--force replaces an older recording when the new one has begun, and a link itself, not what it leads to.
A recording that is being written is never replaced.

Sets of events for --events: pages (pages, compaction, migration, reclaim), buddy (what crosses between
the CPUs' lists and the buddies), vmalloc, mmap, all; rare (pages without those taken and given back).
Single events have their kernel's names; mm_page_free_batched is recorded only if it is named, since
each repeats an mm_page_free.

From Linux 5.13 on the kernel has a bulk interface (vmalloc, XFS, networking) which hands out pages without
any event: 0.5 to 1.3 % of requests. With --bulk the recording has them, as events nofrag:bulk_page and
bulk_call. That takes probes (CONFIG_KPROBE_EVENTS, no lockdown; Linux 5.15 or later), which are made in a
group of their own, enabled in nofrag's instance alone, and removed with it. The first 128 pages of each
call are read; those beyond are counted.

Ctrl-C ends the recording in order; a command that is being recorded gets the signal, too, and five
seconds to end. With --seconds it is asked to end when the time is over (SIGTERM), and killed five
seconds later (SIGKILL); what it has started itself is its own business. Its output stays its own: the
summary goes to standard error then. With --json the object alone is on standard output, and what the
command writes there goes to standard error.

Examples:
  nofrag record --seconds 10                      ten seconds of this host, to recording.nofrag
  nofrag record -o make.nofrag -- make -j4        while a command runs
  nofrag record -- nofrag workload thpfioscale --dir /var/tmp/fio
  nofrag record --events pages,vmalloc,mmap       until Ctrl-C
  nofrag record --bulk -- make -j4                with what the bulk interface hands out
  nofrag record --seconds 60 -- make -j4          the first minute of a command, which then ends
  nofrag record --events mmap --with maps         with what every process has mapped at the start
  nofrag record --seconds 60 --buffer-kib 262144  larger buffers, where events were lost
  nofrag record --seconds 5 --raw DIR             raw pages of the ring buffer, formats and snapshots

Exit status:
  0  recorded, also when --seconds ended the command
  1  recorded, but events were lost, or the command failed
  2  bad use, nothing could be recorded, or the recording was cut short (a full disk, say); what
     precedes that is in the file";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Record for N seconds after the snapshot at the start; a command is ended then [default: until Ctrl-C, or the
    /// command's end]
    #[arg(long, value_name = "N", value_parser = seconds(0.0..=LONGEST_SECONDS))]
    seconds: Option<Duration>,

    /// The recording
    #[arg(short = 'o', long, value_name = "FILE", default_value = "recording.nofrag")]
    output: PathBuf,

    /// Write a folder of raw pages, formats and snapshots instead
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    raw: Option<PathBuf>,

    /// Record data that may be private, too: comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    with: Vec<With>,

    /// Under sudo, record and run the command as root, and not as the user who called sudo
    #[arg(long)]
    as_root: bool,

    /// Replace the output if it exists
    #[arg(long)]
    force: bool,

    /// Sets of events and single events, comma-separated
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "pages")]
    events: Vec<String>,

    /// Record page events of blocks of more than one page only: a hundredth, but no replay
    #[arg(long)]
    light: bool,

    /// Record what the kernel's bulk interface hands out, too, by probes that are made for it and removed again
    #[arg(long, conflicts_with = "light")]
    bulk: bool,

    /// Leave the state of each frame out of the snapshots: eight bytes each are read
    #[arg(long)]
    no_frames: bool,

    /// Size of the ring buffer of each CPU [default: 65536, or what a sixteenth of the free memory allows]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(4..=16 << 20))]
    buffer_kib: Option<u64>,

    /// If no tracefs is mounted, use a mount of our own that no other process sees
    #[arg(long)]
    mount_tracefs: bool,

    /// Use the tracefs in DIR
    #[arg(long, value_name = "DIR", conflicts_with = "mount_tracefs")]
    tracefs: Option<PathBuf>,

    /// Call the tracefs instance NAME; the default names are the ones that are cleaned up after kill -9
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// Show no progress and no summary
    #[arg(short, long)]
    quiet: bool,

    /// Print the summary as JSON for machines: one object, schema nofrag.record
    #[arg(long)]
    json: bool,

    /// Record while this command runs
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// Data that may be private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum With {
    /// The names of all processes
    Names,
    /// The mappings of every process, if the placing of mappings is recorded
    Maps,
    /// The addresses of vmalloc areas, as far as the kernel shows them, and of devices
    Addresses,
    /// The arguments of the command, not only its program's name
    Arguments,
    /// All of these
    All,
}

impl With {
    fn what(self) -> &'static [Sensitive] {
        match self {
            With::Names => &[Sensitive::Names],
            With::Maps => &[Sensitive::Maps],
            With::Addresses => &[Sensitive::Addresses],
            With::Arguments => &[Sensitive::Arguments],
            With::All => Sensitive::ALL,
        }
    }
}

/// The longest recording, in seconds: more would be a slip of the finger.
const LONGEST_SECONDS: f64 = 30.0 * 86_400.0;

impl Args {
    fn options(&self, caller: Option<Caller>) -> Result<Options> {
        let names: Vec<&str> = self.events.iter().map(String::as_str).collect();
        let orders = if self.light { Orders::AboveZero } else { Orders::All };
        let tracefs = Which::asked(self.tracefs.clone(), self.mount_tracefs);
        Ok(Options {
            until: match self.seconds {
                _ if !self.command.is_empty() => Until::Command(self.to_run(caller)),
                Some(time) => Until::Elapsed(time),
                None => Until::Signal,
            },
            output: match &self.raw {
                Some(folder) => Output::RawFolder(folder.clone()),
                None => Output::Recording(self.output.clone()),
            },
            existing: if self.force { Existing::Replace } else { Existing::Keep },
            events: Selection::parse(names)?.with_orders(orders),
            bulk: if self.bulk { Bulk::Recorded } else { Bulk::LeftOut },
            frames: if self.no_frames { Frames::LeftOut } else { Frames::Read },
            with: self.with.iter().flat_map(|with| with.what()).copied().collect(),
            buffer: self.buffer_kib.map_or(Buffer::Default, Buffer::KibPerCpu),
            tracefs,
            instance: self.instance.clone(),
        })
    }

    fn to_run(&self, caller: Option<Caller>) -> ToRun {
        ToRun {
            words: self.command.clone(),
            stdout: if self.json { CommandStdout::StandardError } else { CommandStdout::Own },
            environment: caller.map_or(Vec::new(), Caller::environment),
            most: self.seconds,
        }
    }
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.record", version: 1 };

/// The first argument of the process that keeps root's rights while a recording goes on without them.
pub(crate) const KEEPER: &str = "keep-rights-of-a-recording";

/// Keeps root's rights for the process at the other end of standard input.
pub(crate) fn keep() -> Result<Status> {
    record::keep(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    Ok(Status::Done)
}

/// Gives root's rights up, except in the process that keeps them, and records.
fn record_as(caller: Caller, options: &Options, line: &Line) -> Result<Recorded> {
    let mut keeper = Command::new("/proc/self/exe");
    keeper.arg0("nofrag").arg(KEEPER).env_clear();
    let keeper = Keeper::start(keeper, options)?;
    caller.become_for_good().context("cannot go on as who called sudo")?;
    let recorded = record::record_with(keeper, options, &|now| line.show(now));
    let is_denied = matches!(&recorded, Err(RecordError::Output(RecordingError::File { cause, .. }))
        if cause.kind() == ErrorKind::PermissionDenied);
    let as_whom = || format!("written as {caller}, who called sudo; --as-root writes as root");
    if is_denied { recorded.with_context(as_whom) } else { Ok(recorded?) }
}

/// Records the events that `args` asks for.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let caller = if args.as_root { None } else { Caller::of_sudo() };
    let options = args.options(caller)?;
    let line = Line::new(args);
    let recorded = match caller {
        Some(caller) => record_as(caller, &options, &line),
        None => Ok(record::record(&options, &|now| line.show(now))?),
    };
    line.0.finish_and_clear();
    let recorded = recorded?;
    if args.json {
        print_document(SCHEMA, &recorded)?;
    } else if !args.quiet && recorded.command.is_some() {
        tell(&recorded::text(&recorded, Look::of_report()));
    } else if !args.quiet {
        print(&recorded::text(&recorded, Look::of_report()))?;
    }
    if let Ended::Failed(why) = &recorded.ended {
        return Err(anyhow::anyhow!("{why}")).context("the recording was cut short");
    }
    // A command that was ended with its time has succeeded.
    let failed = recorded.ended != Ended::Elapsed
        && recorded.command.as_ref().is_some_and(|command| !command.succeeded());
    Ok(if recorded.lost > 0 || recorded.gaps > 0 || failed { Status::Warned } else { Status::Done })
}

/// A line on standard error that follows the recording, if that is a terminal.
struct Line(ProgressBar);

impl Line {
    fn new(args: &Args) -> Line {
        let bar = if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}").expect("the template is well-formed"),
        );
        Line(bar)
    }

    fn show(&self, now: &Now) {
        let what = match now.phase {
            Phase::StartSnapshot => "reading the host's state",
            Phase::Recording => "recording",
            Phase::Draining => "emptying the buffers",
            Phase::EndSnapshot => "reading the host's state at the end",
        };
        let seconds = now.elapsed.as_secs_f64();
        let rate = now.events as f64 / seconds.max(1e-3);
        let per_event = now.bytes as f64 / now.events.max(1) as f64;
        self.0.set_message(format!(
            "{what}: {seconds:.1} s, {} events, {rate:.0}/s, {} lost, {}, {per_event:.2} B/event",
            now.events,
            now.lost,
            bytes_text(now.bytes),
        ));
        self.0.tick();
    }
}
