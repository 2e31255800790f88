//! `nofrag export`: the text against Prometheus' own tools, HTTP, the textfile, and the files for it in contrib/.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::json::check_documented;
use crate::support::{check, copied_into, nofrag, repository};

const NOBODY: u32 = 65_534;

/// Returns a captured host: the guest of this repository's recording, as it was when the recording began.
pub(crate) fn guest() -> tempfile::TempDir {
    let recording =
        repository().join("crates/nofrag-lab/data/recordings/linux-6.1-guest-768m.nofrag");
    let trace = nofrag_host::trace::open(&recording).unwrap();
    let host = tempfile::tempdir().unwrap();
    let proc = host.path().join("proc");
    fs::create_dir(&proc).unwrap();
    for (name, bytes) in trace.meta.start().unwrap().files.iter() {
        if !name.contains('/') {
            fs::write(proc.join(name), bytes).unwrap();
        }
    }
    host
}

fn once(root: &Path, more: &[&str]) -> Output {
    let root = ["export", "--once", "--types", "--root", root.to_str().unwrap()];
    nofrag(&[&root, more].concat())
}

fn text(output: &Output) -> String {
    check(output, 0, &[]);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns true if the program is there; prints a note if it is not.
fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: no {program} here (Debian's package prometheus has it)");
    }
    there
}

fn promtool(args: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said));
}

/// Returns the metrics of a host as the command has them: name, kind, help, samples.
fn families(output: &Output) -> Vec<Value> {
    check(output, 0, &[]);
    check_documented(output)["families"].as_array().unwrap().clone()
}

/// Returns the name of a metric's samples.
fn sampled(family: &Value) -> String {
    let name = family["name"].as_str().unwrap();
    if family["kind"] == "counter" { format!("{name}_total") } else { name.to_owned() }
}

/// Checks that a pipe in place of a file is reported as missing: it was read for ever, and so no scrape ended.
#[test]
fn a_pipe_in_a_captured_host_is_missing_and_keeps_nobody_waiting() {
    let host = guest();
    let pipe = host.path().join("proc/meminfo");
    fs::remove_file(&pipe).unwrap();
    check(&Command::new("mkfifo").arg(&pipe).output().unwrap(), 0, &[]);
    let output = once(host.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("proc/meminfo: it is no regular file"), "{said}");
    let text = text(&output);
    assert!(text.contains(r#"nofrag_source_missing{source="memory"} 1"#), "{text}");
    assert!(text.contains("nofrag_zone_free"), "the other files are there: {text}");
}

/// Checks that no sample has a time, and that `# EOF` ends OpenMetrics and nothing else
/// (docs/sources/trace.md#oracle-14).
#[test]
fn no_sample_has_a_time_and_openmetrics_ends_with_eof() {
    let host = guest();
    for format in ["prometheus", "openmetrics"] {
        let text = text(&once(host.path(), &["--format", format]));
        assert!(text.ends_with('\n'));
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(samples.len() > 100, "{text}");
        for sample in samples {
            let behind = sample.rsplit_once('}').map_or(sample, |(_, behind)| behind);
            let value = behind.split_ascii_whitespace().next_back().unwrap();
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{sample}");
            let words = behind.split_ascii_whitespace().count();
            assert_eq!(words, if sample.contains('{') { 1 } else { 2 }, "a time: {sample}");
        }
        let ends: Vec<usize> = text.match_indices("# EOF").map(|(at, _)| at).collect();
        let expected = if format == "openmetrics" { vec![text.len() - 6] } else { vec![] };
        assert_eq!(ends, expected, "{format}");
    }
}

#[test]
fn the_figures_are_those_of_the_files() {
    let host = guest();
    let text = text(&once(host.path(), &["--format", "prometheus"]));
    let buddyinfo = fs::read_to_string(host.path().join("proc/buddyinfo")).unwrap();
    let dma32 = buddyinfo.lines().find(|line| line.contains("DMA32")).unwrap();
    for (order, blocks) in dma32.split_ascii_whitespace().skip(4).enumerate() {
        let sample =
            format!("nofrag_free_blocks{{node=\"0\",zone=\"DMA32\",order=\"{order}\"}} {blocks}\n");
        assert!(text.contains(&sample), "{sample}");
    }
    let vmstat = fs::read_to_string(host.path().join("proc/vmstat")).unwrap();
    let stalls = vmstat.lines().find_map(|line| line.strip_prefix("compact_stall ")).unwrap();
    assert!(text.contains(&format!("\nnofrag_compaction_stalls_total {stalls}\n")));
    // Types by name.
    assert!(text.contains("migratetype=\"reclaimable\"}"));
}

/// Checks that areas that wait for a purge are told apart from used ones, and that the figures are those of `host
/// vmalloc` (docs/sources/trace.md#t5).
#[test]
fn lazy_areas_are_told_from_used_ones() {
    let host = repository().join("data/hosts/vm-6.18-x86_64");
    let text = text(&once(&host, &["--format", "prometheus"]));
    let report = nofrag(&["host", "vmalloc", "--json", "--root", host.to_str().unwrap()]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let figures = [
        ("nofrag_vmalloc_bytes{state=\"used\"}", &report["totals"]["live_bytes"]),
        ("nofrag_vmalloc_bytes{state=\"lazy\"}", &report["lazy"]["bytes"]),
        ("nofrag_vmalloc_lazy_limit_bytes", &report["lazy"]["limit_bytes"]),
    ];
    for (sample, value) in figures {
        assert!(text.contains(&format!("\n{sample} {value}\n")), "{sample} {value}:\n{text}");
    }
    assert!(text.contains("nofrag_vmalloc_largest_request_bytes{region="), "{text}");
}

/// Checks that names and units follow the conventions, and that every help text is a sentence.
#[test]
fn names_follow_the_conventions() {
    for family in families(&once(guest().path(), &["--json"])) {
        let name = family["name"].as_str().unwrap();
        assert!(name.starts_with("nofrag_"), "{name}");
        assert!(!name.ends_with("_total"), "{name}");
        if let Some(unit) = family["unit"].as_str() {
            assert!(name.ends_with(&format!("_{unit}")), "{name} has unit {unit}");
        }
        assert!(family["help"].as_str().unwrap().ends_with('.'), "{name}");
    }
}

#[test]
fn promtool_finds_nothing_wrong() {
    if !has("promtool") {
        return;
    }
    let host = guest();
    promtool(&["check", "metrics"], &text(&once(host.path(), &["--format", "prometheus"])));
    let live = nofrag(&["export", "--once", "--format", "prometheus", "--processes", "3"]);
    promtool(&["check", "metrics"], &text(&live));
}

#[test]
fn rules_hold_what_they_promise() {
    if !has("promtool") {
        return;
    }
    let rules = repository().join("contrib/prometheus");
    for (what, file) in [("check", "nofrag.rules.yml"), ("test", "nofrag.rules.test.yml")] {
        promtool(&[what, "rules", rules.join(file).to_str().unwrap()], "");
    }
}

/// Returns the words of a text that begin with `nofrag_`.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let names = words.filter(|word| word.starts_with("nofrag_"));
    names.map(|name| name.trim_end_matches(':').to_owned()).collect()
}

#[test]
fn rules_and_dashboard_ask_for_metrics_that_there_are() {
    let known: BTreeSet<String> =
        families(&once(guest().path(), &["--json"])).iter().map(sampled).collect();
    for file in
        ["contrib/prometheus/nofrag.rules.yml", "contrib/grafana/nofrag.json", "docs/export.md"]
    {
        let asked = names_in(&fs::read_to_string(repository().join(file)).unwrap());
        assert!(asked.len() > 5, "{file}");
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// Passes the dashboard's queries to Prometheus as rules: promtool reads them.
#[test]
fn the_dashboard_asks_in_promql() {
    let text = fs::read_to_string(repository().join("contrib/grafana/nofrag.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (index, panel) in panels.iter().enumerate() {
        assert!(panel["description"].as_str().unwrap().ends_with('.'), "{}", panel["title"]);
        for (part, target) in panel["targets"].as_array().unwrap().iter().enumerate() {
            let asked = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            let asked = Value::from(asked.replace("$instance", ".*"));
            rules += &format!("  - record: panel_{index}_{part}\n    expr: {asked}\n");
        }
    }
    if has("promtool") {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.yml");
        fs::write(&path, rules).unwrap();
        promtool(&["check", "rules", path.to_str().unwrap()], "");
    }
}

/// Checks that docs/export.md lists every metric with its help; on a failure the expected table is printed.
#[test]
fn the_documentation_lists_every_metric() {
    let mut table = String::new();
    for family in families(&once(guest().path(), &["--json"])) {
        let help = family["help"].as_str().unwrap().replace('|', "\\|");
        table +=
            &format!("* `{}` ({}): {help}\n", sampled(&family), family["kind"].as_str().unwrap());
    }
    let documented = fs::read_to_string(repository().join("docs/export.md")).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&documented).contains(&words(&table)), "docs/export.md must have:\n{table}");
}

/// A server that is ended when this is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(more: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
        command.args(["export", "--listen", "127.0.0.1:0"]).args(more);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let rest =
            first.strip_prefix("nofrag: metrics at http://").unwrap_or_else(|| panic!("{first}"));
        let address = rest.split('/').next().unwrap().to_owned();
        // Lines about missing sources follow; no test reads them, and a full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, address }
    }

    /// Returns the head and the body of the answer to a request with these lines.
    fn ask(&self, lines: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = if lines.contains("\nHost: ") { "" } else { "Host: localhost\r\n" };
        let lines = lines.replace('\n', "\r\n");
        write!(stream, "{lines}\r\n{host}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn end(mut self) -> i32 {
        let status = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
        self.child.wait().unwrap().code().expect("it ends in order")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn over_http() {
    let host = guest();
    let server = Server::start(&["--root", host.path().to_str().unwrap()]);
    let (head, body) = server.ask("GET /metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.contains("nofrag_obtainable_blocks{") && !body.contains("# EOF"));
    let (head, body) =
        server.ask("GET /metrics?x HTTP/1.1\nAccept: application/openmetrics-text; version=1.0.0");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let statuses = [
        ("GET / HTTP/1.1", 200),
        ("HEAD /metrics HTTP/1.1", 200),
        ("GET /other HTTP/1.1", 404),
        ("POST /metrics HTTP/1.1\nContent-Length: 0", 405),
    ];
    for (lines, status) in statuses {
        let (head, _) = server.ask(lines);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{lines}: {head}");
    }
    assert_eq!(server.end(), 0);
}

/// Checks that a client that sends half a request and reads nothing does not keep others waiting.
#[test]
fn a_slow_client_keeps_nobody_waiting() {
    let host = guest();
    let server = Server::start(&["--root", host.path().to_str().unwrap()]);
    let mut slow: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    for (index, stream) in slow.iter_mut().enumerate() {
        let end = if index % 2 == 0 { "" } else { "Host: localhost\r\n\r\n" };
        write!(stream, "GET /metrics HTTP/1.1\r\n{end}").unwrap();
    }
    let (head, _) = server.ask("GET /metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    drop(slow);
}

/// Checks that a request for a foreign name gets no metrics: a page in a browser whose name leads to this host got all.
#[test]
fn a_foreign_name_gets_no_metrics() {
    let host = guest();
    let server =
        Server::start(&["--root", host.path().to_str().unwrap(), "--name", "db7.example.net"]);
    for (name, status) in [
        ("evil.example", 421),
        ("evil.example:19909", 421),
        ("localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:19909", 200),
        ("DB7.example.net:19909", 200),
    ] {
        let (head, body) = server.ask(&format!("GET /metrics HTTP/1.1\nHost: {name}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {head}");
        assert!(head.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{head}");
        assert_eq!(body.contains("nofrag_free_blocks"), status == 200, "{name}: {body}");
        assert_eq!(body.contains("behind --name\n"), status == 421, "{name}: {body}");
    }
    let (head, _) = server.ask("GET http://evil.example/metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 421 "), "{head}");
}

/// Checks that a scraper is served beside clients that hold every connection, and come back as soon as they lose one:
/// such clients kept every scraper out.
#[test]
fn holding_all_connections_keeps_nobody_out() {
    let host = guest();
    let server = Server::start(&["--root", host.path().to_str().unwrap()]);
    let mut held = Vec::new();
    for _ in 0..5 {
        held.extend((0..70).map(|_| TcpStream::connect(&server.address).unwrap()));
        let (head, _) = server.ask("GET /metrics HTTP/1.1");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
}

#[test]
fn an_address_that_is_taken_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = nofrag(&["export", "--listen", &address]);
    check(&output, 2, &[&address, "choose another address with --listen"]);
}

/// Checks that Prometheus itself scrapes the server, and then has the figures.
#[test]
fn a_real_scrape() {
    if !has("prometheus") {
        return;
    }
    let host = guest();
    let server = Server::start(&["--root", host.path().to_str().unwrap()]);
    let folder = tempfile::tempdir().unwrap();
    let own = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let config = folder.path().join("prometheus.yml");
    let rules = repository().join("contrib/prometheus/nofrag.rules.yml").canonicalize().unwrap();
    let settings = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\n\
         rule_files: [{}]\nscrape_configs: [{{job_name: nofrag, static_configs: [{{targets: ['{}']}}]}}]\n",
        rules.display(),
        server.address
    );
    fs::write(&config, settings).unwrap();
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={own}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let prometheus = Server { child: prometheus, address: own };
    let buddyinfo = fs::read_to_string(host.path().join("proc/buddyinfo")).unwrap();
    let dma32 = buddyinfo.lines().find(|line| line.contains("DMA32")).unwrap();
    let blocks = dma32.split_ascii_whitespace().nth(4).unwrap();
    let query = "GET /api/v1/query?query=nofrag_free_blocks%7Bzone%3D%22DMA32%22,order%3D%220%22%7D HTTP/1.1";
    let value = wait_for(|| {
        let stream = TcpStream::connect(&prometheus.address);
        stream.ok()?;
        let (_, body) = prometheus.ask(query);
        let answer: Value = serde_json::from_str(body.trim()).ok()?;
        let value = answer["data"]["result"][0]["value"][1].as_str()?;
        Some(value.to_owned())
    });
    assert_eq!(value, blocks);
    let (_, up) = prometheus.ask("GET /api/v1/query?query=up HTTP/1.1");
    assert!(up.contains("\"1\""), "{up}");
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it did not come");
}

#[test]
fn a_textfile_is_written_for_others_to_read() {
    let (host, folder) = (guest(), tempfile::tempdir().unwrap());
    let root = host.path().to_str().unwrap();
    let path = folder.path().join("nofrag.prom");
    let name = path.to_str().unwrap();
    check(&nofrag(&["export", "--textfile", name, "--root", root]), 0, &[]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.ends_with('\n') && !text.contains("# EOF"), "{text}");
    if has("promtool") {
        promtool(&["check", "metrics"], &text);
    }
    let odd = folder.path().join("nofrag.txt");
    let output = nofrag(&["export", "--textfile", odd.to_str().unwrap(), "--root", root]);
    check(&output, 2, &["only files whose names end in .prom"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_textfile_is_written_again_until_a_signal_comes() {
    let (host, folder) = (guest(), tempfile::tempdir().unwrap());
    let path = folder.path().join("nofrag.prom");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nofrag"));
    command.args(["export", "--every", "0.1", "--textfile"]).arg(&path);
    let child = command.arg("--root").arg(host.path()).stderr(Stdio::null()).spawn().unwrap();
    let writer = Server { child, address: String::new() };
    let inode = || fs::metadata(&path).ok().map(|metadata| metadata.ino());
    let first = wait_for(inode);
    wait_for(|| inode().filter(|&now| now != first));
    assert_eq!(writer.end(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
}

/// Checks that without rights the export works, and lists the sources that are missing
/// (docs/sources/trace.md#oracle-13).
#[test]
fn without_rights_export_names_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let program = copied_into(folder.path());
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let mut command = Command::new(&program);
    command.args(["export", "--once", "--types"]);
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap_or_else(|_| {
        Command::new(&program).args(["export", "--once", "--types"]).output().unwrap()
    });
    let text = text(&output);
    if fs::metadata(folder.path()).unwrap().uid() != 0 {
        return eprintln!("skipped: only root can give up its rights");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    for (source, file) in
        [("vmallocinfo", "/proc/vmallocinfo"), ("pagetypeinfo", "/proc/pagetypeinfo")]
    {
        assert!(said.contains(&format!("missing: {file}: ")), "{said}");
        assert!(text.contains(&format!("nofrag_source_missing{{source=\"{source}\"}} 1\n")));
    }
    assert!(text.contains("nofrag_source_missing{source=\"memory\"} 0\n"), "{text}");
}
