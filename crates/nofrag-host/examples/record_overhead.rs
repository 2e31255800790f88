//! Measures the cost of recording to the traced programs, and whether the recorder keeps up.
//!
//! `cargo run --release -p nofrag-host --example record_overhead -- overhead [PAIRS]` lets a thread that is bound to a
//! CPU map, touch and unmap memory page by page, in turns without and with a recording, and compares its CPU time for a
//! page. Each page is one event when it is taken and one when it is given back.
//!
//! `.. -- rate EVENTS_PER_SECOND [SECONDS]` lets a thread on every CPU do the same at a given pace, and prints the
//! number of lost events and the size of the file.
//!
//! Both need root and a tracefs.

use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nofrag_host::record::{
    Buffer, Bulk, Frames, Options, Output, Phase, Recorded, Selection, Until, Which, record,
};
use nofrag_host::recording::{Existing, Recording};
use rustix::thread::{
    CpuSet, disable_transparent_huge_pages, sched_getaffinity, sched_setaffinity,
};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of one mapping: more than the 32 MiB up to which the C library may keep freed memory instead of unmapping it.
const BYTES: usize = 33 << 20;
const PAGE: usize = 4096;
/// Duration of each of the two measurements of a pair: without and with a recording.
const SIDE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    // A huge page would be one event for 512 pages.
    disable_transparent_huge_pages(true)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    match arguments.first().map(String::as_str) {
        Some("overhead") => overhead(number(1, 7)?),
        Some("rate") => rate(number(1, 300_000)?, Duration::from_secs(number(2, 10)?)),
        _ => Err("say `overhead [PAIRS]` or `rate EVENTS_PER_SECOND [SECONDS]`".into()),
    }
}

fn options(output: &Path, time: Duration) -> Options {
    Options {
        until: Until::Elapsed(time),
        output: Output::Recording(output.to_owned()),
        existing: Existing::Replace,
        events: Selection::default(),
        bulk: Bulk::LeftOut,
        frames: Frames::LeftOut,
        with: Vec::new(),
        buffer: Buffer::Default,
        tracefs: Which::Mounted,
        instance: None,
    }
}

fn bind(cpu: usize) -> rustix::io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus)
}

/// Maps [`BYTES`] of memory, writes to each page and unmaps; returns the number of pages.
fn touch() -> u64 {
    let mut memory = vec![0_u8; BYTES];
    for page in memory.chunks_mut(PAGE) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
    (BYTES / PAGE) as u64
}

fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns this thread's CPU time for one page, in nanoseconds, measured over `time`.
fn touching(time: Duration) -> f64 {
    let (began, before) = (Instant::now(), thread_ns());
    let mut pages = 0;
    while began.elapsed() < time {
        pages += touch();
    }
    (thread_ns() - before) / pages as f64
}

fn overhead(pairs: u64) -> Result<(), Box<dyn Error>> {
    let output =
        std::env::temp_dir().join(format!("nofrag-overhead-{}.nofrag", std::process::id()));
    let anywhere = sched_getaffinity(None)?;
    bind(0)?;
    touching(SIDE / 4);
    let mut rows = Vec::new();
    for pair in 0..pairs {
        let without = touching(SIDE);
        let (with, recorded) = while_recorded(&output, &anywhere)?;
        rows.push((without, with));
        println!(
            "{pair}: {without:.0} -> {with:.0} ns CPU for a page, {:.1} ns for an event, +{:.1} %; \
             {:.0} events/s, {} lost",
            (with - without) / 2.0,
            100.0 * (with / without - 1.0),
            recorded.events as f64 / recorded.seconds,
            recorded.lost,
        );
    }
    let mut added: Vec<f64> = rows.iter().map(|(without, with)| (with - without) / 2.0).collect();
    let mut ratios: Vec<f64> = rows.iter().map(|(without, with)| with / without).collect();
    for values in [&mut added, &mut ratios] {
        values.sort_by(f64::total_cmp);
        println!(
            "median {:.3}, from {:.3} to {:.3}",
            values[values.len() / 2],
            values[0],
            values[values.len() - 1]
        );
    }
    std::fs::remove_file(output)?;
    Ok(())
}

/// Measures [`touching`] while a recording to `output` runs, whose recorder may use the CPUs of `anywhere`.
fn while_recorded(output: &Path, anywhere: &CpuSet) -> Result<(f64, Recorded), Box<dyn Error>> {
    let recording = AtomicBool::new(false);
    thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            // The recorder must not inherit the CPU to which the starting thread is bound.
            sched_setaffinity(None, anywhere).expect("it was so before");
            record(&options(output, SIDE + Duration::from_millis(300)), &|now| {
                recording.store(now.phase == Phase::Recording, Ordering::Relaxed);
            })
        });
        while !recording.load(Ordering::Relaxed) && !recorder.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let with = touching(SIDE);
        Ok((with, recorder.join().expect("the recorder does not panic")?))
    })
}

fn rate(events_per_second: u64, time: Duration) -> Result<(), Box<dyn Error>> {
    let output = std::env::temp_dir().join(format!("nofrag-rate-{}.nofrag", std::process::id()));
    let cpus = thread::available_parallelism()?.get();
    let ended = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let recorded = thread::scope(|scope| {
        for cpu in 0..cpus {
            let (ended, failed) = (&ended, &failed);
            scope.spawn(move || {
                if let Err(error) = bind(cpu) {
                    *failed.lock().expect("nobody panics with it") = Some(error);
                }
                let pages_per_second = events_per_second as f64 / 2.0 / cpus as f64;
                let began = Instant::now();
                let mut pages = 0;
                while !ended.load(Ordering::Relaxed) {
                    pages += touch();
                    let due = Duration::from_secs_f64(pages as f64 / pages_per_second);
                    thread::sleep(due.saturating_sub(began.elapsed()));
                }
            });
        }
        let recorded = record(&options(&output, time), &|_| {});
        ended.store(true, Ordering::Relaxed);
        recorded
    })?;
    if let Some(error) = failed.into_inner()? {
        return Err(error.into());
    }
    let sizes = Recording::open(&output)?.sizes();
    println!(
        "{} events in {:.2} s: {:.0} events/s on {cpus} CPUs; {} lost; raw {:.2} bytes/event, in the file {:.3}; \
         recorder {:.2} s of CPU time",
        recorded.events,
        recorded.seconds,
        recorded.events as f64 / recorded.seconds,
        recorded.lost,
        recorded.raw_bytes as f64 / recorded.events as f64,
        sizes.events as f64 / recorded.events as f64,
        recorded.recorder_cpu_seconds,
    );
    println!(
        "file {}: {} bytes, {} of them snapshots",
        output.display(),
        sizes.file,
        sizes.snapshots
    );
    std::fs::remove_file(output)?;
    Ok(())
}
