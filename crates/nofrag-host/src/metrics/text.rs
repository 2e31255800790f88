//! Writes metric families as text.

use std::fmt::Write;

use super::{Family, MetricKind};

/// Text format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of OpenMetrics, version 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl Format {
    /// Returns the media type for HTTP.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the format that a client prefers by its `Accept` header (RFC 9110, 12.5.1): OpenMetrics if it accepts
    /// both equally, the older format if it names neither.
    #[must_use]
    pub fn accepted(accept: &str) -> Format {
        let ranges = || accept.split(',').map(MediaRange::of);
        let best = |of: fn(&MediaRange<'_>) -> bool| {
            ranges().filter(of).map(|range| range.quality).max().unwrap_or(0)
        };
        let open = best(|range| range.is("application/openmetrics-text", "1.0.0"));
        let plain = best(|range| range.is("text/plain", "0.0.4"));
        if open > 0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
    }
}

/// One media range of an `Accept` header.
struct MediaRange<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// Weight of the range, in thousandths; 0 means not acceptable.
    quality: u16,
}

impl MediaRange<'_> {
    fn of(text: &str) -> MediaRange<'_> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        let mut range = MediaRange { name, version: None, quality: 1000 };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim_end() {
                key if key.eq_ignore_ascii_case("q") => {
                    let value: f32 = value.trim().parse().unwrap_or(0.0);
                    range.quality = (value.clamp(0.0, 1.0) * 1000.0) as u16;
                }
                key if key.eq_ignore_ascii_case("version") => {
                    range.version = Some(value.trim().trim_matches('"'));
                }
                _ => {}
            }
        }
        range
    }

    fn is(&self, name: &str, version: &str) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.version.is_none_or(|asked| asked == version)
    }
}

/// Returns the families as text in this format. A family without samples is left out.
#[must_use]
pub fn text(families: &[Family], format: Format) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let sampled = match family.kind {
            MetricKind::Counter => format!("{}_total", family.name),
            MetricKind::Gauge => family.name.to_owned(),
        };
        let (heading, kind) = match (format, family.kind) {
            (Format::Prometheus, MetricKind::Counter) => (sampled.as_str(), "counter"),
            (Format::OpenMetrics, MetricKind::Counter) => (family.name, "counter"),
            (_, MetricKind::Gauge) => (family.name, "gauge"),
        };
        let help = escaped(family.help, format);
        write_all(&mut out, format_args!("# HELP {heading} {help}\n# TYPE {heading} {kind}\n"));
        if let (Format::OpenMetrics, Some(unit)) = (format, family.unit) {
            write_all(&mut out, format_args!("# UNIT {heading} {}\n", unit.into_str()));
        }
        for sample in &family.samples {
            out += &sampled;
            for (index, (name, value)) in sample.labels.iter().enumerate() {
                let before = if index == 0 { '{' } else { ',' };
                // The value of a label is escaped alike in both formats.
                let value = escaped(value, Format::OpenMetrics);
                write_all(&mut out, format_args!("{before}{name}=\"{value}\""));
            }
            out += if sample.labels.is_empty() { " " } else { "} " };
            write_all(&mut out, format_args!("{}\n", sample.value));
        }
    }
    if format == Format::OpenMetrics {
        out += "# EOF\n";
    }
    out
}

fn write_all(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a String takes everything");
}

/// Escapes backslashes and ends of lines, and in OpenMetrics quotes, too.
fn escaped(text: &str, format: Format) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    match format {
        Format::OpenMetrics => text.replace('"', "\\\""),
        Format::Prometheus => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Sample, Unit};

    fn both() -> Vec<Family> {
        let sample = |labels: &[(&'static str, &str)], value| Sample {
            labels: labels.iter().map(|&(name, value)| (name, value.to_owned())).collect(),
            value,
        };
        let (free, stalls) = ("nofrag_free_bytes", "nofrag_stalls");
        let empty = Family {
            name: "nofrag_empty",
            kind: MetricKind::Gauge,
            unit: None,
            help: "",
            samples: vec![],
        };
        vec![
            Family {
                name: free,
                kind: MetricKind::Gauge,
                unit: Some(Unit::Bytes),
                help: "Free \"now\".",
                samples: vec![
                    sample(&[("node", "0"), ("zone", "a\"b\\c\nd")], 4096.0),
                    sample(&[], 0.25),
                ],
            },
            empty,
            Family {
                name: stalls,
                kind: MetricKind::Counter,
                unit: None,
                help: "Stalls.",
                samples: vec![sample(&[], 1_800_452_991.0)],
            },
        ]
    }

    #[test]
    fn the_two_forms_differ_in_three_places() {
        let expected = "\
# HELP nofrag_free_bytes Free \\\"now\\\".
# TYPE nofrag_free_bytes gauge
# UNIT nofrag_free_bytes bytes
nofrag_free_bytes{node=\"0\",zone=\"a\\\"b\\\\c\\nd\"} 4096
nofrag_free_bytes 0.25
# HELP nofrag_stalls Stalls.
# TYPE nofrag_stalls counter
nofrag_stalls_total 1800452991
# EOF
";
        assert_eq!(text(&both(), Format::OpenMetrics), expected);
        let expected = "\
# HELP nofrag_free_bytes Free \"now\".
# TYPE nofrag_free_bytes gauge
nofrag_free_bytes{node=\"0\",zone=\"a\\\"b\\\\c\\nd\"} 4096
nofrag_free_bytes 0.25
# HELP nofrag_stalls_total Stalls.
# TYPE nofrag_stalls_total counter
nofrag_stalls_total 1800452991
";
        assert_eq!(text(&both(), Format::Prometheus), expected);
    }

    #[test]
    fn openmetrics_is_given_to_who_asks_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let older = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.2";
        let either = "application/openmetrics-text, text/plain";
        let odd = " Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.1 ";
        for open in [prometheus, older, either, odd] {
            assert_eq!(Format::accepted(open), Format::OpenMetrics, "{open:?}");
        }
    }

    #[test]
    fn openmetrics_is_not_given_to_who_does_not_want_it() {
        let plain = [
            "",
            "*/*",
            "text/html,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.000,*/*",
            "application/openmetrics-text;q=0.5,text/plain",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=x",
            "x-application/openmetrics-text",
            ";;;,,=,q=1",
        ];
        for accept in plain {
            assert_eq!(Format::accepted(accept), Format::Prometheus, "{accept:?}");
        }
    }
}
