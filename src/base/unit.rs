//! Units of measured values: which are known, and how a value in one becomes a value in another.

/// What is measured: values of one dimension can be converted into each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Time,
    Data,
    DataRate,
    /// Events a second.
    Rate,
    Frequency,
    Share,
    Energy,
    Power,
    Processors,
}

impl Dimension {
    /// A value below 0 is no measurement: nothing takes less than no time.
    fn is_never_negative(self) -> bool {
        self != Dimension::Share
    }
}

/// A unit that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub dimension: Dimension,
    /// How many of the dimension's smallest unit it is.
    factor: f64,
    /// The unit in which such values are kept when nobody asks for another.
    pub standard: &'static str,
}

/// Multiples of the SI, and those of IEC 80000-13: `M` is 10^6, `Mi` is 2^20.
const PREFIXES: [(&str, f64); 12] = [
    ("", 1.0),
    ("k", 1e3),
    ("K", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("Ki", 1024.0),
    ("Mi", 1048576.0),
    ("Gi", 1073741824.0),
    ("Ti", 1099511627776.0),
    ("Pi", 1125899906842624.0),
];

/// Nanoseconds.
const TIMES: [(&str, f64); 19] = [
    ("ns", 1.0),
    ("nsec", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("usec", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
    ("second", 1e9),
    ("seconds", 1e9),
    ("min", 60e9),
    ("minute", 60e9),
    ("minutes", 60e9),
    ("h", 3600e9),
    ("hour", 3600e9),
    ("hours", 3600e9),
];

/// Eighths of a byte.
const BYTES: [(&str, f64); 3] = [("B", 8.0), ("byte", 8.0), ("bytes", 8.0)];
const BITS: [(&str, f64); 3] = [("bit", 1.0), ("bits", 1.0), ("b", 1.0)];

/// The unit that a text names; None where it is not known. `KB` is 1000 bytes, `KiB` 1024.
pub fn parse(text: &str) -> Option<Unit> {
    let text = text.trim();
    let unit = |dimension, factor, standard| {
        Some(Unit {
            dimension,
            factor,
            standard,
        })
    };
    if let Some((_, factor)) = TIMES.iter().find(|(name, _)| *name == text) {
        return unit(Dimension::Time, *factor, "s");
    }
    match text {
        "%" | "percent" => return unit(Dimension::Share, 1.0, "%"),
        "J" | "Joules" => return unit(Dimension::Energy, 1.0, "Joules"),
        "W" | "Watts" => return unit(Dimension::Power, 1.0, "W"),
        "CPU" | "CPUs" => return unit(Dimension::Processors, 1.0, "CPUs"),
        _ => {}
    }
    if let Some(factor) = with_prefix(text, &BYTES) {
        return unit(Dimension::Data, factor, "bytes");
    }
    if let Some(factor) = with_prefix(text, &BITS) {
        return unit(Dimension::Data, factor, "bits");
    }
    if let Some(factor) = with_prefix(text, &[("Hz", 1.0)]) {
        return unit(Dimension::Frequency, factor, "Hz");
    }
    if let Some(factor) = with_prefix(text, &[("IOPS", 1.0), ("iops", 1.0)]) {
        return unit(Dimension::Rate, factor, "1/s");
    }
    if let Some(factor) = with_prefix(text, &[("bps", 1.0), ("bit/s", 1.0)]) {
        return unit(Dimension::DataRate, factor, "bits/s");
    }
    let each = ["/s", "/sec", "/second"];
    let amount = each.iter().find_map(|each| text.strip_suffix(each))?;
    if let Some(factor) = with_prefix(amount, &BYTES) {
        return unit(Dimension::DataRate, factor, "bytes/s");
    }
    if let Some(factor) = with_prefix(amount, &BITS) {
        return unit(Dimension::DataRate, factor, "bits/s");
    }
    let events = [("1", 1.0), ("", 1.0), ("op", 1.0), ("ops", 1.0)];
    unit(Dimension::Rate, with_prefix(amount, &events)?, "1/s")
}

/// The factor of one of these units with a prefix before it.
fn with_prefix(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(name, factor)| {
        let prefix = text.strip_suffix(name)?;
        let (_, multiple) = PREFIXES.iter().find(|(known, _)| *known == prefix)?;
        Some(multiple * factor)
    })
}

/// A value of one unit in another; None where they do not measure the same, or one is not known.
pub fn convert(value: f64, from: &str, to: &str) -> Option<f64> {
    if from == to {
        return Some(value);
    }
    let (from, to) = (parse(from)?, parse(to)?);
    // Multiplied first: what was a decimal number stays one.
    (from.dimension == to.dimension).then(|| value * from.factor / to.factor)
}

/// Why a value in this unit is no measurement, if it is none.
pub fn objection(value: f64, unit: &str) -> Option<&'static str> {
    let dimension = parse(unit)?.dimension;
    if value >= 0.0 || !dimension.is_never_negative() {
        return None;
    }
    Some(match dimension {
        Dimension::Time => "a duration is not negative",
        Dimension::DataRate | Dimension::Rate | Dimension::Frequency => "a rate is not negative",
        _ => "such a value is not negative",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_one_dimension_are_converted() {
        let check = |value, from, to, expected| assert_eq!(convert(value, from, to), expected);
        check(990.0, "MB/s", "bytes/s", Some(990e6));
        check(1.2, "GB/s", "MB/s", Some(1200.0));
        check(1.0, "MiB/s", "bytes/s", Some(1048576.0));
        check(1.0, "KB", "bytes", Some(1000.0));
        check(1.0, "KiB", "bytes", Some(1024.0));
        check(990.0, "us", "ms", Some(0.99));
        check(1.01, "ms", "µs", Some(1010.0));
        check(2.0, "min", "s", Some(120.0));
        check(9.5, "Gbits/sec", "bits/s", Some(9.5e9));
        check(8.0, "Mbps", "MB/s", Some(1.0));
        check(3.0, "kIOPS", "1/s", Some(3000.0));
        check(3.0, "ops/sec", "1/s", Some(3.0));
        check(2.5, "GHz", "MHz", Some(2500.0));
        check(3.0, "frogs", "frogs", Some(3.0));
        check(3.0, "frogs", "s", None);
        check(3.0, "MB", "MB/s", None);
        check(3.0, "MB/s", "ms", None);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        for text in [
            "",
            "x",
            "tps",
            "m",
            "MS",
            "mb/s",
            "MBytes/sec",
            "Ms",
            "kmin",
            "/",
            "s/",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_standard_unit_is_a_unit() {
        for text in [
            "us", "MB", "Mbit", "GB/s", "Gbps", "IOPS", "kHz", "%", "J", "W", "CPUs",
        ] {
            let standard = parse(text).unwrap().standard;
            assert_eq!(parse(standard).map(|unit| unit.standard), Some(standard));
            assert!(convert(1.0, text, standard).is_some(), "{text}");
        }
    }

    #[test]
    fn durations_and_rates_are_not_negative() {
        let check = |value, unit, is_wrong| {
            assert_eq!(objection(value, unit).is_some(), is_wrong, "{value} {unit}");
        };
        check(-0.0007, "s", true);
        check(-1.0, "MB/s", true);
        check(-1.0, "1/s", true);
        check(0.0, "s", false);
        check(-1.0, "%", false);
        check(-1.0, "", false);
        check(-1.0, "degrees", false);
    }
}
