//! Settings, under the names and with the values that Linux gives them.
//!
//! Declared once, in one table: the enum, the parser, the read-back and the list that
//! `pagewright replay --help` ends with come from it, and `docs/settings.md` is held against it.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_tlb::frames::ClearPolicy;
use pagewright_tlb::{BatchPolicy, TlbConfig};
use pagewright_types::PAGE_SIZE;

/// What values a knob takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A number between two bounds, inclusive.
    Number {
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
    /// A power of two between two bounds, inclusive.
    PowerOfTwo {
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { least, most } => write!(f, "a number from {least} to {most}"),
            Self::PowerOfTwo { least, most } => write!(f, "a power of two from {least} to {most}"),
        }
    }
}

macro_rules! knobs {
    ($($variant:ident = $name:literal, $path:literal, $default:expr, $values:expr, $meaning:literal;)*) => {
        /// A setting of the memory manager.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Knob {
            $(#[doc = $meaning] $variant,)*
        }

        impl Knob {
            /// Every knob.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Where Linux has it.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$variant => $path,)* }
            }

            /// Its value if nobody sets it.
            pub const fn default(self) -> u64 {
                match self { $(Self::$variant => $default,)* }
            }

            /// The values it takes.
            pub const fn values(self) -> Values {
                match self { $(Self::$variant => $values,)* }
            }

            /// What it does, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

knobs! {
    AdminReserveKbytes = "vm.admin_reserve_kbytes", "/proc/sys/vm/admin_reserve_kbytes", 8192,
        Values::Number { least: 0, most: u32::MAX as u64 },
        "KiB that overcommit policy 2 reserves for programs with CAP_SYS_ADMIN.";
    ClearUncached = "clear_uncached", "nowhere: Linux never merged the series", 1,
        Values::Number { least: 0, most: 2 },
        "Whether frames are cleared by stores that bypass the cache: 0 never, 1 where that is known or likely to be faster, 2 always.";
    FaultAroundBytes = "fault_around_bytes", "/sys/kernel/debug/fault_around_bytes", 65536,
        Values::PowerOfTwo { least: PAGE_SIZE, most: 2 << 20 },
        "Bytes around a read fault on a file; cached pages within them are mapped with the page that faulted. The page size turns fault-around off.";
    MaxMapCount = "vm.max_map_count", "/proc/sys/vm/max_map_count", 65530,
        Values::Number { least: 1, most: u32::MAX as u64 },
        "Maximum number of mappings in one address space.";
    MinFreeKbytes = "vm.min_free_kbytes", "/proc/sys/vm/min_free_kbytes", 0,
        Values::Number { least: 0, most: u32::MAX as u64 },
        "KiB that only reclaim may allocate, on a machine that is set up afterwards; 0 derives the figure from the machine's size.";
    MmapMinAddr = "vm.mmap_min_addr", "/proc/sys/vm/mmap_min_addr", 65536,
        Values::Number { least: 0, most: u32::MAX as u64 },
        "Lowest address that a program without CAP_SYS_RAWIO may map, and that mmap chooses for any program.";
    OvercommitKbytes = "vm.overcommit_kbytes", "/proc/sys/vm/overcommit_kbytes", 0,
        Values::Number { least: 0, most: u32::MAX as u64 },
        "KiB of memory that count towards the commit limit of overcommit policy 2, beside all swap; 0 leaves it to vm.overcommit_ratio.";
    OvercommitMemory = "vm.overcommit_memory", "/proc/sys/vm/overcommit_memory", 0,
        Values::Number { least: 0, most: 2 },
        "Overcommit policy: 0 refuses a single request larger than memory and swap, 1 refuses nothing, 2 refuses what passes the commit limit.";
    OvercommitRatio = "vm.overcommit_ratio", "/proc/sys/vm/overcommit_ratio", 50,
        Values::Number { least: 0, most: u32::MAX as u64 },
        "Percent of memory that counts towards the commit limit of overcommit policy 2, beside all swap.";
    StackGuardGap = "stack_guard_gap", "stack_guard_gap= on the kernel command line", 256,
        Values::Number { least: 0, most: 1 << 20 },
        "Pages kept free below a mapping that grows down, for mappings made afterwards.";
    Swappiness = "vm.swappiness", "/proc/sys/vm/swappiness", 60,
        Values::Number { least: 0, most: 200 },
        "How much reclaim prefers swapping to dropping file pages: 100 treats both alike, 0 swaps only when nothing else is left.";
    TlbBatch = "tlb_batch", "nowhere: Linux decides in arch_tlbbatch_should_defer", 1,
        Values::Number { least: 0, most: 2 },
        "Whether reclaim and writeback defer the flushes of many pages and wait once: 0 never, 1 where a flush waits for other CPUs, 2 always.";
    TlbSinglePageFlushCeiling = "tlb_single_page_flush_ceiling", "/sys/kernel/debug/x86/tlb_single_page_flush_ceiling", 33,
        Values::Number { least: 0, most: 512 },
        "Number of pages above which a flush on x86-64 drops the whole address space instead of single pages.";
    UserReserveKbytes = "vm.user_reserve_kbytes", "/proc/sys/vm/user_reserve_kbytes", 131_072,
        Values::Number { least: 0, most: u32::MAX as u64 },
        "KiB that overcommit policy 2 reserves against a large process, at most a 32nd of what it maps.";
    WatermarkScaleFactor = "vm.watermark_scale_factor", "/proc/sys/vm/watermark_scale_factor", 10,
        Values::Number { least: 1, most: 3000 },
        "Distance between the watermarks at which background reclaim starts and stops, in fractions of 10 000 of memory, on a machine that is set up afterwards.";
}

/// Why a setting was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobError {
    /// Which.
    pub knob: Knob,
    /// The value refused.
    pub value: u64,
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: must be {}", self.knob.name(), self.value, self.knob.values())
    }
}

impl core::error::Error for KnobError {}

/// The settings in force.
#[derive(Debug)]
pub struct Knobs([AtomicU64; Knob::ALL.len()]);

impl Default for Knobs {
    fn default() -> Self {
        Self(core::array::from_fn(|index| AtomicU64::new(Knob::ALL[index].default())))
    }
}

impl Knobs {
    /// A knob's value.
    #[inline]
    pub fn get(&self, knob: Knob) -> u64 {
        self.0[knob as usize].load(Ordering::Relaxed)
    }

    /// Sets a knob.
    ///
    /// # Errors
    /// [`KnobError`] when it does not take that value; it keeps the old one.
    pub fn set(&self, knob: Knob, value: u64) -> Result<(), KnobError> {
        let good = match knob.values() {
            Values::Number { least, most } => (least..=most).contains(&value),
            Values::PowerOfTwo { least, most } => (least..=most).contains(&value) && value.is_power_of_two(),
        };
        if !good {
            return Err(KnobError { knob, value });
        }
        self.0[knob as usize].store(value, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn clear_policy(&self) -> ClearPolicy {
        match self.get(Knob::ClearUncached) {
            0 => ClearPolicy::Cached,
            2 => ClearPolicy::Uncached,
            _ => ClearPolicy::Auto,
        }
    }

    pub(crate) fn tlb_config(&self) -> TlbConfig {
        let batch = match self.get(Knob::TlbBatch) {
            0 => BatchPolicy::Never,
            2 => BatchPolicy::Always,
            _ => BatchPolicy::Auto,
        };
        TlbConfig { single_page_flush_ceiling: self.get(Knob::TlbSinglePageFlushCeiling) as u32, batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_values_that_can_be_set() {
        let knobs = Knobs::default();
        for &knob in Knob::ALL {
            assert_eq!(knobs.set(knob, knob.default()), Ok(()));
            assert_eq!(knobs.get(knob), knob.default());
            assert!(knob.meaning().ends_with('.'));
        }
    }

    #[test]
    fn the_page_of_settings_says_what_the_table_says() {
        extern crate std;
        let page = include_str!("../../../docs/settings.md");
        let told: std::vec::Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let row = |knob: &Knob| {
            let (name, default, values) = (knob.name(), knob.default(), knob.values());
            std::format!("| `{name}` | {default} | {values} | {} | {} |", knob.path(), knob.meaning())
        };
        assert_eq!(told, Knob::ALL.iter().map(row).collect::<std::vec::Vec<_>>());
    }

    #[test]
    fn a_refused_value_leaves_the_old_one() {
        let knobs = Knobs::default();
        let refused = KnobError { knob: Knob::FaultAroundBytes, value: 12_288 };
        assert_eq!(knobs.set(Knob::FaultAroundBytes, 12_288), Err(refused));
        assert_eq!(knobs.get(Knob::FaultAroundBytes), 65536);
        assert_eq!(knobs.set(Knob::MaxMapCount, 0), Err(KnobError { knob: Knob::MaxMapCount, value: 0 }));
    }
}
