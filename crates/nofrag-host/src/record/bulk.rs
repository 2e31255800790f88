//! Probes on the kernel's bulk interface, which has no tracepoint (`bulk` of [`crate::trace`] describes their records).
//!
//! The probes are made through tracefs alone, in a group of their own, and are enabled in the recorder's own instance
//! only. A probe at the entry records the array before the call. The array after the call must be read when the call
//! returns, and by then the registers with its address have other values. Kernels that keep a call's arguments for its
//! return (6.9 on) need one probe at the return; on older ones (5.15 on) a histogram hands the arguments from the entry
//! to the return, by thread, as a synthetic event, and an event probe on that event reads the array.
//!
//! 1. Only the group and, on older kernels, a synthetic event named after it, are made; both are removed by
//!    [`BulkProbes::remove`], and by a drop of [`BulkProbes`], which must come after the instance is gone: the kernel
//!    keeps probes that are enabled in any instance.
//! 2. After `SIGKILL` the probes stay, and cost a little at each call, until the next start finds that their process
//!    has ended.
//! 3. Pages that were handed out and could not be read are counted: each return gives the number of pages.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::btf::Types;
use super::error::RecordError;
use super::instance::{Instance, own_name, owner};
use super::tracefs::Tracefs;
use super::whole::read_whole;
use crate::process::started;
use crate::trace::{BULK_ENTER, BULK_ENTRIES, BULK_LEAVE, BULK_PAGES, BULK_PARTS, Format};

/// Names of the kernel function that hands out pages in bulk, the oldest first.
const FUNCTIONS: [&str; 2] = ["__alloc_pages_bulk", "alloc_pages_bulk_noprof"];
/// Parameters of the function under its first name, for kernels that do not describe their types.
const PARAMETERS: [&str; 6] =
    ["gfp", "preferred_nid", "nodemask", "nr_pages", "page_list", "page_array"];
/// Symbol with the address of the table of `struct page`.
const TABLE: &str = "vmemmap_base";
/// Bytes of a `struct page` on x86-64, for kernels that do not describe their types.
const PAGE_BYTES: u32 = 64;
/// Number of calls of the function that may be under way at a time. Further calls are missed, and the kernel counts
/// them.
const CALLS: u32 = 256;
/// Threads that a histogram can tell apart. Calls by further threads are counted, but their pages are not read.
const THREADS: u32 = 1 << 15;

/// The file of tracefs that takes the commands that make and remove probes.
const EVENTS: &str = "dynamic_events";

/// The choice whether the bulk interface is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Bulk {
    /// Not recorded: tracepoints do not cover it.
    #[default]
    LeftOut,
    /// Recorded by probes that are made for it and removed again.
    Recorded,
}

/// The source of the address of a call's array when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    Arguments,
    Histogram,
}

impl Return {
    /// Decides by the `README` of tracefs, which tells since 6.9 what a probe on a return can fetch.
    fn of(readme: &str) -> Return {
        let fetches = readme.lines().find(|line| line.contains("kernel return probes support"));
        match fetches.is_some_and(|line| line.contains("$arg<N>")) {
            true => Return::Arguments,
            false => Return::Histogram,
        }
    }
}

/// The probed function and the place of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    name: &'static str,
    /// Number of the parameter `gfp`, from 1; the next two are those of `nr_pages` and `page_array`.
    gfp: usize,
    asked: usize,
    array: usize,
    page_bytes: u32,
}

#[derive(Debug)]
pub(super) struct BulkProbes {
    events: PathBuf,
    group: String,
    how: Return,
    /// The lines that remove the probes, in the order in which the probes were made.
    made: Vec<String>,
}

impl BulkProbes {
    /// Makes the probes, if they are wanted; nothing is traced yet.
    pub(super) fn wanted(bulk: Bulk, tracefs: &Tracefs) -> Result<Option<BulkProbes>, RecordError> {
        match bulk {
            Bulk::LeftOut => Ok(None),
            Bulk::Recorded => BulkProbes::make(tracefs).map(Some),
        }
    }

    fn make(tracefs: &Tracefs) -> Result<BulkProbes, RecordError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(refused("nofrag knows the registers of x86-64 only"));
        }
        let events = tracefs.file(EVENTS);
        if !tracefs.file("kprobe_events").exists() || !events.exists() {
            return Err(refused(
                "this kernel lets nobody make probes through tracefs: it was built without CONFIG_KPROBE_EVENTS, which \
                 the kernels of distributions have",
            ));
        }
        let function = Function::find()?;
        let group = own_name().replace('-', "_");
        let how = Return::of(&tracefs.text("README").unwrap_or_default());
        // From here on an error removes the probes made so far.
        let mut probes = BulkProbes { events, group: group.clone(), how, made: Vec::new() };
        let [enter, leave, pages] =
            [BULK_ENTER, BULK_LEAVE, BULK_PAGES].map(|name| format!("-:{group}/{name}"));
        probes.add(&function.enter(&group), enter, tracefs)?;
        match how {
            Return::Arguments => probes.add(&function.returned(&group), pages, tracefs)?,
            Return::Histogram => {
                probes.add(&function.left(&group), leave, tracefs)?;
                probes.add(&handed_on(&group), format!("-:synthetic/{group}"), tracefs)?;
                probes.add(&function.read_later(&group), pages, tracefs)?;
            }
        }
        Ok(probes)
    }

    fn add(&mut self, line: &str, removal: String, tracefs: &Tracefs) -> Result<(), RecordError> {
        match append(&self.events, line) {
            Ok(()) => {
                self.made.push(removal);
                Ok(())
            }
            Err(cause) if is_denial(&cause) => Err(refused(&format!(
                "{}: {cause}: making probes is forbidden here, as kernel lockdown does, which Secure Boot may switch \
                 on (/sys/kernel/security/lockdown says so)",
                self.events.display()
            ))),
            Err(cause) => {
                let log = tracefs.text("error_log").unwrap_or_default();
                let said = log.lines().rfind(|line| line.contains("error:")).unwrap_or("");
                let needs = match self.how {
                    Return::Arguments => "",
                    Return::Histogram => {
                        "; before Linux 6.9 this needs event probes (5.15 on) and CONFIG_HIST_TRIGGERS"
                    }
                };
                Err(refused(&format!("the kernel refuses `{line}`: {cause} {said}{needs}")))
            }
        }
    }

    /// Switches the probes on in the instance. Returns their `format` files, as text and parsed.
    pub(super) fn enable(&self, instance: &Instance) -> Result<Vec<(String, Format)>, RecordError> {
        let group = &self.group;
        let names: &[&str] = match self.how {
            Return::Arguments => &[BULK_ENTER, BULK_PAGES],
            Return::Histogram => {
                let trigger = |name: &str, text: String| {
                    let file = format!("events/{group}/{name}/trigger");
                    instance.set(&file, &text, "the histogram for --bulk cannot be made")
                };
                trigger(BULK_ENTER, keeps())?;
                trigger(BULK_LEAVE, hands_on(group))?;
                &[BULK_ENTER, BULK_LEAVE, BULK_PAGES]
            }
        };
        let mut formats = Vec::new();
        for name in names {
            let file = format!("events/{group}/{name}/format");
            let what = "the format of a probe cannot be read";
            let unread = || instance.path().join(&file);
            let text = instance.text(&file).map_err(RecordError::instance(&unread(), what))?;
            let format = Format::parse(&text).map_err(io::Error::other);
            let format = format.map_err(RecordError::instance(&unread(), what))?;
            let enable = format!("events/{group}/{name}/enable");
            instance.set(&enable, "1", "a probe cannot be switched on")?;
            formats.push((text, format));
        }
        Ok(formats)
    }

    /// Returns the number of calls that the probes missed, by `kprobe_profile`, as a sentence; `None` if they missed
    /// none.
    pub(super) fn missed(profile: &str) -> Option<String> {
        let missed = missed_in(profile);
        (missed > 0).then(|| {
            format!(
                "{missed} calls of the bulk interface were missed by the probes (too many were under way): what they \
                 handed out is not in the recording"
            )
        })
    }

    /// Removes the probes. Every instance in which they were enabled must be gone.
    ///
    /// # Errors
    /// [`RecordError::Instance`] if a probe cannot be removed.
    pub(super) fn remove(mut self) -> Result<(), RecordError> {
        self.take_away().map_err(RecordError::instance(
            &self.events,
            "the probes of --bulk could not be removed; the next start of `nofrag record` tries again",
        ))
    }

    fn take_away(&mut self) -> io::Result<()> {
        let mut outcome = Ok(());
        while let Some(removal) = self.made.pop() {
            outcome = outcome.and(append(&self.events, &removal));
        }
        outcome
    }
}

impl Drop for BulkProbes {
    fn drop(&mut self) {
        // `remove` reports the error; a drop cannot.
        let _ = self.take_away();
    }
}

/// Takes the histograms of the process with this number and start time out of an instance, which otherwise cannot be
/// removed.
pub(super) fn clear_histograms(instance: &Path, (pid, then): (u32, u64)) {
    let Ok(groups) = fs::read_dir(instance.join("events")) else { return };
    let names = groups.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let own = names.filter(|group| owner(&group.replace('_', "-")) == Some((pid, then)));
    for group in own {
        // The histogram that reads the other's entries goes first. Newer kernels need none and have no such files.
        for (name, text) in [(BULK_LEAVE, hands_on(&group)), (BULK_ENTER, keeps())] {
            let trigger = instance.join(format!("events/{group}/{name}/trigger"));
            let has_it = fs::read_to_string(&trigger).is_ok_and(|now| now.starts_with("hist:"));
            if has_it {
                let _ = append(&trigger, &format!("!{text}"));
            }
        }
    }
}

/// Removes the probes of recorders that were killed. The kernel keeps the probes that are in use.
pub(super) fn remove_stale_probes(tracefs: &Tracefs) {
    let listed = tracefs.text(EVENTS).unwrap_or_default();
    // Later probes depend on earlier ones.
    for removal in stale(&listed, started).iter().rev() {
        let _ = append(&tracefs.file(EVENTS), removal);
    }
}

/// Returns the lines that remove the probes in this list whose process has ended, in the order of the list.
fn stale(listed: &str, started: impl Fn(u32) -> Option<u64>) -> Vec<String> {
    let events = listed.lines().filter_map(|line| {
        let event = line.split_once(':')?.1.split_whitespace().next()?;
        let (group, name) = event.split_once('/')?;
        let of = if group == "synthetic" { name } else { group };
        let (pid, then) = owner(&of.replace('_', "-"))?;
        (started(pid) != Some(then)).then(|| format!("-:{group}/{name}"))
    });
    events.collect()
}

/// Returns the misses of our probes in `kprobe_profile`, which has lines of a name, hits and misses.
fn missed_in(profile: &str) -> u64 {
    let ours = profile.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?;
        [BULK_ENTER, BULK_LEAVE, BULK_PAGES]
            .contains(&name)
            .then(|| words.nth(1)?.parse::<u64>().ok())?
    });
    ours.sum::<u64>()
}

fn refused(why: &str) -> RecordError {
    RecordError::Bulk { why: why.to_owned() }
}

fn is_denial(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::PermissionDenied
}

/// Adds a line to a file that takes commands; a write that replaced the file would remove the probes of all users.
fn append(path: &Path, line: &str) -> io::Result<()> {
    File::options().append(true).open(path)?.write_all(format!("{line}\n").as_bytes())
}

impl Function {
    /// Finds the function in the running kernel.
    fn find() -> Result<Function, RecordError> {
        let symbols = read_whole(Path::new("/proc/kallsyms")).unwrap_or_default();
        let symbols = String::from_utf8_lossy(&symbols);
        let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
        Function::among(&symbols, Types::parse(&types).as_ref()).map_err(|why| refused(&why))
    }

    /// Finds the function in a kernel with these symbols, as in `/proc/kallsyms`, and these types, if the kernel
    /// describes its types.
    fn among(symbols: &str, types: Option<&Types<'_>>) -> Result<Function, String> {
        let names = || symbols.lines().filter_map(|line| line.split_ascii_whitespace().nth(2));
        let Some(name) = FUNCTIONS.into_iter().find(|name| names().any(|known| known == *name))
        else {
            return Err(format!(
                "none of the functions {} is among this kernel's symbols (/proc/kallsyms); before Linux 5.13 there is \
                 no bulk interface, and a recording without --bulk lacks nothing of it",
                FUNCTIONS.join(", ")
            ));
        };
        if !names().any(|known| known == TABLE) {
            return Err(format!(
                "`{TABLE}` is not among this kernel's symbols (/proc/kallsyms), so that frames cannot be told from the \
                 addresses of their descriptions"
            ));
        }
        let described = types.and_then(|types| types.parameters(name));
        let parameters = match described {
            Some(parameters) => parameters,
            None if name == FUNCTIONS[0] => PARAMETERS.to_vec(),
            None => {
                return Err(format!(
                    "the parameters of {name} differ between kernels, and this one does not describe its types \
                     (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)"
                ));
            }
        };
        let number = |parameter: &str| match parameters.iter().position(|known| *known == parameter)
        {
            Some(at) => Ok(at + 1),
            None => Err(format!(
                "{name} has no parameter `{parameter}` in this kernel, but {}: nofrag does not know this version of it",
                parameters.join(", ")
            )),
        };
        Ok(Function {
            name,
            gfp: number("gfp")?,
            asked: number("nr_pages")?,
            array: number("page_array")?,
            page_bytes: types.and_then(|types| types.size("page")).unwrap_or(PAGE_BYTES),
        })
    }

    /// Returns the line for [`EVENTS`] that makes the probe on the call.
    fn enter(&self, group: &str) -> String {
        format!("p:{group}/{BULK_ENTER} {} {}", self.name, self.arguments())
    }

    /// Returns the line for [`EVENTS`] that makes the probe on the return, for a kernel that keeps the arguments.
    fn returned(&self, group: &str) -> String {
        let arguments = self.arguments();
        format!("r{CALLS}:{group}/{BULK_PAGES} {} filled=$retval:u64 {arguments}", self.name)
    }

    /// Returns the line for [`EVENTS`] that makes the probe on the return, for a kernel that does not keep the
    /// arguments.
    fn left(&self, group: &str) -> String {
        format!("r{CALLS}:{group}/{BULK_LEAVE} {} filled=$retval:u64", self.name)
    }

    fn arguments(&self) -> String {
        let Function { gfp, asked, array, page_bytes, .. } = self;
        format!(
            "gfp=$arg{gfp}:u32 nr=$arg{asked}:s32 array=$arg{array}:u64 base=@{TABLE}:u64 \
             page_bytes=\\{page_bytes}:u32 {}",
            parts(&format!("$arg{array}"))
        )
    }

    /// Returns the line for [`EVENTS`] that makes the probe on the event by which a histogram hands on the arguments.
    fn read_later(&self, group: &str) -> String {
        format!(
            "e:{group}/{BULK_PAGES} synthetic.{group} filled=$filled:u64 gfp=$gfp:u32 nr=$nr:s32 array=$array:u64 \
             base=$base:u64 page_bytes=\\{}:u32 {}",
            self.page_bytes,
            parts("$array")
        )
    }
}

/// Returns the fields of a probe that record the array of pages at `address`, [`BULK_ENTRIES`] entries each.
fn parts(address: &str) -> String {
    let fields = BULK_PARTS.iter().enumerate().map(|(number, name)| {
        format!("{name}=+{}({address}):u64[{BULK_ENTRIES}]", 8 * BULK_ENTRIES * number)
    });
    fields.collect::<Vec<_>>().join(" ")
}

/// Returns the line for [`EVENTS`] that makes the event by which a histogram hands on the arguments.
fn handed_on(group: &str) -> String {
    format!("s:{group} u64 filled; u32 gfp; s32 nr; u64 array; u64 base")
}

/// Returns the trigger of the histogram that keeps the arguments of a call, by thread.
fn keeps() -> String {
    format!("hist:keys=common_pid:g=gfp,n=nr,a=array,b=base:size={THREADS}")
}

/// Returns the trigger of the histogram that hands the arguments on when the call returns.
fn hands_on(group: &str) -> String {
    format!(
        "hist:keys=common_pid:f=filled:size={THREADS}:onmatch({group}.{BULK_ENTER}).trace({group},$f,$g,$n,$a,$b)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS_6_1: &str = "ffffffff8cee8bd0 T __alloc_pages_bulk\n\
                               ffffffff8df98470 D vmemmap_base\n\
                               ffffffffc0001000 t odd [module]\n";

    #[test]
    fn the_function_is_known_by_its_names_and_parameters() {
        let function = Function::among(SYMBOLS_6_1, None).unwrap();
        let expected =
            Function { name: FUNCTIONS[0], gfp: 1, asked: 4, array: 6, page_bytes: PAGE_BYTES };
        assert_eq!(function, expected);
        let check_refused = |symbols: &str, why: &str| {
            let refused = Function::among(symbols, None).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        };
        check_refused("0 T vmemmap_base\n", "before Linux 5.13");
        check_refused("0 T __alloc_pages_bulk\n", "`vmemmap_base` is not among");
        // Without the kernel's types the place of this function's array is unknown.
        check_refused("0 T alloc_pages_bulk_noprof\n0 D vmemmap_base\n", "CONFIG_DEBUG_INFO_BTF");
    }

    /// Finds the running kernel's own function where it describes its types.
    #[test]
    fn the_running_kernels_function_is_understood() {
        let names = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let has_it = |line: &str| FUNCTIONS.iter().any(|name| line.ends_with(&format!(" {name}")));
        let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
        let Some(types) = Types::parse(&types).filter(|_| names.lines().any(has_it)) else {
            return eprintln!(
                "skipped: this kernel has no bulk interface, or does not describe its types"
            );
        };
        let symbols = format!("{names}\n0 D {TABLE}\n");
        let function = Function::among(&symbols, Some(&types)).unwrap();
        assert_eq!((function.gfp, function.asked), (1, 4));
        assert!([5, 6].contains(&function.array), "{function:?}");
    }

    #[test]
    fn probes_are_as_the_kernel_takes_them() {
        let function = Function::among(SYMBOLS_6_1, None).unwrap();
        assert_eq!(
            function.returned("g"),
            "r256:g/nofrag_bulk_pages __alloc_pages_bulk filled=$retval:u64 gfp=$arg1:u32 nr=$arg4:s32 \
             array=$arg6:u64 base=@vmemmap_base:u64 page_bytes=\\64:u32 pages0=+0($arg6):u64[64] \
             pages1=+512($arg6):u64[64]"
        );
        // The kernel takes no longer lines, and no longer names.
        assert!(function.read_later("nofrag_4194304_99999999999_99").len() < 1024);
        assert!("nofrag_4194304_99999999999_99".len() < 64);
    }

    #[test]
    fn the_readme_says_how_an_array_is_found_again() {
        let line = "    kernel return probes support: $retval, $arg<N>, $comm\n";
        assert_eq!(Return::of(line), Return::Arguments);
        assert_eq!(Return::of("    $retval, $comm\n"), Return::Histogram);
    }

    #[test]
    fn only_probes_of_dead_recorders_are_stale() {
        let listed = "p:nofrag_7_100_0/nofrag_bulk_enter f gfp=$arg1:u32\n\
                      r256:nofrag_7_100_0/nofrag_bulk_leave f\n\
                      s:synthetic/nofrag_7_100_0\tu64 filled\n\
                      p:nofrag_8_100_0/nofrag_bulk_enter f\n\
                      p:nofrag_9_100_0/nofrag_bulk_enter f\n\
                      p:mine/nofrag_bulk_enter f\n\
                      s:synthetic/wakeup u64 lat\n";
        let started = |pid: u32| match pid {
            8 => Some(100),
            // Another process has the number by now.
            9 => Some(200),
            _ => None,
        };
        let expected = [
            "-:nofrag_7_100_0/nofrag_bulk_enter",
            "-:nofrag_7_100_0/nofrag_bulk_leave",
            "-:synthetic/nofrag_7_100_0",
            "-:nofrag_9_100_0/nofrag_bulk_enter",
        ];
        assert_eq!(stale(listed, started), expected);
    }

    #[test]
    fn misses_of_our_probes_are_added_up() {
        let profile = "  nofrag_bulk_enter                      16               3\n\
                       \u{20} others                                 16             100\n\
                       \u{20} nofrag_bulk_pages                      16               2\n";
        assert_eq!(missed_in(profile), 5);
        assert_eq!(missed_in("nofrag_bulk_pages\n"), 0);
    }
}
