//! Formats numbers for tables.

/// Puts a comma at every third digit, as `perf stat` does.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count in words, `1 CPU` or `4 CPUs`.
pub(crate) fn counted(count: u64, [one, more]: [&str; 2]) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { more })
}

/// So many CPUs, in words.
pub(crate) fn cpus(count: u64) -> String {
    counted(count, ["CPU", "CPUs"])
}

/// The change from `before` to `after` in per cent; `-` if `before` is 0 and `after` is not.
pub(crate) fn change(before: u64, after: u64) -> String {
    match (before, after) {
        (0, 0) => "0.0 %".to_owned(),
        (0, _) => "-".to_owned(),
        _ => match format!("{:+.1} %", (after as f64 - before as f64) * 100.0 / before as f64) {
            text if text == "-0.0 %" => "+0.0 %".to_owned(),
            text => text,
        },
    }
}

/// A unit of modelled times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl TimeUnit {
    /// The largest unit of which `ns` is at least 1.
    pub(super) fn of(ns: u64) -> Self {
        match ns {
            0..1000 => Self::Nanoseconds,
            1000..1_000_000 => Self::Microseconds,
            1_000_000..1_000_000_000 => Self::Milliseconds,
            _ => Self::Seconds,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// Formats nanoseconds in this unit, with three decimal places if they are not whole.
    pub(super) fn number(self, ns: u64) -> String {
        let (whole, part) = match self {
            Self::Nanoseconds => return grouped(ns),
            Self::Microseconds => (ns / 1000, ns % 1000),
            Self::Milliseconds => (ns / 1_000_000, ns / 1000 % 1000),
            Self::Seconds => (ns / 1_000_000_000, ns / 1_000_000 % 1000),
        };
        format!("{}.{part:03}", grouped(whole))
    }
}

/// Formats a number of bytes with one decimal place.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Formats whole pages of memory without rounding.
pub(super) fn memory(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three_from_the_right() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(value), text);
        }
    }

    #[test]
    fn memory_is_printed_without_rounding() {
        assert_eq!((memory(2 << 30).as_str(), memory(620 << 10).as_str()), ("2048 MiB", "620 KiB"));
        assert_eq!(memory((4 << 20) + 4096), "4100 KiB");
    }

    #[test]
    fn changes_are_relative_to_the_first_value() {
        assert_eq!(change(200, 150), "-25.0 %");
        assert_eq!(change(0, 5), "-");
        assert_eq!(change(0, 0), "0.0 %");
        assert_eq!(change(10_000, 9_999), "+0.0 %");
    }

    #[test]
    fn one_is_not_counted_as_many() {
        assert_eq!([1, 0, 4000].map(cpus), ["1 CPU", "0 CPUs", "4,000 CPUs"]);
    }

    #[test]
    fn times_and_sizes_have_units() {
        let text = |ns| format!("{} {}", TimeUnit::of(ns).number(ns), TimeUnit::of(ns).name());
        for (ns, expected) in [(0, "0 ns"), (999, "999 ns"), (1500, "1.500 us"), (12_345_678, "12.345 ms")] {
            assert_eq!(text(ns), expected);
        }
        assert_eq!(text(61_000_000_000), "61.000 s");
        assert_eq!(TimeUnit::Milliseconds.number(1_234_567_890), "1,234.567", "in the unit of another time");
        assert_eq!([size(12), size(1536), size(3 << 30)], ["12 bytes", "1.5 KiB", "3.0 GiB"]);
    }
}
