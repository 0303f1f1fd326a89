//! Profiles of real machines: TLB geometry and costs, each figure with its source.
//!
//! Profiles are TOML files in `profiles/`, compiled in. Every table in them has a `source`: where
//! the figure was published, or `assumed: …` with the reason if no source was found. A profile that
//! lacks a cost or a source, or names an unknown cost, does not load; a test loads all of them.
//!
//! Not guaranteed: that a profile matches the machine. It has the figures published about it.

mod band;
mod error;

use crate::cost::{Cost, Costs};
use crate::time::Picos;
use pagewright_types::{IsaKind, Level};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::OnceLock;

pub use band::BandEnd;
use band::Bands;
pub use error::ProfileError;

macro_rules! shipped {
    ($($name:literal),*) => {
        const SHIPPED: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*];
    };
}

shipped!("icelake", "sapphire-rapids", "milan", "neoverse-n1", "kunpeng920", "snapdragon888");

/// The level of a TLB, and the accesses that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TlbKind {
    L1Data,
    L1Instruction,
    L2,
    L2Data,
    L2Instruction,
}

/// The size of one cache of translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSize {
    pub(crate) entries: usize,
    pub(crate) ways: usize,
}

impl CacheSize {
    pub(crate) fn sets(self) -> usize {
        self.entries / self.ways
    }
}

/// The geometry of one TLB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlbShape {
    pub(crate) kind: TlbKind,
    pub(crate) levels: Vec<Level>,
    pub(crate) size: CacheSize,
}

/// The geometry of one walk cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalkCacheShape {
    /// The level of the table entries that it caches.
    pub(crate) level: Level,
    pub(crate) size: CacheSize,
}

/// The geometry of all TLBs and walk caches of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) tlbs: Vec<TlbShape>,
    pub(crate) walk_caches: Vec<WalkCacheShape>,
}

/// One figure of a profile, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFigure {
    /// What the figure is of.
    pub name: String,
    /// The value, with its unit.
    pub value: String,
    /// Where it was published, or `assumed: …`.
    pub source: String,
}

/// The TLBs and the costs of a real machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    name: String,
    isa: IsaKind,
    describes: String,
    pub(crate) geometry: Geometry,
    pub(crate) costs: Costs,
    bands: Bands,
    pub(crate) tags: u32,
    pub(crate) range_invalidate: bool,
    cluster: u16,
    /// Shared, because a search makes a machine for each schedule.
    figures: Arc<[ProfileFigure]>,
}

impl Profile {
    /// The names of the profiles that are compiled in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// Returns the profile called `name`.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], which lists all profiles.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let Some(index) = SHIPPED.iter().position(|(shipped, _)| *shipped == name) else {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            return Err(ProfileError::Unknown { name: name.to_owned(), known });
        };
        // Parsed once, because a search of schedules makes thousands of machines a second.
        static READ: [OnceLock<Profile>; SHIPPED.len()] = [const { OnceLock::new() }; SHIPPED.len()];
        if let Some(profile) = READ[index].get() {
            return Ok(profile.clone());
        }
        let profile = Self::parse(name, SHIPPED[index].1)?;
        Ok(READ[index].get_or_init(|| profile).clone())
    }

    /// The name of the default profile of `isa`.
    pub fn default_for(isa: IsaKind) -> &'static str {
        match isa {
            IsaKind::X86_64 => "icelake",
            IsaKind::Aarch64 => "neoverse-n1",
        }
    }

    /// Parses the TOML `text` of a profile to be called `name`.
    ///
    /// # Errors
    /// [`ProfileError`], which names what is missing, unknown or impossible.
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let message = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            ProfileError::Syntax { name: name.to_owned(), message }
        })?;
        Reader { name, file }.read()
    }

    /// The name of the profile, as on the command line.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The instruction set of the machine.
    pub fn isa(&self) -> IsaKind {
        self.isa
    }

    /// The same profile with `tags` tags, for a machine that runs out of tags early.
    #[must_use]
    pub fn with_tags(mut self, tags: u32) -> Self {
        self.tags = tags;
        self
    }

    /// The same profile with range TLBIs (FEAT_TLBIRANGE), which no shipped profile has.
    ///
    /// A range TLBI has the cost of any other TLBI.
    #[must_use]
    pub fn with_ranges(mut self) -> Self {
        self.range_invalidate = self.isa == IsaKind::Aarch64;
        self
    }

    /// Whether the machine has range TLBIs.
    pub fn has_ranges(&self) -> bool {
        self.range_invalidate
    }

    /// The real machine that the profile describes.
    pub fn describes(&self) -> &str {
        &self.describes
    }

    /// The modelled time of `cost`.
    ///
    /// It is zero if the machine does not have the cost ([`Cost::applies_to`]).
    pub fn cost(&self, cost: Cost) -> Picos {
        self.costs.of(cost)
    }

    /// The number of CPUs of a cluster, between which a line moves in [`Cost::LineNear`].
    ///
    /// The first CPUs of a machine are its first cluster.
    pub fn cluster(&self) -> u16 {
        self.cluster
    }

    /// Entries of the TLBs of a CPU, of all sizes of pages.
    pub fn tlb_entries(&self) -> u64 {
        self.geometry.tlbs.iter().map(|tlb| tlb.size.entries as u64).sum()
    }

    /// All figures with their sources.
    pub fn figures(&self) -> &[ProfileFigure] {
        &self.figures
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    isa: FileIsa,
    describes: String,
    frequency: Frequency,
    tags: Tags,
    range_invalidate: RangeInvalidate,
    cluster: Cluster,
    tlb: Vec<FileTlb>,
    walk_cache: Vec<FileWalkCache>,
    cost: BTreeMap<String, FileCost>,
}

#[derive(Clone, Copy, Deserialize)]
enum FileIsa {
    #[serde(rename = "x86-64")]
    X86_64,
    #[serde(rename = "arm64")]
    Aarch64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frequency {
    mhz: u64,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tags {
    count: u32,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeInvalidate {
    present: bool,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    cpus: NonZeroU16,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTlb {
    kind: TlbKind,
    pages: Vec<PageSize>,
    entries: usize,
    ways: usize,
    source: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum PageSize {
    #[serde(rename = "4K")]
    Base,
    #[serde(rename = "2M")]
    Pmd,
    #[serde(rename = "1G")]
    Pud,
}

impl PageSize {
    fn level(self) -> Level {
        match self {
            Self::Base => Level::PTE,
            Self::Pmd => Level::PMD,
            Self::Pud => Level::PUD,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Base => "4K",
            Self::Pmd => "2M",
            Self::Pud => "1G",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWalkCache {
    level: UpperLevel,
    entries: usize,
    ways: usize,
    source: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum UpperLevel {
    Pmd,
    Pud,
    Pgd,
}

impl UpperLevel {
    fn level(self) -> Level {
        match self {
            Self::Pmd => Level::PMD,
            Self::Pud => Level::PUD,
            Self::Pgd => Level::PGD,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCost {
    cycles: Option<u64>,
    ns: Option<u64>,
    ps: Option<u64>,
    band: Option<[u64; 2]>,
    source: String,
}

impl FileCost {
    /// The value in picoseconds at `mhz`, and its unit; `None` unless there is exactly one value.
    fn value(&self, mhz: u64) -> Option<(u64, Unit)> {
        let (number, unit) = match (self.cycles, self.ns, self.ps) {
            (Some(cycles), None, None) => (cycles, Unit { name: "cycles", picos: (1_000_000, mhz) }),
            (None, Some(ns), None) => (ns, Unit { name: "ns", picos: (1000, 1) }),
            (None, None, Some(ps)) => (ps, Unit { name: "ps", picos: (1, 1) }),
            _ => return None,
        };
        Some((number, unit))
    }
}

/// The unit of a cost, and the picoseconds in it as a fraction.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    picos: (u64, u64),
}

impl Unit {
    fn picos(self, number: u64) -> Picos {
        Picos::new(number * self.picos.0 / self.picos.1)
    }
}

/// Turns a file into a profile, and checks what the TOML parser cannot.
struct Reader<'a> {
    name: &'a str,
    file: File,
}

impl Reader<'_> {
    fn read(self) -> Result<Profile, ProfileError> {
        let isa = match self.file.isa {
            FileIsa::X86_64 => IsaKind::X86_64,
            FileIsa::Aarch64 => IsaKind::Aarch64,
        };
        if self.file.frequency.mhz == 0 {
            return Err(ProfileError::Stopped { name: self.name.to_owned() });
        }
        let mut figures = Vec::new();
        let mut figure = |name: &str, value: String, source: &str| match source.trim().is_empty() {
            true => Err(ProfileError::NoSource { name: self.name.to_owned(), table: name.to_owned() }),
            false => {
                figures.push(ProfileFigure { name: name.to_owned(), value, source: source.to_owned() });
                Ok(())
            }
        };
        let file = &self.file;
        figure("frequency", format!("{} MHz", file.frequency.mhz), &file.frequency.source)?;
        figure("tags", file.tags.count.to_string(), &file.tags.source)?;
        let range = if file.range_invalidate.present { "yes" } else { "no" };
        figure("range-invalidate", range.to_owned(), &file.range_invalidate.source)?;
        figure("cluster", format!("{} CPUs", file.cluster.cpus), &file.cluster.source)?;
        for tlb in &file.tlb {
            let pages: Vec<_> = tlb.pages.iter().map(|size| size.name()).collect();
            let name = format!("{:?} TLB, {}", tlb.kind, pages.join(" "));
            figure(&name, format!("{} entries, {} ways", tlb.entries, tlb.ways), &tlb.source)?;
        }
        for cache in &file.walk_cache {
            let name = format!("walk cache, {}", cache.level.level());
            figure(&name, format!("{} entries, {} ways", cache.entries, cache.ways), &cache.source)?;
        }
        for (name, cost) in &file.cost {
            let Some((number, unit)) = cost.value(file.frequency.mhz) else {
                return Err(ProfileError::Unit { name: self.name.to_owned(), cost: name.clone() });
            };
            let band = cost.band.map_or_else(String::new, |[low, high]| format!(" [{low}–{high}]"));
            figure(name, format!("{number} {}{band}", unit.name), &cost.source)?;
        }
        let (costs, bands) = self.costs(isa)?;
        Ok(Profile {
            name: self.name.to_owned(),
            isa,
            describes: self.file.describes.clone(),
            geometry: self.geometry()?,
            costs,
            bands,
            tags: self.file.tags.count,
            range_invalidate: self.file.range_invalidate.present,
            cluster: self.file.cluster.cpus.get(),
            figures: figures.into(),
        })
    }

    fn geometry(&self) -> Result<Geometry, ProfileError> {
        let size = |entries: usize, ways: usize| match ways > 0 && entries.is_multiple_of(ways) {
            true if (entries / ways).is_power_of_two() => Ok(CacheSize { entries, ways }),
            true | false => Err(ProfileError::Sets { name: self.name.to_owned(), entries, ways }),
        };
        let mut tlbs = Vec::new();
        for tlb in &self.file.tlb {
            let size = size(tlb.entries, tlb.ways)?;
            let levels = tlb.pages.iter().map(|size| size.level()).collect();
            tlbs.push(TlbShape { kind: tlb.kind, levels, size });
        }
        let mut walk_caches = Vec::new();
        for cache in &self.file.walk_cache {
            let size = size(cache.entries, cache.ways)?;
            let level = cache.level.level();
            walk_caches.push(WalkCacheShape { level, size });
        }
        Ok(Geometry { tlbs, walk_caches })
    }

    fn costs(&self, isa: IsaKind) -> Result<(Costs, Bands), ProfileError> {
        let name = || self.name.to_owned();
        for key in self.file.cost.keys() {
            if !Cost::named(key).is_some_and(|cost| cost.applies_to(isa)) {
                return Err(ProfileError::UnknownCost { name: name(), cost: key.clone(), isa });
            }
        }
        let mut costs = [Picos::ZERO; Cost::COUNT];
        let mut bands = [[Picos::ZERO; 2]; Cost::COUNT];
        for cost in Cost::ALL.iter().filter(|cost| cost.applies_to(isa)) {
            let Some(given) = self.file.cost.get(cost.name()) else {
                return Err(ProfileError::MissingCost { name: name(), cost: cost.name() });
            };
            let Some((number, unit)) = given.value(self.file.frequency.mhz) else {
                return Err(ProfileError::Unit { name: name(), cost: cost.name().to_owned() });
            };
            let at = *cost as usize;
            costs[at] = unit.picos(number);
            let ends = given.band.map(|ends| ends.map(|end| unit.picos(end)));
            let Some(band) = band::checked(*cost, costs[at], ends) else {
                return Err(ProfileError::Band { name: name(), cost: cost.name().to_owned() });
            };
            bands[at] = band;
        }
        Ok((Costs(costs), Bands(bands)))
    }
}

#[cfg(test)]
mod tests;
