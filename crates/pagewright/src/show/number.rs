//! Formats numbers for tables.

/// Puts a comma at every third digit, as `perf stat` does.
pub(super) fn grouped(value: u64) -> String {
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

/// The change from `before` to `after` in per cent; `-` if `before` is 0 and `after` is not.
pub(super) fn change(before: u64, after: u64) -> String {
    match (before, after) {
        (0, 0) => "0.0 %".to_owned(),
        (0, _) => "-".to_owned(),
        _ => format!("{:+.1} %", (after as f64 - before as f64) * 100.0 / before as f64),
    }
}

/// Formats nanoseconds as milliseconds with three decimal places.
pub(super) fn milliseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", grouped(nanoseconds / 1_000_000), nanoseconds / 1000 % 1000)
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
        assert_eq!(milliseconds(1_234_567_890), "1,234.567");
    }
}
