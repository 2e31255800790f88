//! An explanation as a page.

use nofrag_lab::explain::{Basis, Case, Explanation, PolicyCase, PolicyVerdict, ZoneCase};
use nofrag_lab::oracle::Withdrawn;
use nofrag_show::{Look, Numbers, bytes_text, divided, divided_by, sentence};

/// Returns the whole page of an explanation.
pub(crate) fn page(explained: &Explanation, top: usize, look: Look) -> String {
    let mut text = explained.source.clone();
    if let Some(release) = &explained.release {
        text += &format!(", Linux {release}");
    }
    let mut text = look.hanging("", 2, &text);
    if !explained.cautions.is_empty() {
        text += "\n";
    }
    for caution in &explained.cautions {
        text += &look.wrapped("Note: ", caution);
    }
    for (index, each) in explained.cases.iter().take(top).enumerate() {
        text += "\n";
        text += &case(index + 1, each, look);
    }
    let left = explained.cases.len().saturating_sub(top);
    if left > 0 {
        text += &format!("\n{left} more cases; --top {} shows them all\n", explained.cases.len());
    }
    text += &obtainable(explained, look);
    text += &mixing(explained, look);
    text
}

fn case(number: usize, case: &Case, look: Look) -> String {
    let mut text = look.wrapped(&format!("{number}. "), &case.title);
    text += &look.wrapped("   Why: ", &sentence(&case.summary));
    if let Some(asked) = &case.asked {
        let line = format!(
            "{} of type {}, from zone {} or below; {}.",
            if asked.order == 0 {
                "single pages".to_owned()
            } else {
                format!("{} in one piece", bytes_text(asked.bytes))
            },
            asked.migratetype,
            asked.highest_zone,
            asked.context
        );
        text += &look.wrapped("   Asked: ", &line);
    }
    text += &seen(case, look);
    if !case.zones.is_empty() {
        text += "\n";
        text += &zones(case, look);
        text += "\n";
    }
    for line in &case.would {
        text += &look.wrapped("   ", line);
    }
    text += &policies(&case.policies, look);
    if !case.advice.is_empty() {
        text += "   What to do\n";
    }
    for (index, advice) in case.advice.iter().enumerate() {
        text += &look.hanging(&format!("   {:2}. ", index + 1), 7, &sentence(&advice.what));
        text += &look.hanging("       Since: ", 9, &sentence(&advice.evidence));
        if advice.cost != "none" {
            text += &look.hanging("       Costs: ", 9, &sentence(&advice.cost));
        }
    }
    for missing in &case.missing {
        text += &look.wrapped("   Missing: ", missing);
    }
    text
}

/// Says how often and where a case was seen.
fn seen(case: &Case, look: Look) -> String {
    const MOST: usize = 8;
    if case.times <= 1 && case.lines.len() <= 1 {
        return String::new();
    }
    let mut text = format!("{} times", case.times);
    if !case.lines.is_empty() {
        let lines: Vec<String> = case.lines.iter().take(MOST).map(u32::to_string).collect();
        text += &format!(", on lines {}", lines.join(", "));
        if case.lines.len() > MOST {
            text += " ..";
        }
        text += "; the figures are those of the first";
    }
    look.wrapped("   Seen: ", &sentence(&text))
}

/// Shows the zones: figures, a picture of the free memory, and the reason for each.
fn zones(case: &Case, look: Look) -> String {
    let order = case.asked.as_ref().map_or(0, |asked| asked.order);
    let mut table = Numbers::new(&[
        "   zone", "free", "min", "low", "high", "boost", "kept", "largest", "served",
    ]);
    let order_text =
        |order: Option<u32>| order.map_or("-".to_owned(), |order| format!("order {order}"));
    for zone in &case.zones {
        let [min, low, high] = zone.marks_bytes.map(bytes_text);
        table.row(vec![
            format!("   {}", zone.zone),
            bytes_text(zone.free_bytes),
            min,
            low,
            high,
            bytes_text(zone.boost_bytes),
            bytes_text(zone.reserve_bytes),
            order_text(zone.largest_free),
            order_text(zone.largest_served),
        ]);
    }
    let mut text = table.text(look);
    text += &picture(&case.zones, order, look);
    for zone in &case.zones {
        text += &look.hanging(&format!("   {}: ", zone.zone), 5, &sentence(&zone.why));
    }
    text
}

/// Draws the free memory of each zone as a line: blocks that are too small, and those that are large enough.
fn picture(zones: &[ZoneCase], order: u32, look: Look) -> String {
    if order == 0 || zones.iter().all(|zone| zone.blocks.is_empty()) {
        return String::new();
    }
    let widest = zones.iter().map(|zone| zone.zone.len()).max().unwrap_or(0);
    let cells = look.width.saturating_sub(widest + 8).clamp(8, 64);
    let mut text = String::new();
    for zone in zones {
        let pages = |from: usize, to: usize| {
            let blocks = zone.blocks.iter().zip(0_u32..).skip(from).take(to.saturating_sub(from));
            blocks.fold(0, |sum: u64, (&blocks, order)| {
                sum.saturating_add(blocks.saturating_mul(1 << order))
            })
        };
        let (below, above) = (pages(0, order as usize), pages(order as usize, usize::MAX));
        let line = divided(below, above, cells, look);
        let line = line.unwrap_or_else(|| "nothing listed".to_owned());
        text += &format!("   {:widest$}  {line}\n", zone.zone);
    }
    let [small, large] = divided_by(look);
    let legend =
        format!("what is free: {small} in blocks below order {order}, {large} in larger ones");
    text + &look.wrapped("   ", &legend)
}

fn policies(policies: &[PolicyCase], look: Look) -> String {
    let Some(first) = policies.first() else { return String::new() };
    let heading = match first.basis {
        Basis::Rules => "   Policies (from their rules; nothing was run)\n".to_owned(),
        Basis::Replayed => format!(
            "   Policies (the recorded requests, replayed)\n   {}\n",
            Withdrawn::AgainstKernels.label()
        ),
    };
    let mut text = heading;
    // Policies with the same answer stand together.
    let mut groups: Vec<(Vec<&str>, &PolicyCase)> = Vec::new();
    for each in policies {
        let said = |other: &PolicyCase| {
            (other.verdict, &other.why, &other.cost) == (each.verdict, &each.why, &each.cost)
        };
        match groups.iter_mut().find(|(_, first)| said(first)) {
            Some((names, _)) => names.push(&each.policy),
            None => groups.push((vec![&each.policy], each)),
        }
    }
    for (names, each) in groups {
        let verdict = match each.verdict {
            PolicyVerdict::Avoids => "avoids it",
            PolicyVerdict::WorksAgainst => "works against it",
            PolicyVerdict::Fails => "fails",
        };
        let costs = match each.cost.as_str() {
            "-" | "none" => String::new(),
            cost => format!(" Costs: {cost}."),
        };
        let line = format!("{verdict}: {}.{costs}", each.why);
        text += &look.hanging("     ", 7, &format!("{}: {line}", names.join(", ")));
    }
    text
}

fn obtainable(explained: &Explanation, look: Look) -> String {
    if explained.obtainable.is_empty() {
        return String::new();
    }
    let block = explained.obtainable.iter().map(|zone| zone.block_bytes).max().unwrap_or(0);
    let mut text = format!("\nPageblocks of {}\n", bytes_text(block));
    let header =
        ["   zone", "all", "free now", "after compaction", "after reclaim", "pinned", "by little"];
    let mut table = Numbers::new(&header);
    for zone in &explained.obtainable {
        let figures = [
            zone.pageblocks,
            zone.now,
            zone.after_compaction,
            zone.after_reclaim,
            zone.pinned,
            zone.pinned_by_little,
        ];
        let mut row = vec![format!("   {}", zone.zone)];
        row.extend(figures.map(|figure| figure.to_string()));
        table.row(row);
    }
    text += &table.text(look);
    for zone in &explained.obtainable {
        let by = zone.pinned_by.iter().map(|(name, blocks)| format!("{name} in {blocks}"));
        let by: Vec<String> = by.collect();
        if !by.is_empty() {
            let by = format!("what stays where it is: {}", by.join(", "));
            text += &look.hanging(&format!("   {}: ", zone.zone), 5, &by);
        }
    }
    text
}

fn mixing(explained: &Explanation, look: Look) -> String {
    let Some(mixing) = &explained.mixing else { return String::new() };
    let list = |pairs: &[(String, u64)]| {
        let each = pairs.iter().map(|(name, count)| format!("{name} {count}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let mut text = String::from("\nMixed types\n");
    let line = format!(
        "{} requests were served from pageblocks of another type, {} of them from a block below a pageblock, {} \
         from one below order 4; {} pageblocks changed their type.",
        mixing.events, mixing.fragmenting, mixing.serious, mixing.claims
    );
    text += &look.wrapped("   ", &line);
    if !mixing.pairs.is_empty() {
        text += &look.wrapped("   Types: ", &sentence(&list(&mixing.pairs)));
        text += &look.wrapped("   Processes: ", &sentence(&list(&mixing.processes)));
    }
    text
}
