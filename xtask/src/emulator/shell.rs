//! Programs of this machine, run to their end.

use std::process::{Command, Output};

use anyhow::{Context, ensure};

/// Runs a program and returns its output.
pub(crate) fn said(command: &mut Command) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&finish(command)?.stdout).into_owned())
}

/// Runs a program that has to succeed.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    finish(command).map(|_| ())
}

fn finish(command: &mut Command) -> anyhow::Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    let wrong = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed ({}): {}", output.status, wrong.trim());
    Ok(output)
}
