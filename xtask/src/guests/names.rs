//! Names for the numbers of events, by what the guest's own kernel says of them.

use std::collections::BTreeMap;

use anyhow::Context;
use regex::Regex;

use super::console::Console;

/// The kernel's numbers by name.
pub(super) struct Names {
    /// Flags of a request by name.
    flags: BTreeMap<String, u64>,
    /// Results of compaction.
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
        let flags = flags(console.format("mm_page_alloc")?);
        Ok(Names { flags, results, zones, types })
    }

    /// Types of pageblocks in the order of their numbers.
    pub(super) fn types(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(String::as_str)
    }

    pub(super) fn of_type(&self, number: usize) -> &str {
        self.types.get(number).map_or("unknown", String::as_str)
    }

    /// An event's fields as the dataset writes them.
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

    /// A request's flags; what a huge fault asks for, in words.
    fn request(&self, flags: u64) -> String {
        let has = |name: &str| self.flags.get(name).is_some_and(|bits| flags & bits == *bits);
        let of_thp = ["__GFP_NOMEMALLOC", "__GFP_COMP", "__GFP_NOWARN", "__GFP_MOVABLE"];
        if !of_thp.into_iter().all(has) {
            return format!("{flags:#x}");
        }
        let [direct, kswapd, here] =
            ["__GFP_DIRECT_RECLAIM", "__GFP_KSWAPD_RECLAIM", "__GFP_THISNODE"].map(has);
        let attempt = match (here, direct) {
            (true, true) => "first",
            (true, false) => "only",
            (false, _) => "second",
        };
        let words = [
            (direct, "direct reclaim"),
            (kswapd, "kswapd woken"),
            (here, "this node"),
            (has("__GFP_NORETRY"), "no retry"),
            (!direct && !kswapd, "nobody woken"),
        ];
        let words: Vec<&str> =
            words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        format!("thp {attempt} attempt: {}", words.join(", "))
    }
}

/// The pairs `{ 4, "continue" }` of a list.
fn symbols(list: &str) -> BTreeMap<u64, String> {
    let pair = Regex::new(r#"\{\s*(\d+),\s*"([^"]+)"\s*\}"#).expect("a valid pattern");
    let end = list.find(')').map_or(list, |end| &list[..end]);
    let pairs = pair.captures_iter(end);
    pairs.map(|pair| (pair[1].parse().unwrap_or(u64::MAX), pair[2].to_lowercase())).collect()
}

/// The flags that are one number: `{(unsigned long)((gfp_t)0x400u), "__GFP_DIRECT_RECLAIM"}`.
fn flags(format: &str) -> BTreeMap<String, u64> {
    let pair = Regex::new(r#"\{[^{}"|]*?0x([0-9a-f]+)u?[^{}"|]*,\s*"(__GFP_\w+)"\s*\}"#)
        .expect("a valid pattern");
    let pairs = pair.captures_iter(format);
    pairs
        .filter_map(|pair| Some((pair[2].to_owned(), u64::from_str_radix(&pair[1], 16).ok()?)))
        .collect()
}
