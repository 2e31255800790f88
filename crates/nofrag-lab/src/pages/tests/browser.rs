//! Pages in headless Chromium: charts are drawn, tables sort, and there are no complaints. Skipped where there is no
//! Chromium.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{everything, page_of, saved};
use nofrag_show::page::script_source;

/// Records the page's own errors, from its first line on.
const WATCH: &str = "<script>window.problems = [];\
    addEventListener('error', (e) => problems.push(String(e.message)));\
    addEventListener('unhandledrejection', (e) => problems.push(String(e.reason)));\
    addEventListener('securitypolicyviolation', (e) => problems.push(`policy: ${e.blockedURI}`));\
    for (const name of ['error', 'warn']) console[name] = (...it) => problems.push(it.join(' '));</script>";

const PROBE: &str = include_str!("probe.js");

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: no Chromium here to open the page in (apt-get install chromium)");
    }
    found
}

/// Returns the observations that a probe in the page makes when a browser opens `html`; `None` without a browser. The
/// page's policy is changed to allow the probe, and nothing else new.
fn seen(html: &str, flags: &[&str]) -> Option<Value> {
    let browser = browser()?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let html = html.replacen("<head>", &format!("<head>{WATCH}"), 1);
    let html = html.replacen("script-src ", &format!("script-src {} ", script_source(PROBE)), 1);
    let html = html.replacen("</body>", &format!("<script>{PROBE}</script></body>"), 1);
    std::fs::write(&file, html).unwrap();
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args(["--virtual-time-budget=4000", "--dump-dom"])
        .args(flags)
        .arg(profile)
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let said = dom.split_once("<pre id=\"saw\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((said, _)) = said else {
        panic!(
            "the page did not come to its end: {dom}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let said = said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&said).unwrap())
}

#[test]
fn a_browser_draws_sorts_and_does_not_complain() {
    let html = page_of(&everything()).html();
    let Some(saw) = seen(&html, &["--window-size=1200,900"]) else { return };
    assert_eq!(saw["problems"], json!([]), "{saw}");
    assert_eq!(saw["loaded"], json!([]), "a page that opens offline loads nothing");
    assert!(saw["charts"].as_u64().unwrap() >= 8, "{saw}");
    assert_eq!((&saw["drawn"], &saw["redrawn"]), (&saw["charts"], &saw["charts"]), "{saw}");
    assert_eq!(saw["figures"], 0, "no figure is empty: {saw}");
    for done in ["sorted", "reversed", "restored", "focused", "hidden"] {
        assert_eq!(saw[done], true, "{done}: {saw}");
    }
    assert!(saw["value"].as_str().unwrap().starts_with(|c: char| c.is_ascii_digit()), "{saw}");
    assert_eq!((&saw["twice"], &saw["dangling"]), (&json!([]), &json!([])), "{saw}");
    assert_eq!(saw["wide"], 0, "nothing sticks out to the right: {saw}");
    assert_eq!(saw["background"], "rgb(255, 255, 255)", "{saw}");
    assert_eq!(saw["other"], "rgb(20, 23, 28)", "the button turns the page dark: {saw}");
}

/// Checks the second guard behind escaping: a script that slipped into a page is not run by the browser.
#[test]
fn a_script_that_slipped_in_does_not_run() {
    let html = page_of(&saved("recording/2026-11-28-default")).html();
    let evil = "<script>problems.push('ran')</script><b onclick=\"problems.push('clicked')\">x</b>";
    let html = html.replacen("<main", &format!("{evil}<main"), 1);
    let Some(saw) = seen(&html, &[]) else { return };
    assert_eq!(saw["problems"], json!(["policy: inline", "policy: inline"]), "{saw}");
}

#[test]
fn a_reader_s_dark_and_narrow_screen_is_respected() {
    let html = page_of(&saved("recording/2026-11-28-default")).html();
    // As Blink counts them, the dark scheme is the first one.
    let flags = ["--window-size=390,800", "--blink-settings=preferredColorScheme=0"];
    let Some(saw) = seen(&html, &flags) else { return };
    assert_eq!(saw["problems"], json!([]), "{saw}");
    assert_eq!((&saw["drawn"], &saw["redrawn"]), (&saw["charts"], &saw["charts"]), "{saw}");
    assert!(saw["width"].as_u64().unwrap() <= 520, "{saw}");
    assert_eq!(saw["wide"], 0, "nothing sticks out to the right: {saw}");
    assert_eq!(saw["background"], "rgb(20, 23, 28)", "{saw}");
    assert_eq!(saw["other"], "rgb(255, 255, 255)", "{saw}");
}
