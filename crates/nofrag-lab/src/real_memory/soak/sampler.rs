//! The process from outside, second by second: memory, areas, descriptors.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use super::{Counted, Load, NS_PER_OPERATION};
use crate::key::{self, Key};
use crate::report::Measurement;
use crate::stats::{Spread, thinned};
use crate::usage::field_bytes;

/// Memory, areas and descriptors of the process at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessSample {
    pub(super) at_s: f64,
    /// Resident memory in MiB, mapped pages of files in memory included.
    pub(super) resident_mib: f64,
    /// Number of lines of `/proc/self/maps`.
    pub(super) areas: f64,
    pub(super) descriptors: f64,
}

impl ProcessSample {
    pub(super) fn take(at: Duration) -> io::Result<ProcessSample> {
        let resident = field_bytes("/proc/self/status", "VmRSS");
        let areas = fs::read("/proc/self/maps")?.iter().filter(|byte| **byte == b'\n').count();
        // The folder's own descriptor is counted, each time.
        let descriptors = fs::read_dir("/proc/self/fd")?.count();
        Ok(ProcessSample {
            at_s: at.as_secs_f64(),
            resident_mib: resident.unwrap_or(0) as f64 / f64::from(1 << 20),
            areas: areas as f64,
            descriptors: descriptors as f64,
        })
    }

    /// Returns the largest of each value over all samples, with the time of the last; `None` without samples.
    fn at_most(samples: &[ProcessSample]) -> Option<ProcessSample> {
        samples.iter().copied().reduce(|a, b| ProcessSample {
            at_s: b.at_s,
            resident_mib: a.resident_mib.max(b.resident_mib),
            areas: a.areas.max(b.areas),
            descriptors: a.descriptors.max(b.descriptors),
        })
    }
}

/// Counts and state of a load at each look.
#[derive(Clone, Debug, Default)]
struct Seen {
    counted: Vec<Counted>,
    state: BTreeMap<&'static str, Vec<f64>>,
}

/// The samples and loads of all looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    samples: Vec<ProcessSample>,
    loads: BTreeMap<&'static str, Seen>,
}

impl Course {
    pub(super) fn look(&mut self, at: Duration, loads: &[Box<dyn Load>]) -> Result<(), String> {
        self.samples.push(ProcessSample::take(at).map_err(|error| error.to_string())?);
        for load in loads {
            let seen = self.loads.entry(load.name()).or_default();
            seen.counted.push(load.tally().counted());
            for (name, value) in load.state() {
                seen.state.entry(name).or_default().push(value);
            }
        }
        Ok(())
    }

    /// Returns one line on the state, for a waiting user.
    pub(super) fn summary(&self) -> String {
        let Some(now) = self.samples.last() else { return String::new() };
        let last = self.loads.values().filter_map(|seen| seen.counted.last());
        let (verified, lost) =
            last.fold((0, 0), |(verified, lost), it| (verified + it.verified, lost + it.lost));
        let ProcessSample { resident_mib, areas, .. } = now;
        format!("{verified} verified, {lost} lost; {resident_mib:.0} MiB, {areas} areas")
    }

    /// Returns the largest of each value in the second quarter and in the last one; `None` if there were too few looks.
    pub(super) fn early_and_late(&self) -> Option<(ProcessSample, ProcessSample)> {
        let quarter = self.samples.len() / 4;
        let last = self.samples.len() - quarter;
        Some((
            ProcessSample::at_most(&self.samples[quarter..2 * quarter])?,
            ProcessSample::at_most(&self.samples[last..])?,
        ))
    }

    /// Returns the time of an operation of a load, from look to look, in nanoseconds.
    pub(super) fn ns_per_operation(&self, load: &str, threads: f64) -> Vec<f64> {
        let Some(seen) = self.loads.get(load) else { return Vec::new() };
        let pairs = seen.counted.windows(2).zip(self.samples.windows(2));
        let each = pairs.filter_map(|(counted, times)| {
            let done = counted[1].operations - counted[0].operations;
            let ns = (times[1].at_s - times[0].at_s) * 1e9 * threads;
            (done > 0).then(|| ns / done as f64)
        });
        thinned(&each.collect::<Vec<_>>())
    }

    /// Returns the course over time of the value `name` of a load's own state.
    pub(super) fn state(&self, load: &str, name: &str) -> Option<Vec<f64>> {
        Some(thinned(self.loads.get(load)?.state.get(name)?))
    }

    /// Returns the process itself as a row: its memory, areas and descriptors.
    pub(super) fn measurement(&self) -> Option<Measurement> {
        let of =
            |value: fn(&ProcessSample) -> f64| self.samples.iter().map(value).collect::<Vec<f64>>();
        let courses = [
            (RESIDENT, of(|sample| sample.resident_mib)),
            (AREAS, of(|sample| sample.areas)),
            (DESCRIPTORS, of(|sample| sample.descriptors)),
        ];
        let peak = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let last = self.samples.last()?;
        Some(Measurement {
            counts: key::counts(courses.iter().map(|(key, it)| (key.clone(), peak(it)))),
            series: courses.iter().map(|(key, it)| (key.clone(), thinned(it))).collect(),
            ..Measurement::new(
                super::PROGRAM,
                PROCESS,
                self.samples.len() as u64,
                NS_PER_OPERATION,
                Spread::of(vec![last.at_s * 1e9 / self.samples.len() as f64])?,
            )
        })
    }
}

/// Name of the row of the process itself.
pub(super) const PROCESS: &str = "process";
pub(super) const RESIDENT: Key = Key::number("MiB resident");
pub(super) const AREAS: Key = Key::count("areas");
pub(super) const DESCRIPTORS: Key = Key::count("descriptors");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_areas_and_descriptors() {
        let sample = ProcessSample::take(Duration::ZERO).unwrap();
        assert!(sample.resident_mib > 0.0 && sample.areas > 3.0 && sample.descriptors > 2.0);
    }

    #[test]
    fn quarters_are_compared_by_their_peaks() {
        let sample = |areas: f64| ProcessSample { areas, ..ProcessSample::default() };
        let samples = [90.0, 80.0, 5.0, 6.0, 7.0, 6.0, 8.0, 5.0].map(sample).to_vec();
        let course = Course { samples, ..Course::default() };
        let (early, late) = course.early_and_late().unwrap();
        assert_eq!((early.areas, late.areas), (6.0, 8.0));
        assert!(Course::default().early_and_late().is_none());
    }
}
