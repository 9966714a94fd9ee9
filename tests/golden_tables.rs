//! The check against tables that LKP and mmtests printed, where they are at hand.

use matrix::base::sample::Better;
use matrix::judge::verdict::{Question, Summary, Verdict, compare_summaries};
use matrix::report::table::{lkp_change, mmtests_percent, mmtests_verdict};

/// Printed tables of both systems, where they are at hand: the printed base and new stand for all
/// numbers that print alike, one pair of which must give the printed change; and no row is
/// left without a word of ours.
#[test]
fn golden_rows_are_reproduced() {
    let file = "shared/data/cases/golden/kernel-tables.json";
    let read = |up: &str| std::fs::read_to_string(format!("{up}/{file}")).ok();
    let Some(text) = ["..", "../.."].into_iter().find_map(read) else {
        return;
    };
    let tables: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut rows = 0;
    for table in tables.as_array().unwrap() {
        for row in table["rows"].as_array().unwrap() {
            let printed = |key: &str| row[key].as_str().unwrap();
            let (base, new) = (range(printed("base")), range(printed("new")));
            let got = match table["system"].as_str() {
                Some("lkp") => lkp_range(printed("metric"), base, new),
                _ => mmtests_range(row, base, new),
            };
            let wanted = printed("change")
                .trim_end_matches('%')
                .parse::<f64>()
                .unwrap();
            // Half a unit of the last printed digit.
            let slack = range(printed("change").trim_end_matches('%'));
            let slack = (slack[1] - slack[0]) / 2.0 * 1.001;
            let inside = got[0] - slack <= wanted && wanted <= got[1] + slack;
            assert!(inside || base[0] <= 0.0 && base[1] >= 0.0, "{row}: {got:?}");
            assert_ne!(
                our_verdict(row, base, new),
                Verdict::NothingMeasured,
                "{row}"
            );
            rows += 1;
        }
    }
    assert!(rows > 50, "{rows}");
}

/// The numbers that print as `text`.
fn range(text: &str) -> [f64; 2] {
    let value: f64 = text.parse().unwrap();
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let decimals = digits
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    let half = 0.5 * 10f64.powi(exponent.parse::<i32>().unwrap() - decimals as i32);
    // `%g` leaves zeros out.
    let half = if exponent == "0" {
        half
    } else {
        half.min(0.5e-3 * value.abs())
    };
    [value - half, value + half]
}

fn over(base: [f64; 2], new: [f64; 2], change: impl Fn(f64, f64) -> f64) -> [f64; 2] {
    let corners = [0, 1, 2, 3].map(|i| change(base[i & 1], new[i >> 1]));
    [
        corners.into_iter().fold(f64::MAX, f64::min),
        corners.into_iter().fold(f64::MIN, f64::max),
    ]
}

fn lkp_range(metric: &str, base: [f64; 2], new: [f64; 2]) -> [f64; 2] {
    over(base, new, |base, new| {
        let printed = lkp_change(metric, base, new);
        printed.trim_end_matches('%').parse().unwrap()
    })
}

fn mmtests_range(row: &serde_json::Value, base: [f64; 2], new: [f64; 2]) -> [f64; 2] {
    over(base, new, |base, new| {
        mmtests_percent(direction(row), base, new)
    })
}

fn direction(row: &serde_json::Value) -> Better {
    match row["direction"].as_str() {
        Some("higher_is_better") => Better::Higher,
        _ => Better::Lower,
    }
}

fn our_verdict(row: &serde_json::Value, base: [f64; 2], new: [f64; 2]) -> Verdict {
    let middle = |side: [f64; 2]| (side[0] + side[1]) / 2.0;
    let (base, new) = (middle(base), middle(new));
    if let Some(significant) = row["significant"].as_bool() {
        return mmtests_verdict(
            mmtests_percent(direction(row), base, new),
            significant,
            0.02,
        );
    }
    let summary = |mean, key: &str| Summary {
        mean,
        // What is not printed is below two percent.
        stddev: mean.abs() * row[key].as_f64().unwrap_or(2.0) / 100.0,
        n: 4,
    };
    let question = Question::new(Better::Higher, 0.02);
    let sides = (summary(base, "base_rsd_pct"), summary(new, "new_rsd_pct"));
    let comparison = compare_summaries(&sides.0, &sides.1, &question);
    // Where a row printed its base as zero there is no ratio, only a note.
    assert_eq!(comparison.ratio.is_none(), base == 0.0, "{row}");
    comparison.verdict
}
