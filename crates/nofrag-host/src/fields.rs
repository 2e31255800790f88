//! Parsers of the small files beside `vmallocinfo`, each a pure function of the file's text.

use thiserror::Error;

/// The reason why a small file could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The file is empty, or the field is not in it.
    #[error("the value is missing")]
    Missing,
    /// The value is not a number, or not a possible one.
    #[error("the value is not a number of the expected form")]
    NotANumber,
}

/// Returns the number of CPUs in a list such as `0-1,4,8-11`.
///
/// # Errors
/// Those of [`FieldError`]; ids that fall or repeat are refused.
pub fn cpu_count(text: &str) -> Result<u32, FieldError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(FieldError::Missing);
    }
    let mut count = 0_u32;
    let mut next_allowed = 0_u32;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| FieldError::NotANumber)?;
        let last: u32 = last.parse().map_err(|_| FieldError::NotANumber)?;
        if first < next_allowed || last < first || last == u32::MAX {
            return Err(FieldError::NotANumber);
        }
        count += last - first + 1;
        next_allowed = last + 1;
    }
    Ok(count)
}

/// Returns the number of CPUs that `/proc/cpuinfo` describes, counted by its `processor` lines.
///
/// # Errors
/// [`FieldError::Missing`] when there are none.
pub fn cpuinfo_count(text: &str) -> Result<u32, FieldError> {
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    match names.filter(|&name| name == "processor").count() {
        0 => Err(FieldError::Missing),
        count => u32::try_from(count).map_err(|_| FieldError::NotANumber),
    }
}

/// Returns a field of `/proc/meminfo` in bytes.
///
/// # Errors
/// Those of [`FieldError`].
pub fn meminfo_bytes(text: &str, field: &str) -> Result<u64, FieldError> {
    let kib = status(text, field)?.strip_suffix(" kB").ok_or(FieldError::NotANumber)?;
    let kib: u64 = kib.trim().parse().map_err(|_| FieldError::NotANumber)?;
    kib.checked_mul(1024).ok_or(FieldError::NotANumber)
}

/// Returns the value of `kernel.kptr_restrict`.
///
/// # Errors
/// Those of [`FieldError`].
pub fn kptr_restrict(text: &str) -> Result<u8, FieldError> {
    text.trim().parse().map_err(|_| FieldError::NotANumber)
}

/// Returns the number that is the whole text of a file, such as `/proc/sys/vm/max_map_count`.
///
/// # Errors
/// Those of [`FieldError`].
pub fn number(text: &str) -> Result<u64, FieldError> {
    match text.trim() {
        "" => Err(FieldError::Missing),
        text => text.parse().map_err(|_| FieldError::NotANumber),
    }
}

/// Returns the hexadecimal number that is the whole text of a file, such as `/proc/PID/personality`.
///
/// # Errors
/// Those of [`FieldError`].
pub fn hexadecimal(text: &str) -> Result<u64, FieldError> {
    match text.trim() {
        "" => Err(FieldError::Missing),
        text => u64::from_str_radix(text, 16).map_err(|_| FieldError::NotANumber),
    }
}

/// Returns a field of `/proc/PID/status`, or of another file of names and values, as text.
///
/// # Errors
/// [`FieldError::Missing`] when it is not there.
pub fn status<'a>(text: &'a str, field: &str) -> Result<&'a str, FieldError> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields
        .find(|(name, _)| *name == field)
        .map(|(_, value)| value.trim())
        .ok_or(FieldError::Missing)
}

/// A limit on a resource of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Bytes(u64),
    Unlimited,
}

impl serde::Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::Bytes(bytes) => serializer.serialize_u64(*bytes),
            Limit::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Limit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A limit on a resource of a process: a number of bytes, or `unlimited`.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": "unlimited" }],
        })
    }
}

/// Returns the soft limit in a line of `/proc/PID/limits`, such as `Max stack size`.
///
/// # Errors
/// Those of [`FieldError`].
pub fn soft_limit(text: &str, name: &str) -> Result<Limit, FieldError> {
    let values =
        text.lines().find_map(|line| line.strip_prefix(name)).ok_or(FieldError::Missing)?;
    match values.split_ascii_whitespace().next() {
        None => Err(FieldError::Missing),
        Some("unlimited") => Ok(Limit::Unlimited),
        Some(value) => value.parse().map(Limit::Bytes).map_err(|_| FieldError::NotANumber),
    }
}

/// Returns the first two numbers of a kernel release such as `6.18.5-generic`.
///
/// # Errors
/// Those of [`FieldError`].
pub fn release_version(text: &str) -> Result<(u32, u32), FieldError> {
    let mut numbers = text.trim().splitn(3, '.');
    let mut number = || {
        let part = numbers.next().ok_or(FieldError::Missing)?;
        let digits = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(part);
        digits.parse().map_err(|_| FieldError::NotANumber)
    };
    Ok((number()?, number()?))
}

/// Returns the bytes of lazily freed areas above which the kernel purges: 32 MiB for each bit of the number of online
/// CPUs (`lazy_max_pages`, docs/sources/vmap.md#lazy-limit).
#[must_use]
pub const fn lazy_limit_bytes(cpus_online: u32) -> u64 {
    (u32::BITS - cpus_online.leading_zeros()) as u64 * (32 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(cpu_count("0\n"), Ok(1));
        assert_eq!(cpu_count("0-1,4,8-11\n"), Ok(7));
        for bad in ["0-", "-1", "3-1", "0,0", "1,0", "a", "0-4294967295", ","] {
            assert_eq!(cpu_count(bad), Err(FieldError::NotANumber), "{bad:?}");
        }
        assert_eq!(cpu_count("\n"), Err(FieldError::Missing));
    }

    #[test]
    fn cpuinfo_and_meminfo() {
        let cpuinfo = "processor\t: 0\nmodel name\t: x\n\nprocessor\t: 1\n";
        assert_eq!(cpuinfo_count(cpuinfo), Ok(2));
        assert_eq!(cpuinfo_count(""), Err(FieldError::Missing));
        let meminfo = "MemTotal:  16 kB\nVmallocTotal:   34359738367 kB\nVmallocUsed: x kB\n";
        assert_eq!(meminfo_bytes(meminfo, "VmallocTotal"), Ok((32 << 40) - 1024));
        assert_eq!(meminfo_bytes(meminfo, "VmallocUsed"), Err(FieldError::NotANumber));
        assert_eq!(meminfo_bytes(meminfo, "VmallocChunk"), Err(FieldError::Missing));
    }

    #[test]
    fn releases() {
        assert_eq!(release_version("6.18.5-generic\n"), Ok((6, 18)));
        assert_eq!(release_version("7.3-rc7"), Ok((7, 3)));
        assert_eq!(release_version("linux"), Err(FieldError::NotANumber));
        assert_eq!(release_version("6"), Err(FieldError::Missing));
    }

    #[test]
    fn what_a_process_says_of_itself() {
        assert_eq!((number("65530\n"), number("x")), (Ok(65_530), Err(FieldError::NotANumber)));
        assert_eq!(
            (hexadecimal("00040000\n"), hexadecimal("")),
            (Ok(0x4_0000), Err(FieldError::Missing))
        );
        let text = "Name:\tcat: x\nThreads:\t12\n";
        assert_eq!((status(text, "Name"), status(text, "Threads")), (Ok("cat: x"), Ok("12")));
        assert_eq!(status(text, "State"), Err(FieldError::Missing));
        let limits = "Limit Soft Hard Units\nMax stack size 8388608 unlimited bytes\n\
                      Max address space unlimited unlimited bytes\nMax file size\n";
        assert_eq!(soft_limit(limits, "Max stack size"), Ok(Limit::Bytes(8 << 20)));
        assert_eq!(soft_limit(limits, "Max address space"), Ok(Limit::Unlimited));
        assert_eq!(soft_limit(limits, "Max file size"), Err(FieldError::Missing));
        assert_eq!(soft_limit(limits, "Max file locks"), Err(FieldError::Missing));
    }

    /// Compares [`lazy_limit_bytes`] with the published table of limits (docs/sources/vmap.md#oracle-12).
    #[test]
    fn lazy_limits() {
        let mib = |cpus| lazy_limit_bytes(cpus) >> 20;
        let published = [
            (1, 32),
            (2, 64),
            (4, 96),
            (8, 128),
            (16, 160),
            (32, 192),
            (64, 224),
            (128, 256),
            (256, 288),
        ];
        for (cpus, limit) in published {
            assert_eq!(mib(cpus), limit, "{cpus} CPUs");
        }
        assert_eq!(lazy_limit_bytes(2) / 4096, 16_384);
        assert_eq!(lazy_limit_bytes(64) / 4096, 57_344);
    }
}
