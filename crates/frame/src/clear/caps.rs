//! The stores that this CPU has, from CPUID or DCZID_EL0.
//!
//! Key types: [`ClearCaps`]; [`CpuSignature`], by which some CPUs are denied streaming stores.
//!
//! Only [`ClearCaps::detect`] adds a backend, and only one that the CPU reported (INV-CLEAR-CAPS).
//!
//! Not guaranteed: that all CPUs of a machine have the same stores. Machines that boot Linux do.

use super::backend::ClearBackend;
use core::fmt;

/// The stores that this CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearCaps {
    /// One bit for each backend.
    has: u8,
    erms: bool,
    /// The bytes that one `DC ZVA` clears.
    zva: Option<usize>,
    signature: Option<CpuSignature>,
}

/// Vendor, family and model of an x86 CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSignature {
    /// Whether the vendor is Intel.
    pub intel: bool,
    /// The displayed family (Intel SDM vol. 2A, CPUID).
    pub family: u8,
    /// The displayed model (Intel SDM vol. 2A, CPUID).
    pub model: u8,
}

impl CpuSignature {
    /// Whether streaming stores are known to be slow on this CPU.
    ///
    /// On Skylake servers MOVNTI reaches 6.3 GB/s and `rep stosb` 20.4 GB/s (8270CL, 16 MB; patch
    /// 21/21 of version 3 of the Linux series). Cascade Lake and Cooper Lake report the same model.
    /// glibc disables non-temporal memset there too (5bcf6265f2).
    pub const fn has_slow_streaming(self) -> bool {
        self.intel && self.family == 6 && self.model == 0x55
    }
}

impl fmt::Display for CpuSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendor = if self.intel { "Intel" } else { "other" };
        write!(f, "{vendor} family {} model {:#x}", self.family, self.model)
    }
}

const fn bit(backend: ClearBackend) -> u8 {
    1 << backend as u8
}

impl ClearCaps {
    /// Ordinary stores only.
    pub(crate) const ORDINARY_ONLY: Self =
        Self { has: bit(ClearBackend::Cached), erms: false, zva: None, signature: None };

    /// The stores that this CPU reports.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub fn detect() -> Self {
        let caps = Self::of_cpuid(raw_cpuid::native_cpuid::CpuIdReaderNative);
        // std also checks that the system saves the vector registers.
        #[cfg(feature = "std")]
        let caps = {
            extern crate std;
            caps.with(ClearBackend::Avx2, std::arch::is_x86_feature_detected!("avx2"))
                .with(ClearBackend::Avx512, std::arch::is_x86_feature_detected!("avx512f"))
        };
        caps
    }

    /// These stores, and those of `backend` if the CPU has them.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    const fn with(self, backend: ClearBackend, has: bool) -> Self {
        if has { Self { has: self.has | bit(backend), ..self } } else { self }
    }

    /// The stores of a CPU with these CPUID leaves, without those that use vector registers.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn of_cpuid(leaves: impl raw_cpuid::CpuIdReader) -> Self {
        let id = raw_cpuid::CpuId::with_cpuid_reader(leaves.clone());
        let extended = id.get_extended_feature_info();
        // MOVDIR64B: leaf 7, ECX bit 28 (Intel SDM vol. 2A, CPUID).
        let has_movdir64b = extended.is_some() && leaves.cpuid2(7, 0).ecx & 1 << 28 != 0;
        let has_clzero = id.get_processor_capacity_feature_info().is_some_and(|info| info.has_cl_zero());
        let intel = id.get_vendor_info().is_some_and(|vendor| vendor.as_str() == "GenuineIntel");
        let signature =
            |info: raw_cpuid::FeatureInfo| CpuSignature { intel, family: info.family_id(), model: info.model_id() };
        let caps = Self {
            erms: extended.is_some_and(|info| info.has_rep_movsb_stosb()),
            signature: id.get_feature_info().map(signature),
            ..Self::ORDINARY_ONLY
        };
        caps.with(ClearBackend::Movnti, true)
            .with(ClearBackend::Movdir64b, has_movdir64b)
            .with(ClearBackend::Clzero, has_clzero)
    }

    /// The stores that this CPU reports.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    pub fn detect() -> Self {
        Self::of_dczid(super::aarch64::dczid())
    }

    /// The stores that this CPU reports; Miri interprets no assembly.
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    pub fn detect() -> Self {
        Self::ORDINARY_ONLY
    }

    /// The stores of a CPU on the deny-list.
    #[cfg(test)]
    pub(super) fn denied_for_test() -> Self {
        Self { signature: Some(CpuSignature { intel: true, family: 6, model: 0x55 }), ..Self::detect() }
    }

    /// The stores of a CPU with this DCZID_EL0.
    ///
    /// DZP (bit 4) prohibits `DC ZVA`; bits 3 to 0 are log2 of the block size in words of 4 bytes
    /// (Arm ARM D24.2.32).
    #[cfg(any(target_arch = "aarch64", test))]
    fn of_dczid(dczid: u64) -> Self {
        let prohibited = dczid & 1 << 4 != 0;
        let zva = (!prohibited).then_some(4 << (dczid & 0xf));
        let has = if prohibited { Self::ORDINARY_ONLY.has } else { Self::ORDINARY_ONLY.has | bit(ClearBackend::DcZva) };
        Self { has, zva, ..Self::ORDINARY_ONLY }
    }

    /// Whether the CPU has the stores of `backend`.
    pub const fn has(&self, backend: ClearBackend) -> bool {
        self.has & bit(backend) != 0
    }

    /// All stores that the CPU has.
    pub fn backends(&self) -> impl Iterator<Item = ClearBackend> {
        ClearBackend::ALL.iter().copied().filter(|backend| self.has(*backend))
    }

    /// The same stores without `backend`; `Cached` always remains.
    #[must_use]
    pub const fn without(self, backend: ClearBackend) -> Self {
        Self { has: self.has & !bit(backend) | bit(ClearBackend::Cached), ..self }
    }

    /// The best stores that go through the cache.
    pub const fn ordinary(&self) -> ClearBackend {
        if self.has(ClearBackend::DcZva) { ClearBackend::DcZva } else { ClearBackend::Cached }
    }

    /// The streaming stores, best first.
    pub fn candidates(&self) -> impl Iterator<Item = ClearBackend> {
        use ClearBackend::{Avx2, Avx512, Clzero, Movdir64b, Movnti};
        [Clzero, Avx512, Avx2, Movdir64b, Movnti].into_iter().filter(|backend| self.has(*backend))
    }

    /// The best streaming stores that need no calibration; `None` if there are none.
    ///
    /// MOVNTI needs calibration: on some CPUs it is slow after locked instructions.
    pub fn streaming(&self) -> Option<ClearBackend> {
        self.candidates().find(|backend| *backend != ClearBackend::Movnti)
    }

    /// Vendor, family and model of the CPU; `None` unless it is x86.
    pub const fn signature(&self) -> Option<CpuSignature> {
        self.signature
    }

    /// Whether the CPU is on the deny-list, because its streaming stores are known to be slow.
    pub fn is_denied(&self) -> bool {
        self.signature.is_some_and(CpuSignature::has_slow_streaming)
    }

    /// Whether string stores are fast (ERMS, x86).
    pub const fn has_erms(&self) -> bool {
        self.erms
    }

    /// The bytes that one `DC ZVA` clears; `None` where it is prohibited.
    pub const fn zva_bytes(&self) -> Option<usize> {
        self.zva
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(intel: bool, family: u8, model: u8) -> ClearCaps {
        ClearCaps { signature: Some(CpuSignature { intel, family, model }), ..ClearCaps::ORDINARY_ONLY }
    }

    #[test]
    fn only_skylake_servers_are_denied_streaming_stores() {
        assert!(cpu(true, 6, 0x55).is_denied());
        for (intel, family, model) in
            [(true, 6, 0x6a), (true, 6, 0x8f), (true, 6, 0xcf), (false, 6, 0x55), (false, 25, 1)]
        {
            assert!(!cpu(intel, family, model).is_denied(), "{intel} {family} {model:#x}");
        }
        assert!(!ClearCaps::ORDINARY_ONLY.is_denied());
    }

    /// INV-CLEAR-CAPS.
    #[test]
    fn dc_zva_is_used_exactly_where_dczid_allows_it() {
        let allowed = ClearCaps::of_dczid(4);
        assert_eq!((allowed.ordinary(), allowed.zva, allowed.streaming()), (ClearBackend::DcZva, Some(64), None));
        let prohibited = ClearCaps::of_dczid(0b1_0100);
        assert_eq!((prohibited.ordinary(), prohibited.zva), (ClearBackend::Cached, None));
    }

    #[test]
    fn the_best_streaming_stores_are_selected_first() {
        use ClearBackend::{Avx2, Avx512, Clzero, Movdir64b, Movnti};
        let mut caps = ClearCaps { has: 0xff, ..ClearCaps::ORDINARY_ONLY };
        for best in [Clzero, Avx512, Avx2, Movdir64b] {
            assert_eq!(caps.streaming(), Some(best));
            caps = caps.without(best);
        }
        assert_eq!((caps.streaming(), caps.candidates().next()), (None, Some(Movnti)), "MOVNTI needs calibration");
        assert!(caps.without(ClearBackend::Cached).has(ClearBackend::Cached), "`Cached` always remains");
    }

    /// The answers of a CPU of this vendor with one bit set, and with its leaves up to `last`.
    ///
    /// Family and model are those of leaf 1 (Intel SDM vol. 2A, CPUID).
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn leaves(
        vendor: [u8; 12],
        last: u32,
        (of, register, bit): (u32, usize, u32),
    ) -> impl Fn(u32, u32) -> raw_cpuid::CpuIdResult + Clone {
        let word = move |at: usize| u32::from_le_bytes(core::array::from_fn(|byte| vendor[at + byte]));
        move |leaf, part| {
            let [eax, mut ebx, mut ecx, edx] = match leaf {
                0 => [last, word(0), word(8), word(4)],
                1 => [0x0019_0F5A, 0, 0, 0],
                0x8000_0000 => [0x8000_0008, 0, 0, 0],
                _ => [0; 4],
            };
            if leaf == of && part == 0 {
                *[&mut ebx, &mut ecx][register] |= 1 << bit;
            }
            raw_cpuid::CpuIdResult { eax, ebx, ecx, edx }
        }
    }

    /// INV-CLEAR-CAPS.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn each_kind_of_store_has_its_bit() {
        const EBX: usize = 0;
        const ECX: usize = 1;
        let known = [(7, ECX, 28), (0x8000_0008, EBX, 0), (7, EBX, 9)];
        let all =
            [7, 0x8000_0008].into_iter().flat_map(|leaf| (0..64).map(move |bit| (leaf, bit / 32, bit as u32 % 32)));
        for bit in all {
            let caps = ClearCaps::of_cpuid(leaves(*b"AuthenticAMD", 7, bit));
            let has = [caps.has(ClearBackend::Movdir64b), caps.has(ClearBackend::Clzero), caps.has_erms()];
            assert_eq!(has, known.map(|of| of == bit), "{bit:x?}");
            assert!(caps.has(ClearBackend::Cached) && caps.has(ClearBackend::Movnti), "every x86-64 CPU has both");
        }
        for (leaf, register, bit) in known {
            let caps = ClearCaps::of_cpuid(leaves(*b"AuthenticAMD", 1, (leaf, register, bit)));
            let without_leaf = [caps.has(ClearBackend::Movdir64b), caps.has_erms()];
            assert_eq!(without_leaf, [false, false], "leaf 7 is not there");
        }
        let all = leaves(*b"AuthenticAMD", 7, (0x8000_0008, EBX, 0));
        let without_leaf = move |leaf, part| raw_cpuid::CpuIdResult {
            eax: if leaf == 0x8000_0000 { 0x8000_0007 } else { all(leaf, part).eax },
            ..all(leaf, part)
        };
        assert!(!ClearCaps::of_cpuid(without_leaf).has(ClearBackend::Clzero), "leaf 80000008h is not there");
        for (vendor, intel) in [(*b"GenuineIntel", true), (*b"AuthenticAMD", false)] {
            let signature = ClearCaps::of_cpuid(leaves(vendor, 7, (7, EBX, 9))).signature;
            assert_eq!(signature, Some(CpuSignature { intel, family: 0x0f + 0x01, model: 0x95 }));
        }
    }

    #[test]
    fn every_x86_cpu_has_movnti() {
        let caps = ClearCaps::detect();
        assert!(caps.has(ClearBackend::Cached));
        assert!(!caps.has(ClearBackend::Machine));
        assert_eq!(caps.has(ClearBackend::Movnti), cfg!(all(target_arch = "x86_64", not(miri))));
    }
}
