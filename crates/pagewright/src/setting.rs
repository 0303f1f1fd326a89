//! The settings that `--set` and `--compare` change, by name.
//!
//! Key types: [`Setting`], a name; [`Comparison`], a name with values. The memory manager checks
//! the values of its own settings ([`MmSetting::values`]).

use crate::options::OptionError;
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::MmSetting;
use pagewright_types::IsaKind;
use std::fmt::Display;

/// A setting of the memory manager or of the simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// A setting of the memory manager.
    Mm(MmSetting),
    /// Linux's boot parameter `nopcid`.
    ///
    /// The simulated CPUs have no PCIDs, so each switch between address spaces flushes the TLB.
    NoPcid,
}

/// The values of `nopcid`.
const NO_PCID_VALUES: &str = "0 or 1";

/// Why a setting was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingError {
    #[error("write NAME=VALUE")]
    NotNameValue,
    #[error("write NAME=A,B or more values")]
    NotNameValues,
    #[error("unknown setting {0}{similar}", similar = known_or_similar(.0))]
    Unknown(String),
    #[error("{value} is not {allowed}")]
    NotAllowed { value: String, allowed: String },
    #[error("{0} is given twice, so there is nothing to compare")]
    SameValue(String),
    #[error("{0} is given twice")]
    Twice(&'static str),
    #[error("--set also gives {0}")]
    AlsoSet(&'static str),
    #[error("{setting} has no effect on {isa}")]
    NoEffect { setting: &'static str, isa: IsaKind },
    #[error("{0} is a setting of simulated machines, not of the kernel")]
    SimulatedOnly(&'static str),
}

impl SettingError {
    /// Adds the option and its argument, for `map_err`.
    pub(crate) fn of(option: &'static str, argument: &str) -> impl Fn(Self) -> OptionError + use<> {
        let argument = argument.to_owned();
        move |error| OptionError::Setting { option, argument: argument.clone(), error }
    }
}

impl Setting {
    const NO_PCID: &'static str = "nopcid";

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mm(setting) => setting.name(),
            Self::NoPcid => Self::NO_PCID,
        }
    }

    fn named(name: &str) -> Result<Self, SettingError> {
        if name == Self::NO_PCID {
            return Ok(Self::NoPcid);
        }
        let setting = MmSetting::ALL.iter().find(|setting| setting.name() == name);
        setting.map(|setting| Self::Mm(*setting)).ok_or_else(|| SettingError::Unknown(name.to_owned()))
    }

    /// Parses `NAME=VALUE` for each argument of `--set`; no setting may be given twice.
    pub(crate) fn parse_all(arguments: &[String]) -> Result<Vec<(Self, u64)>, OptionError> {
        let mut settings: Vec<(Self, u64)> = Vec::new();
        for argument in arguments {
            let parsed = || {
                let (name, text) = argument.split_once('=').ok_or(SettingError::NotNameValue)?;
                let setting = Self::named(name)?;
                if settings.iter().any(|(other, _)| *other == setting) {
                    return Err(SettingError::Twice(setting.name()));
                }
                Ok((setting, setting.value(text)?))
            };
            let parsed = parsed().map_err(SettingError::of("--set", argument))?;
            settings.push(parsed);
        }
        Ok(settings)
    }

    /// Parses a value and checks that the setting can have it.
    pub(crate) fn value(self, text: &str) -> Result<u64, SettingError> {
        let value = match self {
            Self::Mm(setting) => setting.parse(text),
            Self::NoPcid => text.parse().ok().filter(|value| *value <= 1),
        };
        value.ok_or_else(|| {
            let allowed = match self {
                Self::Mm(setting) => setting.values().to_string(),
                Self::NoPcid => NO_PCID_VALUES.to_owned(),
            };
            SettingError::NotAllowed { value: text.to_owned(), allowed }
        })
    }

    /// A checked value, as it is printed.
    fn shown(self, value: u64) -> String {
        match self {
            Self::Mm(setting) => setting.show(value).to_string(),
            Self::NoPcid => value.to_string(),
        }
    }

    /// Stores a checked value in the configuration of a replay on `isa`.
    pub(crate) fn apply(self, value: u64, isa: IsaKind, config: &mut ReplayConfig) -> Result<(), SettingError> {
        match (self, isa) {
            (Self::Mm(setting), _) => config.settings.push((setting, value)),
            (Self::NoPcid, IsaKind::X86_64) => config.machine.tagged = value == 0,
            // On arm64 every TLB entry has an ASID, and no boot parameter turns that off.
            (Self::NoPcid, IsaKind::Aarch64) => return Err(SettingError::NoEffect { setting: self.name(), isa }),
        }
        Ok(())
    }
}

/// The memory manager's settings, to be printed below the options of a command.
pub(crate) fn settings_help() -> String {
    let settings = MmSetting::ALL.iter().map(|setting| {
        help_entry(setting.name(), &setting.show(setting.default()), &setting.values(), setting.meaning())
    });
    format!("Settings, each with its default and its values:\n{}", settings.collect::<String>())
}

/// The settings of a simulated machine and its memory manager, to be printed below the options.
pub(crate) fn simulated_settings_help() -> String {
    let no_pcid = "1: CPUs have no PCIDs, so each switch between address spaces flushes the TLB. x86-64 only.";
    format!("{}{}", settings_help(), help_entry(Setting::NO_PCID, &0, &NO_PCID_VALUES, no_pcid)).trim_end().to_owned()
}

/// Formats a setting as clap formats an option; clap wraps the second line at its indentation.
fn help_entry(name: &str, default: &dyn Display, values: &dyn Display, meaning: &str) -> String {
    format!("  {name}={default} ({values})\n          {meaning}\n")
}

/// All names, or the one that was probably meant.
fn known_or_similar(name: &str) -> String {
    let names = || MmSetting::ALL.iter().map(|setting| setting.name()).chain([Setting::NO_PCID]);
    let similar = suggestion(name, names());
    if similar.is_empty() { format!("; the settings are {}", names().collect::<Vec<_>>().join(", ")) } else { similar }
}

/// The known word that a misspelt one most resembles, as a question; empty if it resembles none.
///
/// Linux's prefix, such as `vm.`, may be missing.
pub(crate) fn suggestion(word: &str, known: impl Iterator<Item = &'static str>) -> String {
    /// Similarity from which a word is suggested; clap suggests from 0.7.
    const SIMILAR: f64 = 0.8;
    let likeness = |known: &str| {
        let last = known.rsplit_once('.').map_or(known, |(_, last)| last);
        strsim::jaro_winkler(known, word).max(strsim::jaro_winkler(last, word))
    };
    let best = known.map(|known| (likeness(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= SIMILAR)
        .map_or_else(String::new, |(_, known)| format!(" (did you mean {known}?)"))
}

/// A setting with the values to compare, which are different.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    setting: Setting,
    values: Vec<u64>,
}

impl Comparison {
    const OPTION: &'static str = "--compare";

    /// Parses `NAME=A,B` with two values or more; `set` are the settings that `--set` gives.
    pub(crate) fn parse(argument: &str, set: &[Setting]) -> Result<Self, OptionError> {
        let parsed = || {
            let (name, texts) = argument.split_once('=').ok_or(SettingError::NotNameValues)?;
            let setting = Setting::named(name)?;
            if set.contains(&setting) {
                return Err(SettingError::AlsoSet(setting.name()));
            }
            let mut values = Vec::new();
            for text in texts.split(',') {
                let value = setting.value(text)?;
                if values.contains(&value) {
                    return Err(SettingError::SameValue(setting.shown(value)));
                }
                values.push(value);
            }
            if values.len() < 2 {
                return Err(SettingError::NotNameValues);
            }
            Ok(Self { setting, values })
        };
        parsed().map_err(SettingError::of(Self::OPTION, argument))
    }

    /// The configurations with the setting at each of its values.
    pub(crate) fn apply(&self, isa: IsaKind, config: &ReplayConfig) -> Result<Vec<ReplayConfig>, OptionError> {
        let with = |value: &u64| {
            let mut config = config.clone();
            self.setting.apply(*value, isa, &mut config).map(|()| config)
        };
        let configs: Result<Vec<_>, _> = self.values.iter().map(with).collect();
        configs.map_err(SettingError::of(Self::OPTION, self.setting.name()))
    }

    /// The headings of the columns: the setting with each value.
    pub(crate) fn headings(&self) -> Vec<String> {
        self.values.iter().map(|value| format!("{}={}", self.setting.name(), self.setting.shown(*value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_suggests_the_one_that_was_meant() {
        let named = |name| Setting::named(name).expect_err("it is misspelt").to_string();
        assert_eq!(named("swapiness"), "unknown setting swapiness (did you mean vm.swappiness?)");
        assert_eq!(named("fault_around"), "unknown setting fault_around (did you mean fault_around_bytes?)");
        assert_eq!(named("nopicd"), "unknown setting nopicd (did you mean nopcid?)");
        assert!(named("zzz").contains("; the settings are vm.admin_reserve_kbytes, "), "{}", named("zzz"));
    }

    #[test]
    fn a_value_outside_the_range_names_the_range() {
        let refused = |text| Setting::Mm(MmSetting::Swappiness).value(text).expect_err("refused").to_string();
        assert_eq!(refused("-5"), "-5 is not a number from 0 to 200");
        assert_eq!(refused("201"), "201 is not a number from 0 to 200");
        assert_eq!(refused("many"), "many is not a number from 0 to 200");
    }
}
