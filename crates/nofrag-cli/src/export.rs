//! `nofrag export`: this host's fragmentation as metrics.

mod names;
mod seats;
mod serve;
mod textfile;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use nofrag_host::metrics::{self, Detail, Family};
use nofrag_host::record::Tally;
use nofrag_host::source::Missing;
use nofrag_host::watch::{History, Watch};
use nofrag_show::Schema;
use serde::Serialize;

use crate::offer::seconds;
use crate::stop::Stop;
use crate::watching::{Watching, missing};
use crate::{Status, output};

const AFTER_HELP: &str = "\
Without an option it answers Prometheus at http://127.0.0.1:19909/metrics, which only this host reaches. A
scrape reads some small files of /proc, a quarter of a millisecond; what costs more (the vmalloc space,
the areas of processes) is read so seldom that it stays below a hundredth of a core. What cannot be read is
named on standard error and has nofrag_source_missing 1; /proc/vmallocinfo and the processes of others
need root.

contrib/ has alert rules, recording rules and a Grafana dashboard.

Examples:
  nofrag export                                       serve metrics until Ctrl-C
  nofrag export --listen 10.0.0.7:19909               where other hosts reach it, too
  nofrag export --listen 10.0.0.7:19909 --name db7.example.net
                                                      the same, asked for by a name
  nofrag export --once                                print them
  nofrag export --textfile /var/lib/node_exporter/nofrag.prom --every 15
                                                      for node_exporter's textfile collector
  sudo nofrag export --events                         count fallbacks between types, compaction, reclaim, too
  nofrag export --once --json                         for machines (schema nofrag.export)

Exit status:
  0  done, or ended by a signal
  2  bad use, the address is taken, or the file cannot be written";

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Serve metrics over HTTP at this address; anyone who reaches it may read them
    #[arg(
        long, value_name = "ADDRESS", default_value = "127.0.0.1:19909", value_parser = parse_address,
        conflicts_with_all = ["textfile", "once"]
    )]
    listen: SocketAddr,

    /// Answer for this name, too, by which scrapers may know the host
    ///
    /// Questions for localhost, for the address itself and, unless that is a loopback address, for the name of this
    /// host have an answer; any other name may be that of a page in a browser.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["textfile", "once"])]
    name: Vec<String>,

    /// Write metrics to FILE, whose name ends in .prom, for node_exporter's textfile collector
    ///
    /// The file is replaced as a whole, so that no program reads half of it. It stays when the command ends.
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    textfile: Option<PathBuf>,

    /// With --textfile, write the file again every SECONDS seconds, until a signal comes
    #[arg(long, value_name = "SECONDS", requires = "textfile", value_parser = seconds(0.1..=86_400.0))]
    every: Option<Duration>,

    /// Print metrics to standard output
    #[arg(long)]
    once: bool,

    /// With --once, the form of the text
    #[arg(long, value_enum, default_value_t = Format::Openmetrics, requires = "once", conflicts_with = "json")]
    format: Format,

    /// With --once, print JSON for machines: one object, schema nofrag.export
    #[arg(long, requires = "once")]
    json: bool,

    /// Give the N processes with most areas metrics of their own
    #[arg(long, value_name = "N", default_value_t = 0)]
    processes: usize,

    #[command(flatten)]
    watching: Watching,
}

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// OpenMetrics 1.0
    Openmetrics,
    /// The text format of Prometheus, which the textfile collector reads
    Prometheus,
}

impl From<Format> for metrics::Format {
    fn from(format: Format) -> metrics::Format {
        match format {
            Format::Openmetrics => metrics::Format::OpenMetrics,
            Format::Prometheus => metrics::Format::Prometheus,
        }
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "not an address in numbers with a port, such as 127.0.0.1:19909 or [::1]:19909".to_owned()
    })
}

pub(crate) const SCHEMA: Schema = Schema { name: "nofrag.export", version: 1 };

/// Every metric that docs/export.md lists, those without a sample included.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document<'a> {
    families: &'a [Family],
    missing: Vec<&'a Missing>,
}

/// The source of the metrics.
struct Exporter {
    watch: Watch,
    tally: Option<Tally>,
    /// Points of the watch for forecasts: added seldom, so that they reach back for hours.
    history: History,
    /// The time of the history's next point, as a time of the watch.
    next_point: Duration,
    detail: Detail,
}

/// The reach of forecasts into the past, at any rate of scrapes.
const BACK: Duration = Duration::from_secs(5 * 3600);
const KEPT_POINTS: usize = 600;
const BETWEEN_POINTS: Duration = Duration::from_secs(30);

impl Exporter {
    /// Reads the sources that are due, and returns the metrics.
    fn families(&mut self) -> Result<Vec<Family>> {
        self.count()?;
        let look = self.watch.look();
        if look.at >= self.next_point {
            self.history.push(look.at, look.own_cpu, &look.snapshot());
            self.next_point = look.at + BETWEEN_POINTS;
        }
        Ok(metrics::families(look, &self.history, self.tally.as_ref(), self.detail))
    }

    /// Counts the events that came meanwhile.
    fn count(&mut self) -> Result<()> {
        Ok(self.tally.as_mut().map_or(Ok(()), Tally::update)?)
    }

    /// Reports once the data that could not be had.
    fn tell_missing(&self) {
        for line in missing(self.watch.last(), self.tally.as_ref()) {
            eprintln!("nofrag: missing: {line}");
        }
    }
}

/// Exports metrics as `args` says.
pub(crate) fn execute(args: &Args) -> Result<Status> {
    // Before tracing begins, so that no signal leaves it on.
    let stop = Stop::on_signals()?;
    let mut exporter = Exporter {
        watch: args.watching.watch()?,
        tally: args.watching.tally()?,
        history: History::new(KEPT_POINTS).reaching_back(BACK),
        next_point: Duration::ZERO,
        detail: Detail { processes: args.processes },
    };
    let outcome = match (&args.textfile, args.once) {
        (Some(path), _) => write_textfile(&mut exporter, path, args.every, &stop),
        (None, true) => print_once(&mut exporter, args),
        (None, false) => serve::serve(&mut exporter, args.listen, &args.name, &stop),
    };
    let ended = exporter.tally.map_or(Ok(()), Tally::end);
    outcome?;
    ended?;
    Ok(Status::Done)
}

fn print_once(exporter: &mut Exporter, args: &Args) -> Result<()> {
    let families = exporter.families()?;
    if !args.json {
        exporter.tell_missing();
        return output::print(&metrics::text(&families, args.format.into()));
    }
    let families = &families;
    let missing = exporter.watch.last().missing().collect();
    output::print_document(SCHEMA, &Document { families, missing })
}

fn write_textfile(
    exporter: &mut Exporter,
    path: &std::path::Path,
    every: Option<Duration>,
    stop: &Stop,
) -> Result<()> {
    textfile::check_name(path)?;
    let mut told = false;
    loop {
        let began = Instant::now();
        let text = metrics::text(&exporter.families()?, metrics::Format::Prometheus);
        textfile::replace(path, &text)?;
        if !std::mem::replace(&mut told, true) {
            exporter.tell_missing();
        }
        let Some(every) = every else { return Ok(()) };
        while began.elapsed() < every {
            if stop.is_asked() {
                return Ok(());
            }
            std::thread::sleep(every.saturating_sub(began.elapsed()).min(TICK));
        }
    }
}

/// Time between two looks at signals.
const TICK: Duration = Duration::from_millis(200);
