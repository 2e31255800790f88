//! `nofrag run`: scenarios by name.

use anyhow::{Result, bail};

use crate::Status;

/// What `nofrag run` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A scenario's name, or `all`; without it, the scenarios are listed
    scenario: Option<String>,
}

/// Runs the scenarios that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    match &args.scenario {
        None => {
            println!("no scenarios");
            Ok(Status::Done)
        }
        Some(name) => bail!("no scenario is called {name:?}"),
    }
}
