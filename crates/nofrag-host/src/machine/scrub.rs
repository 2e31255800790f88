//! Takes facts out of the kernel's files that an analysis of fragmentation does not need: names, addresses, the builder
//! of the kernel. Pure functions of a text.

use std::collections::BTreeMap;

use crate::fields;

/// Keeps `Linux version RELEASE`: the builder, place and tools of the build are left out.
pub(super) fn version(text: &str) -> String {
    let words: Vec<&str> = text.split_ascii_whitespace().take(3).collect();
    words.join(" ") + "\n"
}

/// Keeps the lines of memory in `/proc/iomem`; devices, and the place of the kernel, are left out.
pub(crate) fn iomem(text: &str) -> String {
    keep_lines(text, |line| line.ends_with(" : System RAM") && !line.starts_with(' '))
}

fn keep_lines(text: &str, is_kept: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|line| is_kept(line)).map(|line| format!("{line}\n")).collect()
}

/// Keeps `/proc/vmallocinfo` with zeros for kernel addresses and without physical ones. Sizes, callers, kinds and pages
/// stay; a line that does not begin with a range is left out, as its contents are unknown.
pub(crate) fn vmallocinfo(text: &str) -> String {
    const ZEROS: &str = "0x0000000000000000-0x0000000000000000";
    areas(text, |_| ZEROS)
}

/// Does the same as [`vmallocinfo`], but keeps the ranges of areas as the kernel shows them.
pub(super) fn vmallocinfo_with_addresses(text: &str) -> String {
    areas(text, |range| range)
}

fn areas(text: &str, kept: for<'a> fn(&'a str) -> &'a str) -> String {
    let scrubbed = text.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let is_address = |text: &str| text.starts_with("0x") || text.contains("ptr");
        if !is_address(start) || !is_address(end) {
            return None;
        }
        let words = rest.split(' ').filter(|word| !word.starts_with("phys="));
        // For a function without a name the kernel prints the address.
        let words = words.map(|word| if word.starts_with("0x") { "0x0" } else { word });
        Some(format!("{} {}\n", kept(range), words.collect::<Vec<_>>().join(" ")))
    });
    scrubbed.collect()
}

/// Numbers that stand for the names of files and areas: the same name becomes the same number in every file.
#[derive(Debug, Default)]
pub(super) struct Renamed(BTreeMap<String, usize>);

impl Renamed {
    fn number(&mut self, name: &str) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(name.to_owned()).or_insert(next)
    }

    /// Keeps `/proc/PID/maps` with numbers for names and inodes. Ranges, access and offsets stay, and so do the names
    /// that the kernel itself gives: `[heap]`, `[stack]`.
    pub(super) fn maps(&mut self, text: &str) -> String {
        text.lines().filter_map(|line| self.maps_line(line)).collect()
    }

    fn maps_line(&mut self, line: &str) -> Option<String> {
        let mut words = line.splitn(6, ' ');
        let (range, access, offset) = (words.next()?, words.next()?, words.next()?);
        let (_, inode, name) = (words.next()?, words.next()?, words.next().unwrap_or(""));
        let plain = format!("{range} {access} {offset} 00:00");
        let name = name.trim_start();
        let inode = if inode == "0" { 0 } else { self.number(&format!("{inode} {name}")) };
        Some(match self.name(name) {
            None => format!("{plain} {inode}\n"),
            Some(name) => format!("{plain} {inode:<26} {name}\n"),
        })
    }

    fn name(&mut self, name: &str) -> Option<String> {
        const DELETED: &str = " (deleted)";
        const KERNELS: [&str; 6] =
            ["[heap]", "[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"];
        if name.is_empty() {
            return None;
        }
        if KERNELS.contains(&name) {
            return Some(name.to_owned());
        }
        if let Some(name) = name.strip_prefix("[anon:") {
            return Some(format!("[anon:{}]", self.number(name)));
        }
        if name.starts_with('[') {
            return Some(format!("[{}]", self.number(name)));
        }
        let (path, end) = match name.strip_suffix(DELETED) {
            Some(path) => (path, DELETED),
            None => (name, ""),
        };
        Some(format!("/{}{end}", self.number(path)))
    }

    /// Keeps the lines of `/proc/PID/status` that the reports use, with a number for the name.
    pub(super) fn status(&mut self, text: &str) -> String {
        let name = fields::status(text, "Name").map(|name| self.number(&format!("process {name}")));
        let name = name.map_or(String::new(), |number| format!("Name:\tprocess-{number}\n"));
        name + &keep_status(text)
    }
}

/// Keeps the lines of `/proc/PID/status` that the reports use, except the name.
fn keep_status(text: &str) -> String {
    const KEPT: [&str; 5] = ["State:", "Kthread:", "VmSize:", "VmRSS:", "Threads:"];
    keep_lines(text, |line| KEPT.iter().any(|kept| line.starts_with(kept)))
}

/// Keeps the lines of `/proc/PID/status` that the reports use, with the name.
pub(super) fn status_with_name(text: &str) -> String {
    keep_lines(text, |line| line.starts_with("Name:")) + &keep_status(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_built_the_kernel_is_left_out() {
        let text = "Linux version 6.1.0-13 (somebody@example.org) (gcc 12) #1 SMP\n";
        assert_eq!(version(text), "Linux version 6.1.0-13\n");
        assert_eq!(version(""), "\n");
    }

    #[test]
    fn only_memory_is_left_of_iomem() {
        let text = "00001000-0009fbff : System RAM\n  00002000-00003fff : Kernel code\n\
                    fe000000-fe00ffff : secret-device\n  00001000-00001fff : System RAM\n";
        assert_eq!(iomem(text), "00001000-0009fbff : System RAM\n");
    }

    #[test]
    fn no_address_is_left_of_vmallocinfo() {
        let text = "0xffffc90000000000-0xffffc90000005000   20480 acpi_os_map+0x1/0x2 phys=0x00000000fed00000 ioremap\n\
                    0x00000000f80307aa-0x00000000b34c984c   20480 f+0xca/0x100 [module] pages=4 vmalloc N0=4\n\
                    0x00000000f80307ab-0x00000000b34c984d    8192 0xffffffffc0a81234 pages=1 vmalloc\n\
                    somebody's garbage\n";
        let zeros = "0x0000000000000000-0x0000000000000000";
        let expected = format!(
            "{zeros}   20480 acpi_os_map+0x1/0x2 ioremap\n\
             {zeros}   20480 f+0xca/0x100 [module] pages=4 vmalloc N0=4\n\
             {zeros}    8192 0x0 pages=1 vmalloc\n"
        );
        assert_eq!(vmallocinfo(text), expected);
        let shown = vmallocinfo_with_addresses(text);
        assert!(shown.starts_with("0xffffc90000000000-") && !shown.contains("phys"), "{shown}");
        assert!(!shown.contains("c0a81234"), "{shown}");
        let parsed = crate::vmallocinfo::parse(expected.as_bytes());
        assert_eq!(parsed.malformed, []);
        assert_eq!(crate::addresses::judge(&parsed.areas), crate::addresses::Addresses::Zeroed);
    }

    #[test]
    fn names_become_numbers_and_areas_stay() {
        let text = "\
55d0000-55d1000 r--p 00000000 fd:01 1234                       /srv/somebody/secret program
55d1000-55d2000 r-xp 00001000 fd:01 1234                       /srv/somebody/secret program
7f00000-7f10000 rw-p 00000000 00:00 0\x20
7f10000-7f20000 rw-p 00000000 00:00 0                          [anon: glibc: malloc]
7f20000-7f30000 rw-s 00000000 00:01 77                         /memfd:secret (deleted)
7fff000-8000000 rw-p 00000000 00:00 0                          [stack]
";
        let scrubbed = Renamed::default().maps(text);
        for secret in ["somebody", "secret", "1234", "fd:01", "glibc"] {
            assert!(!scrubbed.contains(secret), "{secret} in:\n{scrubbed}");
        }
        let count = |text: &str| crate::proc_maps::count(text.as_bytes()).unwrap();
        assert_eq!((count(&scrubbed), count(text)), (6, 6));
        let lines: Vec<&str> = scrubbed.lines().collect();
        let name = |line: &str| line.rsplit(' ').next().unwrap_or("").to_owned();
        assert_eq!(name(lines[0]), name(lines[1]), "one file has one name");
        assert!(lines[4].ends_with("(deleted)") && lines[5].ends_with("[stack]"), "{scrubbed}");
        let parsed = crate::proc_maps::parse(scrubbed.as_bytes()).unwrap();
        assert_eq!(parsed.malformed, []);
    }

    #[test]
    fn a_status_keeps_what_a_look_uses() {
        let text = "Name:\tsecret\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t1000\nThreads:\t3\n";
        let scrubbed = Renamed::default().status(text);
        assert_eq!(scrubbed, "Name:\tprocess-1\nState:\tS (sleeping)\nThreads:\t3\n");
        assert!(status_with_name(text).starts_with("Name:\tsecret\nState:"));
    }
}
