//! Values that a shell completes although they are not all that may be given.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};

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
        Offer(nofrag_lab::Mode::ALL.map(|(name, _)| name).to_vec())
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
