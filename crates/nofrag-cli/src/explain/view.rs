//! An explanation as a page.

use nofrag_lab::explain::{Basis, Case, Cause, Explanation, PolicyCase, PolicyVerdict, ZoneCase};
use nofrag_show::host::{MARKS, mark_cells};
use nofrag_show::{Look, Table, bytes, bytes_text, cells, divided, divided_by, screen, sentence};

/// The way to what an answer leaves out.
const REST: &str = "--all shows the reason of each zone, policies, costs and evidence.";

/// Returns the answer on one screen: what failed and why, what would be served, and what to do.
pub(crate) fn answer(explained: &Explanation, top: usize, look: Look) -> String {
    let mut head = look.hanging("", 2, &format!("{}: {}", named(explained), verdict(explained)));
    match &explained.cautions[..] {
        [] => {}
        [only] => head += &look.wrapped("Note: ", only),
        // A replay that was refused is asked for again with more room.
        [first, more @ ..] if explained.replay.is_none() => {
            let line = format!("{first} {} more cautions with --all.", more.len());
            head += &look.wrapped("Note: ", &line);
        }
        all => {
            let line = format!("{} cautions limit what is said here; --all shows them", all.len());
            head += &look.wrapped("Note: ", &line);
        }
    }
    let cases: Vec<&Case> = explained.cases.iter().take(top).collect();
    let (failed, would): (Vec<&Case>, Vec<&Case>) =
        cases.iter().partition(|case| case.has_failed());
    let mut parts = vec![damage(explained, look) + &head];
    for (index, each) in failed.iter().enumerate() {
        let told = failed[..index].iter().position(|earlier| earlier.summary == each.summary);
        parts.push(format!("\n{}", briefly(index + 1, each, told, look)));
    }
    if let Some(first) = cases.first() {
        if !first.zones.is_empty() {
            parts.push(format!("\n{}", table(first, look)));
        }
        let would = first.would.iter().map(|line| look.wrapped("   ", line));
        parts.extend(would.take(usize::from(failed.len() == 1)));
    }
    let mut advice: Vec<&str> = Vec::new();
    for each in cases.iter().flat_map(|case| &case.advice) {
        if !advice.contains(&each.what.as_str()) {
            advice.push(&each.what);
        }
    }
    let numbered = advice.iter().enumerate().map(|(index, what)| {
        let heading = if index == 0 { "\nWhat to do\n" } else { "" };
        heading.to_owned() + &look.hanging(&format!("   {:2}. ", index + 1), 7, &sentence(what))
    });
    parts.extend(numbered);
    let line = |case: &&Case| {
        look.hanging("   ", 5, &format!("{} {}", case.title, sentence(&case.summary)))
    };
    let served: String = would.iter().map(line).collect();
    if !served.is_empty() {
        parts.push(format!("\nRequests\n{served}"));
    }
    parts.extend([obtainable(explained, look), mixing(explained, look), "\n".to_owned()]);
    screen(parts, REST, look)
}

/// Returns the source and its kernel.
fn named(explained: &Explanation) -> String {
    let release = explained.release.as_ref().map(|release| format!(", Linux {release}"));
    explained.source.clone() + &release.unwrap_or_default()
}

/// Returns what is cut, damaged or lost of the source, as the first lines of a text.
fn damage(explained: &Explanation, look: Look) -> String {
    explained.damage.as_ref().map_or_else(String::new, |damage| look.hanging("", 2, damage))
}

/// Returns the answer in a few words.
fn verdict(explained: &Explanation) -> String {
    let failed: Vec<&Case> = explained.cases.iter().filter(|case| case.has_failed()).collect();
    let Some(first) = failed.first() else {
        let served = explained.cases.iter().filter(|case| case.cause == Cause::Nothing).count();
        return format!("{served} of {} requests would be served", explained.cases.len());
    };
    let cause = match first.cause {
        Cause::Fragmented => "memory was there, in pieces",
        Cause::LackOfMemory => "memory was short",
        Cause::Boosted => "the watermarks were raised",
        Cause::KeptBlocks => "the large blocks were kept for others",
        Cause::TypeForbidden => "what was free was of other types",
        Cause::NoZone => "no zone could serve it",
        Cause::Recovered => "nothing stands against it now, so why is not known",
        Cause::GroupLimit => "a control group had reached its limit",
        Cause::AddressSpace => "no addresses were left",
        _ => "the cause is not known",
    };
    let times = failed.iter().map(|case| case.times.max(1)).sum::<u64>();
    let requests = if times == 1 { "request" } else { "requests" };
    match failed.len() {
        1 => format!("{times} {requests} failed: {cause}"),
        kinds => format!("{times} {requests} failed, of {kinds} kinds; the first: {cause}"),
    }
}

/// Returns a case that failed in a few lines; `told` is the index of an earlier one with the same reason.
fn briefly(number: usize, case: &Case, told: Option<usize>, look: Look) -> String {
    let title = look.wrapped(&format!("{number}. "), &case.title);
    let why = told.map_or_else(|| sentence(&case.summary), |told| format!("as for {}.", told + 1));
    let asked = if told.is_none() { asked(case, look) } else { String::new() };
    title + &look.wrapped("   Why: ", &why) + &asked + &seen(case, look)
}

/// Returns the whole page of an explanation.
pub(crate) fn page(explained: &Explanation, top: usize, look: Look) -> String {
    let mut text = damage(explained, look) + &look.hanging("", 2, &named(explained));
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
    text += &asked(case, look);
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

/// Says what was asked for, and by what means.
fn asked(case: &Case, look: Look) -> String {
    let Some(asked) = &case.asked else { return String::new() };
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
    look.wrapped("   Asked: ", &line)
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
    let mut text = table(case, look) + &picture(&case.zones, order, look);
    for zone in &case.zones {
        text += &look.hanging(&format!("   {}: ", zone.zone), 5, &sentence(&zone.why));
    }
    text
}

/// Shows the figures of the zones.
fn table(case: &Case, look: Look) -> String {
    let mut grid =
        Table::new(&[&["zone", "free"], &MARKS[..], &["kept", "largest", "served"]].concat());
    let order = |order: Option<u32>| order.map(|order| format!("order {order}"));
    for zone in &case.zones {
        let marks = mark_cells(Some(zone.marks_bytes), bytes(zone.boost_bytes).into());
        let [largest, served] = [zone.largest_free, zone.largest_served].map(order);
        let kept = cells![bytes(zone.reserve_bytes), largest, served];
        grid.row([cells![&zone.zone, bytes(zone.free_bytes)], marks, kept].concat());
    }
    grid.text("   ", look)
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
        Basis::Replayed => {
            "   Policies (the recorded requests, replayed; no kernel has confirmed how they \
                            differ)\n"
                .to_owned()
        }
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
    let bounds = ["free now", "after compaction", "after reclaim", "pinned", "by little"];
    let mut grid = Table::new(&[&["zone", "all"], &bounds[..]].concat());
    for zone in &explained.obtainable {
        grid.row(cells![
            &zone.zone,
            zone.pageblocks,
            zone.now,
            zone.after_compaction,
            zone.after_reclaim,
            zone.pinned,
            zone.pinned_by_little,
        ]);
    }
    text += &grid.text("   ", look);
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
