//! Values of arguments: those that a shell completes although they are not all that may be given, and times.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

/// Returns the parser of a number of seconds in `range`.
pub(crate) fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
        if !range.contains(&seconds) {
            return Err(format!("not between {} and {} seconds", range.start(), range.end()));
        }
        Ok(Duration::from_secs_f64(seconds))
    }
}

/// Takes any text, and offers these names to shells.
#[derive(Clone, Debug)]
pub(crate) struct Offer(Vec<&'static str>);

impl Offer {
    /// Offers the names of scenarios.
    pub(crate) fn scenarios() -> Offer {
        let names = nofrag_lab::scenarios().iter().map(|scenario| scenario.name);
        Offer(names.chain(["all"]).collect())
    }

    /// Offers the modes of `nofrag run`.
    pub(crate) fn modes() -> Offer {
        Offer(nofrag_lab::Mode::ALL.iter().map(|mode| mode.into_str()).collect())
    }

    /// Offers the policies of pages.
    pub(crate) fn policies() -> Offer {
        let presets = nofrag::page::FragmentationPolicy::PRESETS.iter();
        Offer(presets.map(|preset| preset.name).chain(["all"]).collect())
    }
}

impl TypedValueParser for Offer {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|&name| PossibleValue::new(name))))
    }
}
