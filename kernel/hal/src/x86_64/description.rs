//! What `/proc/cpuinfo` says of a CPU.
//!
//! Not guaranteed: features that this kernel does not enable for programs.

use core::fmt::{self, Write};
use raw_cpuid::{CpuId, FeatureInfo};

/// Asks for a feature.
type Feature = fn(&FeatureInfo) -> bool;

/// The features that programs can use, by Linux's names.
const FEATURES: [(&str, Feature); 14] = [
    ("fpu", FeatureInfo::has_fpu),
    ("tsc", FeatureInfo::has_tsc),
    ("cx8", FeatureInfo::has_cmpxchg8b),
    ("cmov", FeatureInfo::has_cmov),
    ("clflush", FeatureInfo::has_clflush),
    ("mmx", FeatureInfo::has_mmx),
    ("fxsr", FeatureInfo::has_fxsave_fxstor),
    ("sse", FeatureInfo::has_sse),
    ("sse2", FeatureInfo::has_sse2),
    ("pni", FeatureInfo::has_sse3),
    ("ssse3", FeatureInfo::has_ssse3),
    ("cx16", FeatureInfo::has_cmpxchg16b),
    ("sse4_1", FeatureInfo::has_sse41),
    ("sse4_2", FeatureInfo::has_sse42),
];

/// Writes the lines after the number of the CPU (`show_cpuinfo`).
pub(crate) fn show(out: &mut dyn Write) -> fmt::Result {
    let cpuid = CpuId::new();
    if let Some(vendor) = cpuid.get_vendor_info() {
        writeln!(out, "vendor_id\t: {}", vendor.as_str())?;
    }
    if let Some(features) = cpuid.get_feature_info() {
        writeln!(out, "cpu family\t: {}\nmodel\t\t: {}", features.family_id(), features.model_id())?;
        if let Some(name) = cpuid.get_processor_brand_string() {
            writeln!(out, "model name\t: {}", name.as_str().trim())?;
        }
        write!(out, "stepping\t: {}\nflags\t\t:", features.stepping_id())?;
        for (name, _) in FEATURES.iter().filter(|(_, has)| has(&features)) {
            write!(out, " {name}")?;
        }
        writeln!(out)?;
    }
    if let Some(sizes) = cpuid.get_processor_capacity_feature_info() {
        let (physical, linear) = (sizes.physical_address_bits(), sizes.linear_address_bits());
        writeln!(out, "address sizes\t: {physical} bits physical, {linear} bits virtual")?;
    }
    writeln!(out)
}
