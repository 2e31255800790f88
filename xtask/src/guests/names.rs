//! Names for the numbers of events, by what the guest's own kernel says of them.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use regex::Regex;

use crate::emulator::console::Console;

/// Flags that a huge fault's requests have in common, and that hardly any other has all of.
const OF_THP: [&str; 4] = ["__GFP_NOMEMALLOC", "__GFP_COMP", "__GFP_NOWARN", "__GFP_MOVABLE"];
/// Flags that tell its attempts apart.
const OF_ATTEMPT: [&str; 4] =
    ["__GFP_DIRECT_RECLAIM", "__GFP_KSWAPD_RECLAIM", "__GFP_THISNODE", "__GFP_NORETRY"];

/// The kernel's numbers by name.
pub(super) struct Names {
    /// Flags of a request by name.
    flags: BTreeMap<String, u64>,
    /// Names of compaction's results, by number.
    results: BTreeMap<u64, String>,
    zones: BTreeMap<u64, String>,
    /// Types of pageblocks in the order of their numbers.
    types: Vec<String>,
}

impl Names {
    pub(super) fn of(console: &Console) -> anyhow::Result<Names> {
        let suitable = console.format("mm_compaction_suitable")?;
        let (_, lists) = suitable.split_once("print fmt").context("an event without a format")?;
        let mut lists = lists.split("__print_symbolic").skip(1).map(symbols);
        let zones = lists.next().context("mm_compaction_suitable names no zones")?;
        let results = lists.next().context("mm_compaction_suitable names no results")?;
        let blocks = console.phase("start")?.section("pagetypeinfo")?;
        let header = blocks.lines().find_map(|line| line.strip_prefix("Number of blocks type"));
        let types = header.context("pagetypeinfo names no types")?;
        let types = types.split_whitespace().map(str::to_lowercase).collect();
        let flags = flags(console.format("mm_page_alloc")?)?;
        Ok(Names { flags, results, zones, types })
    }

    /// Returns the types of pageblocks in the order of their numbers.
    pub(super) fn types(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(String::as_str)
    }

    pub(super) fn of_type(&self, number: usize) -> &str {
        self.types.get(number).map_or("unknown", String::as_str)
    }

    /// Writes an event's fields as the dataset writes them.
    pub(super) fn fields(&self, fields: &[(String, String)]) -> String {
        let named: Vec<String> =
            fields.iter().map(|(name, value)| self.field(name, value)).collect();
        named.join(" ")
    }

    fn field(&self, name: &str, value: &str) -> String {
        let number = value.parse::<u64>().ok();
        let listed = |names: &BTreeMap<u64, String>| {
            let found = number.and_then(|number| names.get(&number));
            found.cloned().unwrap_or_else(|| value.to_owned())
        };
        match name {
            "gfp_flags" | "gfp_mask" => format!("gfp={}", self.request(number.unwrap_or(0))),
            "idx" => format!("zone={}", listed(&self.zones)),
            "ret" | "status" => format!("{name}={}", listed(&self.results)),
            // The order of proactive compaction is -1.
            "order" if number.is_some_and(|order| order > u64::from(u32::MAX / 2)) => {
                "order=proactive".to_owned()
            }
            "nr_reclaimed" => format!("{name}={}", value.replace("~", "up to").replace("  ", " ")),
            _ => format!("{name}={value}"),
        }
    }

    /// Returns a request's flags; for a request of a huge fault, its meaning in words.
    fn request(&self, flags: u64) -> String {
        let has = |name: &str| self.flags.get(name).is_some_and(|bits| flags & bits == *bits);
        if !OF_THP.into_iter().all(has) {
            return format!("{flags:#x}");
        }
        let [direct, kswapd, here, once] = OF_ATTEMPT.map(has);
        let attempt = match (here, direct) {
            (true, true) => "first",
            (true, false) => "only",
            (false, _) => "second",
        };
        let words = [
            (direct, "direct reclaim"),
            (kswapd, "kswapd woken"),
            (here, "this node"),
            (once, "no retry"),
            (!direct && !kswapd, "nobody woken"),
        ];
        let words: Vec<&str> =
            words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        format!("thp {attempt} attempt: {}", words.join(", "))
    }
}

/// Returns the pairs `{ 4, "continue" }` of a list.
fn symbols(list: &str) -> BTreeMap<u64, String> {
    let pair = Regex::new(r#"\{\s*(\d+),\s*"([^"]+)"\s*\}"#).expect("a valid pattern");
    let end = list.find(')').map_or(list, |end| &list[..end]);
    let pairs = pair.captures_iter(end);
    pairs.map(|pair| (pair[1].parse().unwrap_or(u64::MAX), pair[2].to_lowercase())).collect()
}

/// Returns the flags that are one number, as kernels before 6.10 and from then on write it:
/// `{(unsigned long)((gfp_t)0x400u), "__GFP_DIRECT_RECLAIM"}`, `{.. ((1UL) << (10))), "__GFP_DIRECT_RECLAIM"}`.
fn flags(format: &str) -> anyhow::Result<BTreeMap<String, u64>> {
    let number = r"(?:0x(?<hex>[0-9a-f]+)u?|<< \((?<bit>\d+)\))";
    let pair = format!(r#"\{{[^{{}}"|]*?{number}[^{{}}"|]*,\s*"(?<name>__GFP_\w+)"\s*\}}"#);
    let pair = Regex::new(&pair).expect("a valid pattern");
    let mut flags = BTreeMap::new();
    for found in pair.captures_iter(format) {
        let bits = match (found.name("hex"), found.name("bit")) {
            (Some(hex), _) => u64::from_str_radix(hex.as_str(), 16)?,
            (None, Some(bit)) => 1 << bit.as_str().parse::<u32>()?,
            (None, None) => continue,
        };
        flags.insert(found["name"].to_owned(), bits);
    }
    for name in OF_THP.iter().chain(&OF_ATTEMPT) {
        ensure!(flags.contains_key(*name), "mm_page_alloc does not say what {name} is");
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a kernel's own format of flags, shortened to those that are looked for.
    fn format_of(number: impl Fn(u32) -> String) -> String {
        let one =
            |(name, bit): &(&str, u32)| format!("{{( unsigned long){}, \"{name}\"}}", number(*bit));
        let bits = [
            ("__GFP_MOVABLE", 3),
            ("__GFP_DIRECT_RECLAIM", 10),
            ("__GFP_KSWAPD_RECLAIM", 11),
            ("__GFP_NOWARN", 13),
            ("__GFP_NORETRY", 16),
            ("__GFP_COMP", 18),
            ("__GFP_NOMEMALLOC", 19),
            ("__GFP_THISNODE", 21),
        ];
        let reclaim = "{( unsigned long)(( gfp_t)(0x400u|0x800u)), \"__GFP_RECLAIM\"}".to_owned();
        let all: Vec<String> = bits.iter().map(one).chain([reclaim]).collect();
        format!("print fmt: \"%s\", __print_flags(REC->gfp_flags, \"|\", {})", all.join(", "))
    }

    fn names(format: &str) -> Names {
        let list = r#"(REC->ret, {4, "continue"}, {8, "success"}), REC->order"#;
        Names {
            flags: flags(format).expect("the flags are there"),
            results: symbols(list),
            zones: symbols(r#"(REC->idx, {0, "DMA"}, {2, "Normal"})"#),
            types: Vec::new(),
        }
    }

    #[test]
    fn flags_are_read_as_old_and_new_kernels_write_them() {
        let old = format_of(|bit| format!("(( gfp_t)0x{:x}u)", 1 << bit));
        let new = format_of(|bit| format!("(( gfp_t)((((1UL))) << ({bit})))"));
        for format in [old, new] {
            let names = names(&format);
            assert_eq!(names.request(0x1c_24ca), "thp second attempt: direct reclaim");
            let first = "thp first attempt: direct reclaim, this node, no retry";
            assert_eq!(names.request(0x3d_24ca), first);
            let only = "thp only attempt: this node, no retry, nobody woken";
            assert_eq!(names.request(0x3d_20ca), only);
            assert_eq!(names.request(0x15_2c4a), "0x152c4a");
            assert!(!names.flags.contains_key("__GFP_RECLAIM"));
        }
        assert!(flags("print fmt: \"\"").is_err());
    }

    #[test]
    fn fields_are_named_as_the_dataset_has_them() {
        let names = names(&format_of(|bit| format!("(( gfp_t)0x{:x}u)", 1 << bit)));
        let pairs = [("idx", "2"), ("order", "18446744073709551615"), ("ret", "8")];
        let fields = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(names.fields(&fields), "zone=normal order=proactive ret=success");
        let reclaimed = [("nr_reclaimed".to_owned(), "~ 2^3".to_owned())];
        assert_eq!(names.fields(&reclaimed), "nr_reclaimed=up to 2^3");
    }
}
