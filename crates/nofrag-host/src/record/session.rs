//! A recording from beginning to end.
//!
//! ```text
//! instance made, sized, events on          by the holder of the rights; nothing is traced yet
//! output made                              an error leaves nothing behind
//! readers started, tracing on
//!   snapshot of the host                   while events come, so that none is missed between the two
//!   the command, or the time               readers, and a look at signals and the command
//! tracing off
//! readers end when their buffers are empty
//! snapshot of the host, counters, instance removed
//! ```
//!
//! Source: docs/sources/trace.md#recording.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::system::uname;

use super::bulk::{Bulk, BulkProbes};
use super::clock::{CLOCK, clock_ns, own_cpu_seconds, thread_cpu_seconds};
use super::command::{Running, State};
use super::error::RecordError;
use super::host_state::{FrameMemory, HostState, KeptParts, own_threads};
use super::instance::Instance;
use super::keeper::Keeper;
use super::output::{Begun, Sink};
use super::reader::{Failure, Of, Reader, Shared};
use super::report::{Ended, KindCount, Recorded};
use super::rights::{Holder, Opened, Prepared, Rights, Setup, Tracing};
use super::sensitive::{self, Sensitive};
use super::signals::{self, Arrived, Signals};
use super::stats;
use super::tracefs::Tracefs;
use super::whole::{read_open, read_whole};
use super::{Buffer, Now, Options, Phase, Until};
use crate::fields::{cpu_count, meminfo_bytes};
use crate::recording::{CpuStats, Ending, RecordingError};
use crate::source::{CPUS_ONLINE, Root};
use crate::trace::{
    self, Decode, Decoder, EventKind, ExtFragCounts, FlagTable, KINDS, Loss, Moment, SUB_BUFFER,
    TakenSnapshot, TraceMeta, page_size,
};

/// Time between two looks at signals, the command and the time.
const TICK: Duration = Duration::from_millis(50);

/// Time between two counts of lost events, each with a search for CPUs that have a buffer by now.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// Records by the options, with the rights of this process. `progress` is called some twenty times a second.
///
/// # Errors
/// [`RecordError`] if nothing was recorded. A recording that was cut short, by a full disk say, is not an error: see
/// [`Recorded::ended`].
pub fn record(options: &Options, progress: &dyn Fn(&Now)) -> Result<Recorded, RecordError> {
    let mut signals = Signals::catch().map_err(RecordError::Signals)?;
    let (rights, prepared) = Rights::take(&Setup::of(options))?;
    run(options, progress, &mut signals, Box::new(rights), prepared)
}

/// Records as [`record`] does, with the rights that another process keeps; this process only needs the right to write
/// the output.
///
/// # Errors
/// Those of [`record`].
pub fn record_with(
    keeper: Keeper,
    options: &Options,
    progress: &dyn Fn(&Now),
) -> Result<Recorded, RecordError> {
    let mut signals = Signals::catch().map_err(RecordError::Signals)?;
    let prepared = keeper.prepared()?;
    run(options, progress, &mut signals, Box::new(keeper), prepared)
}

fn run(
    options: &Options,
    progress: &dyn Fn(&Now),
    signals: &mut Signals,
    rights: Box<dyn Holder>,
    prepared: Prepared,
) -> Result<Recorded, RecordError> {
    let mut meta = first_meta();
    meta.missing = prepared.missing.clone();
    let left_out = options.left_out();
    meta.missing.extend(sensitive::sentence(&left_out));
    let formats = prepared.formats()?;
    let prints = formats.iter().map(|(_, format)| (&format.name, &format.print));
    let alloc = prints.into_iter().find(|(name, _)| *name == EventKind::PageAlloc.name());
    meta.gfp = alloc.and_then(|(_, print)| FlagTable::from_print_fmt(print)).unwrap_or_default();
    meta.formats =
        formats.iter().map(|(text, format)| (format.name.clone(), text.clone())).collect();
    meta.cpus = rights.cpus()?;
    meta.recorder.extend(rights.process().and_then(|process| i32::try_from(process).ok()));
    let decoder = Decoder::new(formats.iter().map(|(_, format)| format));
    let header_page = prepared.header_page.as_deref();
    let begun = Begun { meta: &meta, formats: &formats, header_page };
    let sink = Sink::create(&options.output, options.existing, &begun)?;
    let shared = Shared::default();
    let mut session = Session {
        options,
        progress,
        signals,
        rights: &*rights,
        decoder: &decoder,
        page_bytes: header_page.and_then(page_size).unwrap_or(SUB_BUFFER),
        shared: &shared,
        sink,
        meta,
        command: None,
        began: Instant::now(),
        lost: 0,
        snapshot_cpu_seconds: 0.0,
    };
    let outcome = thread::scope(|scope| session.run(scope));
    let mut recorded = match outcome {
        Ok(recorded) => recorded,
        Err(error) => {
            session.sink.discard();
            return Err(error);
        }
    };
    let command = session.command.take();
    drop(session);
    recorded.instance = prepared.instance;
    recorded.buffer_kib_per_cpu = prepared.buffer_kib_per_cpu;
    recorded.removed_stale = prepared.removed_stale;
    recorded.left_out = left_out;
    // A failure here loses nothing of the recording.
    recorded.missing.extend(rights.end());
    recorded.command = command.map(|mut command| {
        // The command was not asked to end.
        if matches!(recorded.ended, Ended::Failed(_)) {
            command.wait(signals);
        }
        command.report()
    });
    Ok(recorded)
}

/// Returns the facts of a recording's first chunk, which is there however the recording ends: the meaning of the events
/// depends on them.
fn first_meta() -> TraceMeta {
    TraceMeta {
        clock: Some(CLOCK.to_owned()),
        release: Some(uname().release().to_string_lossy().into_owned()),
        ..TraceMeta::default()
    }
}

/// Returns the kernel's text on the layout of a page of the ring buffer (`events/header_page`). Instances may have
/// pages of different sizes, so the instance's own file is asked; a kernel with only one size has no such file.
pub(super) fn header_page(instance: &Path, tracefs: &Tracefs) -> Option<String> {
    const NAME: &str = "events/header_page";
    let own = read_whole(&instance.join(NAME)).ok();
    let own = own.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    own.or_else(|| tracefs.text(NAME))
}

/// Sets the size of the buffers to the requested one, or halves it until the memory suffices, and then adds a sentence
/// to `missing`. Returns the KiB of each CPU's buffer.
pub(super) fn size_buffers(
    instance: &Instance,
    buffer: Buffer,
    missing: &mut Vec<String>,
) -> Result<u64, RecordError> {
    const DEFAULT_KIB: u64 = 64 << 10;
    const LEAST_KIB: u64 = 256;
    let wanted = match buffer {
        Buffer::KibPerCpu(kib) => {
            let online = fs::read_to_string(Root::Live.path(CPUS_ONLINE)).unwrap_or_default();
            let cpus = cpu_count(&online).map_or(1, u64::from);
            check_room(kib, cpus, available_kib().unwrap_or(u64::MAX))?;
            kib
        }
        Buffer::Default => DEFAULT_KIB,
    };
    let mut kib = wanted;
    if buffer == Buffer::Default {
        let cpus = instance.cpus().map_or(1, |cpus| cpus.len().max(1) as u64);
        let most = available_kib().map_or(DEFAULT_KIB, |available| available / 16 / cpus);
        kib = kib.min(most).max(LEAST_KIB);
    }
    loop {
        match instance.write("buffer_size_kb", &kib.to_string()) {
            Ok(()) => break,
            Err(cause) if cause.kind() == io::ErrorKind::OutOfMemory && kib / 2 >= LEAST_KIB => {
                kib /= 2;
            }
            Err(cause) if cause.kind() == io::ErrorKind::OutOfMemory => {
                return Err(RecordError::NoMemory { kib: wanted, least: kib });
            }
            Err(cause) => {
                let path = instance.path().join("buffer_size_kb");
                return Err(RecordError::instance(&path, "the buffers cannot be sized")(cause));
            }
        }
    }
    if kib < wanted {
        missing.push(format!(
            "ring buffers of {wanted} KiB for each CPU: memory is short, they have {kib} KiB: bursts may be lost"
        ));
    }
    Ok(kib)
}

/// Refuses buffers that memory has no room for: the kernel would first take the memory from all other processes.
fn check_room(kib: u64, cpus: u64, available: u64) -> Result<(), RecordError> {
    match kib.checked_mul(cpus) {
        Some(all) if all <= available => Ok(()),
        _ => Err(RecordError::TooMuch { kib, cpus, available }),
    }
}

/// Returns `MemAvailable` of the running host in KiB.
fn available_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(meminfo_bytes(&text, "MemAvailable").ok()? >> 10)
}

struct Session<'a> {
    options: &'a Options,
    progress: &'a dyn Fn(&Now),
    signals: &'a mut Signals,
    rights: &'a dyn Holder,
    decoder: &'a Decoder,
    page_bytes: usize,
    shared: &'a Shared,
    sink: Sink,
    meta: TraceMeta,
    command: Option<Running>,
    /// Time at which tracing was switched on.
    began: Instant,
    lost: u64,
    /// CPU time that the snapshots have taken.
    snapshot_cpu_seconds: f64,
}

/// The running readers. A drop, also after an error, tells them to end; the scope waits for them.
struct Readers<'scope> {
    running: Vec<(u16, ScopedJoinHandle<'scope, ()>)>,
    shared: &'scope Shared,
}

impl Drop for Readers<'_> {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
    }
}

impl<'a> Session<'a> {
    fn run<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<Recorded, RecordError>
    where
        'a: 'scope,
    {
        let mut readers = Readers { running: Vec::new(), shared: self.shared };
        self.start_readers(scope, &mut readers)?;
        let before = thread_cpu_seconds();
        let memory = FrameMemory::prepare(&Root::Live, self.options.frames);
        self.snapshot_cpu_seconds += thread_cpu_seconds() - before;
        self.rights.switch(Tracing::On)?;
        self.began = Instant::now();
        let began = clock_ns();
        let (mut state, arrived) = self.read_state(scope, Phase::StartSnapshot, memory);
        let snapshot_seconds = self.began.elapsed().as_secs_f64();
        // A user who stopped the recording by now does not want the command to begin.
        let stopped = arrived.or_else(|| self.signals.take());
        self.command = match &self.options.until {
            Until::Command(command) if stopped.is_none() => {
                Some(Running::start(command, self.options.records(Sensitive::Arguments))?)
            }
            _ => None,
        };
        if self.options.events.has_mmap() && self.options.records(Sensitive::Maps) {
            state.add_maps(&Root::Live, |pid| self.rights.open(&Opened::Maps(pid)));
        }
        self.note_missing(state.missing);
        let moment = Moment::During { begin: began, end: clock_ns() };
        let snapshot = TakenSnapshot { moment, files: state.files };
        self.meta.release = snapshot.files.release().or_else(|| self.meta.release.take());
        let begun = self.sink.replace().and_then(|()| self.pack(&snapshot));
        let mut ended = match begun {
            Ok(()) => match stopped {
                Some(Arrived { signal, .. }) => Ended::Signal(signals::name(signal)),
                None => self.wait(scope, &mut readers),
            },
            Err(error) => Ended::Failed(error.to_string()),
        };
        if let Err(error) = self.rights.switch(Tracing::Off) {
            ended = Ended::Failed(error.to_string());
        }
        let seconds = self.began.elapsed().as_secs_f64();
        // Memory is given back only now, so that this is not in the recording.
        drop(snapshot);
        self.note_threads();
        if let Some(failure) = self.drain(readers).or_else(|| self.failure()) {
            ended = failure;
        }
        self.meta.command = self.command.as_ref().map(Running::line);
        if self.options.records(Sensitive::Names) {
            self.meta.names = names(&self.text(&Opened::Names).unwrap_or_default());
        }
        self.take_end_state(scope, &mut ended);
        let cpus = self.stats();
        self.note_missing(cpus.iter().filter_map(unread).chain(self.missed_calls()).collect());
        let ending = Ending { loss: self.loss(&cpus), cpus };
        let (ended, stored) = self.finish(ended, &ending);
        Ok(Recorded {
            ended,
            seconds,
            start_snapshot_seconds: snapshot_seconds,
            lost: ending.loss.events,
            cpus: ending.cpus,
            ..stored
        })
    }

    /// Writes the end of the output. Returns the cause of the end, and the facts about the output.
    fn finish(&mut self, ended: Ended, ending: &Ending) -> (Ended, Recorded) {
        match (self.sink.finish(&self.meta, ending), ended) {
            // The first error tells more.
            (_, Ended::Failed(why)) => (Ended::Failed(why), self.stored()),
            (Err(error), _) => (Ended::Failed(error.to_string()), self.stored()),
            (Ok(()), ended) => (ended, self.counted()),
        }
    }

    /// Returns the facts about the output, found by reading it: the readers also counted events that could not be
    /// written.
    fn stored(&self) -> Recorded {
        let counted = self.counted();
        let (mut counts, mut extfrag) = ([0; EventKind::COUNT], ExtFragCounts::default());
        let (mut loss, mut batch) = (Loss::default(), Vec::new());
        // An output that does not open has no events.
        if let Ok(mut trace) = trace::open(&self.sink.place()) {
            while trace.events.read(&mut batch).unwrap_or(false) {
                for event in batch.drain(..) {
                    counts[event.kind as usize] += 1;
                    if event.kind == EventKind::ExtFrag {
                        extfrag.count(&event);
                    }
                }
            }
            loss = trace.events.loss();
        }
        let by_kind = by_kind(&counts);
        let events = by_kind.iter().map(|kind| kind.events).sum();
        Recorded {
            unstored: counted.events.saturating_sub(events),
            events,
            by_kind,
            extfrag: extfrag.into_counts(),
            gaps: loss.gaps,
            unreadable: loss.unreadable,
            ..counted
        }
    }

    /// Returns the readers' counts; the caller fills in the other fields.
    fn counted(&self) -> Recorded {
        let counts = self.shared.events.each_ref().map(|count| count.load(Ordering::Relaxed));
        let by_kind = by_kind(&counts);
        Recorded {
            output: self.options.output.path().to_owned(),
            bytes: self.sink.written(),
            event_bytes: self.sink.event_bytes(),
            release: self.meta.release.clone(),
            events: by_kind.iter().map(|kind| kind.events).sum(),
            by_kind,
            extfrag: std::mem::take(&mut *self.shared.extfrag()).into_counts(),
            gaps: self.shared.gaps.load(Ordering::Relaxed),
            unreadable: self.shared.unreadable.load(Ordering::Relaxed),
            raw_bytes: self.shared.raw_bytes.load(Ordering::Relaxed),
            recorder_cpu_seconds: own_cpu_seconds(),
            snapshot_cpu_seconds: self.snapshot_cpu_seconds,
            missing: self.meta.missing.clone(),
            ..Recorded::default()
        }
    }

    /// Starts a reader for each CPU that has none. An offline CPU may have no buffer yet.
    fn start_readers<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        readers: &mut Readers<'scope>,
    ) -> Result<(), RecordError>
    where
        'a: 'scope,
    {
        for cpu in self.rights.cpus()? {
            if readers.running.iter().any(|(known, _)| *known == cpu) {
                continue;
            }
            let sink = self.sink.cpu(cpu)?;
            let decode = Decode { decoder: self.decoder, cpu };
            let of = Of { decode, page_bytes: self.page_bytes, shared: self.shared };
            let path = PathBuf::from(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let reader = self.rights.open(&Opened::Buffer(cpu));
            let reader = reader
                .and_then(|raw| Reader::new(raw, of, sink))
                .map_err(RecordError::instance(&path, "the buffer of a CPU cannot be read"))?;
            readers.running.push((cpu, scope.spawn(move || reader.run())));
            if !self.meta.cpus.contains(&cpu) {
                self.meta.cpus.push(cpu);
            }
        }
        Ok(())
    }

    /// Reads the host's state while progress is reported. A signal that comes meanwhile cuts the reading short, and is
    /// returned.
    fn read_state<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        phase: Phase,
        memory: FrameMemory,
    ) -> (HostState, Option<Arrived>)
    where
        'a: 'scope,
    {
        let (rights, hurry) = (self.rights, &self.shared.hurry);
        let kept = KeptParts {
            frames: self.options.frames,
            addresses: self.options.records(Sensitive::Addresses),
        };
        let reading = scope.spawn(move || {
            let open = |name: &str| rights.open(&Opened::Snapshot(name.to_owned()));
            HostState::read(&Root::Live, open, kept, memory, hurry)
        });
        self.note_threads();
        let mut arrived = None;
        while !reading.is_finished() {
            thread::sleep(TICK);
            if let Some(signal) = self.signals.take() {
                hurry.store(true, Ordering::Relaxed);
                arrived = Some(signal);
            }
            self.tell(phase);
        }
        let state = reading.join().unwrap_or_default();
        self.snapshot_cpu_seconds += state.cpu_seconds;
        self.meta.recorder.extend(&state.threads);
        self.note_threads();
        (state, arrived)
    }

    /// Adds a snapshot to the output.
    fn pack(&mut self, snapshot: &TakenSnapshot) -> Result<(), RecordingError> {
        let before = thread_cpu_seconds();
        let packed = self.sink.snapshot(snapshot);
        self.snapshot_cpu_seconds += thread_cpu_seconds() - before;
        packed
    }

    /// Notes the IDs of this process's threads, so that their events are known as the recorder's; only running threads
    /// have IDs.
    fn note_threads(&mut self) {
        self.meta.recorder.extend(own_threads());
        self.meta.recorder.sort_unstable();
        self.meta.recorder.dedup();
    }

    /// Waits until the time is over, the command has ended, a signal comes or a reader fails.
    fn wait<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        readers: &mut Readers<'scope>,
    ) -> Ended
    where
        'a: 'scope,
    {
        let began = Instant::now();
        let mut looked_around = began;
        let (mut by_signal, mut by_time) = (None, None);
        loop {
            if self.shared.has_failed() {
                // The reader's own message replaces this text.
                return Ended::Failed(String::new());
            }
            if let Some(arrived) = self.signals.take() {
                let name = signals::name(arrived.signal);
                let again = by_signal.replace(name).is_some();
                match &mut self.command {
                    Some(command) if !again => command.signal(arrived),
                    _ => return Ended::Signal(name),
                }
            }
            match self.command.as_mut().map(Running::state) {
                None | Some(State::Runs) => {}
                Some(State::Ended | State::Outlasts) => {
                    let by_itself = by_time.unwrap_or(Ended::Command);
                    return by_signal.map_or(by_itself, Ended::Signal);
                }
            }
            if self.options.until.most().is_some_and(|most| began.elapsed() >= most) {
                match &mut self.command {
                    Some(command) => command.end(),
                    None => return Ended::Elapsed,
                }
                by_time = Some(Ended::Elapsed);
            }
            if looked_around.elapsed() >= LOOK_AROUND {
                looked_around = Instant::now();
                if let Err(error) = self.start_readers(scope, readers) {
                    return Ended::Failed(error.to_string());
                }
                self.lost = self.stats().iter().map(CpuStats::lost).sum();
            }
            self.tell(Phase::Recording);
            thread::sleep(TICK);
        }
    }

    /// Lets the readers empty their buffers and waits for them; returns a failure if one of them panicked.
    fn drain(&mut self, mut readers: Readers<'_>) -> Option<Ended> {
        self.tell(Phase::Draining);
        self.shared.stopped.store(true, Ordering::Release);
        let joined = readers.running.drain(..).map(|(cpu, reader)| (cpu, reader.join()));
        let panicked: Vec<u16> =
            joined.filter(|(_, end)| end.is_err()).map(|(cpu, _)| cpu).collect();
        let (cpu, _) = panicked.split_first()?;
        Some(Ended::Failed(format!(
            "the reader of CPU {cpu} failed; this is a defect of nofrag, please report it"
        )))
    }

    /// Reads the host's state once more, unless the recording failed.
    fn take_end_state<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, ended: &mut Ended)
    where
        'a: 'scope,
    {
        if matches!(ended, Ended::Failed(_)) {
            return;
        }
        let (state, _) = self.read_state(scope, Phase::EndSnapshot, FrameMemory::default());
        self.note_missing(state.missing);
        let snapshot = TakenSnapshot { moment: Moment::After, files: state.files };
        if let Err(error) = self.pack(&snapshot) {
            *ended = Ended::Failed(error.to_string());
        }
    }

    /// Returns the error that ended a reader, as a sentence.
    fn failure(&self) -> Option<Ended> {
        let failure = self.shared.failure.lock();
        let mut failure = failure.unwrap_or_else(|poisoned| poisoned.into_inner());
        Some(Ended::Failed(match failure.take()? {
            Failure::Writing(error) => error.to_string(),
            Failure::Reading { cpu, cause } => {
                format!("the buffer of CPU {cpu} cannot be read: {cause}")
            }
        }))
    }

    /// Notes each of the sentences on missing facts once.
    fn note_missing(&mut self, sentences: Vec<String>) {
        for sentence in sentences {
            if !self.meta.missing.contains(&sentence) {
                self.meta.missing.push(sentence);
            }
        }
    }

    /// Returns the kernel's counters of each CPU's buffer.
    fn stats(&self) -> Vec<CpuStats> {
        let of = |cpu: &u16| Some(stats::parse(*cpu, &self.text(&Opened::Stats(*cpu))?));
        self.meta.cpus.iter().filter_map(of).collect()
    }

    /// Returns the text of a file that only root may open.
    fn text(&self, file: &Opened) -> Option<String> {
        let bytes = self.rights.open(file).and_then(read_open).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the events that were lost or left unread, with the gaps and the unreadable records.
    fn loss(&self, cpus: &[CpuStats]) -> Loss {
        Loss {
            events: cpus.iter().map(|cpu| cpu.lost() + cpu.entries).sum(),
            gaps: self.shared.gaps.load(Ordering::Relaxed),
            unreadable: self.shared.unreadable.load(Ordering::Relaxed),
        }
    }

    /// Returns the calls that the probes on the bulk interface missed, as a sentence.
    fn missed_calls(&self) -> Option<String> {
        match self.options.bulk {
            Bulk::LeftOut => None,
            Bulk::Recorded => BulkProbes::missed(&self.text(&Opened::Missed)?),
        }
    }

    fn tell(&self, phase: Phase) {
        (self.progress)(&Now {
            phase,
            elapsed: self.began.elapsed(),
            events: self.shared.total(),
            lost: self.lost,
            bytes: self.sink.written(),
        });
    }
}

/// Returns the kinds that have events, each with their number.
fn by_kind(counts: &[u64; EventKind::COUNT]) -> Vec<KindCount> {
    let rows = KINDS.iter().zip(counts);
    let rows = rows.filter(|(row, events)| **events > 0 && row.kind != EventKind::Lost);
    rows.map(|(row, &events)| KindCount { group: row.group, name: row.name, events }).collect()
}

/// Returns a sentence on the events left in a buffer, if there are any.
fn unread(stats: &CpuStats) -> Option<String> {
    (stats.entries > 0).then(|| {
        format!("CPU {}: {} events stayed in its buffer and are lost", stats.cpu, stats.entries)
    })
}

/// Returns the names of processes that the kernel remembers from tracing, from `saved_cmdlines`.
fn names(text: &str) -> Vec<(i32, String)> {
    let named = text.lines().filter_map(|line| {
        let (pid, name) = line.split_once(' ')?;
        Some((pid.parse().ok()?, name.to_owned()))
    });
    let mut names: Vec<(i32, String)> = named.collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::super::tracefs::Which;
    use super::*;

    /// Refuses buffers larger than the available memory. Three TiB were once requested on a machine of 24 GiB, and
    /// taken from all processes until the kernel gave up.
    #[test]
    fn buffers_beyond_memory_are_refused_with_both_numbers() {
        check_room(65_536, 2, 131_072).unwrap();
        let said = check_room(65_537, 2, 131_072).unwrap_err().to_string();
        assert!(said.contains("131074 KiB together") && said.contains("131072 KiB"), "{said}");
        assert!(said.contains("at most 65536 with --buffer-kib"), "{said}");
        assert!(check_room(u64::MAX, 2, u64::MAX).is_err());
    }

    #[test]
    fn pages_have_the_size_that_their_own_instance_says() {
        let folder = tempfile::tempdir().unwrap();
        let instance = folder.path().join("instances/own");
        fs::create_dir_all(instance.join("events")).unwrap();
        fs::create_dir(folder.path().join("events")).unwrap();
        let text = |size| format!("\tfield: char data;\toffset:16;\tsize:{size};\tsigned:1;\n");
        fs::write(folder.path().join("events/header_page"), text(4080)).unwrap();
        let tracefs = Tracefs::find(&Which::At(folder.path().to_owned())).unwrap();
        let size = || header_page(&instance, &tracefs).as_deref().and_then(page_size);
        assert_eq!(size(), Some(4096));
        fs::write(instance.join("events/header_page"), text(16368)).unwrap();
        assert_eq!(size(), Some(16384));
    }
}
