//! `nofrag host`: what is fragmented on this host.

use anyhow::{Result, bail};

use crate::Status;

/// What `nofrag host` takes.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Shows the subject that `args` names.
pub(crate) fn execute(_args: &Args) -> Result<Status> {
    bail!("this build inspects nothing yet")
}
