//! Runs the fuzz targets, and the canary: a target with a planted bug, which must be found.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::ci::succeeds;

/// The target that is broken on purpose.
pub(crate) const CANARY: &str = "canary";

/// A slow machine needs longer to find the planted bug.
const CANARY_SECONDS: u64 = 300;

/// Memory that a target and its sanitizer may hold, in MiB: freed memory waits in quarantine, 256 MiB by default.
const RSS_LIMIT: &str = "-rss_limit_mb=1536";
/// The largest single allocation, in MiB: four times the budget of the target of recordings.
const MALLOC_LIMIT: &str = "-malloc_limit_mb=256";

/// Profile with which targets are built.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Profile {
    /// Optimised, for runs that are long.
    Release,
    /// For a few seconds a target, of which building takes most.
    Dev,
}

impl Profile {
    /// Returns the profile's argument for cargo-fuzz.
    fn argument(self) -> &'static str {
        match self {
            Profile::Release => "--release",
            Profile::Dev => "--dev",
        }
    }
}

/// Returns the reason why no target can be run here, if there is one.
pub(crate) fn missing() -> Option<String> {
    if !succeeds(Command::new("cargo").args(["+nightly", "--version"])) {
        Some("there is no nightly toolchain".into())
    } else if !succeeds(Command::new("cargo").args(["fuzz", "--version"])) {
        Some("cargo-fuzz is not installed (`cargo install cargo-fuzz --locked`)".into())
    } else {
        None
    }
}

/// Runs every target for `seconds`; true if the sound ones held and the canary did not.
pub(crate) fn run(root: &Path, seconds: u64, profile: Profile) -> anyhow::Result<bool> {
    if let Some(reason) = missing() {
        bail!("the fuzz targets cannot be run: {reason}");
    }
    let targets = targets(root)?;
    // All at once: they share nearly everything, and each links for itself.
    if !cargo_fuzz(root, &["build", profile.argument()])
        .status()
        .context("cargo fuzz can be started")?
        .success()
    {
        bail!("the fuzz targets cannot be built");
    }
    let mut passed = true;
    for target in &targets {
        println!("-- fuzz target {target}");
        // The canary ends as soon as its bug is found, so patience costs nothing unless it survives.
        let seconds = if target == CANARY { seconds.max(CANARY_SECONDS) } else { seconds };
        let survived = fuzz(root, target, seconds, profile)?;
        let as_wanted = survived != (target == CANARY);
        println!("-- {target}: {}", verdict(target == CANARY, survived));
        passed &= as_wanted;
    }
    if !targets.iter().any(|target| target == CANARY) {
        bail!("there is no fuzz target `{CANARY}`, which shows that a bug would be found");
    }
    Ok(passed)
}

fn verdict(is_canary: bool, survived: bool) -> &'static str {
    match (is_canary, survived) {
        (false, true) => "held",
        (false, false) => "FAILED; cargo-fuzz has printed where it saved the input",
        (true, false) => "the planted bug was found, as it must be",
        (true, true) => "FAILED: the planted bug was not found, so the targets prove nothing",
    }
}

fn cargo_fuzz(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz"]).args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// Runs one target; returns true if it survived.
fn fuzz(root: &Path, target: &str, seconds: u64, profile: Profile) -> anyhow::Result<bool> {
    let mut command = cargo_fuzz(root, &["run", profile.argument(), target]);
    let corpus = root.join("fuzz/corpus").join(target);
    std::fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    // What the fuzzer finds goes into the first folder; the second one is kept in the repository.
    let seeds = root.join("fuzz/seeds").join(target);
    command.arg(corpus).args(seeds.is_dir().then_some(seeds));
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    command.args(["-print_final_stats=1", "-max_len=8192", "-timeout=10"]);
    // A limit of the address space is none under the address sanitizer, which reserves terabytes for its shadow. What
    // is in use is bounded instead, and single allocations: code that believes a length from a file asks for more.
    command.args([RSS_LIMIT, MALLOC_LIMIT]);
    Ok(command.status()?.success())
}

/// Returns the names of the targets, in the order of the manifest.
pub(crate) fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let path = root.join("fuzz/Cargo.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: toml::Value = toml::from_str(&text)?;
    let bins = manifest.get("bin").and_then(toml::Value::as_array);
    let names = bins.into_iter().flatten().filter_map(|bin| bin.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canary_is_among_the_targets() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().expect("this crate lies in a folder of the repository");
        let targets = targets(root).expect("the manifest of the fuzz targets can be read");
        assert!(targets.iter().any(|target| target == CANARY), "{targets:?}");
        assert!(targets.len() > 1);
    }

    #[test]
    fn a_canary_that_survives_is_a_failure() {
        assert!(verdict(true, true).starts_with("FAILED"));
        assert!(verdict(false, false).starts_with("FAILED"));
        assert_eq!(verdict(false, true), "held");
    }
}
