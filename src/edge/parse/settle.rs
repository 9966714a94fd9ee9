//! What a declared metric is in one output: which reading, its value in the declared unit, its direction.

use crate::base::diag::suggest;
use crate::base::sample::Reading;
use crate::base::unit;
use crate::config::matrix::MetricDecl;

/// Warnings that are told beside a reading that is not there.
const WARNINGS_MAX: usize = 3;

/// The reading `name` as the metric wants it; None where an optional metric has none. Err says why the
/// sample cannot be used: the reading is not there, or in a unit or direction that contradicts the metric.
/// `warnings`: what the parser said of the output, which may tell why.
pub fn settle(
    metric: &MetricDecl,
    name: &str,
    readings: &[Reading],
    warnings: &[String],
) -> Result<Option<Reading>, String> {
    let Some(reading) = readings.iter().find(|reading| reading.name == name) else {
        if metric.optional {
            return Ok(None);
        }
        let known = readings.iter().map(|reading| reading.name.as_str());
        let mut lines = vec![format!(
            "no `{name}` in the output, which metric `{}` is taken from; {}",
            metric.name,
            suggest(name, known)
        )];
        lines.extend(
            warnings
                .iter()
                .take(WARNINGS_MAX)
                .map(|it| format!("  {it}")),
        );
        return Err(lines.join("\n"));
    };
    let better = match (metric.better, reading.better) {
        (Some(ours), Some(theirs)) if ours != theirs => {
            return Err(format!(
                "metric `{}` is declared better = \"{}\", but the parser knows that {} `{name}` is better",
                metric.name,
                ours.name(),
                theirs.name()
            ));
        }
        (ours, theirs) => ours.or(theirs),
    };
    let (value, unit) = in_declared_unit(metric, reading)?;
    if let Some(objection) = unit::objection(value, &unit) {
        return Err(format!("`{name}` is {value} {unit}: {objection}"));
    }
    Ok(Some(Reading {
        name: name.to_owned(),
        value,
        unit,
        better,
    }))
}

fn in_declared_unit(metric: &MetricDecl, reading: &Reading) -> Result<(f64, String), String> {
    let Reading { value, unit, .. } = reading;
    let Some(declared) = &metric.unit else {
        if !unit.is_empty() && unit::parse(unit).is_none() {
            return Err(format!(
                "`{}` is in `{unit}`, a unit that is not known: another output may have another one; \
                 if all have this one, write `unit = \"{unit}\"` under `[metrics.{}]`",
                reading.name, metric.name
            ));
        }
        return Ok((*value, unit.clone()));
    };
    if unit.is_empty() {
        return Ok((*value, declared.clone()));
    }
    match unit::convert(*value, unit, declared) {
        Some(value) => Ok((value, declared.clone())),
        None => Err(format!(
            "`{}` is in `{unit}`, but metric `{}` is declared in `{declared}`, which it cannot be converted to",
            reading.name, metric.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::decode::tests::read;

    fn settled(metric: &str, value: f64, unit: &str) -> Result<Option<(f64, String)>, String> {
        let matrix = read(&format!(
            "[matrix]\nname = 'x'\n[run]\ncommand = 'x'\nparser = 'json'\n[metrics.m]\nfrom = 'r'\n{metric}\n"
        ));
        let reading = Reading {
            name: "r".to_owned(),
            value,
            unit: unit.to_owned(),
            better: None,
        };
        let found = settle(&matrix.metrics[0], "r", &[reading], &[])?;
        Ok(found.map(|it| (it.value, it.unit)))
    }

    #[test]
    fn units_are_converted_or_refused() {
        let check = |metric, value, unit, expected: (f64, &str)| {
            let expected = Ok(Some((expected.0, expected.1.to_owned())));
            assert_eq!(settled(metric, value, unit), expected, "{metric} {unit}");
        };
        check("", 3.0, "", (3.0, ""));
        check("", 3.0, "s", (3.0, "s"));
        check("unit = 'MB/s'", 3e6, "bytes/s", (3.0, "MB/s"));
        check("unit = 'ms'", 3e6, "ns", (3.0, "ms"));
        check("unit = 'ms'", 3.0, "", (3.0, "ms"));
        check("unit = 'tps'", 3.0, "tps", (3.0, "tps"));
        let refused = |metric, value, unit, part: &str| {
            let reason = settled(metric, value, unit).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        };
        refused("", 3.0, "tps", "`r` is in `tps`, a unit that is not known");
        refused("unit = 'ms'", 3.0, "bytes", "cannot be converted");
        refused("unit = 'frogs'", 3.0, "s", "cannot be converted");
        refused("unit = 's'", -3.0, "", "a duration is not negative");
    }

    #[test]
    fn a_missing_reading_is_refused_unless_it_is_optional() {
        let find = |optional: &str| {
            let matrix = read(&format!(
                "[matrix]\nname = 'x'\n[run]\ncommand = 'x'\nparser = 'json'\n[metrics.m]\n{optional}\n"
            ));
            settle(
                &matrix.metrics[0],
                "m",
                &[],
                &["column `m` is left out".to_owned()],
            )
        };
        assert_eq!(find("optional = true"), Ok(None));
        let reason = find("").unwrap_err();
        assert!(reason.ends_with("\n  column `m` is left out"), "{reason}");
    }
}
