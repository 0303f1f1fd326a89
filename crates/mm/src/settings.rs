//! The settings of the memory manager, with Linux's names and values.
//!
//! One table declares them. The enum, the command-line options and their help follow from it, and a
//! test compares `docs/settings.md` with it.

use crate::thp::ThpSizes;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_tlb::frames::ClearPolicy;
use pagewright_tlb::{BatchPolicy, TlbConfig};
use pagewright_types::PAGE_SIZE;
use thiserror::Error;

/// The values that a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingValues {
    /// The numbers from `min` to `max`.
    Number {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// The powers of two from `min` to `max`.
    PowerOfTwo {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// One of these words; its number is its place, from 0.
    Word(&'static [&'static str]),
}

impl fmt::Display for SettingValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::PowerOfTwo { min, max } => write!(f, "a power of two from {min} to {max}"),
            Self::Word(words) => {
                let (last, others) = words.split_last().unwrap_or((&"nothing", &[]));
                others.iter().enumerate().try_for_each(|(at, word)| match at {
                    0 => f.write_str(word),
                    _ => write!(f, ", {word}"),
                })?;
                write!(f, " or {last}")
            }
        }
    }
}

impl SettingValues {
    fn accept(self, value: u64) -> bool {
        match self {
            Self::Number { min, max } => (min..=max).contains(&value),
            Self::PowerOfTwo { min, max } => (min..=max).contains(&value) && value.is_power_of_two(),
            Self::Word(words) => value < words.len() as u64,
        }
    }

    fn number_of(self, text: &str) -> Option<u64> {
        match self {
            Self::Number { .. } | Self::PowerOfTwo { .. } => text.parse().ok(),
            Self::Word(words) => words.iter().position(|word| *word == text).map(|at| at as u64),
        }
    }
}

/// A value of a setting, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingValue {
    setting: MmSetting,
    value: u64,
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting.values() {
            SettingValues::Word(words) if self.value < words.len() as u64 => f.pad(words[self.value as usize]),
            _ => write!(f, "{}", self.value),
        }
    }
}

impl MmSetting {
    /// Reads a value that the setting accepts; `None` if it does not accept it.
    pub fn parse(self, text: &str) -> Option<u64> {
        self.values().number_of(text).filter(|value| self.values().accept(*value))
    }

    /// The value `value`, to be printed.
    pub const fn show(self, value: u64) -> SettingValue {
        SettingValue { setting: self, value }
    }
}

macro_rules! settings {
    ($($variant:ident = $name:literal, $path:literal, $default:expr, $values:expr, $meaning:literal;)*) => {
        /// A setting of the memory manager.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum MmSetting {
            $(#[doc = $meaning] $variant,)*
        }

        impl MmSetting {
            /// All settings.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the place where Linux has the setting, such as a path in `/proc/sys`.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$variant => $path,)* }
            }

            /// Returns the default value.
            pub const fn default(self) -> u64 {
                match self { $(Self::$variant => $default,)* }
            }

            /// Returns the values that the setting accepts.
            pub const fn values(self) -> SettingValues {
                match self { $(Self::$variant => $values,)* }
            }

            /// Returns the meaning of the setting, with its unit, in one sentence or more.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

settings! {
    AdminReserveKbytes = "vm.admin_reserve_kbytes", "/proc/sys/vm/admin_reserve_kbytes", 8192,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "KiB that overcommit policy 2 reserves for programs with CAP_SYS_ADMIN.";
    ClearUncached = "clear_uncached", "nowhere: Linux never merged the series", 1,
        SettingValues::Word(&["never", "auto", "always"]),
        "Whether frames are cleared by stores that bypass the cache; auto: where that is known or likely to be faster.";
    CowPageTables = "cow_page_tables", "nowhere: Linux never merged the series", 2,
        SettingValues::Word(&["never", "prctl", "always", "auto"]),
        "Whether fork shares page tables and copies a table when an entry of it changes; prctl: for programs that ask by prctl(PR_SET_COW_PTE); auto: for those, and for each space that is not so small that copying costs less, the default of the bare-metal kernel.";
    DemotionEnabled = "demotion_enabled", "/sys/kernel/mm/numa/demotion_enabled", 0,
        SettingValues::Number { min: 0, max: 1 },
        "Whether reclaim moves pages to the next lower memory tier before it evicts them.";
    FaultAroundBytes = "fault_around_bytes", "/sys/kernel/debug/fault_around_bytes", 65536,
        SettingValues::PowerOfTwo { min: PAGE_SIZE, max: 2 << 20 },
        "Bytes around a read fault on a file; cached pages within them are mapped with the page that faulted. The page size turns fault-around off.";
    LruBatch = "lru_batch", "nowhere: PAGEVEC_SIZE is compiled in", 31,
        SettingValues::Number { min: 1, max: 255 },
        "Number of new anonymous pages that a CPU collects before it takes the lock of the LRU lists for them, on a machine that is set up afterwards; 1 takes it for each page.";
    MaxMapCount = "vm.max_map_count", "/proc/sys/vm/max_map_count", 65530,
        SettingValues::Number { min: 1, max: u32::MAX as u64 },
        "Maximum number of mappings in one address space.";
    MinFreeKbytes = "vm.min_free_kbytes", "/proc/sys/vm/min_free_kbytes", 0,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "KiB that only reclaim may allocate, on a machine that is set up afterwards; 0 derives the figure from the machine's size.";
    MmapMinAddr = "vm.mmap_min_addr", "/proc/sys/vm/mmap_min_addr", 65536,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "Lowest address that a program without CAP_SYS_RAWIO may map, and that mmap chooses for any program.";
    NumaBalancing = "numa_balancing", "/proc/sys/kernel/numa_balancing", 0,
        SettingValues::Number { min: 0, max: 2 },
        "Whether the tick scans spaces so that faults show which CPUs use which pages: 1 moves pages to the nodes that use them, 2 moves hot pages of lower memory tiers to the top tier.";
    NumaHotThresholdMs = "numa_balancing_hot_threshold_ms", "/sys/kernel/debug/sched/numa_balancing/hot_threshold_ms", 1000,
        SettingValues::Number { min: 1, max: u32::MAX as u64 },
        "Milliseconds between the scan and the use of a page of a lower tier below which it is hot; adapted, up to twice as many, to the rate limit.";
    NumaPromoteRateLimit = "numa_balancing_promote_rate_limit_MBps", "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", 65536,
        SettingValues::Number { min: 1, max: u32::MAX as u64 },
        "MB per second that may be promoted to a node.";
    NumaScanDelayMs = "numa_balancing_scan_delay_ms", "/sys/kernel/debug/sched/numa_balancing/scan_delay_ms", 1000,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "Milliseconds between the first tick of a space and its first scan.";
    NumaScanPeriodMaxMs = "numa_balancing_scan_period_max_ms", "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms", 60_000,
        SettingValues::Number { min: 1, max: u32::MAX as u64 },
        "Longest time in milliseconds in which a space is scanned once, and the least time between two changes of the hot threshold.";
    NumaScanPeriodMinMs = "numa_balancing_scan_period_min_ms", "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms", 1000,
        SettingValues::Number { min: 1, max: u32::MAX as u64 },
        "Shortest time in milliseconds in which a space is scanned once.";
    NumaScanSizeMb = "numa_balancing_scan_size_mb", "/sys/kernel/debug/sched/numa_balancing/scan_size_mb", 256,
        SettingValues::Number { min: 1, max: 1 << 20 },
        "MB of a space that one scan covers.";
    OvercommitKbytes = "vm.overcommit_kbytes", "/proc/sys/vm/overcommit_kbytes", 0,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "KiB of memory that count towards the commit limit of overcommit policy 2, beside all swap; 0 leaves it to vm.overcommit_ratio.";
    OvercommitMemory = "vm.overcommit_memory", "/proc/sys/vm/overcommit_memory", 0,
        SettingValues::Number { min: 0, max: 2 },
        "Overcommit policy: 0 refuses a single request larger than memory and swap, 1 refuses nothing, 2 refuses what passes the commit limit.";
    OvercommitRatio = "vm.overcommit_ratio", "/proc/sys/vm/overcommit_ratio", 50,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "Percent of memory that counts towards the commit limit of overcommit policy 2, beside all swap.";
    StackGuardGap = "stack_guard_gap", "stack_guard_gap= on the kernel command line", 256,
        SettingValues::Number { min: 0, max: 1 << 20 },
        "Pages kept free below a mapping that grows down, for mappings made afterwards.";
    Swappiness = "vm.swappiness", "/proc/sys/vm/swappiness", 60,
        SettingValues::Number { min: 0, max: 200 },
        "How much reclaim prefers swapping to dropping file pages: 100 treats both alike, 0 swaps only when nothing else is left.";
    ThpDefrag = "transparent_hugepage.defrag", "/sys/kernel/mm/transparent_hugepage/defrag", 3,
        SettingValues::Word(&["always", "defer", "defer+madvise", "madvise", "never"]),
        "Where a fault reclaims memory for a huge page: always: everywhere; madvise, defer+madvise: in mappings with MADV_HUGEPAGE; elsewhere, and with defer and never, it takes smaller pages.";
    ThpEnabled = "transparent_hugepage.enabled", "/sys/kernel/mm/transparent_hugepage/enabled", 1,
        SettingValues::Word(&["always", "madvise", "never"]),
        "Where anonymous memory gets the sizes of huge pages that inherit this: everywhere, in mappings with MADV_HUGEPAGE, or nowhere.";
    ThpEnabled16k = "transparent_hugepage.hugepages-16kB", "/sys/kernel/mm/transparent_hugepage/hugepages-16kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 16 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled32k = "transparent_hugepage.hugepages-32kB", "/sys/kernel/mm/transparent_hugepage/hugepages-32kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 32 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled64k = "transparent_hugepage.hugepages-64kB", "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 64 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled128k = "transparent_hugepage.hugepages-128kB", "/sys/kernel/mm/transparent_hugepage/hugepages-128kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 128 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled256k = "transparent_hugepage.hugepages-256kB", "/sys/kernel/mm/transparent_hugepage/hugepages-256kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 256 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled512k = "transparent_hugepage.hugepages-512kB", "/sys/kernel/mm/transparent_hugepage/hugepages-512kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 512 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled1024k = "transparent_hugepage.hugepages-1024kB", "/sys/kernel/mm/transparent_hugepage/hugepages-1024kB/enabled", 3,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 1024 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpEnabled2048k = "transparent_hugepage.hugepages-2048kB", "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled", 1,
        SettingValues::Word(&["always", "inherit", "madvise", "never"]),
        "Where anonymous memory gets pages of 2048 KiB; inherit: where transparent_hugepage.enabled says.";
    ThpUseZeroPage = "transparent_hugepage.use_zero_page", "/sys/kernel/mm/transparent_hugepage/use_zero_page", 1,
        SettingValues::Number { min: 0, max: 1 },
        "1: a load of memory that gets huge pages of 2 MiB, and was not stored to, maps a shared huge page of zeroes; 0: one of its own.";
    TlbBatch = "tlb_batch", "nowhere: Linux decides in arch_tlbbatch_should_defer", 1,
        SettingValues::Word(&["never", "auto", "always"]),
        "Whether reclaim and writeback defer the flushes of many pages and wait once; auto: where a flush waits for other CPUs.";
    TlbLinger = "tlb_linger", "nowhere: Linux never merged the series", 0,
        SettingValues::Word(&["never", "migration", "unmap"]),
        "Whether read-only translations stay in TLBs, until a store or the reuse of the frame needs their flush; migration: those of pages that moved; unmap: also those of pages that reclaim unmapped.";
    TlbSinglePageFlushCeiling = "tlb_single_page_flush_ceiling", "/sys/kernel/debug/x86/tlb_single_page_flush_ceiling", 33,
        SettingValues::Number { min: 0, max: 512 },
        "Number of pages above which a flush on x86-64 drops the whole address space instead of single pages.";
    UserReserveKbytes = "vm.user_reserve_kbytes", "/proc/sys/vm/user_reserve_kbytes", 131_072,
        SettingValues::Number { min: 0, max: u32::MAX as u64 },
        "KiB that overcommit policy 2 reserves against a large process, at most a 32nd of what it maps.";
    WatermarkScaleFactor = "vm.watermark_scale_factor", "/proc/sys/vm/watermark_scale_factor", 10,
        SettingValues::Number { min: 1, max: 3000 },
        "Distance between the watermarks at which background reclaim starts and stops, in fractions of 10 000 of memory, on a machine that is set up afterwards.";
}

/// A setting does not accept a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{} = {}: must be {}", .setting.name(), .setting.show(*.value), .setting.values())]
pub struct MmSettingError {
    /// The setting.
    pub setting: MmSetting,
    /// The value.
    pub value: u64,
}

/// The values of all settings.
#[derive(Debug)]
pub struct MmSettings {
    values: [AtomicU64; MmSetting::ALL.len()],
    /// What those of huge pages say together, for faults.
    thp: ThpSizes,
}

impl Default for MmSettings {
    fn default() -> Self {
        let values = core::array::from_fn(|index| AtomicU64::new(MmSetting::ALL[index].default()));
        let settings = Self { values, thp: ThpSizes::default() };
        settings.thp.update(|setting| settings.get(setting));
        settings
    }
}

impl MmSettings {
    /// Returns the value of a setting.
    #[inline]
    pub fn get(&self, setting: MmSetting) -> u64 {
        self.values[setting as usize].load(Ordering::Relaxed)
    }

    /// Changes the value of a setting.
    ///
    /// # Errors
    /// [`MmSettingError`] if the setting does not accept the value; the old one stays in force.
    pub fn set(&self, setting: MmSetting, value: u64) -> Result<(), MmSettingError> {
        if !setting.values().accept(value) {
            return Err(MmSettingError { setting, value });
        }
        self.values[setting as usize].store(value, Ordering::Relaxed);
        self.thp.update(|setting| self.get(setting));
        Ok(())
    }

    /// Where anonymous memory gets which sizes of huge pages.
    #[inline]
    pub(crate) fn thp(&self) -> &ThpSizes {
        &self.thp
    }

    pub(crate) fn clear_policy(&self) -> ClearPolicy {
        match self.get(MmSetting::ClearUncached) {
            0 => ClearPolicy::Cached,
            2 => ClearPolicy::Uncached,
            _ => ClearPolicy::Auto,
        }
    }

    pub(crate) fn tlb_config(&self) -> TlbConfig {
        let batch = match self.get(MmSetting::TlbBatch) {
            0 => BatchPolicy::Never,
            2 => BatchPolicy::Always,
            _ => BatchPolicy::Auto,
        };
        TlbConfig { single_page_flush_ceiling: self.get(MmSetting::TlbSinglePageFlushCeiling) as u32, batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_accepts_its_default() {
        let settings = MmSettings::default();
        for &setting in MmSetting::ALL {
            assert_eq!(settings.set(setting, setting.default()), Ok(()));
            assert_eq!(settings.get(setting), setting.default());
            assert!(setting.meaning().ends_with('.'));
        }
    }

    #[test]
    fn the_page_of_settings_agrees_with_the_table() {
        extern crate std;
        let page = include_str!("../settings.md");
        let listed: std::vec::Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let row = |setting: &MmSetting| {
            let (name, values) = (setting.name(), setting.values());
            let default = setting.show(setting.default());
            std::format!("| `{name}` | {default} | {values} | {} | {} |", setting.path(), setting.meaning())
        };
        assert_eq!(listed, MmSetting::ALL.iter().map(row).collect::<std::vec::Vec<_>>());
    }

    #[test]
    fn a_value_is_read_as_it_is_printed() {
        extern crate std;
        use std::string::ToString;
        for &setting in MmSetting::ALL {
            let default = setting.default();
            assert_eq!(setting.parse(&setting.show(default).to_string()), Some(default));
        }
        let shares = MmSetting::CowPageTables;
        assert_eq!(
            ["never", "prctl", "always", "auto", "2", ""].map(|word| shares.parse(word)),
            [Some(0), Some(1), Some(2), Some(3), None, None]
        );
        assert_eq!(shares.values().to_string(), "never, prctl, always or auto");
        assert_eq!(MmSetting::Swappiness.parse("201"), None);
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let settings = MmSettings::default();
        let refused = MmSettingError { setting: MmSetting::FaultAroundBytes, value: 12_288 };
        assert_eq!(settings.set(MmSetting::FaultAroundBytes, 12_288), Err(refused));
        assert_eq!(settings.get(MmSetting::FaultAroundBytes), 65536);
        assert_eq!(
            settings.set(MmSetting::MaxMapCount, 0),
            Err(MmSettingError { setting: MmSetting::MaxMapCount, value: 0 })
        );
    }
}
