//! Sizes, durations, percentages and how numbers are written for people.

use std::time::Duration;

/// Reads a size as fio does: `4k` is 4096, `1M` is 1048576, `4kb`/`4KiB` the same, no suffix is bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let suffix = text[digits..].to_ascii_lowercase();
    let suffix = suffix
        .strip_suffix("ib")
        .or_else(|| suffix.strip_suffix('b'))
        .unwrap_or(&suffix);
    let shift = match suffix {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    number.checked_mul(1u64 << shift)
}

/// Reads a duration such as `2h30m`, `90s`, `1.5s`, `200ms`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return duration_from_secs(seconds);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let seconds = match &rest[..letters] {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        rest = rest[letters..].trim_start();
        total = total.checked_add(duration_from_secs(number * seconds)?)?;
    }
    Some(total)
}

/// None for what is negative, not a number, or longer than a hundred years.
pub fn duration_from_secs(seconds: f64) -> Option<Duration> {
    (0.0..3.2e9)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// `1h05m`, `4m12s`, `3.2s`, `15ms`.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 0.9995 => format!("{:.0}ms", s * 1e3),
        s if s < 9.95 => format!("{s:.1}s"),
        s if s < 59.5 => format!("{s:.0}s"),
        s if s < 3599.5 => format!("{}m{:02}s", whole / 60, whole % 60),
        s if s < 86_370.0 => {
            let minutes = (s / 60.0).round() as u64;
            format!("{}h{:02}m", minutes / 60, minutes % 60)
        }
        s => {
            let hours = (s / 3600.0).round() as u64;
            format!("{}d{:02}h", hours / 24, hours % 24)
        }
    }
}

/// To the millisecond, as a word that [`parse_duration`] reads: `30d`, `90m`, `1500ms`.
pub fn exact_duration(duration: Duration) -> String {
    const UNITS: [(u128, &str); 4] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
    ];
    let ms = duration.as_millis();
    let unit = UNITS.iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or(&(1, "ms"));
    format!("{}{name}", ms / unit)
}

/// A time (RFC 3339, UTC) to the second, as people read it.
pub fn show_time(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((to_the_second, _)) => format!("{to_the_second}Z"),
        None => rfc3339.to_owned(),
    }
}

/// Reads `2%` or `2.5 %` as a fraction.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
    (number.is_finite()).then_some(number / 100.0)
}

/// Four significant digits with an SI prefix: `18.73k`, `1.204M`, `950.0`, `0.3906`.
pub fn show_si(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    const PREFIXES: [(f64, &str); 6] = [
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
        (1.0, ""),
        (1e-6, "µ"),
    ];
    // Rounded first: 999.96 would get five digits, and belongs to the next prefix.
    let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    let magnitude = value.abs();
    if (1e-3..1.0).contains(&magnitude) {
        // A ratio, mostly: nobody reads it in thousandths.
        let decimals = match magnitude {
            m if m >= 0.1 => 4,
            m if m >= 0.01 => 5,
            _ => 6,
        };
        return format!("{value:.decimals$}");
    }
    let (scale, prefix) = PREFIXES
        .into_iter()
        .find(|(scale, _)| magnitude >= *scale)
        .unwrap_or((1e-9, "n"));
    let scaled = value / scale;
    let decimals = match scaled.abs() {
        s if s >= 99.995 => 1,
        s if s >= 9.9995 => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{prefix}")
}

/// A value with its unit in the form that people of the field write: nanoseconds become
/// `µs`, `ms` or `s`; bytes per second become `MiB/s`; others get an SI prefix.
pub fn show_value(value: f64, unit: &str) -> String {
    let scaled = |factor: f64, steps: &[&str], base: f64| {
        let mut value = value * factor;
        let mut step = 0;
        while value.abs() >= base * 0.99995 && step + 1 < steps.len() {
            value /= base;
            step += 1;
        }
        let decimals = match value.abs() {
            s if s >= 99.995 => 1,
            s if s >= 9.9995 => 2,
            _ => 3,
        };
        format!("{value:.decimals$} {}", steps[step])
    };
    match unit {
        "ns" => scaled(1.0, &["ns", "µs", "ms", "s"], 1000.0),
        "us" | "µs" => scaled(1.0, &["µs", "ms", "s"], 1000.0),
        "ms" => scaled(1.0, &["ms", "s"], 1000.0),
        "bytes/s" => scaled(1.0, &["B/s", "KiB/s", "MiB/s", "GiB/s"], 1024.0),
        "bytes" => scaled(1.0, &["B", "KiB", "MiB", "GiB", "TiB"], 1024.0),
        "" | "1/s" => show_si(value),
        unit => format!("{} {unit}", show_si(value)),
    }
}

/// From this ratio on a change is a factor, not percent.
pub const FACTOR_MIN: f64 = 3.0;

/// A ratio as a change: `+3.21%`, `-0.40%`; a large one as a factor: `12.3x`.
pub fn show_ratio(ratio: f64) -> String {
    match ratio {
        r if r.is_finite() && r < FACTOR_MIN => format!("{:+.2}%", (r - 1.0) * 100.0),
        r => show_factor(r),
    }
}

/// A ratio as a factor: `0.85x`, `12.3x`.
pub fn show_factor(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() => "?".to_owned(),
        r if r >= 99.5 => format!("{r:.0}x"),
        r if r >= 9.95 => format!("{r:.1}x"),
        r => format!("{r:.2}x"),
    }
}

/// `1 cell`, `2 cells`.
pub fn count(n: usize, one: &str) -> String {
    let plural = match one {
        "match" => "matches".to_owned(),
        one if one.ends_with('y') => format!("{}ies", &one[..one.len() - 1]),
        one => format!("{one}s"),
    };
    format!("{n} {}", if n == 1 { one } else { &plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_fio() {
        let check = |text, bytes| assert_eq!(parse_size(text), bytes, "{text}");
        check("4k", Some(4096));
        check("4096", Some(4096));
        check("1M", Some(1 << 20));
        check("1MiB", Some(1 << 20));
        check("2g", Some(2 << 30));
        check("4x", None);
        check("", None);
        check("99999999P", None);
    }

    #[test]
    fn durations() {
        let check = |text, ms: Option<u64>| {
            assert_eq!(
                parse_duration(text),
                ms.map(Duration::from_millis),
                "{text}"
            )
        };
        check("2h30m", Some(9_000_000));
        check("90s", Some(90_000));
        check("90", Some(90_000));
        check("1.5s", Some(1_500));
        check("200ms", Some(200));
        check("1h 5m", Some(3_900_000));
        check("", None);
        check("2x", None);
        check("-3s", None);
        check("1e99", None);
    }

    #[test]
    fn durations_are_shown_short() {
        let check =
            |seconds: f64, text| assert_eq!(show_duration(Duration::from_secs_f64(seconds)), text);
        check(0.015, "15ms");
        check(3.21, "3.2s");
        check(59.4, "59s");
        check(59.7, "1m00s");
        check(252.0, "4m12s");
        check(3900.0, "1h05m");
        check(90_000.0, "1d01h");
    }

    #[test]
    fn times_are_shown_to_the_second() {
        let check = |text| assert_eq!(show_time(text), "2026-11-30T10:00:00Z");
        check("2026-11-30T10:00:00.123456789Z");
        check("2026-11-30T10:00:00Z");
    }

    #[test]
    fn numbers_keep_four_digits() {
        let check = |value, text| assert_eq!(show_si(value), text);
        check(18_730.0, "18.73k");
        check(999.96, "1.000k");
        check(0.0, "0");
        check(-2.5, "-2.500");
        check(0.3906, "0.3906");
        check(0.012_344, "0.01234");
        check(-0.99996, "-1.000");
        check(0.00015, "150.0µ");
        // What rounds up to the next digit.
        check(0.999_96, "1.000");
        check(0.099_996, "0.1000");
        check(0.009_999_6, "0.01000");
        check(0.000_999_96, "0.001000");
        check(0.000_999_94, "999.9µ");
        check(-0.000_099_996, "-100.0µ");
        check(9_999.5, "10.00k");
        check(999_949.0, "999.9k");
        check(9.999_6e-7, "1.000µ");
        check(f64::NAN, "?");
    }

    #[test]
    fn values_take_the_unit_of_the_field() {
        let check = |value, unit, text| assert_eq!(show_value(value, unit), text);
        check(1_532_000.0, "ns", "1.532 ms");
        check(1_048_576.0, "bytes/s", "1.000 MiB/s");
        check(18_730.0, "1/s", "18.73k");
        check(3.0, "seconds", "3.000 seconds");
    }

    #[test]
    fn ratios() {
        assert_eq!(show_ratio(1.0321), "+3.21%");
        assert_eq!(show_ratio(0.996), "-0.40%");
        assert_eq!(show_ratio(12.34), "12.3x");
        assert_eq!(show_ratio(f64::INFINITY), "?");
    }
}
