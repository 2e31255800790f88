//! Folders of stretches, and the files in one.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nofrag::page::{Boost, FragmentationPolicy, PolicyPreset};
use thiserror::Error;

use super::events::LineError;
use super::state::StateError;
use crate::scenario::in_repository;

/// Path of the shipped stretches, below the root of the repository.
pub(super) const SHIPPED: &str = "data/kernel-states";

/// Files of every stretch; each may be packed, with `.zst` behind its name.
const FILES: [&str; 3] = ["state-before.json", "events.txt", "state-after.json"];

/// The reason why a stretch could not be followed.
#[derive(Debug, Error)]
pub(super) enum StretchError {
    #[error("{0}, or name a folder of stretches with --states")]
    NotShipped(String),
    #[error(
        "{0} holds no stretch: that is a folder linux-X.Y-NAME with state-before.json, events.txt and \
         state-after.json, each as it is or packed as .zst"
    )]
    NoStretch(PathBuf),
    #[error("more than 64 stretches are in {0}: name one of them")]
    TooMany(PathBuf),
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    #[error("{0} is missing, and so is {0}.zst")]
    Missing(PathBuf),
    #[error(
        "{name}: the name of the folder must begin with linux-X.Y-, which says whose rules to follow; rename it, or \
         name rules with --design"
    )]
    Unnamed { name: String },
    #[error("{kernel} is older than all rules that nofrag has; the oldest are those of {oldest}")]
    Unknown { kernel: String, oldest: &'static str },
    #[error("{0}: {1}")]
    State(PathBuf, StateError),
    #[error("{0}: {1}")]
    Line(PathBuf, LineError),
    #[error("{0}: {1}")]
    Sysctl(PathBuf, String),
}

/// The folder of one stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) name: String,
    folder: PathBuf,
}

/// A folder with stretches in it, or a single stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Collection {
    pub(super) folder: PathBuf,
    pub(super) stretches: Vec<Stretch>,
}

/// Finds the stretches in `named`, or in the repository above the current directory.
pub(super) fn find(named: Option<&Path>) -> Result<Collection, StretchError> {
    let folder = match named {
        Some(folder) => folder.to_owned(),
        None => in_repository(SHIPPED).map_err(StretchError::NotShipped)?,
    };
    let stretches = match is_stretch(&folder) {
        true => vec![Stretch { name: name_of(&folder)?, folder: folder.clone() }],
        false => inside(&folder)?,
    };
    match stretches.len() {
        0 => Err(StretchError::NoStretch(folder)),
        1..=64 => Ok(Collection { folder, stretches }),
        _ => Err(StretchError::TooMany(folder)),
    }
}

/// Returns true if at least one of the files is there; missing ones are named when the stretch is followed.
fn is_stretch(folder: &Path) -> bool {
    FILES.iter().any(|name| folder.join(name).exists() || folder.join(packed(name)).exists())
}

fn packed(name: &str) -> String {
    format!("{name}.zst")
}

/// Returns the name of a folder, also of `.`.
fn name_of(folder: &Path) -> Result<String, StretchError> {
    let whole =
        fs::canonicalize(folder).map_err(|error| StretchError::Io(folder.to_owned(), error))?;
    Ok(whole.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()))
}

fn inside(folder: &Path) -> Result<Vec<Stretch>, StretchError> {
    let error = |error| StretchError::Io(folder.to_owned(), error);
    let mut stretches = Vec::new();
    for entry in fs::read_dir(folder).map_err(error)? {
        let folder = entry.map_err(error)?.path();
        if is_stretch(&folder) {
            stretches.push(Stretch { name: name_of(&folder)?, folder });
        }
    }
    stretches.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(stretches)
}

/// The texts of a stretch.
pub(super) struct Texts {
    pub(super) before: String,
    pub(super) events: String,
    pub(super) after: String,
}

impl Stretch {
    /// Returns the kernel that the folder is named after: `linux-X.Y`.
    pub(super) fn kernel(&self) -> Result<String, StretchError> {
        let unnamed = || StretchError::Unnamed { name: self.name.clone() };
        let version = self.name.strip_prefix("linux-").and_then(|rest| rest.split('-').next());
        let version = version.ok_or_else(unnamed)?;
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<&str> = version.split('.').collect();
        match parts[..] {
            [major, minor] if is_number(major) && is_number(minor) => {
                Ok(format!("linux-{version}"))
            }
            _ => Err(unnamed()),
        }
    }

    /// Returns the rules of that kernel.
    pub(super) fn preset(&self) -> Result<PolicyPreset, StretchError> {
        let kernel = self.kernel()?;
        let oldest = FragmentationPolicy::PRESETS[0].name;
        FragmentationPolicy::preset(&kernel).map_err(|_| StretchError::Unknown { kernel, oldest })
    }

    /// Returns the text of a file, unpacked where only a packed one is there.
    fn text(&self, name: &str) -> Result<String, StretchError> {
        let (plain, zst) = (self.folder.join(name), self.folder.join(packed(name)));
        let mut text = String::new();
        if plain.exists() {
            let read = File::open(&plain).and_then(|mut file| file.read_to_string(&mut text));
            read.map_err(|error| StretchError::Io(plain, error))?;
        } else if zst.exists() {
            let mut unpack = || zstd::Decoder::new(File::open(&zst)?)?.read_to_string(&mut text);
            unpack().map_err(|error| StretchError::Io(zst.clone(), error))?;
        } else {
            return Err(StretchError::Missing(plain));
        }
        Ok(text)
    }

    pub(super) fn texts(&self) -> Result<Texts, StretchError> {
        let [before, events, after] = FILES;
        Ok(Texts {
            before: self.text(before)?,
            events: self.text(events)?,
            after: self.text(after)?,
        })
    }

    /// Returns the path of a file, for errors.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Adapts the policy to the settings of the followed machine; `Ok(false)` if the stretch does not tell them.
    pub(super) fn settle(&self, policy: &mut FragmentationPolicy) -> Result<bool, StretchError> {
        const NAME: &str = "sysctl-before";
        if !self.path(NAME).exists() && !self.path(&packed(NAME)).exists() {
            return Ok(false);
        }
        let text = self.text(NAME)?;
        let factor = text.lines().find_map(|line| line.strip_prefix("watermark_boost_factor "));
        let Some(factor) = factor else { return Ok(false) };
        let factor = factor.trim().parse().map_err(|_| {
            StretchError::Sysctl(self.path(NAME), format!("no boost factor: {factor}"))
        })?;
        policy.boost = policy.boost.map(|_| Boost { factor });
        Ok(true)
    }
}
