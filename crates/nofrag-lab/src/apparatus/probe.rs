//! A process whose mappings can be predicted.
//!
//! A [`Probe`] runs a program of a few hundred bytes, without randomisation, that maps nothing unless it is told to. So
//! the kernel's rules give the address of every mapping before it is made. Steps go there in batches, each with the
//! expected outcome; the probe stops at the first that has another one, with all areas as they were at that moment.
//! [`Probe::areas`] returns the areas that the kernel lists for it.
//!
//! The probe's own areas (its code, its buffers, its stack, the kernel's own) are noted at the start; a step that would
//! touch one is refused here and never sent. A probe ends when it is dropped, and when the process that started it ends
//! in any way: its socket is closed then.

use std::io;
use std::io::Write as _;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nofrag::mmap::{Direction, Layout, Protection, StackRule};
use nofrag::units::Vpn;
use nofrag_host::proc_maps::{self, Area};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

pub(crate) use rustix::io::Errno;

pub(crate) use super::image::Width;
use super::image::{BATCH, NOT_DONE, RECORD_WORDS, executable};

/// The most steps of one batch.
pub(crate) const MOST_STEPS: usize = BATCH;

/// The end of the addresses that a process places; areas above, such as `[vsyscall]`, are the kernel's.
const USER_END: u64 = 1 << 47;

/// The longest time to send a batch, or to wait for its answer. A step takes microseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The soft limit of the probe's stack, which is a part of the rule for `mmap_base`.
const STACK_LIMIT: u64 = 8 << 20;

/// A flag of x86; `libc` has it there alone.
const MAP_32BIT: i32 = 0x40;
/// A flag of x86, which no binding has yet.
const MAP_ABOVE4G: i32 = 0x80;

/// A mapping from this address on did not get the low hint that it asked for.
const LOWEST_AT_MOST: u64 = 16 << 20;

/// Bytes of the kernel's `stack_guard_gap`, unless the kernel was booted with another one.
const STACK_GUARD: u64 = 1 << 20;

/// The wanted place of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapAt {
    /// At an address that the kernel chooses.
    Anywhere,
    /// At this address if it is free, else where the kernel chooses.
    Hint(u64),
    /// In the low 2 GiB (`MAP_32BIT`).
    Low,
    /// Above the low 4 GiB (`MAP_ABOVE4G`, since Linux 6.6).
    Above4G,
    /// At this address, in place of any mapping there (`MAP_FIXED`).
    Fixed(u64),
    /// At this address, or nowhere (`MAP_FIXED_NOREPLACE`).
    Unless(u64),
}

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Plain,
    /// A stack, which grows down (`MAP_GROWSDOWN`), so that other mappings keep a distance from it.
    Stack,
}

/// An operation of the probe. Mappings are private, anonymous and `MAP_NORESERVE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Map { at: MapAt, kind: Kind, bytes: u64, protection: Protection },
    Unmap { start: u64, bytes: u64 },
    Protect { start: u64, bytes: u64, protection: Protection },
}

/// The outcome of an operation: the address of a mapping, zero for other operations, or the kernel's refusal.
pub(crate) type Outcome = Result<u64, Errno>;

/// An operation and its expected outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) expected: Outcome,
}

/// The first step of a batch with another outcome than expected; no step after it was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Number of the step in the batch, from 0.
    pub(crate) step: usize,
    pub(crate) outcome: Outcome,
}

/// Why there is no probe, or no longer one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ProbeError {
    /// This system does not allow a probe.
    #[error("{what} is refused here: {why}")]
    Unavailable {
        /// The thing that is refused.
        what: &'static str,
        why: io::Error,
    },
    /// The probe ended or no longer answers.
    #[error("the probe is lost: {0}")]
    Lost(io::Error),
    /// The step would have touched an area that the probe lives on; nothing of the batch was sent.
    #[error("{start:#x}-{end:#x} holds an area that the probe lives on")]
    OwnArea {
        /// First address of the step.
        start: u64,
        /// One above the last address of the step.
        end: u64,
    },
    /// More steps than [`MOST_STEPS`], or a batch before the last one was answered.
    #[error("a batch has at most {MOST_STEPS} steps, and one is answered before the next is sent")]
    NoRoom,
}

/// A process that maps only as it is told.
///
/// 1. No step touches an address of `own`, the areas of the process at its start.
/// 2. At most one batch is on its way.
#[derive(Debug)]
pub(crate) struct Probe {
    child: Child,
    socket: OwnedFd,
    width: Width,
    layout: Layout,
    own: Vec<Area>,
    /// The expected outcomes of the steps that are on their way.
    sent: Vec<u64>,
}

impl Probe {
    /// Starts a process with addresses of this width in which mappings go in this direction.
    ///
    /// # Errors
    /// [`ProbeError::Unavailable`] on other processors than x86-64, and where the system refuses a requirement, such as
    /// a personality without randomisation or 32-bit programs.
    pub(crate) fn start(width: Width, direction: Direction) -> Result<Probe, ProbeError> {
        let unavailable = |what| move |why: io::Error| ProbeError::Unavailable { what, why };
        refuse_host(direction)?;
        let stack_limit = stack_limit();
        let program = write_program(width).map_err(unavailable("a program in memory"))?;
        let (ours, theirs) = sockets().map_err(unavailable("a socket pair"))?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec only system calls are made, which take no lock and touch no memory of ours.
        unsafe { command.pre_exec(move || settle(direction, stack_limit)) };
        let what = match width {
            Width::Bits64 => "a process without randomisation",
            Width::Bits32 => "a 32-bit process without randomisation",
        };
        let child = command.spawn().map_err(unavailable(what))?;
        // From here on the child is ended with the probe, also when the start fails.
        let layout = layout(width, direction, stack_limit);
        let mut probe =
            Probe { child, socket: ours, width, layout, own: Vec::new(), sent: Vec::new() };
        // The answer proves that the new program runs, so that its areas are complete.
        let nothing = Operation::Unmap { start: 0, bytes: 0 };
        let first = probe.run(&[Step { operation: nothing, expected: Err(Errno::INVAL) }]);
        // A program that never answers was ended by the system, for example by a filter that lets no 32-bit system
        // calls through.
        first.map_err(|error| match error {
            ProbeError::Lost(why) => unavailable(what)(why),
            other => other,
        })?;
        probe.layout.floor = probe.lowest()?;
        probe.own = probe.areas().map_err(unavailable("reading /proc/PID/maps of a child"))?;
        Ok(probe)
    }

    /// Finds the lowest page that may be mapped: the place of a mapping with a lower hint. `vm.mmap_min_addr` is not
    /// enough, for a security module may have a higher minimum.
    fn lowest(&mut self) -> Result<Vpn, ProbeError> {
        let (bytes, protection) = (4096, Protection::NONE);
        let (at, kind) = (MapAt::Hint(4096), Kind::Plain);
        let operation = Operation::Map { at, kind, bytes, protection };
        // No mapping begins at an odd address, so the answer always differs.
        let Some(Difference { outcome: Ok(start), .. }) =
            self.run(&[Step { operation, expected: Ok(1) }])?
        else {
            return Ok(self.layout.floor);
        };
        let undone = Operation::Unmap { start, bytes };
        self.run(&[Step { operation: undone, expected: Ok(0) }])?;
        Ok(if start < LOWEST_AT_MOST { Vpn(start >> 12) } else { self.layout.floor })
    }

    /// Returns the bounds of the kernel's searches in this process: the rule for `mmap_base` without random part, and
    /// the lowest address that may be mapped as the floor.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the areas of the process before the first step.
    pub(crate) fn own(&self) -> &[Area] {
        &self.own
    }

    /// Returns the present areas of the process, ascending.
    ///
    /// # Errors
    /// The system refuses, or the process has gone.
    pub(crate) fn areas(&self) -> io::Result<Vec<Area>> {
        let file = std::fs::File::open(format!("/proc/{}/maps", self.process_id()))?;
        let parsed = proc_maps::parse(io::BufReader::new(file))?;
        if let Some(malformed) = parsed.malformed.first() {
            return Err(io::Error::other(malformed.to_string()));
        }
        Ok(parsed.areas.into_iter().filter(|area| area.start < USER_END).collect())
    }

    /// Returns the process ID of the probe.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the time that the process has run on a processor, nearly all of it in system calls; `None` where the
    /// system does not tell.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/schedstat", self.process_id())).ok()?;
        Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
    }

    /// Carries steps out, up to the first with another outcome than expected.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub(crate) fn run(&mut self, steps: &[Step]) -> Result<Option<Difference>, ProbeError> {
        self.send(steps)?;
        self.receive()
    }

    /// Sends steps, which the probe begins at once; [`receive`](Self::receive) waits for its answer.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub(crate) fn send(&mut self, steps: &[Step]) -> Result<(), ProbeError> {
        if steps.is_empty() || steps.len() > MOST_STEPS || !self.sent.is_empty() {
            return Err(ProbeError::NoRoom);
        }
        let mut bytes = Vec::new();
        for step in steps {
            self.refuse_own(&step.operation)?;
            let record = self.record(step);
            bytes.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        }
        self.sent = steps.iter().map(|step| self.encode(step.expected)).collect();
        // A probe that has ended is an error to report, not a signal that ends this process too.
        let written = retry_on_intr(|| send(&self.socket, &bytes, SendFlags::NOSIGNAL));
        let written = written.map_err(lost)?;
        if written == bytes.len() { Ok(()) } else { Err(lost(Errno::MSGSIZE)) }
    }

    /// Returns the first of the sent steps with another outcome than expected, if any.
    ///
    /// # Errors
    /// [`ProbeError::Lost`].
    pub(crate) fn receive(&mut self) -> Result<Option<Difference>, ProbeError> {
        let sent = std::mem::take(&mut self.sent);
        let mut bytes = [0; 8 * MOST_STEPS];
        // A stop and a continuation interrupt calls with a time limit, without any handler.
        let read = retry_on_intr(|| recv(&self.socket, &mut bytes[..], RecvFlags::empty()));
        let (read, _) = read.map_err(lost)?;
        if read != 8 * sent.len() {
            return Err(lost(Errno::PIPE));
        }
        let word = |at: usize| {
            let word = bytes[8 * at..].first_chunk().expect("the answer is as long as checked");
            u64::from_le_bytes(*word)
        };
        let differs = (0..sent.len()).find(|&at| word(at) != sent[at]);
        debug_assert!(differs.is_none_or(|at| at + 1 == sent.len() || word(at + 1) == NOT_DONE));
        Ok(differs.map(|at| Difference { step: at, outcome: self.decode(word(at)) }))
    }

    fn refuse_own(&self, operation: &Operation) -> Result<(), ProbeError> {
        let Some(Range { start, end }) = touched(operation, self.width) else { return Ok(()) };
        // A range that overflows is the kernel's to refuse; here it counts as reaching up to the end.
        if self.own.iter().any(|area| area.start < end && start < area.end) {
            return Err(ProbeError::OwnArea { start, end });
        }
        Ok(())
    }

    /// Encodes a step as the program reads it.
    fn record(&self, step: &Step) -> [u64; RECORD_WORDS] {
        let [map, protect, unmap] = match self.width {
            Width::Bits64 => [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap],
            Width::Bits32 => [192, 125, 91],
        };
        let expected = self.encode(step.expected);
        let no_file = u64::MAX;
        match step.operation {
            Operation::Map { at, kind, bytes, protection } => {
                let (hint, flags) = match at {
                    MapAt::Anywhere => (0, 0),
                    MapAt::Hint(hint) => (hint, 0),
                    MapAt::Low => (0, MAP_32BIT),
                    MapAt::Above4G => (0, MAP_ABOVE4G),
                    MapAt::Fixed(start) => (start, libc::MAP_FIXED),
                    MapAt::Unless(start) => (start, libc::MAP_FIXED_NOREPLACE),
                };
                let kind = match kind {
                    Kind::Plain => 0,
                    Kind::Stack => libc::MAP_GROWSDOWN,
                };
                let usual = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                let flags = flags | kind | usual;
                let protection = u64::from(protection.0);
                [map as u64, hint, bytes, protection, flags as u64, no_file, 0, expected]
            }
            Operation::Unmap { start, bytes } => [unmap as u64, start, bytes, 0, 0, 0, 0, expected],
            Operation::Protect { start, bytes, protection } => {
                [protect as u64, start, bytes, u64::from(protection.0), 0, 0, 0, expected]
            }
        }
    }

    /// Encodes an outcome as the kernel returns it: a refusal is its number, negated, in the width of a register.
    fn encode(&self, outcome: Outcome) -> u64 {
        match (outcome, self.width) {
            (Ok(value), _) => value,
            (Err(errno), Width::Bits64) => i64::from(-errno.raw_os_error()) as u64,
            (Err(errno), Width::Bits32) => u64::from(-errno.raw_os_error() as u32),
        }
    }

    fn decode(&self, word: u64) -> Outcome {
        let signed = match self.width {
            Width::Bits64 => word as i64,
            Width::Bits32 => i64::from(word as u32 as i32),
        };
        if (-4095..0).contains(&signed) {
            Err(Errno::from_raw_os_error(-signed as i32))
        } else {
            Ok(word)
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The process may have ended already; either way nothing of it remains after the wait.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lost(errno: Errno) -> ProbeError {
    ProbeError::Lost(errno.into())
}

/// Returns the addresses that an operation changes even if they are in use; `None` if it changes only free ones.
fn touched(operation: &Operation, width: Width) -> Option<Range<u64>> {
    let (start, bytes) = match *operation {
        Operation::Map { at: MapAt::Fixed(start), bytes, .. } => (start, bytes),
        Operation::Map { .. } => return None,
        Operation::Unmap { start, bytes } | Operation::Protect { start, bytes, .. } => {
            (start, bytes)
        }
    };
    // A register of 32 bits takes no more of either number.
    let (start, bytes) = match width {
        Width::Bits64 => (start, bytes),
        Width::Bits32 => (u64::from(start as u32), u64::from(bytes as u32)),
    };
    // The kernel rounds the length up to whole pages.
    let end = start.saturating_add(bytes.checked_next_multiple_of(4096).unwrap_or(u64::MAX));
    Some(start..end)
}

/// Writes the program as an executable file without a name.
fn write_program(width: Width) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create("nofrag-probe", MemfdFlags::CLOEXEC)?);
    file.write_all(&executable(width))?;
    // A file that is open for writing cannot be executed.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(std::fs::File::open(path)?.into())
}

/// Makes both ends of a channel that keeps batches apart: ours, then the probe's.
fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for timeout in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&ours, timeout, Some(PATIENCE))?;
    }
    Ok((ours, theirs))
}

/// Refuses a processor for which the program is not written; and hosts on which the system's answers depend on more
/// than addresses: limits of bytes that the probe would inherit and may not raise, and a layout of the whole host.
fn refuse_host(direction: Direction) -> Result<(), ProbeError> {
    let refuse = |what| {
        let why = io::ErrorKind::Unsupported.into();
        Err(ProbeError::Unavailable { what, why })
    };
    if !cfg!(target_arch = "x86_64") {
        return refuse("a processor of x86-64");
    }
    if BYTE_LIMITS.iter().any(|&limit| getrlimit(limit).maximum.is_some()) {
        return refuse("a process without hard limits of bytes (ulimit -v, ulimit -d)");
    }
    let legacy = std::fs::read_to_string("/proc/sys/vm/legacy_va_layout").unwrap_or_default();
    if direction == Direction::Down && !matches!(legacy.trim(), "" | "0") {
        return refuse("the usual layout, which vm.legacy_va_layout turns off,");
    }
    Ok(())
}

/// Limits that make mappings fail though there is room for them.
const BYTE_LIMITS: [Resource; 2] = [Resource::As, Resource::Data];

/// Returns the soft limit of the probe's stack.
fn stack_limit() -> u64 {
    getrlimit(Resource::Stack).maximum.unwrap_or(u64::MAX).min(STACK_LIMIT)
}

/// Sets the child's limits and its personality (no randomisation, the layout for `direction`) between fork and exec.
fn settle(direction: Direction, stack_limit: u64) -> io::Result<()> {
    let maximum = getrlimit(Resource::Stack).maximum;
    setrlimit(Resource::Stack, Rlimit { current: Some(stack_limit), maximum })?;
    for limit in BYTE_LIMITS {
        setrlimit(limit, Rlimit { current: None, maximum: None })?;
    }
    let legacy = match direction {
        Direction::Up => libc::ADDR_COMPAT_LAYOUT,
        Direction::Down => 0,
    };
    let persona = libc::ADDR_NO_RANDOMIZE | legacy;
    // SAFETY: the call takes a number and touches no memory; its result is checked.
    let before = unsafe { libc::personality(persona as libc::c_ulong) };
    if before == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn layout(width: Width, direction: Direction, stack_limit: u64) -> Layout {
    let layout = match width {
        Width::Bits64 => Layout::X86_64,
        Width::Bits32 => Layout::COMPAT_UP,
    };
    let rule = StackRule { stack_limit, stack_random: 0, guard: STACK_GUARD, random: 0 };
    let extended_end = layout.extended_end.filter(|_| has_five_levels());
    Layout { direction, extended_end, ..layout }.with_stack(&rule)
}

/// Returns true if page tables have the fifth level, without which no hint opens the space beyond 47 bits.
fn has_five_levels() -> bool {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processors.lines().any(|line| line.starts_with("flags") && line.contains(" la57"))
}
