//! `nofrag preflight`: whether so many blocks can be had, before a program asks for them.

use anyhow::{Result, ensure};
use nofrag_host::machine::preflight::{Answer, Need, survey};
use nofrag_show::host::preflight as show;
use nofrag_show::{Look, Schema};

use crate::{Status, host, output};

const AFTER_HELP: &str = "\
NEED is a number of blocks and their size: 200x32M, or 16xorder=4 for sixteen blocks of order 4;
hugepages=2048 are huge pages of the host's usual size. Nothing is taken, and nothing is changed. As root the
use of each page frame is read, a second for 25 GiB of memory, so that the forecast knows what cannot be moved.

Examples:
  sudo nofrag preflight --need hugepages=2048         before a virtual machine is started with them
  nofrag preflight --need 1xorder=10 --node 1         a driver's block of 4 MiB on node 1
  nofrag preflight --need 512x2M --json | jq .answer  in a script; yes, after-compaction, after-reclaim,
                                                      uncertain, no or too-large
  nofrag preflight --need 512x2M --root DIR           on a captured host (nofrag host capture DIR)

Exit status:
  0  yes, now
  1  not now: after a step, uncertain, or no
  2  bad use, or neither zoneinfo nor buddyinfo could be read";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The blocks that are needed, such as hugepages=2048, 200x32M or 16xorder=4
    #[arg(long, value_name = "NEED")]
    need: Need,

    /// Count the memory of node N alone
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    #[command(flatten)]
    place: host::Place,

    /// Print JSON for machines: one object, schema nofrag.preflight
    #[arg(long)]
    json: bool,
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.preflight", version: 1 };

/// Prints the answer to the need that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    let preflight = survey(&args.place.read()?, args.need, args.node);
    if let Some(node) = args.node {
        ensure!(preflight.nodes.contains(&node), "this host has no node {node}");
    }
    let text = || show::text(&preflight, Look::of_stdout());
    output::print_result(args.json.then_some(SCHEMA), &preflight, text)?;
    Ok(if preflight.answer == Answer::Yes { Status::Done } else { Status::Warned })
}
