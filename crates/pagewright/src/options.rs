//! From what was typed to a machine and its settings.

use clap::Args;
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::{Knob, Knobs};
use pagewright_sim::config::{self, parse::ConfigParseError};
use pagewright_sim::{ConfigError, MachineConfig, Profile, ProfileError};
use pagewright_types::{CpuMask, IsaKind, PAGE_SIZE, SwapEntry};

/// A machine, as options.
#[derive(Args, Clone, Debug)]
pub(crate) struct MachineOptions {
    /// Instruction set: x86-64 or arm64 [default: the profile's, else x86-64]
    #[arg(long, value_name = "A")]
    pub(crate) arch: Option<String>,
    /// TLB geometry and costs: icelake, milan, sapphire-rapids, neoverse-n1, kunpeng920,
    /// snapdragon888
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Number of CPUs
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub(crate) cpus: u16,
    /// Memory, on one node: a size, or for a capture a share of what its processes needed on Linux,
    /// such as 50%
    #[arg(long, value_name = "SIZE", default_value = "2G", conflicts_with = "node")]
    pub(crate) mem: String,
    /// A node with its memory and CPUs, such as 0:1G,cpus=0-3; without CPUs a slower tier (repeat
    /// for each)
    #[arg(long, value_name = "SPEC")]
    pub(crate) node: Vec<String>,
    /// A device for swap of this size, outside the machine's memory
    #[arg(long, value_name = "SIZE")]
    pub(crate) swap: Option<String>,
    /// Seeds whatever is random (who runs where, what a TLB throws out, a workload's choices); the
    /// same seed gives the same figures, bit for bit
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// A setting, such as fault_around_bytes=4096 (repeat for each)
    #[arg(long, value_name = "K=V")]
    pub(crate) set: Vec<String>,
}

/// Something that `--set` and `--compare` can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Of the memory manager.
    Knob(Knob),
    /// Of the machine: Linux's boot parameter `nopcid`, which makes every switch between address
    /// spaces flush.
    NoPcid,
}

impl Setting {
    const NO_PCID: &'static str = "nopcid";

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Knob(knob) => knob.name(),
            Self::NoPcid => Self::NO_PCID,
        }
    }

    fn named(name: &str) -> Result<Self, OptionError> {
        if name == Self::NO_PCID {
            return Ok(Self::NoPcid);
        }
        let knob = Knob::ALL.iter().find(|knob| knob.name() == name);
        knob.map(|knob| Self::Knob(*knob)).ok_or_else(|| OptionError::UnknownSetting(name.to_owned()))
    }

    /// A setting and the text of its value, from `NAME=VALUE`.
    pub(crate) fn parse(text: &str) -> Result<(Self, &str), OptionError> {
        let (name, value) = text.split_once('=').ok_or_else(|| OptionError::NotASetting(text.to_owned()))?;
        Ok((Self::named(name)?, value))
    }

    /// The number that is meant by a value, if the setting can have it.
    pub(crate) fn value(self, text: &str) -> Result<u64, OptionError> {
        let refused = |why: String| OptionError::BadValue { setting: self.name(), value: text.to_owned(), why };
        let value: u64 = text.parse().map_err(|_| refused("must be a number".to_owned()))?;
        match self {
            Self::Knob(knob) => {
                let set = Knobs::default().set(knob, value);
                set.map_err(|error| refused(format!("must be {}", error.knob.values())))?;
            }
            Self::NoPcid if value > 1 => return Err(refused("must be 0 or 1".to_owned())),
            Self::NoPcid => {}
        }
        Ok(value)
    }

    /// Checks a value and puts it into a replay's configuration.
    fn apply(self, text: &str, config: &mut ReplayConfig) -> Result<(), OptionError> {
        let value = self.value(text)?;
        match self {
            Self::Knob(knob) => config.knobs.push((knob, value)),
            Self::NoPcid => config.machine.tagged = value == 0,
        }
        Ok(())
    }
}

/// What is wrong with an option.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionError {
    #[error("--arch {0}: must be x86-64 or arm64")]
    Arch(String),
    #[error("--profile: {0}")]
    Profile(#[from] ProfileError),
    #[error("{option}: {error}")]
    Parse { option: &'static str, error: ConfigParseError },
    #[error("--mem {0}: write a number of percent, such as 50%")]
    Percent(String),
    #[error("--mem {0}: only of a capture that says what Linux counted, and this one does not")]
    NoFootprint(String),
    #[error("--swap {0}: must be a page at least, and at most 512 GiB")]
    Swap(String),
    #[error("impossible machine: {0}")]
    Machine(#[from] ConfigError),
    #[error("--set {0}: must be NAME=VALUE")]
    NotASetting(String),
    #[error("--compare {0}: must be NAME=OFF,ON")]
    NotAComparison(String),
    #[error("unknown setting {0}: {meant}known are {known}", meant = meant(.0), known = known())]
    UnknownSetting(String),
    #[error("{setting}={value}: {why}")]
    BadValue { setting: &'static str, value: String, why: String },
    #[error("{isa}: {setting} has no effect there")]
    NoSuchThing { isa: IsaKind, setting: &'static str },
    #[error("{0}: a setting of simulated machines, not of the kernel")]
    NotOfTheKernel(&'static str),
    #[error("unknown workload {0}: known are {known}", known = pagewright_capture::generate::names().collect::<Vec<_>>().join(", "))]
    UnknownWorkload(String),
}

/// The settings, for the end of a command's help.
pub(crate) fn settings_help() -> String {
    let line = |name: &str, default: u64, meaning: &str| format!("  {name:<29} {default:>6}  {meaning}\n");
    let knobs = Knob::ALL.iter().map(|knob| line(knob.name(), knob.default(), knob.meaning()));
    format!("Settings, and their values if nobody sets them:\n{}", knobs.collect::<String>())
}

/// The same, for simulated machines.
pub(crate) fn simulated_settings_help() -> String {
    let no_pcid = "1: no PCIDs, so that each switch between address spaces flushes. x86-64 only.";
    format!("{}  {:<29} {:>6}  {no_pcid}", settings_help(), Setting::NO_PCID, 0)
}

/// A hint for who leaves out where Linux has a setting, such as `vm.`.
fn meant(name: &str) -> String {
    let ends = |knob: &&Knob| knob.name().rsplit_once('.').is_some_and(|(_, end)| end == name);
    Knob::ALL.iter().find(ends).map_or_else(String::new, |knob| format!("perhaps {} was meant; ", knob.name()))
}

fn known() -> String {
    let knobs = Knob::ALL.iter().map(|knob| knob.name());
    knobs.chain([Setting::NO_PCID]).collect::<Vec<_>>().join(", ")
}

impl MachineOptions {
    /// Memory in bytes.
    fn memory(&self, footprint: Option<u64>) -> Result<u64, OptionError> {
        match self.mem.strip_suffix('%') {
            None => config::parse::size(&self.mem).map_err(|error| OptionError::Parse { option: "--mem", error }),
            Some(number) => {
                let percent: u64 = number.parse().map_err(|_| OptionError::Percent(self.mem.clone()))?;
                let whole = footprint.ok_or_else(|| OptionError::NoFootprint(self.mem.clone()))?;
                Ok((whole.saturating_mul(percent) / 100).next_multiple_of(PAGE_SIZE))
            }
        }
    }

    /// The instruction set and everything a replay needs.
    ///
    /// `footprint` is what 100 % of memory means, if that is known.
    pub(crate) fn build(&self, footprint: Option<u64>) -> Result<(IsaKind, ReplayConfig), OptionError> {
        let arch = self.arch.as_deref().map(isa_named).transpose()?;
        let profile = match (&self.profile, arch) {
            (Some(name), _) => Profile::named(name)?,
            (None, arch) => Profile::named(Profile::default_for(arch.unwrap_or(IsaKind::X86_64)))?,
        };
        let isa = arch.unwrap_or(profile.isa());
        let mut machine = MachineConfig::new(profile);
        machine.cpus = self.cpus;
        machine.seed = self.seed;
        machine.nodes = if self.node.is_empty() {
            vec![pagewright_sim::NodeConfig { bytes: self.memory(footprint)?, cpus: CpuMask::EMPTY }]
        } else {
            config::parse::nodes(self.node.iter().map(String::as_str))
                .map_err(|error| OptionError::Parse { option: "--node", error })?
        };
        machine.validate(isa)?;
        let mut config = ReplayConfig::new(machine);
        config.swap_slots = self.swap.as_deref().map_or(Ok(0), swap_slots)?;
        for set in &self.set {
            let (setting, value) = Setting::parse(set)?;
            setting.check_on(isa)?;
            setting.apply(value, &mut config)?;
        }
        Ok((isa, config))
    }
}

impl Setting {
    /// A tag in every translation is part of arm64: there is nothing to turn off.
    fn check_on(self, isa: IsaKind) -> Result<(), OptionError> {
        match (self, isa) {
            (Self::NoPcid, IsaKind::Aarch64) => Err(OptionError::NoSuchThing { isa, setting: self.name() }),
            (Self::NoPcid, IsaKind::X86_64) | (Self::Knob(_), _) => Ok(()),
        }
    }
}

/// Pages that fit on a device for swap of the size that `--swap` says.
pub(crate) fn swap_slots(text: &str) -> Result<u32, OptionError> {
    let refused = |error| OptionError::Parse { option: "--swap", error };
    let slots = config::parse::size(text).map_err(refused)? / PAGE_SIZE;
    let slots = u32::try_from(slots).ok().filter(|slots| (1..=SwapEntry::SLOTS).contains(slots));
    slots.ok_or_else(|| OptionError::Swap(text.to_owned()))
}

/// The instruction set that a user means.
pub(crate) fn isa_named(name: &str) -> Result<IsaKind, OptionError> {
    match name {
        "x86-64" | "x86_64" => Ok(IsaKind::X86_64),
        "arm64" | "aarch64" => Ok(IsaKind::Aarch64),
        other => Err(OptionError::Arch(other.to_owned())),
    }
}

/// A setting with its value before and after.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) setting: Setting,
    pub(crate) values: [String; 2],
}

impl Comparison {
    /// Parses `NAME=OFF,ON`.
    pub(crate) fn parse(text: &str) -> Result<Self, OptionError> {
        let bad = || OptionError::NotAComparison(text.to_owned());
        let (name, values) = text.split_once('=').ok_or_else(bad)?;
        let setting = Setting::named(name)?;
        let (before, after) = values.split_once(',').ok_or_else(bad)?;
        Ok(Self { setting, values: [before.to_owned(), after.to_owned()] })
    }

    /// The configuration with the setting at each of its values.
    pub(crate) fn apply(&self, isa: IsaKind, config: &ReplayConfig) -> Result<[ReplayConfig; 2], OptionError> {
        self.setting.check_on(isa)?;
        let with = |value: &str| {
            let mut config = config.clone();
            self.setting.apply(value, &mut config).map(|()| config)
        };
        Ok([with(&self.values[0])?, with(&self.values[1])?])
    }

    /// What heads a column.
    pub(crate) fn heading(&self, index: usize) -> String {
        format!("{}={}", self.setting.name(), self.values[index])
    }
}
