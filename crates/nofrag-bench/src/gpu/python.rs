//! Allocators that programs in Python use, each in a process of its own that follows the same draws.

use super::{DRAWN, FILL, Gpu, GpuContestant, GpuPlan, GpuTurn, PART, UNIT};
use crate::contest::{Measured, Named, Outcome};
use crate::record::Measure;
use serde::Deserialize;
use std::io::Write;
use std::process::{Command, Stdio};

/// The program that the process runs.
const PROGRAM: &str = include_str!("pools.py");

/// An allocator: the name in tables, and the one that the program knows it by.
pub(super) struct Python(pub(super) &'static str, pub(super) &'static str);

/// Figures that the program found.
#[derive(Deserialize)]
struct Answer {
    first: f64,
    full: f64,
    /// Nanoseconds of an allocation or a free, in a roomy pool and in a full one.
    ns: f64,
    ns_full: f64,
    /// Nanoseconds of a call from Python that does nothing.
    empty_ns: f64,
    version: String,
    done: usize,
}

impl Named for Python {
    fn name(&self) -> &'static str {
        self.0
    }
}

impl GpuContestant for Python {
    fn turn(&self, gpu: &Gpu, turn: GpuTurn<'_>) -> Outcome {
        let GpuTurn::Serve { plan, is_written: false } = turn else {
            return Err("its blocks are not this program's to write".to_owned());
        };
        let output = ask(self.1, gpu, plan).map_err(|error| format!("no python3: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(text
                .trim()
                .lines()
                .last()
                .unwrap_or("it failed without a word")
                .to_owned());
        }
        let answer: Answer = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("an answer that is none: {error}"))?;
        let samples = vec![
            (Measure::FirstFailurePercent, answer.first),
            (Measure::LiveWhenFullPercent, answer.full),
            (Measure::NsPerOp, answer.ns),
            (Measure::NsPerOpFull, answer.ns_full),
        ];
        let note = format!(
            "{}, from Python, where an empty call takes {:.0} ns; {} of {} requests",
            answer.version, answer.empty_ns, answer.done, plan.counted
        );
        Ok(Measured { samples, note: Some(note) })
    }
}

/// Runs the program with the draws as its input.
fn ask(kind: &str, gpu: &Gpu, plan: &GpuPlan) -> std::io::Result<std::process::Output> {
    let mut child = Command::new("python3")
        .args(["-c", PROGRAM, kind])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (part, fill) = (PART.as_secs(), FILL.as_secs());
    let (ageing, counted) = (plan.ageing as u64, plan.counted as u64);
    let head = [gpu.pool_bytes(), UNIT, ageing, counted, part, fill, DRAWN as u64];
    let head = head.into_iter().flat_map(u64::to_le_bytes);
    let draws = plan.sizes.iter().chain(&plan.picks).flat_map(|number| number.to_le_bytes());
    let mut input = child.stdin.take().expect("it was asked for");
    // A program that has ended says why on the other side.
    let _ = input.write_all(&head.chain(draws).collect::<Vec<u8>>());
    drop(input);
    child.wait_with_output()
}
