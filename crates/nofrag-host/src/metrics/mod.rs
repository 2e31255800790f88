//! The observations of a host as metrics for Prometheus.
//!
//! [`families`] turns a [`Look`](crate::watch::Look) into [`Family`] values, a pure function; [`text`] writes them in
//! either of two forms: OpenMetrics, which Prometheus asks for, and the older text format, the only one that
//! node_exporter's textfile collector reads. The forms differ in three places (the name in a counter's heading, `#
//! UNIT`, `# EOF`), so one writer makes both, and both come from the same values.
//!
//! Names follow the conventions of Prometheus: the prefix `nofrag_`, base units at the end, `_total` behind counters.
//! No sample carries a time: the textfile collector refuses a whole file for one. An unknown value has no sample. Every
//! help text tells the reader what to do.
//!
//! Source: docs/sources/trace.md#export.

mod families;
mod request;
mod text;

use serde::Serialize;

pub use families::{Detail, families};
pub use request::{Malformed, Request};
pub use text::{Format, text};

/// A metric with all its samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Family {
    /// The name of the metric without `_total`.
    pub name: &'static str,
    pub kind: MetricKind,
    /// The unit at the end of the name.
    pub unit: Option<Unit>,
    /// Meaning of the metric, with advice on its values.
    pub help: &'static str,
    /// The samples, in the order of the host's files.
    pub samples: Vec<Sample>,
}

/// Direction in which the values of a metric change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum MetricKind {
    /// The value goes up and down.
    Gauge,
    /// The value only goes up, except for a restart.
    Counter,
}

/// Base unit of a metric.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::VariantArray,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Unit {
    Bytes,
    Seconds,
    /// A share of a whole, 0 to 1.
    Ratio,
}

/// A value of a metric with its labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Names and values of labels, in the order in which they are written.
    #[serde(serialize_with = "as_map")]
    #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, String>"))]
    pub labels: Vec<(&'static str, String)>,
    /// The value; always a finite number.
    pub value: f64,
}

fn as_map<S: serde::Serializer>(
    labels: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().map(|(name, value)| (name, value)))
}
