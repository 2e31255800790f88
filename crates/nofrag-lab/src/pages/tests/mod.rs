//! Pages of results that were saved, so that no scenario has to run: their content, and their effect in a browser.

mod browser;

use std::fs;
use std::path::{Path, PathBuf};

use nofrag_show::page::{Figure, Item, MOST_BYTES, Page, script_source};
use nofrag_show::{Origin, Tone};
use serde_json::Value;

use super::*;
use crate::oracle::{ClaimKind, Oracle, Relation};
use crate::report::Report;
use crate::report::tests::report_of;
use crate::scenario::scenarios;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn origin(command: &str) -> Origin {
    Origin::here(crate::saved::tests::BUILD, command.to_owned())
}

/// Reads the reports in `results/FOLDER/raw.jsonl`.
fn saved(folder: &str) -> Vec<Report> {
    let file = repository().join("results").join(folder).join("raw.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let mut reports: Vec<Value> = Vec::new();
    for line in text.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let kind = line["kind"].as_str().unwrap().to_owned();
        match kind.as_str() {
            "origin" => {}
            "settings" => reports.push(serde_json::json!({
                "scenario": line["scenario"], "document": line["document"], "settings": line["settings"],
                "measurements": [], "comparisons": [], "oracles": [], "notes": [], "elapsed_s": 1.0,
            })),
            "replay" => reports.last_mut().unwrap()["replay"] = line["replay"].take(),
            kind => {
                let list = reports.last_mut().unwrap()[format!("{kind}s")].as_array_mut().unwrap();
                list.push(line[kind].take());
            }
        }
    }
    reports.into_iter().map(|report| serde_json::from_value(report).unwrap()).collect()
}

/// Builds a page with a part for each of `reports`.
fn page_of(reports: &[Report]) -> Page {
    let results: Vec<ScenarioResult<'_>> = reports
        .iter()
        .map(|report| ScenarioResult {
            scenario: scenarios().iter().find(|it| it.name == report.scenario).unwrap(),
            report,
            command: "nofrag run one",
        })
        .collect();
    run(&results, &origin("nofrag run all"))
}

/// Returns one saved result of each scenario that has one.
fn everything() -> Vec<Report> {
    let folders = [
        "vm-map-ram-2015/2026-11-21-default",
        "vmap-areas-2019/2026-11-20-default",
        "vmap-blocks-2023/2026-11-21-default",
        "mmap-live/2026-11-21-full",
        "mmap-holes-2005/2026-11-21-default",
        "extfrag-2018/2026-11-23-two-sizes",
        "recording/2026-11-28-default",
    ];
    folders.into_iter().flat_map(saved).collect()
}

#[test]
fn a_page_of_everything_is_small_and_complete() {
    let html = page_of(&everything()).html();
    assert!(html.len() < MOST_BYTES, "{} bytes", html.len());
    for scenario in ["vmap-areas-2019", "mmap-holes-2005", "extfrag-2018", "recording"] {
        assert!(html.contains(&format!("<a href=\"#{scenario}\">")), "{scenario} in the contents");
    }
    for part in ["Claim beside measurement", "Contiguity over time", "Distribution: ", "Claims: "] {
        assert!(html.contains(part), "no {part}");
    }
    // Anything that a page loads would come from one of these.
    for from in ["src=", "url(", "@import", "href=\"http"] {
        assert!(!html.contains(from), "{from}");
    }
}

#[test]
fn every_figure_has_a_sentence_and_a_command() {
    let page = page_of(&everything());
    let html = page.html();
    let figures = page.parts.iter().flat_map(|part| &part.items).filter_map(|item| match item {
        Item::Figure(figure) => Some(figure),
        _ => None,
    });
    let figures: Vec<&Figure> = figures.collect();
    // Four scenarios and more, each with several.
    assert!(figures.len() >= 20, "{}", figures.len());
    for figure in &figures {
        let Figure { title, says, .. } = figure;
        assert!(says.len() > 20 && says.ends_with('.'), "{title}: {says:?}");
    }
    let made = "<p class=\"made\">Made by <code class=\"command\">nofrag run one</code>";
    assert_eq!(html.matches(made).count(), figures.len());
}

#[test]
fn the_verdict_follows_the_claims() {
    let mut report = report_of("mmap-live");
    let tone = |report: &Report| page_of(std::slice::from_ref(report)).headline.unwrap().tone;
    assert_eq!(tone(&report), Tone::Good);
    let judge = |kind| Oracle::judge("o", kind, "c", 2.0, Relation::Equals(1.0));
    report.oracles.push(judge(ClaimKind::Ratio));
    assert_eq!(tone(&report), Tone::Warning);
    report.oracles.push(judge(ClaimKind::Exact));
    assert_eq!(tone(&report), Tone::Bad);
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let evil = "</script><script>alert('x')</script><img src=x onerror=\"alert(1)\">";
    let mut report = report_of("mmap-live");
    report.document = evil.to_owned();
    report.notes.push(evil.to_owned());
    report.settings.designs[0] = evil.to_owned();
    report.measurements[0].design = evil.to_owned();
    let clean = page_of(&[report_of("mmap-live")]).html();
    let html = page_of(&[report]).html();
    for tag in ["<script", "<img"] {
        assert_eq!(html.matches(tag).count(), clean.matches(tag).count(), "{tag}");
    }
}

/// Returns the sources that the page's Content-Security-Policy allows for `kind`.
fn policy<'a>(html: &'a str, kind: &str) -> Vec<&'a str> {
    let (_, rest) = html.split_once("\"Content-Security-Policy\" content=\"").unwrap();
    let mut lists = rest.split_once('"').unwrap().0.split("; ");
    let list = lists.find_map(|list| list.strip_prefix(kind)).unwrap();
    list.split_ascii_whitespace().collect()
}

#[test]
fn a_policy_lets_two_scripts_run_and_no_other() {
    // The example in W3C's Content Security Policy.
    let known = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
    assert_eq!(script_source("alert('Hello, world.');"), known);
    for html in [page_of(&everything()).html(), page_of(&[report_of("mmap-live")]).html()] {
        let inline = html.split("<script>").skip(1);
        let inline = inline.map(|rest| script_source(rest.split_once("</script>").unwrap().0));
        let inline: Vec<String> = inline.collect();
        assert_eq!(inline.len(), 2);
        assert_eq!(policy(&html, "script-src"), inline);
        assert_eq!(policy(&html, "default-src"), ["'none'"]);
        // All other scripts are data, which no browser runs.
        let all = html.matches("<script").count();
        assert_eq!(all, 2 + html.matches("<script type=\"application/json\">").count());
    }
}

#[test]
fn hosts_have_a_map_of_their_holes() {
    use nofrag_host::source::{self, Root};

    let root = Root::Captured(repository().join("data/hosts/vm-6.18-x86_64"));
    let sources = source::read_rest(&root, source::read_vmallocinfo(&root).unwrap());
    let report = nofrag_host::vmalloc::survey(&sources).unwrap();
    let page = nofrag_show::host::vmalloc::page(&report, &origin("nofrag host vmalloc"));
    let html = page.html();
    for part in ["Hole map of vmalloc", "TiB free", "freed, not yet purged", "lazy-dominates"] {
        assert!(html.contains(part), "no {part}");
    }
    assert!(html.matches("<path class=").count() > 20, "a map has cells");
}
