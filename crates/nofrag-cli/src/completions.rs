//! `nofrag completions`: scripts with which shells complete the command line.

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{Cli, Status, output};

const AFTER_HELP: &str = "\
The script goes to standard output. It names the commands and options of this very binary: write it
again after an update. The Debian package brings those for bash, zsh and fish along.

Examples:
  nofrag completions bash > ~/.local/share/bash-completion/completions/nofrag
  nofrag completions fish > ~/.config/fish/completions/nofrag.fish
  nofrag completions zsh > ~/.zfunc/_nofrag          ~/.zfunc being in fpath, before compinit
  source <(nofrag completions bash)                  for this shell only

Exit status:
  0  written
  2  bad use, or standard output could not be written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The shell that shall complete
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Prints the script of the shell that `args` names.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    // Through a buffer: the generator panics where the reader of standard output has gone away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nofrag", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Done)
}
