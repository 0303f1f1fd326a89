//! A description of the host.
//!
//! Key type: [`HostFacts`], from `/proc` and `/sys`. A fact that they do not report is empty or 0.
//!
//! Not guaranteed: that the facts of a VM are those of the machine under it. The size of its
//! last-level cache rarely is.

use std::fs;

/// The host, as Linux describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The CPU's model name.
    pub model: String,
    /// The number of CPUs on which this process may run.
    pub cpus: usize,
    /// The size of the last-level cache that the CPU reports, in bytes.
    pub reported_cache: u64,
    /// The size of memory, in bytes.
    pub memory: u64,
    /// Whether the CPU reports a hypervisor.
    pub is_virtual: bool,
    /// The release of the Linux kernel.
    pub kernel_release: String,
    /// The load average of the last minute, in hundredths.
    pub load_percent: u64,
}

impl HostFacts {
    /// Reads the facts.
    pub fn gather() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            model: field(&cpuinfo, "model name").unwrap_or_default().to_owned(),
            cpus: crate::real_cpus().len(),
            reported_cache: reported_cache(),
            memory: field(&meminfo, "MemTotal").and_then(parse_size).unwrap_or(0),
            is_virtual: field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel_release: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            load_percent: load
                .split(' ')
                .next()
                .and_then(|load| load.parse::<f64>().ok())
                .map_or(0, |load| (load * 100.0) as u64),
        }
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

/// The bytes in a size such as `12 kB`, `12K` or `12M`.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = if text[digits..].trim().starts_with('M') { 20 } else { 10 };
    number.checked_shl(unit)
}

fn reported_cache() -> u64 {
    let size = |index| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok();
    (0..8).filter_map(size).filter_map(|size| parse_size(size.trim())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_sizes_are_parsed() {
        let text = "processor\t: 0\nmodel name\t: A CPU\nmodel name\t: Another\n";
        assert_eq!(field(text, "model name"), Some("A CPU"));
        assert_eq!(field(text, "flags"), None);
        for (text, bytes) in [("12 kB", Some(12 << 10)), ("48K", Some(48 << 10)), ("2M", Some(2 << 20)), ("x", None)] {
            assert_eq!(parse_size(text), bytes);
        }
    }
}
