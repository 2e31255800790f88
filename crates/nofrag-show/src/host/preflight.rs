//! `nofrag preflight`: the answer in a sentence, then the figures that it rests on.

use nofrag_host::finding::grouped;
use nofrag_host::machine::huge::Basis;
use nofrag_host::machine::preflight::{Answer, Preflight, Range};

use super::parts;
use crate::{Look, Table, Tone, bytes_text, cells, sentence};

/// Returns the answer as text for people.
#[must_use]
pub fn text(preflight: &Preflight, look: Look) -> String {
    let (words, tone, help) = answer(preflight);
    let first = look.hanging(&format!("{words}: "), 2, &sentence(&needed(preflight)));
    // Colour comes last: it has no width.
    let mut text = first.replacen(words, &look.tinted(tone, words), 1);
    text.extend(help.map(|help| look.wrapped("  Do: ", &sentence(&help))));
    if preflight.answer == Answer::TooLarge {
        return text;
    }
    text += "\n";
    text += &figures(preflight).text("", look);
    text += &look.wrapped("Bounds: ", &sentence(basis(preflight.basis)));
    text.extend(parts::missing(&preflight.missing, look));
    text
}

/// Returns the first words, their tone, and advice.
fn answer(preflight: &Preflight) -> (&'static str, Tone, Option<String>) {
    const COMPACT: &str = "`echo 1 > /proc/sys/vm/compact_memory`";
    const DROP: &str = "`sync; echo 1 > /proc/sys/vm/drop_caches`";
    match preflight.answer {
        Answer::Yes => ("Yes", Tone::Good, None),
        Answer::AfterCompaction => (
            "Yes, after compaction",
            Tone::Warning,
            Some(format!("{COMPACT}, seconds of CPU time, and ask soon: what is free is used again")),
        ),
        Answer::AfterReclaim => (
            "Yes, after page cache is dropped",
            Tone::Warning,
            Some(format!("{DROP}, then {COMPACT}; what was cached is read from the disk again")),
        ),
        Answer::Uncertain => (
            "Uncertain",
            Tone::Warning,
            Some(format!("{COMPACT} and ask again; if that is not enough, {DROP} before it")),
        ),
        Answer::No => (
            "No",
            Tone::Bad,
            Some(
                "end or move what holds memory (`nofrag host pages` as root says what stays where), reserve such \
                 blocks at boot (hugepages=, cma=), or take another host"
                    .to_owned(),
            ),
        ),
        Answer::TooLarge => (
            "No",
            Tone::Bad,
            Some(
                "reserve at boot: `hugepagesz=` with `hugepages=` or `hugetlb_cma=` for huge pages, `cma=` for a \
                 driver's blocks"
                    .to_owned(),
            ),
        ),
    }
}

fn needed(preflight: &Preflight) -> String {
    let Preflight { count, bytes, order, now, .. } = preflight;
    let node = preflight.node.map_or(String::new(), |node| format!(" on node {node}"));
    let blocks = if *count == 1 { "block" } else { "blocks" };
    let of =
        format!("{} {blocks} of {} (order {order}){node}", grouped(*count), bytes_text(*bytes));
    if preflight.answer == Answer::TooLarge {
        let most = preflight.most_order.unwrap_or(0);
        let largest = bytes_text((preflight.host.page_bytes).checked_shl(most).unwrap_or(u64::MAX));
        return format!("{of} needed; this kernel keeps no block above order {most} ({largest})");
    }
    let mut text = format!("{of} needed; {} can be had now", grouped(*now));
    if preflight.pooled > 0 {
        text += &format!(", {} are free in the hugetlbfs pool", grouped(preflight.pooled));
    }
    if preflight.answer != Answer::Yes {
        text += &format!(
            ", {} after compaction, {} after page cache is dropped as well",
            range(preflight.after_compaction),
            range(preflight.after_reclaim)
        );
    }
    if preflight.answer >= Answer::Uncertain {
        let held = preflight.held_by.iter().take(3);
        let held: Vec<String> = held
            .map(|by| format!("{} in {} pageblocks", by.usage.into_str(), grouped(by.pageblocks)))
            .collect();
        if !held.is_empty() {
            text += &format!("; what stays: {}", held.join(", "));
        }
    }
    text
}

fn range(Range { least, most, forecast }: Range) -> String {
    match forecast {
        _ if least == most => grouped(most),
        Some(forecast) => format!("about {}", grouped(forecast)),
        None => format!("{} to {}", grouped(least), grouped(most)),
    }
}

fn figures(preflight: &Preflight) -> Table {
    let mut grid = Table::new(&["blocks that can be had", "at least", "about", "at most"]);
    let now = preflight.now;
    let now = Range { least: now, most: now, forecast: Some(now) };
    let rows = [
        ("now", now),
        ("after compaction", preflight.after_compaction),
        ("after page cache is dropped as well", preflight.after_reclaim),
    ];
    for (name, Range { least, most, forecast }) in rows {
        grid.row(cells![name, least, forecast, most]);
    }
    grid
}

const fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Frames => "by the use of each frame",
        Basis::PageblockTypes => {
            "by the types of pageblocks; as root the use of each frame is read, which makes the bounds narrower"
        }
        Basis::FreePages => {
            "by free memory alone, since only root may read the types of pageblocks"
        }
    }
}
