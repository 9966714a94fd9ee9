//! The columns of other systems' comparison tables, as those systems print them.

use crate::base::sample::Better;

use crate::judge::verdict::Verdict;

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
