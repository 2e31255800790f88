//! `nofrag top` in a terminal: its contents, its keys, other sizes, and the terminal's state afterwards.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::Value;

use crate::export::guest;
use crate::json::check_documented;
use crate::support::{check, nofrag};

// The command's own file: the child below panics with it.
#[allow(dead_code, reason = "the child only enters and draws")]
#[path = "../../src/top/terminal.rs"]
mod terminal;

/// A process in a terminal of its own, and the contents of that.
struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    shown: Arc<Mutex<vt100::Parser>>,
    /// The settings of the terminal before.
    settings: String,
    name: PathBuf,
}

impl Terminal {
    fn of_command(mut command: CommandBuilder) -> Terminal {
        let size = PtySize { rows: 40, cols: 130, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        let name = pair.master.tty_name().unwrap();
        let settings = settings(&name);
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        let child = pair.slave.spawn_command(command).unwrap();
        let shown = Arc::new(Mutex::new(vt100::Parser::new(size.rows, size.cols, 0)));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let into = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                into.lock().unwrap().process(&bytes[..read]);
            }
        });
        let keys = pair.master.take_writer().unwrap();
        // The slave stays open in `pair.slave` until here; the terminal lives as long as its master.
        Terminal { child, master: pair.master, keys, shown, settings, name }
    }

    /// Starts `nofrag top` on a captured host, or with these arguments.
    fn of_top(args: &[&str]) -> Terminal {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_nofrag"));
        command.arg("top");
        command.args(args);
        Terminal::of_command(command)
    }

    fn screen(&self) -> MutexGuard<'_, vt100::Parser> {
        self.shown.lock().unwrap()
    }

    fn text(&self) -> String {
        self.screen().screen().contents()
    }

    /// Waits until the terminal shows `part`.
    fn expect(&self, part: &str) {
        wait_for(|| self.text().contains(part), || format!("no {part:?} in:\n{}", self.text()));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn signal(&self, name: &str) {
        let pid = self.child.process_id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn resize(&self, rows: u16, cols: u16) {
        self.screen().screen_mut().set_size(rows, cols);
        self.master.resize(PtySize { rows, cols, ..PtySize::default() }).unwrap();
    }

    /// Waits for the process to end with `status`; checks that the terminal's settings are as before, and returns what
    /// it shows.
    fn check_ended(mut self, status: u32) -> String {
        let deadline = Instant::now() + PATIENCE;
        let ended = loop {
            match self.child.try_wait().unwrap() {
                Some(ended) => break ended,
                None if Instant::now() > deadline => {
                    self.child.kill().unwrap();
                    panic!("it does not end:\n{}", self.text());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        assert_eq!(ended.exit_code(), status, "{}", self.text());
        self.check_clean();
        self.text()
    }

    fn check_clean(&self) {
        let is_plain = || {
            let parser = self.screen();
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        };
        wait_for(is_plain, || format!("the screen is not given back:\n{}", self.text()));
        assert_eq!(settings(&self.name), self.settings);
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

fn wait_for(is: impl Fn() -> bool, why: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the settings of the terminal.
fn settings(terminal: &Path) -> String {
    let output = Command::new("stty").arg("-F").arg(terminal).arg("-g").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Starts `nofrag top` on the recorded guest, and waits until it is drawn.
fn started() -> (tempfile::TempDir, Terminal) {
    let host = guest();
    let top = Terminal::of_top(&["--every", "0.25", "--root", host.path().to_str().unwrap()]);
    top.expect("q quit");
    (host, top)
}

#[test]
fn keys_do_what_is_shown() {
    let (_host, mut top) = started();
    top.expect("Linux 6.1.0-53-cloud-amd64");
    top.expect("Order 9 (2 MiB)");
    top.expect("DMA32");
    top.expect("of a core");
    top.press("\x1b[C");
    top.expect("Order 10 (4 MiB)");
    top.press("\x1b[D\x1b[D");
    top.expect("Order 8 (1 MiB)");
    top.press("+");
    top.expect("every 0.25 s");
    top.press("-");
    top.expect("every 0.5 s");
    top.press(" ");
    top.expect("paused");
    top.press(" ");
    top.press("t");
    top.expect("Pageblocks: ");
    top.press("x");
    top.expect("h shows the keys");
    top.press("h");
    top.expect("follow the next larger order");
    top.press("q");
    top.check_ended(0);
}

#[test]
fn every_way_to_end_gives_the_terminal_back() {
    for keys in ["q", "\x03"] {
        let (_host, mut top) = started();
        assert!(top.screen().screen().alternate_screen());
        top.press(keys);
        top.check_ended(0);
    }
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1"] {
        let (_host, top) = started();
        top.signal(signal);
        top.check_ended(0);
    }
}

const CHILD: &str = "NOFRAG_TEST_PANICS";

/// Draws a screen and panics; not a test by itself: the next one runs it in a terminal.
#[test]
fn child_that_panics() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut screen = terminal::Screen::enter().unwrap();
    screen.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
    panic!("a planted panic");
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
    command.args(["--exact", "top::child_that_panics", "--nocapture"]);
    command.env(CHILD, "1");
    let said = Terminal::of_command(command).check_ended(101);
    assert!(said.contains("a planted panic"), "{said}");
}

#[test]
fn it_stops_like_any_job_and_goes_on() {
    let (_host, mut top) = started();
    let pid = top.child.process_id().unwrap();
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    };
    for stop in ["key", "signal"] {
        match stop {
            "key" => top.press("\x1a"),
            _ => top.signal("TSTP"),
        }
        wait_for(is_stopped, || format!("{stop} does not stop it"));
        top.check_clean();
        top.signal("CONT");
        wait_for(|| top.screen().screen().alternate_screen(), || "it does not go on".to_owned());
        top.expect("q quit");
    }
    top.press("q");
    top.check_ended(0);
}

/// Checks that an incomplete sequence of a key neither keeps a core busy nor hides signals (`gone_terminal`,
/// `torn_sequence`, `paused_spin`): input from the keyboard, or its lack, did.
#[test]
fn torn_sequence() {
    for keys in ["\x1b[", "\x1bO1;", "\u{e4}"] {
        let (_host, mut top) = started();
        let half = &keys.as_bytes()[..keys.len() - usize::from(!keys.is_ascii())];
        top.keys.write_all(half).unwrap();
        top.expect("h shows the keys");
        top.signal("TERM");
        top.check_ended(0);
    }
}

/// Checks that the command ends in order when its terminal has gone away (`gone_terminal`): a message on standard
/// error, which is the same terminal, that it cannot be given back was a panic, and another one in telling of that,
/// which ended the command by `SIGABRT`.
#[test]
fn gone_terminal() {
    let host = guest();
    for size in [PtySize::default(), PtySize { rows: 60, cols: 200, ..PtySize::default() }] {
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_nofrag"));
        // Soon it draws again, and may do so before it has heard of the end.
        command.args(["top", "--every", "0.25", "--root", host.path().to_str().unwrap()]);
        command.env("TERM", "xterm-256color");
        let mut child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (mut drawn, mut part) = (Vec::new(), [0; 4096]);
        while !drawn.windows(6).any(|bytes| bytes == b"q quit") {
            let read = reader.read(&mut part).unwrap();
            drawn.extend_from_slice(&part[..read]);
        }
        drop((reader, pair));
        let deadline = Instant::now() + PATIENCE;
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(ended) => break ended,
                None if Instant::now() > deadline => {
                    child.kill().unwrap();
                    panic!("it goes on without a terminal");
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        assert!(ended.success(), "{ended:?}");
    }
}

/// Returns the CPU time that a process has taken, in the kernel's ticks.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn paused_spin() {
    let (_host, mut top) = started();
    top.press(" ");
    top.expect("paused");
    // The next look was due after a quarter of a second.
    std::thread::sleep(Duration::from_millis(300));
    let pid = top.child.process_id().unwrap();
    let before = ticks(pid);
    std::thread::sleep(Duration::from_millis(700));
    // At most seventy; a busy machine only makes them fewer.
    let taken = ticks(pid) - before;
    assert!(taken < 20, "{taken} ticks while nothing is to be done");
    top.press("q");
    top.check_ended(0);
}

/// Checks that at any width a number on the screen is one of the host's, with all its digits (`cut_digits`).
#[test]
fn cut_digits() {
    let (host, mut top) = started();
    top.press(" ");
    top.expect("paused");
    let buddyinfo = fs::read_to_string(host.path().join("proc/buddyinfo")).unwrap();
    let line = buddyinfo.lines().find(|line| line.contains("DMA32")).unwrap();
    let known: Vec<&str> = line.split_whitespace().skip(4).collect();
    for cols in [100, 80, 60, 40] {
        top.resize(30, cols);
        let is_whole = || {
            let text = top.text();
            let Some(row) = text.lines().find(|line| line.starts_with("DMA32")) else {
                return false;
            };
            // Zone, free memory, perhaps its share, its place among the marks, boost, the indices: then blocks by
            // order.
            let blocks: Vec<&str> = row
                .split_whitespace()
                .rev()
                .take_while(|word| !word.contains(['.', '-', 'B']))
                .collect();
            let are_known = blocks.len() >= 2 && blocks.iter().all(|word| known.contains(word));
            row.len() <= usize::from(cols) && are_known && row.contains("152 MiB")
        };
        // A drawing for the former width is cut here, until the next drawing.
        wait_for(is_whole, || format!("no whole row in {cols} columns:\n{}", top.text()));
    }
    top.press("q");
    top.check_ended(0);
}

#[test]
fn roomy_screens_show_the_course_of_every_order() {
    let (_host, top) = started();
    top.resize(60, 120);
    top.expect("each order on its own scale");
    top.resize(24, 80);
    wait_for(|| !top.text().contains("own scale"), || top.text());
    top.signal("TERM");
    top.check_ended(0);
}

/// Checks that a key sorts the rows, and that the smallest usual screen shows it, its name and the whole line of keys.
#[test]
fn rows_are_sorted_in_80_columns_and_24_rows() {
    let host = guest();
    // All that is free in the lowest zone is in the largest blocks.
    let buddyinfo = host.path().join("proc/buddyinfo");
    let text = fs::read_to_string(&buddyinfo).unwrap();
    let whole = text.lines().map(|line| match line.contains("DMA ") {
        true => "Node 0, zone DMA 0 0 0 0 0 0 0 0 0 0 3\n".to_owned(),
        false => format!("{line}\n"),
    });
    fs::write(&buddyinfo, whole.collect::<String>()).unwrap();
    let mut top = Terminal::of_top(&["--root", host.path().to_str().unwrap()]);
    top.expect("q quit");
    top.resize(24, 80);
    let zones = |text: &str| -> String {
        let zone = |line: &str| Some(line.split_once(' ')?.0.to_owned());
        let zones = text.lines().filter(|line| line.starts_with("DMA")).filter_map(zone);
        zones.collect::<Vec<_>>().join(" ")
    };
    let shows = |top: &Terminal, sorting: &str, wanted: &str| {
        let is_shown = || {
            let text = top.text();
            let first = text.lines().next().unwrap_or_default();
            let keys = text.lines().last().unwrap_or_default().trim_end();
            (sorting.is_empty() || first.contains(sorting))
                && zones(&text) == wanted
                && keys.starts_with("q quit")
                && keys.ends_with("s sort  t types")
        };
        wait_for(is_shown, || format!("not {wanted:?} {sorting}:\n{}", top.text()));
    };
    shows(&top, "", "DMA DMA32");
    top.press("s");
    shows(&top, "worst first", "DMA32 DMA");
    top.press("s");
    shows(&top, "by name", "DMA DMA32");
    top.press("?");
    top.expect("sort rows: as listed, worst first, by name");
    top.press("q");
    top.check_ended(0);
}

#[test]
fn an_order_that_no_list_has_is_said() {
    let (_host, mut top) = started();
    top.press("\x1b[C\x1b[C\x1b[C");
    top.expect("Order 10 (4 MiB)");
    top.press("q");
    top.check_ended(0);
    let output = once(guest().path(), &["--order", "12"]);
    check(&output, 0, &["Order 12 (16 MiB): this kernel keeps no block above order 10."]);
}

#[test]
fn it_survives_every_size() {
    let (_host, mut top) = started();
    for (rows, cols) in [(1, 1), (3, 200), (60, 10), (24, 80), (5, 20), (50, 250)] {
        top.resize(rows, cols);
        std::thread::sleep(Duration::from_millis(30));
    }
    top.expect("Linux 6.1.0-53-cloud-amd64");
    top.expect("q quit");
    top.press("q");
    top.check_ended(0);
}

#[test]
fn colours_are_left_out_where_they_are_refused() {
    let host = guest();
    let zoneinfo = host.path().join("proc/zoneinfo");
    // Every zone is below its watermarks.
    let text = fs::read_to_string(&zoneinfo).unwrap().replace("pages free ", "pages free 1");
    let low: String = text
        .lines()
        .map(|line| {
            let is_free = line.trim_start().starts_with("pages free");
            if is_free { "  pages free     1\n".to_owned() } else { format!("{line}\n") }
        })
        .collect();
    fs::write(&zoneinfo, low).unwrap();
    let coloured = |refused: &str| {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_nofrag"));
        command.args(["top", "--root", host.path().to_str().unwrap()]);
        command.env("NO_COLOR", refused);
        let mut top = Terminal::of_command(command);
        top.expect("below min");
        let found = {
            let parser = top.screen();
            let (rows, cols) = parser.screen().size();
            let cells = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
            let colour = |(row, col)| parser.screen().cell(row, col).map(|cell| cell.fgcolor());
            cells.filter_map(colour).any(|colour| colour != vt100::Color::Default)
        };
        top.press("q");
        top.check_ended(0);
        found
    };
    assert!(coloured(""));
    assert!(!coloured("1"));
}

/// Measures the share of a core that watching and drawing this host take, at the default rate and on a large screen.
#[test]
#[ignore = "takes a minute, and says something only of an optimised build"]
fn a_minute_of_top() {
    for args in [&[][..], &["--types"], &["--events"]] {
        let mut top = Terminal::of_top(args);
        top.resize(60, 200);
        top.expect("q quit");
        let pid = top.child.process_id().unwrap();
        let taken = || -> u64 {
            let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
            schedstat.split_whitespace().next().unwrap().parse().unwrap()
        };
        let (began, before) = (Instant::now(), taken());
        std::thread::sleep(Duration::from_secs(60));
        let share = (taken() - before) as f64 / began.elapsed().as_nanos() as f64;
        let shown = top.text();
        let said = shown.split_once("cost ").unwrap().1.split_once(',').unwrap().0;
        println!("nofrag top {}: {:.2} % of a core; it says {said}", args.join(" "), share * 100.0);
        assert!(share < 0.01, "{share}");
        top.press("q");
        top.check_ended(0);
    }
}

/// Checks that at every end no instance of the ring buffer remains (docs/sources/trace.md#oracle-12).
#[test]
fn events_are_counted_and_tracing_is_gone_afterwards() {
    let folders = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"];
    let Some(instances) = folders.map(Path::new).into_iter().find(|path| path.is_dir()) else {
        return eprintln!("skipped: no tracefs that this user can see");
    };
    let own = |pid: u32| {
        let names = fs::read_dir(instances).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.starts_with(&format!("nofrag-{pid}-")))
    };
    for end in ["q", "TERM", "KILL"] {
        let mut top = Terminal::of_top(&["--events=mm_page_alloc,rare", "--every", "0.25"]);
        top.expect("kmem:mm_page_alloc");
        let pid = top.child.process_id().unwrap();
        assert!(own(pid));
        match end {
            "q" => top.press("q"),
            signal => top.signal(signal),
        }
        if end != "KILL" {
            top.check_ended(0);
        } else {
            top.child.wait().unwrap();
            // The next command that traces removes it.
            check(&nofrag(&["export", "--once", "--events"]), 0, &[]);
        }
        assert!(!own(pid), "{end} leaves the instance");
    }
}

fn once(root: &Path, more: &[&str]) -> std::process::Output {
    nofrag(&[&["top", "--once", "--root", root.to_str().unwrap()], more].concat())
}

/// Checks the whole page of the recorded guest. After a wanted change, the output of the failure is the new one.
#[test]
fn once_prints_the_page() {
    let host = guest();
    let output = once(host.path(), &["--types", "--without", "vmalloc,maps"]);
    check(&output, 0, &[]);
    let page = String::from_utf8(output.stdout).unwrap();
    let expected = include_str!("top.txt");
    assert_eq!(page, expected, "{page}");
    let missing = ["Missing", "it costs the vmalloc space.", "it costs the limit of areas."];
    check(&once(host.path(), &[]), 0, &missing);
}

#[test]
fn once_for_machines() {
    let host = guest();
    let output = once(host.path(), &["--json", "--order", "10"]);
    check(&output, 0, &[]);
    let page = check_documented(&output);
    assert_eq!((&page["order"], &page["events"]), (&10.into(), &Value::Null));
    assert_eq!(page["zones"].as_array().unwrap().len(), 2);
    let live = nofrag(&["top", "--once", "--json", "--every", "0.25"]);
    check(&live, 0, &[]);
    let page = check_documented(&live);
    assert!(page["interval_seconds"].as_f64().unwrap() >= 0.25, "{page}");
    assert!(page["cost_share"].as_f64().unwrap() > 0.0, "{page}");
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    check(&nofrag(&["top"]), 2, &["standard output is no terminal", "--once"]);
    check(&nofrag(&["top", "--every", "0.01"]), 2, &["not between 0.25 and 3600 seconds"]);
}
