//! `nofrag explain`: why memory could not be had, and what would help.

mod view;

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nofrag_lab::explain::{self, LONGEST_LOG, Replays, Subject};
use nofrag_show::{Look, Schema, bytes_text};

use crate::progress::Events;
use crate::{Status, output};

const AFTER_HELP: &str = "\
The kernel's own watermark test is run again on the zones of the report: each says why it refused, and
the one that came nearest names the cause. A recording is replayed under other policies as well; what
follows from rules alone is marked so.

Examples:
  dmesg | nofrag explain -                   every report in the log, each once
  journalctl -k | nofrag explain -           the same from the journal; prefixes do not matter
  nofrag explain data/reports/order-4-kernel.txt
  nofrag explain FILE                        a recording: failed requests, mixed types, its end
  nofrag explain FILE@start                  the snapshot at its start; FILE@end that at its end
  nofrag explain DIR                         a captured host, or a folder with buddyinfo, zoneinfo and so on
  nofrag explain - --json < report.txt       for machines (schema nofrag.explain)

It knows page allocation failures and stalls, the out-of-memory killer, and failures of vmalloc and
vmap, of kernels from 3.x on.

Exit status:
  0  explained
  1  explained, but what was read is not whole: cut, damaged, or with events lost
  2  bad use, unreadable, or nothing in it to explain";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The text of a log (`-` for standard input), a recording, or the folder of a snapshot
    #[arg(value_name = "FILE")]
    subject: PathBuf,

    /// Show everything: the reason of each zone, policies, costs and evidence, in place of the answer on one screen
    #[arg(long)]
    all: bool,

    /// Print JSON for machines: one object, schema nofrag.explain
    #[arg(long)]
    json: bool,

    /// Number of cases to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Do not replay a recording: statements about policies follow from their rules
    #[arg(long)]
    no_replay: bool,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.explain", version: 1 };

/// Explains the subject that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let subject = if args.subject == Path::new("-") {
        Subject::Text(log_of(std::io::stdin().lock(), LONGEST_LOG)?)
    } else {
        Subject::named(&args.subject)
    };
    let replays = if args.no_replay { Replays::Skip } else { Replays::Run };
    let bar = Events::of(None);
    let explained = explain::explain(&subject, replays, &|passed| bar.show(passed));
    bar.end();
    let explained = explained?;
    let show = if args.all { view::page } else { view::answer };
    let text = || show(&explained, args.top, Look::of_stdout());
    output::print_result(args.json.then_some(SCHEMA), &explained, text)?;
    Ok(if explained.damage.is_some() { Status::NotWhole } else { Status::Done })
}

/// Reads the text of a log of at most `most` bytes.
fn log_of(input: impl Read, most: u64) -> Result<String> {
    let mut bytes = Vec::new();
    // One byte more tells a log that is too long from one that just fits.
    input.take(most + 1).read_to_end(&mut bytes).context("cannot read standard input")?;
    ensure!(
        bytes.len() as u64 <= most,
        "standard input is longer than {}: no log of the kernel is; give a part of it",
        bytes_text(most)
    );
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_a_limit() {
        assert_eq!(log_of(&b"abcd"[..], 4).unwrap(), "abcd");
        assert!(log_of(&b"abcde"[..], 4).unwrap_err().to_string().contains("longer than 4 B"));
    }
}
