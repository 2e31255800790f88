//! `nofrag top`: a host while it works.

mod keys;
mod screen;
mod terminal;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nofrag_host::finding::Severity;
use nofrag_host::record::Tally;
use nofrag_host::watch::page::{EventHistory, Page, Sorting};
use nofrag_host::watch::{History, Source, Watch};

use self::keys::{Heard, Key, Keyboard};
use self::terminal::Screen;
use crate::offer::seconds;
use crate::stop::Stop;
use crate::watching::Watching;
use crate::{Status, output};
use nofrag_show::host::watch;
use nofrag_show::{Look, Schema};

const AFTER_HELP: &str = "\
Keys: q quits, space pauses, + and - change the time between looks, left and right the order that is
followed, s sorts the rows, t reads /proc/pagetypeinfo once, h shows all of them.

Every look reads some small files of /proc, a quarter of a millisecond; what costs more (the vmalloc space,
the areas of processes) is read so seldom that it stays below a hundredth of a core. What watching costs
is shown in the first line. Nothing on the host is changed; --events counts events of the kernel in a
tracefs instance of its own, which is gone when the command ends, however it ends.

Examples:
  nofrag top                          this host, every second
  sudo nofrag top --events            with fallbacks between types, compaction and reclaim as they happen
  nofrag top --every 10 --order 4     every ten seconds, following blocks of order 4
  nofrag top --once                   two looks a second apart, as text
  nofrag top --once --json            the same for machines (schema nofrag.top)

Exit status:
  0  ended by a key or a signal, or with its terminal, or shown once
  2  bad use, no terminal, or events could not be counted";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Seconds from look to look
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds(EVERY))]
    every: Duration,

    /// The order to follow: its blocks over time, its indices, and when none is left
    #[arg(
        long, value_name = "ORDER", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_ORDER))
    )]
    order: u32,

    /// Number of processes to show
    #[arg(long, value_name = "N", default_value_t = 8)]
    processes: usize,

    /// Look twice (once at a captured host), print the result as text, and end
    #[arg(long)]
    once: bool,

    /// With --once, print JSON for machines: one object, schema nofrag.top
    #[arg(long, requires = "once")]
    json: bool,

    #[command(flatten)]
    watching: Watching,
}

/// The largest order that can be followed; no kernel has a larger one.
const MOST_ORDER: u32 = 13;

/// Number of looks that are kept: ten minutes at the default rate.
const KEPT_LOOKS: usize = 600;

/// The shortest and the longest time from look to look.
const EVERY: std::ops::RangeInclusive<f64> = 0.25..=3600.0;

/// Time between two looks at signals.
const TICK: Duration = Duration::from_millis(200);

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.top", version: 1 };

/// Watches the host as `args` says.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    if !args.once {
        let help = "--once prints what there is as text, and --once --json for machines";
        ensure!(std::io::stdout().is_terminal(), "standard output is no terminal: {help}");
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        ensure!(!dumb, "TERM names no terminal that can be drawn on: {help}");
    }
    // Before tracing begins, so that no signal leaves it on.
    let stop = Stop::on_signals()?;
    let mut top = Top::new(args)?;
    let outcome = if args.once { top.print_once(args, &stop) } else { top.run(&stop) };
    let ended = top.tally.map_or(Ok(()), Tally::end);
    outcome?;
    ended?;
    Ok(Status::Done)
}

/// The watch, and its view.
struct Top {
    watch: Watch,
    tally: Option<Tally>,
    history: History,
    events: EventHistory,
    processes: usize,
    view: View,
}

/// The state of the display.
struct View {
    page: Page,
    /// The obtainable blocks at each look that is kept, by order.
    courses: Vec<Vec<u64>>,
    every: Duration,
    /// True while the keys are shown in place of the host.
    shows_help: bool,
    is_paused: bool,
    sorting: Sorting,
    look: Look,
    /// Reason why the last key could not be obeyed.
    note: Option<String>,
}

/// The next act of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    Suspend,
    Quit,
}

impl Top {
    fn new(args: &Args) -> Result<Top> {
        let mut watch = args.watching.watch()?;
        let mut tally = args.watching.tally()?;
        let (mut history, mut events) = (History::new(KEPT_LOOKS), EventHistory::default());
        take(&mut watch, &mut tally, &mut history, &mut events)?;
        let last = events.last().cloned();
        let page = Page::of(watch.last(), &history, last, args.order, args.processes);
        let view = View {
            page,
            courses: Vec::new(),
            look: Look::of_stdout(),
            every: args.every,
            shows_help: false,
            is_paused: false,
            sorting: Sorting::default(),
            note: None,
        };
        let mut top = Top { watch, tally, history, events, processes: args.processes, view };
        top.refresh(args.order);
        Ok(top)
    }

    /// Looks at the host and refreshes the view.
    fn look(&mut self) -> Result<()> {
        take(&mut self.watch, &mut self.tally, &mut self.history, &mut self.events)?;
        self.refresh(self.view.page.order);
        Ok(())
    }

    /// Shows the latest state, following `order`.
    fn refresh(&mut self, order: u32) {
        let events = self.events.last().cloned();
        self.view.page = Page::of(self.watch.last(), &self.history, events, order, self.processes);
        self.view.page.sort(self.view.sorting);
        let course = |order| self.history.obtainable(order).map(|(_, blocks)| blocks).collect();
        let most = self.view.page.most_order().map_or(order, |most| most.max(order));
        self.view.courses = (0..=most).map(course).collect();
    }

    fn print_once(&mut self, args: &Args, stop: &Stop) -> Result<()> {
        if args.watching.is_live() {
            let began = Instant::now();
            while began.elapsed() < args.every && !stop.is_asked() {
                std::thread::sleep(TICK.min(args.every.saturating_sub(began.elapsed())));
            }
            // Two looks were asked for: the pace is for an observation that goes on.
            self.watch.ask_for(Source::Memory);
            self.look()?;
        }
        let page = &self.view.page;
        let text = || watch::text(page, Look::of_stdout());
        output::print_result(args.json.then_some(SCHEMA), page, text)
    }

    /// Draws and looks until the user or a signal ends it.
    fn run(&mut self, stop: &Stop) -> Result<()> {
        let keyboard = Keyboard::open().context("keys cannot be read")?;
        let mut screen = Screen::enter().context("the terminal cannot be drawn on")?;
        let mut due = Instant::now() + self.view.every;
        let mut is_new = true;
        while !stop.is_asked() {
            if !self.view.is_paused && Instant::now() >= due {
                due = Instant::now() + self.view.every;
                let before = self.severity();
                self.look()?;
                if self.severity() > before {
                    screen.ring();
                }
                is_new = true;
            }
            if screen.was_stopped() {
                screen.suspend().context("the terminal cannot be drawn on")?;
                is_new = true;
            }
            if std::mem::take(&mut is_new) {
                let view = &self.view;
                match screen.draw(|frame| screen::draw(frame, view)) {
                    Err(_) if screen.is_gone() => break,
                    drawn => drawn.context("the terminal cannot be drawn on")?,
                }
            }
            let wait = match self.view.is_paused {
                false => due.saturating_duration_since(Instant::now()).min(TICK),
                true => TICK,
            };
            let keys = match keyboard.wait(wait).context("keys cannot be read")? {
                Heard::Nothing => Vec::new(),
                Heard::Keys(keys) => keys,
                Heard::Gone => break,
            };
            is_new = screen.was_resized() || !keys.is_empty();
            for key in keys {
                match self.press(key) {
                    Next::Go => due = due.min(Instant::now() + self.view.every),
                    Next::Suspend => screen.suspend()?,
                    Next::Quit => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Returns how urgent the verdict is, the more urgent the greater.
    fn severity(&self) -> Option<std::cmp::Reverse<Severity>> {
        self.view.page.verdict.as_ref()?.severity().map(std::cmp::Reverse)
    }

    fn press(&mut self, key: Key) -> Next {
        self.view.note = None;
        let order = self.view.page.order;
        match key {
            Key::Quit => return Next::Quit,
            Key::Suspend => return Next::Suspend,
            Key::Pause => self.view.is_paused = !self.view.is_paused,
            Key::Faster => self.look_more_often(2.0),
            Key::Slower => self.look_more_often(0.5),
            Key::Smaller => self.refresh(order.saturating_sub(1)),
            Key::Larger => {
                self.refresh((order + 1).min(self.view.page.most_order().unwrap_or(MOST_ORDER)))
            }
            Key::Types => {
                self.watch.ask_for(Source::Types);
                if self.view.is_paused {
                    self.view.note = Some("pagetypeinfo is read when it goes on: space".to_owned());
                }
            }
            Key::Sort => {
                self.view.sorting = self.view.sorting.next();
                self.refresh(order);
            }
            Key::Help => self.view.shows_help = !self.view.shows_help,
            Key::Back => self.view.shows_help = false,
            Key::Unknown => self.view.note = Some("h shows the keys".to_owned()),
        }
        Next::Go
    }

    fn look_more_often(&mut self, times: f64) {
        let seconds = self.view.every.as_secs_f64() / times;
        self.view.every = Duration::from_secs_f64(seconds.clamp(*EVERY.start(), *EVERY.end()));
    }
}

/// Reads the sources that are due, and keeps the results.
fn take(
    watch: &mut Watch,
    tally: &mut Option<Tally>,
    history: &mut History,
    events: &mut EventHistory,
) -> Result<()> {
    let look = watch.look();
    history.push(look.at, look.own_cpu, &look.snapshot());
    if let Some(tally) = tally {
        tally.update()?;
        events.push(look.at, tally);
    }
    Ok(())
}
