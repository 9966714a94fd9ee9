//! Owns the columns of other systems' comparison tables, as those systems print them.
//! Does not know whether a change means anything: our own verdict stands beside them.

use crate::words::sample::Better;

use super::verdict::Verdict;

/// One side of a row: a mean of repetitions and their relative standard deviation, a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    pub mean: f64,
    pub relative_stddev: Option<f64>,
}

/// LKP prints a relative standard deviation from this on.
const LKP_STDDEV_SHOWN: f64 = 0.02;

/// LKP divides by this instead of a base of zero.
const LKP_ZERO: f64 = 1e-100;

/// The heading over [`lkp_row`].
pub const LKP_HEADING: &str =
    "         %stddev     %change         %stddev\n             \\          |                \\  ";

/// One line of an LKP table: base ± stddev, change, new ± stddev, metric.
pub fn lkp_row(metric: &str, base: Side, new: Side) -> String {
    format!(
        "{:>10}{:<6}{:>11}{:>11}{:<6}  {metric}",
        lkp_number(base.mean),
        lkp_stddev(base.relative_stddev),
        lkp_change(metric, base.mean, new.mean),
        lkp_number(new.mean),
        lkp_stddev(new.relative_stddev),
    )
}

/// LKP's change column. `(new − base)/base` in percent, blind to which direction is better; in
/// scientific form from 100,000 % on; a base of zero counts as 10⁻¹⁰⁰. Where the
/// metric's name ends in `%` or begins with `perf-profile.`: the plain difference new − base.
pub fn lkp_change(metric: &str, base: f64, new: f64) -> String {
    if metric.ends_with('%') || metric.starts_with("perf-profile.") {
        return format!("{:+.1}", new - base);
    }
    let divisor = if base == 0.0 { LKP_ZERO } else { base };
    let percent = (new - base) / divisor * 100.0;
    match percent.abs() < 1e5 {
        true => format!("{percent:+.1}%"),
        false => format!(
            "{}{}%",
            if percent > 0.0 { "+" } else { "" },
            scientific(percent, 1)
        ),
    }
}

/// LKP's numbers: two decimals below 1000, whole below 10⁸, else four significant digits.
pub fn lkp_number(value: f64) -> String {
    match value.abs() {
        size if size < 1e3 => format!("{value:.2}"),
        size if size < 1e8 => format!("{value:.0}"),
        _ => scientific(value, 3),
    }
}

fn lkp_stddev(relative: Option<f64>) -> String {
    match relative.filter(|relative| *relative >= LKP_STDDEV_SHOWN) {
        Some(relative) => format!(" ±{:3.0}%", relative * 100.0),
        None => String::new(),
    }
}

/// As C prints it: the exponent with a sign and at least two digits. With more than one decimal,
/// zeros at the end are left out as by `%g`.
fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = match decimals {
        0 | 1 => digits,
        _ => digits.trim_end_matches('0').trim_end_matches('.'),
    };
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

/// mmtests' change in percent, positive is better: (new − base)/base where higher is better, else
/// (base − new)/base; a base of zero gives 0.
pub fn mmtests_percent(better: Better, base: f64, new: f64) -> f64 {
    if base == 0.0 {
        return 0.0;
    }
    // Not the negative of the other: no change is 0, never -0.
    match better {
        Better::Higher => (new - base) / base * 100.0,
        Better::Lower => (base - new) / base * 100.0,
    }
}

/// One cell of an mmtests table: the value with `decimals`, then the change in brackets, or between
/// stars where mmtests finds it significant.
pub fn mmtests_cell(value: f64, percent: f64, significant: bool, decimals: usize) -> String {
    match significant {
        true => format!("{value:.decimals$} *{percent:8.2}%*"),
        false => format!("{value:.decimals$} ({percent:8.2}%)"),
    }
}

/// Our word for a printed mmtests row, of which only the change (positive is better) and the star
/// are known: a star alone is no finding where the change is below `min_effect`, and no star does
/// not show sameness.
pub fn mmtests_verdict(percent: f64, significant: bool, min_effect: f64) -> Verdict {
    match (significant, percent.abs() / 100.0 >= min_effect) {
        (true, true) if percent > 0.0 => Verdict::Improvement,
        (true, true) => Verdict::Regression,
        (true, false) => Verdict::Same,
        (false, _) => Verdict::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lkp_columns() {
        let check =
            |metric, base, new, expected| assert_eq!(lkp_change(metric, base, new), expected);
        check("ops", 200.0, 150.0, "-25.0%");
        check("ops", 2.0, 2000.0, "+99900.0%");
        check("ops", 2.0, 20_000.0, "+1.0e+06%");
        check("ops", 0.0, 12.0, "+1.2e+103%");
        check("ops", 0.0, 0.0, "+0.0%");
        check("ops", 4.0, 0.0, "-100.0%");
        // A negative base: further from zero prints as an increase.
        check("nr.min", -10.0, -15.0, "+50.0%");
        check("cpu.idle%", 30.0, 27.5, "-2.5");
        check("perf-profile.children.memcpy", 0.5, 0.9, "+0.4");
        let numbers = [
            0.0,
            -1.234,
            999.0,
            1000.4,
            99_999_999.0,
            123_456_789.0,
            1.5e11,
        ];
        let printed = [
            "0.00",
            "-1.23",
            "999.00",
            "1000",
            "99999999",
            "1.235e+08",
            "1.5e+11",
        ];
        assert_eq!(numbers.map(lkp_number), printed);
        let side = |mean, relative_stddev| Side {
            mean,
            relative_stddev,
        };
        assert_eq!(
            lkp_row("ops", side(200.0, Some(0.021)), side(150.0, Some(0.01))),
            "    200.00 ±  2%     -25.0%     150.00        ops"
        );
    }

    #[test]
    fn mmtests_columns() {
        let check = |better, base, new, star, expected: &str| {
            let percent = mmtests_percent(better, base, new);
            assert_eq!(mmtests_cell(new, percent, star, 2), expected);
        };
        check(Better::Lower, 50.0, 60.0, true, "60.00 *  -20.00%*");
        check(Better::Higher, 50.0, 60.0, false, "60.00 (   20.00%)");
        check(Better::Higher, 0.0, 60.0, false, "60.00 (    0.00%)");
        check(Better::Lower, 60.0, 60.0, false, "60.00 (    0.00%)");
        check(
            Better::Lower,
            1e5,
            100_001.0,
            false,
            "100001.00 (   -0.00%)",
        );
        assert_eq!(mmtests_verdict(-0.2, true, 0.02), Verdict::Same);
        assert_eq!(mmtests_verdict(-20.0, true, 0.02), Verdict::Regression);
        assert_eq!(mmtests_verdict(20.0, false, 0.02), Verdict::Inconclusive);
    }
}
