//! Threads that write files, and threads that read them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hdrhistogram::Histogram;

use super::outcome;
use super::phases::{Shared, WorkloadError};
use super::plan::FILE_BYTES;
use crate::random::Random;

/// Bytes of one read or write.
const BLOCK: usize = 4 << 10;
const BLOCKS: u64 = FILE_BYTES / BLOCK as u64;
/// Number of requests before a reader turns to another file.
const READS_OF_A_FILE: u64 = 16;

/// The files of one thread.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) folder: PathBuf,
    pub(super) files: u64,
    pub(super) number: u64,
    pub(super) seed: u64,
}

impl Job {
    pub(super) fn new(below: &Path, number: usize, files: u64, seed: u64) -> Job {
        Job { folder: below.join(format!("job.{number}")), files, number: number as u64, seed }
    }

    fn path(&self, file: u64) -> PathBuf {
        self.folder.join(format!("workfile.{file}"))
    }

    /// Writes the files block by block, until all are there or the phase shall stop. Returns the number of whole files.
    pub(super) fn write(&self, shared: &Shared) -> Result<u64, WorkloadError> {
        fs::create_dir(&self.folder).map_err(|cause| WorkloadError::at(&self.folder, cause))?;
        // Noise, so that no file system makes it smaller. Blocks differ by their first words.
        let mut random = Random::new(self.seed, 2 * self.number);
        let mut block = [0; BLOCK];
        block.fill_with(|| random.byte());
        for file in 0..self.files {
            if shared.stopping() {
                return Ok(file);
            }
            let path = self.path(file);
            self.write_file(file, &path, &mut block)
                .map_err(|cause| WorkloadError::at(&path, cause))?;
            shared.count(1);
        }
        Ok(self.files)
    }

    fn write_file(&self, file: u64, path: &Path, block: &mut [u8; BLOCK]) -> io::Result<()> {
        let mut target = File::options().write(true).create_new(true).open(path)?;
        for number in 0..BLOCKS {
            let mark = [self.number.to_le_bytes(), (file * BLOCKS + number).to_le_bytes()];
            block[..16].copy_from_slice(mark.as_flattened());
            target.write_all(block)?;
        }
        Ok(())
    }

    /// Reads random blocks until the phase shall stop; returns the time of each.
    pub(super) fn read(&self, shared: &Shared) -> Result<Histogram<u64>, WorkloadError> {
        let mut random = Random::new(self.seed, 2 * self.number + 1);
        let mut times = outcome::histogram();
        let mut block = [0; BLOCK];
        while self.files > 0 && !shared.stopping() {
            let path = self.path(random.between(0, self.files - 1));
            let mut read = || {
                let file = File::open(&path)?;
                for _ in 0..READS_OF_A_FILE {
                    let number = random.between(0, BLOCKS - 1);
                    let began = Instant::now();
                    file.read_exact_at(&mut block, number * BLOCK as u64)?;
                    times.saturating_record(outcome::nanos(began.elapsed()));
                }
                io::Result::Ok(())
            };
            read().map_err(|cause| WorkloadError::at(&path, cause))?;
        }
        Ok(times)
    }
}
