//! The settings that `--set` and `--compare` change, by name.
//!
//! Key types: [`Setting`], a name; [`Comparison`], a name with two values. The memory manager
//! checks the values of its own settings ([`MmSetting::values`]).

use crate::options::OptionError;
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::{MmSetting, MmSettings};
use pagewright_types::IsaKind;

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

/// Why a setting was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingError {
    #[error("write NAME=VALUE")]
    NotNameValue,
    #[error("write NAME=A,B")]
    NotNameTwoValues,
    #[error("unknown setting {0}{suggestion}; the settings are {known}", suggestion = suggestion(.0), known = known())]
    Unknown(String),
    #[error("{0} is not a number")]
    NotANumber(String),
    #[error("{value} must be {allowed}")]
    NotAllowed { value: u64, allowed: String },
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

    /// Splits `NAME=VALUE` into a setting and the text of its value.
    pub(crate) fn parse(argument: &str) -> Result<(Self, &str), SettingError> {
        let (name, value) = argument.split_once('=').ok_or(SettingError::NotNameValue)?;
        Ok((Self::named(name)?, value))
    }

    /// Parses a value and checks that the setting can have it.
    pub(crate) fn value(self, text: &str) -> Result<u64, SettingError> {
        let value: u64 = text.parse().map_err(|_| SettingError::NotANumber(text.to_owned()))?;
        match self {
            Self::Mm(setting) => {
                let refused = |_| SettingError::NotAllowed { value, allowed: setting.values().to_string() };
                MmSettings::default().set(setting, value).map_err(refused)?;
            }
            Self::NoPcid if value > 1 => return Err(SettingError::NotAllowed { value, allowed: "0 or 1".to_owned() }),
            Self::NoPcid => {}
        }
        Ok(value)
    }

    /// Checks a value and stores it in the configuration of a replay on `isa`.
    pub(crate) fn apply(self, text: &str, isa: IsaKind, config: &mut ReplayConfig) -> Result<(), SettingError> {
        let value = self.value(text)?;
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
    let settings = MmSetting::ALL.iter().map(|setting| help_line(setting.name(), setting.default(), setting.meaning()));
    format!("Settings, each with its default:\n{}", settings.collect::<String>())
}

/// The settings of a simulated machine and its memory manager, to be printed below the options.
pub(crate) fn simulated_settings_help() -> String {
    let no_pcid = "1: CPUs have no PCIDs, so each switch between address spaces flushes the TLB. x86-64 only.";
    format!("{}{}", settings_help(), help_line(Setting::NO_PCID, 0, no_pcid)).trim_end().to_owned()
}

fn help_line(name: &str, default: u64, meaning: &str) -> String {
    format!("  {name:<29} {default:>6}  {meaning}\n")
}

/// Suggests the full name where Linux's prefix, such as `vm.`, is missing.
fn suggestion(name: &str) -> String {
    let matches = |setting: &&MmSetting| setting.name().rsplit_once('.').is_some_and(|(_, last)| last == name);
    MmSetting::ALL
        .iter()
        .find(matches)
        .map_or_else(String::new, |setting| format!(" (did you mean {}?)", setting.name()))
}

fn known() -> String {
    let settings = MmSetting::ALL.iter().map(|setting| setting.name());
    settings.chain([Setting::NO_PCID]).collect::<Vec<_>>().join(", ")
}

/// A setting with two values to compare.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    setting: Setting,
    values: [String; 2],
}

impl Comparison {
    const OPTION: &'static str = "--compare";

    /// Parses `NAME=A,B`.
    pub(crate) fn parse(argument: &str) -> Result<Self, OptionError> {
        let split = || {
            let (name, values) = argument.split_once('=').ok_or(SettingError::NotNameTwoValues)?;
            let setting = Setting::named(name)?;
            let (before, after) = values.split_once(',').ok_or(SettingError::NotNameTwoValues)?;
            Ok(Self { setting, values: [before.to_owned(), after.to_owned()] })
        };
        split().map_err(SettingError::of(Self::OPTION, argument))
    }

    /// The configuration with the setting at each of its values.
    pub(crate) fn apply(&self, isa: IsaKind, config: &ReplayConfig) -> Result<[ReplayConfig; 2], OptionError> {
        let with = |value: &str| {
            let mut config = config.clone();
            self.setting.apply(value, isa, &mut config).map(|()| config)
        };
        let [before, after] = &self.values;
        let refused = SettingError::of(Self::OPTION, &format!("{}={before},{after}", self.setting.name()));
        Ok([with(before).map_err(&refused)?, with(after).map_err(&refused)?])
    }

    /// The heading of a column: the setting with the value at `index`.
    pub(crate) fn heading(&self, index: usize) -> String {
        format!("{}={}", self.setting.name(), self.values[index])
    }
}
