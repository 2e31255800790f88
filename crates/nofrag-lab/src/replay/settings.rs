//! Settings that a run has in place of the recorded host's: `linux-6.1:boost=0/15000,min_free_kbytes=65536`.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use nofrag::page::{FragmentationPolicy, PolicyPreset};
use nofrag_host::snapshot::Snapshot;

/// A setting of the kernel that a replay can change, by the name of its sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::VariantArray)]
pub enum Setting {
    /// `watermark_boost_factor`, in 1/10000 of the high watermark; 0 switches boosts off.
    Boost,
    /// `watermark_scale_factor`, in 1/10000 of a zone.
    Scale,
    /// `min_free_kbytes`, in KiB.
    MinFree,
    /// `compaction_proactiveness`, in percent.
    Proactiveness,
    /// `extfrag_threshold`, in 1/1000.
    ExtfragThreshold,
}

impl Setting {
    pub const ALL: &[Setting] = <Setting as strum::VariantArray>::VARIANTS;

    /// Returns its short name, that of its sysctl below `vm`, and its bounds.
    const fn row(self) -> (&'static str, &'static str, RangeInclusive<u64>) {
        match self {
            Setting::Boost => ("boost", "watermark_boost_factor", 0..=u32::MAX as u64),
            Setting::Scale => ("scale", "watermark_scale_factor", 1..=3000),
            // More KiB than any address reaches.
            Setting::MinFree => ("min_free_kbytes", "min_free_kbytes", 0..=1 << 54),
            Setting::Proactiveness => ("proactiveness", "compaction_proactiveness", 0..=100),
            Setting::ExtfragThreshold => ("extfrag_threshold", "extfrag_threshold", 0..=1000),
        }
    }

    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    fn named(name: &str) -> Option<Setting> {
        let name = name.strip_prefix("vm.").unwrap_or(name);
        let is_so_called = |setting: &Setting| {
            let (short, sysctl, _) = setting.row();
            [short, sysctl].contains(&name)
        };
        Setting::ALL.iter().copied().find(is_so_called)
    }

    /// Returns true if a policy uses the setting.
    fn is_of(self, policy: &FragmentationPolicy) -> bool {
        match self {
            Setting::Boost => policy.boost.is_some(),
            Setting::Proactiveness => policy.compaction.proactiveness.is_some(),
            Setting::Scale | Setting::MinFree | Setting::ExtfragThreshold => true,
        }
    }
}

/// Settings that differ from the recorded host's, in the order in which they were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(Setting, u64)>);

impl Settings {
    /// Returns the value of a setting; `None` for the recorded host's own.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<u64> {
        self.0.iter().find(|(each, _)| *each == setting).map(|&(_, value)| value)
    }

    /// Returns the settings of a policy that one host has otherwise than another, with the values of `other`. Two
    /// hundredths are no other setting: kernels work some out from memory, which they count a little differently.
    pub(super) fn that_differ(
        policy: &FragmentationPolicy,
        host: &Snapshot<'_>,
        other: &Snapshot<'_>,
    ) -> Settings {
        let differs = |setting: Setting| {
            let (_, sysctl, allowed) = setting.row();
            let [host, other] = [host, other].map(|of| of.sysctl.get(sysctl));
            let is_other = |value: &u64| {
                host.is_none_or(|host| 50 * value.abs_diff(host) > host) && allowed.contains(value)
            };
            other.filter(is_other).filter(|_| setting.is_of(policy)).map(|value| (setting, value))
        };
        Settings(Setting::ALL.iter().copied().filter_map(differs).collect())
    }

    /// Returns true if all settings are the recorded host's own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values by the settings' names.
    #[must_use]
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(setting, value)| (setting.name().to_owned(), *value)).collect()
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (setting, value)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{}={value}", setting.name())?;
        }
        Ok(())
    }
}

/// A policy, and settings each with one value or several: one run for each combination of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    preset: PolicyPreset,
    values: Vec<(Setting, Vec<u64>)>,
}

impl Question {
    /// Reads `POLICY:NAME=VALUE[/VALUE..][,NAME=VALUE..]`. A name is a short one, or that of the sysctl.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and names the values or words that are allowed.
    pub fn parse(text: &str) -> Result<Question, String> {
        let (policy, list) = text.split_once(':').filter(|(_, list)| !list.is_empty()).ok_or(
            "a question is a policy, a colon and settings, such as linux-6.1:boost=0/15000",
        )?;
        let preset = FragmentationPolicy::preset(policy).map_err(|why| why.to_string())?;
        let mut values: Vec<(Setting, Vec<u64>)> = Vec::new();
        for each in list.split(',') {
            let (name, given) = each.split_once('=').ok_or_else(|| {
                format!(
                    "{each:?} sets nothing: write it as NAME=VALUE, or NAME=VALUE/VALUE for several"
                )
            })?;
            let setting = Setting::named(name).ok_or_else(|| {
                let names: Vec<&str> = Setting::ALL.iter().map(|each| each.name()).collect();
                let names = names.join(", ");
                format!("{name:?} is no setting that a replay follows; those are {names}")
            })?;
            if values.iter().any(|(other, _)| *other == setting) {
                return Err(format!(
                    "{name} is set twice: several values of one are NAME=VALUE/VALUE"
                ));
            }
            if !setting.is_of(&preset.policy) {
                return Err(format!("{} has no {}", preset.name, setting.name()));
            }
            let mut chosen = Vec::new();
            for value in given.split('/') {
                let value = setting.value(value)?;
                if !chosen.contains(&value) {
                    chosen.push(value);
                }
            }
            values.push((setting, chosen));
        }
        Ok(Question { preset, values })
    }

    /// Returns the policy, as a preset.
    #[must_use]
    pub fn preset(&self) -> PolicyPreset {
        self.preset
    }

    /// Returns each combination of values of the settings, the last setting's values next to each other.
    #[must_use]
    pub fn choices(&self) -> Vec<Settings> {
        let none = vec![Settings::default()];
        self.values.iter().fold(none, |all, (setting, values)| {
            let with = |settings: &Settings, value: u64| {
                let mut settings = settings.clone();
                settings.0.push((*setting, value));
                settings
            };
            all.iter().flat_map(|each| values.iter().map(move |&value| with(each, value))).collect()
        })
    }
}

impl Setting {
    fn value(self, text: &str) -> Result<u64, String> {
        let (name, _, allowed) = self.row();
        let value = text.trim().parse().ok().filter(|value| allowed.contains(value));
        value.ok_or_else(|| {
            let (least, most) = (allowed.start(), allowed.end());
            format!("{name} is a whole number from {least} to {most}, not {text:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use nofrag_host::snapshot::Files;

    use super::*;

    #[test]
    fn a_question_is_as_many_runs_as_there_are_ways_to_choose() {
        let asked =
            Question::parse("linux-6.1:boost=0/15000,vm.min_free_kbytes=8192/65536").unwrap();
        assert_eq!(asked.preset().name, "linux-6.1");
        let names: Vec<String> = asked.choices().iter().map(Settings::to_string).collect();
        assert_eq!(
            names,
            [
                "boost=0,min_free_kbytes=8192",
                "boost=0,min_free_kbytes=65536",
                "boost=15000,min_free_kbytes=8192",
                "boost=15000,min_free_kbytes=65536",
            ]
        );
        let last = asked.choices().pop().unwrap();
        assert_eq!(last.get(Setting::MinFree), Some(65_536));
        assert_eq!(last.get(Setting::Scale), None);
    }

    #[test]
    fn what_another_host_has_otherwise_is_asked() {
        let files = |sysctl: &str| {
            let mut files = Files::default();
            files.insert("sysctl", sysctl.as_bytes().to_vec());
            files
        };
        let host = files("min_free_kbytes 23520\nwatermark_boost_factor 15000\n");
        let differ = |policy: &FragmentationPolicy, other: &str| {
            let other = files(other);
            let [host, other] = [&host, &other].map(Snapshot::parse);
            Settings::that_differ(policy, &host, &other).to_string()
        };
        let other = "min_free_kbytes 23796\nwatermark_boost_factor 0\nextfrag_threshold 500\n";
        let new = &FragmentationPolicy::LINUX_6_1;
        assert_eq!(differ(new, other), "boost=0,extfrag_threshold=500");
        assert_eq!(differ(&FragmentationPolicy::LINUX_4_20, other), "extfrag_threshold=500");
        assert_eq!(differ(new, "min_free_kbytes 65536\n"), "min_free_kbytes=65536");
    }

    #[test]
    fn what_cannot_be_asked_is_said() {
        for (text, why) in [
            ("linux-6.1", "a question is a policy"),
            ("linux-6.1:", "a question is a policy"),
            ("no-such:boost=0", "there is no such preset"),
            ("linux-6.1:boost", "\"boost\" sets nothing"),
            ("linux-6.1:swappiness=10", "no setting that a replay follows; those are boost, scale"),
            ("linux-6.1:watermark_scale_factor=0", "from 1 to 3000, not \"0\""),
            ("linux-6.1:boost=-1", "from 0 to 4294967295"),
            ("linux-6.1:boost=1,watermark_boost_factor=2", "is set twice"),
            ("linux-4.20:boost=0", "linux-4.20 has no boost"),
        ] {
            let said = Question::parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
