//! The settings that `--set` and `--compare` change, by name.
//!
//! Key types: [`Setting`], a name; [`Comparison`], names with values. The memory manager checks
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
    #[error("{combinations} combinations of all values; at most {most} are compared")]
    TooMany { combinations: usize, most: usize },
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
    if similar.is_empty() {
        format!("; the settings are {}; docs/settings.md describes them", names().collect::<Vec<_>>().join(", "))
    } else {
        similar
    }
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

/// Settings with the values to compare, which are different.
///
/// Every value of a setting is combined with every value of the others.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    settings: Vec<(Setting, Vec<u64>)>,
}

impl Comparison {
    const OPTION: &'static str = "--compare";
    /// Maximum number of combinations, each of which is a column.
    const MOST: usize = 64;

    /// Parses `NAME=A,B` with two values or more for each argument.
    ///
    /// `set` are the settings that `--set` gives.
    pub(crate) fn parse(arguments: &[String], set: &[Setting]) -> Result<Self, OptionError> {
        let mut settings: Vec<(Setting, Vec<u64>)> = Vec::new();
        for argument in arguments {
            let parsed = || {
                let (setting, values) = Self::parse_one(argument)?;
                if set.contains(&setting) {
                    return Err(SettingError::AlsoSet(setting.name()));
                }
                if settings.iter().any(|(other, _)| *other == setting) {
                    return Err(SettingError::Twice(setting.name()));
                }
                let combinations = settings.iter().map(|(_, values)| values.len()).product::<usize>() * values.len();
                if combinations > Self::MOST {
                    return Err(SettingError::TooMany { combinations, most: Self::MOST });
                }
                Ok((setting, values))
            };
            settings.push(parsed().map_err(SettingError::of(Self::OPTION, argument))?);
        }
        Ok(Self { settings })
    }

    fn parse_one(argument: &str) -> Result<(Setting, Vec<u64>), SettingError> {
        let (name, texts) = argument.split_once('=').ok_or(SettingError::NotNameValues)?;
        let setting = Setting::named(name)?;
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
        Ok((setting, values))
    }

    /// Whether there is nothing to compare: one combination, without any setting.
    pub(crate) fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// All combinations; the last setting changes fastest.
    fn combinations(&self) -> Vec<Vec<(Setting, u64)>> {
        self.settings.iter().fold(vec![Vec::new()], |combinations, (setting, values)| {
            let with = |combination: Vec<(Setting, u64)>| {
                values.iter().map(move |value| [combination.as_slice(), &[(*setting, *value)]].concat())
            };
            combinations.into_iter().flat_map(with).collect()
        })
    }

    /// The configurations with each combination.
    pub(crate) fn apply(&self, isa: IsaKind, config: &ReplayConfig) -> Result<Vec<ReplayConfig>, OptionError> {
        let with = |combination: Vec<(Setting, u64)>| {
            let mut config = config.clone();
            for (setting, value) in combination {
                setting.apply(value, isa, &mut config).map_err(SettingError::of(Self::OPTION, setting.name()))?;
            }
            Ok(config)
        };
        self.combinations().into_iter().map(with).collect()
    }

    /// The names of the columns: the settings with their values.
    pub(crate) fn headings(&self) -> Vec<String> {
        let one = |(setting, value): &(Setting, u64)| format!("{}={}", setting.name(), setting.shown(*value));
        let heading = |combination: Vec<_>| combination.iter().map(one).collect::<Vec<_>>().join(" ");
        self.combinations().into_iter().map(heading).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_sim::MachineConfig;

    #[test]
    fn a_misspelt_word_suggests_the_one_that_was_meant() {
        let named = |name| Setting::named(name).expect_err("it is misspelt").to_string();
        assert_eq!(named("swapiness"), "unknown setting swapiness (did you mean vm.swappiness?)");
        assert_eq!(named("fault_around"), "unknown setting fault_around (did you mean fault_around_bytes?)");
        assert_eq!(named("nopicd"), "unknown setting nopicd (did you mean nopcid?)");
        assert!(named("zzz").contains("; the settings are vm.admin_reserve_kbytes, "), "{}", named("zzz"));
    }

    #[test]
    fn every_value_is_combined_with_every_value_of_the_other_settings() {
        let parse = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            Comparison::parse(&arguments, &[])
        };
        let both = parse(&["cow_page_tables=never,always", "nopcid=0,1"]).expect("known settings");
        let headings = both.headings();
        assert_eq!(headings.len(), 4);
        assert_eq!(
            [&*headings[1], &headings[2]],
            ["cow_page_tables=never nopcid=1", "cow_page_tables=always nopcid=0"]
        );
        let machine = MachineConfig::default_for(IsaKind::X86_64).expect("a profile");
        let configs = both.apply(IsaKind::X86_64, &ReplayConfig::new(machine)).expect("x86-64 has both");
        assert_eq!(configs.iter().map(|config| config.machine.tagged).collect::<Vec<_>>(), [true, false, true, false]);
        let none = parse(&[]).expect("nothing is wrong");
        assert!(none.is_empty());
        assert_eq!(none.headings(), [""], "one replay without a setting");
        let refused = |arguments: &[&str]| parse(arguments).expect_err("refused").to_string();
        assert!(refused(&["nopcid=0,1", "nopcid=1,0"]).contains("nopcid is given twice"));
        let many: Vec<String> = (0..65).map(|value| value.to_string()).collect();
        assert!(refused(&[&format!("vm.swappiness={}", many.join(","))]).contains("65 combinations"));
    }

    #[test]
    fn a_value_outside_the_range_names_the_range() {
        let refused = |text| Setting::Mm(MmSetting::Swappiness).value(text).expect_err("refused").to_string();
        assert_eq!(refused("-5"), "-5 is not a number from 0 to 200");
        assert_eq!(refused("201"), "201 is not a number from 0 to 200");
        assert_eq!(refused("many"), "many is not a number from 0 to 200");
    }
}
