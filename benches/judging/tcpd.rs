//! The protocol on TCPD: F1 and covering against five annotators (van den Burg & Williams, 2020).

use std::collections::BTreeMap;

use matrix::judge::changepoint::{DetectorOptions, changes};
use serde_json::Value;

use crate::cp::f1;
use crate::data::shared;
use crate::figure;

const MARGIN: usize = 5;

pub fn run() {
    let Some(folder) = shared().map(|folder| folder.join("tcpd")) else {
        return figure("TCPD", "no shared data".to_owned(), "");
    };
    let read = |name: &str| -> Option<Value> {
        serde_json::from_str(&std::fs::read_to_string(folder.join(name)).ok()?).ok()
    };
    let Some(Value::Object(annotations)) = read("annotations.json") else {
        return figure("TCPD", "no annotations".to_owned(), "");
    };
    protocol(
        &read,
        &annotations,
        "",
        ["at least 0.80", "at least 0.72"],
        &DetectorOptions::default(),
    );
    let levels = DetectorOptions {
        trends: false,
        ..DetectorOptions::default()
    };
    protocol(&read, &annotations, ", levels alone", [""; 2], &levels);
}

fn protocol(
    read: &dyn Fn(&str) -> Option<Value>,
    annotations: &serde_json::Map<String, Value>,
    what: &str,
    asked: [&str; 2],
    options: &DetectorOptions,
) {
    let mut scores = BTreeMap::new();
    for (name, marks) in annotations {
        let Some(series) =
            read(&format!("datasets/{name}.json")).and_then(|data| univariate(&data))
        else {
            continue;
        };
        let marks: Vec<Vec<usize>> = marks
            .as_object()
            .into_iter()
            .flat_map(|marks| marks.values())
            .map(|list| {
                list.as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|v| Some(v.as_u64()? as usize))
                    .collect()
            })
            .collect();
        let found: Vec<usize> = changes(&series, options).iter().map(|c| c.index).collect();
        scores.insert(
            name,
            (
                f_score(&marks, &found),
                covering(&marks, &found, series.len()),
                found.len(),
            ),
        );
    }
    if std::env::var_os("JUDGING_EACH").is_some() {
        for (name, (f, c, n)) in &scores {
            println!("| {name}{what} | {f:.3} / {c:.3} / {n} | |");
        }
    }
    let n = scores.len() as f64;
    let mean = |pick: fn(&(f64, f64, usize)) -> f64| scores.values().map(pick).sum::<f64>() / n;
    figure(
        &format!("TCPD: F1 of {n} series{what}"),
        format!("{:.3}", mean(|s| s.0)),
        asked[0],
    );
    figure(
        &format!("TCPD: covering of {n} series{what}"),
        format!("{:.3}", mean(|s| s.1)),
        asked[1],
    );
}

/// The values of a complete series of one dimension.
fn univariate(data: &Value) -> Option<Vec<Option<f64>>> {
    if data["n_dim"].as_u64()? != 1 {
        return None;
    }
    let raw = data["series"][0]["raw"].as_array()?;
    let values: Vec<Option<f64>> = raw.iter().map(Value::as_f64).collect();
    values.iter().all(Option::is_some).then_some(values)
}

/// Precision against the marks of all annotators together, recall as the mean over annotators; the
/// start of the series counts as a point of each.
fn f_score(marks: &[Vec<usize>], found: &[usize]) -> f64 {
    let with_start = |list: &[usize]| {
        let mut list = list.to_vec();
        list.push(0);
        list.sort_unstable();
        list.dedup();
        list
    };
    let found = with_start(found);
    let all = with_start(&marks.concat());
    let precision = matched(&all, &found) as f64 / found.len() as f64;
    let recall = |list: &Vec<usize>| {
        let list = with_start(list);
        matched(&list, &found) as f64 / list.len() as f64
    };
    let recall = marks.iter().map(recall).sum::<f64>() / marks.len() as f64;
    f1(precision, recall)
}

/// How many of `truth` have a found point within the margin, each found point used once.
fn matched(truth: &[usize], found: &[usize]) -> usize {
    let mut free = found.to_vec();
    let mut count = 0;
    for place in truth {
        let near = (0..free.len())
            .filter(|i| free[*i].abs_diff(*place) <= MARGIN)
            .min_by_key(|i| free[*i].abs_diff(*place));
        if let Some(i) = near {
            free.remove(i);
            count += 1;
        }
    }
    count
}

/// Mean over annotators of Σ |A|/n·max Jaccard(A, B) over their segments A.
fn covering(marks: &[Vec<usize>], found: &[usize], n: usize) -> f64 {
    let segments = |list: &[usize]| -> Vec<(usize, usize)> {
        let mut ends: Vec<usize> = list.iter().copied().filter(|i| *i > 0 && *i < n).collect();
        ends.extend([0, n]);
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|pair| (pair[0], pair[1])).collect()
    };
    let found = segments(found);
    let one = |list: &Vec<usize>| -> f64 {
        let part = |a: &(usize, usize)| {
            let jaccard = |b: &(usize, usize)| {
                let common = a.1.min(b.1).saturating_sub(a.0.max(b.0));
                common as f64 / (a.1 - a.0 + b.1 - b.0 - common) as f64
            };
            (a.1 - a.0) as f64 / n as f64 * found.iter().map(jaccard).fold(0.0, f64::max)
        };
        segments(list).iter().map(part).sum()
    };
    marks.iter().map(one).sum::<f64>() / marks.len() as f64
}
