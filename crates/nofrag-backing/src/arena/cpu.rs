//! The processor that this thread runs on, at the price of a load.
//!
//! Since glibc 2.35 every thread is registered for restartable sequences, and the kernel keeps the number of the
//! processor in the thread's own memory; `__rseq_offset` says where, from the thread pointer on. Elsewhere the C
//! library is asked.
//!
//! Source: docs/sources/backing.md#rseq.

use std::fs;

use nofrag::cpu::CpuSet;

use super::OwnerId;

/// Source of the processor's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The thread's registration for restartable sequences, `offset` bytes from the thread pointer.
    #[cfg(target_arch = "x86_64")]
    Rseq {
        offset: isize,
    },
    CLibrary,
}

/// The owner that serves each processor.
#[derive(Debug)]
pub(super) struct Processors {
    source: Source,
    /// Indexed by the number of the processor, which may have gaps.
    owners: Box<[OwnerId]>,
}

impl Processors {
    /// Gives each of the processors that the machine may have one of `owners` owners.
    pub(super) fn new(owners: u32) -> Processors {
        let set = possible();
        let last = set.iter().last().map_or(0, |cpu| cpu.id());
        let owner = |id| OwnerId(set.get(id).map_or(0, |cpu| cpu.rank() as u32 % owners));
        Processors { source: source(), owners: (0..=last).map(owner).collect() }
    }

    /// Returns the number of owners that gives each processor its own.
    pub(super) fn wanted() -> u32 {
        possible().len().max(1) as u32
    }

    /// Returns the owner that serves the current processor; the thread may run elsewhere a moment later.
    #[inline]
    pub(super) fn owner(&self) -> OwnerId {
        let cpu = match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Rseq { offset } => rseq_cpu(offset).or_else(c_library_cpu),
            Source::CLibrary => c_library_cpu(),
        };
        cpu.and_then(|cpu| self.owners.get(cpu as usize).copied()).unwrap_or(OwnerId(0))
    }

    /// Returns the same processors, with the number found by asking the C library.
    #[cfg(test)]
    fn without_rseq(&self) -> Processors {
        Processors { source: Source::CLibrary, owners: self.owners.clone() }
    }
}

fn c_library_cpu() -> Option<u32> {
    // SAFETY: the function takes no argument and changes nothing.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(not(target_arch = "x86_64"))]
fn source() -> Source {
    Source::CLibrary
}

#[cfg(target_arch = "x86_64")]
fn source() -> Source {
    // SAFETY: both names end with a zero byte; looking a name up changes nothing.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    // SAFETY: as above.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    if offset.is_null() || size.is_null() {
        return Source::CLibrary;
    }
    // SAFETY: glibc documents it as a constant `unsigned int`, and has set it before the program began.
    let size = unsafe { size.cast::<u32>().read() };
    // SAFETY: glibc documents it as a constant `ptrdiff_t`, and has set it before the program began.
    let offset = unsafe { offset.cast::<isize>().read() };
    // Size zero says that registration failed or was turned off.
    if size == 0 { Source::CLibrary } else { Source::Rseq { offset } }
}

/// Reads the field `cpu_id` of the thread's registration, four bytes from its beginning; `None` while the thread is not
/// registered, when the field is negative.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn rseq_cpu(offset: isize) -> Option<u32> {
    let cpu: i32;
    // SAFETY: glibc reserves the registration of every thread at this offset from the thread pointer, whether the
    // kernel took it or not; the load changes nothing.
    unsafe {
        std::arch::asm!(
            "mov {cpu:e}, fs:[{at}]",
            cpu = out(reg) cpu,
            at = in(reg) offset + 4,
            options(nostack, preserves_flags, readonly)
        );
    }
    u32::try_from(cpu).ok()
}

/// Returns the processors that the machine may have, from a list such as `0-3,8`.
fn possible() -> CpuSet {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let ids = parse(text.trim()).unwrap_or_else(|| vec![0]);
    CpuSet::new(ids).or_else(|_| CpuSet::first(1)).expect("room for one processor")
}

fn parse(list: &str) -> Option<Vec<u32>> {
    /// More processors than any kernel supports.
    const MOST: u32 = 1 << 16;
    let mut ids = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_may_have_gaps() {
        assert_eq!(parse("0-1,8"), Some(vec![0, 1, 8]));
        assert_eq!((parse(""), parse("0-x"), parse("0-4294967295")), (None, None, None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no `sched_getcpu`")]
    fn the_kernel_and_the_c_library_name_the_same_processor() {
        let processors = Processors::new(Processors::wanted());
        let slow = processors.without_rseq();
        // The thread may move between the two looks; not time after time.
        assert!((0..1000).any(|_| processors.owner() == slow.owner()));
        let set = possible();
        assert!(processors.owner().0 < set.len() as u32);
    }
}
