//! The form in which the points of a whole session are kept in one piece.

use std::collections::BTreeSet;

use super::{AttemptId, MetricId};
use crate::base::key::Key;

/// The first byte of a piece; another one is of another program.
const VERSION: u8 = 2;

/// What one session measured of one metric of one run step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SessionPoint {
    /// Index into the texts: the cell as it was recorded, its machine, its version.
    pub cell: u32,
    pub machine: u32,
    pub version: u32,
    pub metric: MetricId,
    pub key: Key,
    /// When the first run was started.
    pub started_ms: i64,
    /// The last one.
    pub attempt: AttemptId,
    /// Of the first attempt that tells it.
    pub environment: Option<Key>,
    pub values: Vec<f64>,
}

/// The points of a session, of some metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SessionPoints {
    /// All points of these are there.
    pub metrics: BTreeSet<MetricId>,
    pub texts: Vec<String>,
    pub points: Vec<SessionPoint>,
}

impl SessionPoints {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let number = |out: &mut Vec<u8>, n: usize| {
            out.extend(u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
        };
        number(&mut out, self.metrics.len());
        for metric in &self.metrics {
            out.extend(metric.0.to_le_bytes());
        }
        number(&mut out, self.texts.len());
        for text in &self.texts {
            number(&mut out, text.len());
            out.extend(text.as_bytes());
        }
        number(&mut out, self.points.len());
        for point in &self.points {
            for n in [point.cell, point.machine, point.version, point.metric.0] {
                out.extend(n.to_le_bytes());
            }
            out.extend(point.key.0);
            out.extend(point.started_ms.to_le_bytes());
            out.extend(point.attempt.0.to_le_bytes());
            out.push(u8::from(point.environment.is_some()));
            out.extend(point.environment.unwrap_or_default().0);
            number(&mut out, point.values.len());
            for value in &point.values {
                out.extend(value.to_le_bytes());
            }
        }
        out
    }

    /// None for what this program has not written.
    pub fn decode(bytes: &[u8]) -> Option<SessionPoints> {
        let mut rest = bytes;
        if take(&mut rest)? != [VERSION] {
            return None;
        }
        let mut all = SessionPoints::default();
        for _ in 0..number(&mut rest)? {
            let metric = u32::from_le_bytes(take(&mut rest)?);
            all.metrics.insert(MetricId(metric));
        }
        for _ in 0..number(&mut rest)? {
            let length = number(&mut rest)?;
            let text;
            (text, rest) = rest.split_at_checked(length)?;
            all.texts.push(str::from_utf8(text).ok()?.to_owned());
        }
        for _ in 0..number(&mut rest)? {
            let [cell, machine, version, metric] = [(); 4].map(|()| take(&mut rest));
            let text = |n: [u8; 4]| {
                let n = u32::from_le_bytes(n);
                Some(n).filter(|n| (*n as usize) < all.texts.len())
            };
            let (cell, machine, version) = (text(cell?)?, text(machine?)?, text(version?)?);
            let metric = MetricId(u32::from_le_bytes(metric?));
            let key = Key(take(&mut rest)?);
            let started_ms = i64::from_le_bytes(take(&mut rest)?);
            let attempt = AttemptId(i64::from_le_bytes(take(&mut rest)?));
            let [is_known] = take(&mut rest)?;
            let environment = Some(Key(take(&mut rest)?)).filter(|_| is_known != 0);
            let length = number(&mut rest)?.checked_mul(8)?;
            let values;
            (values, rest) = rest.split_at_checked(length)?;
            let (values, _) = values.as_chunks();
            all.points.push(SessionPoint {
                cell,
                machine,
                version,
                metric,
                key,
                started_ms,
                attempt,
                environment,
                values: values.iter().map(|v| f64::from_le_bytes(*v)).collect(),
            });
        }
        rest.is_empty().then_some(all)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(take(rest)?) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points() -> impl Strategy<Value = SessionPoints> {
        let numbers = (0..3u32, 0..3u32, 0..3u32, any::<u32>());
        let rest = (any::<[u8; 16]>(), any::<i64>(), any::<i64>());
        let more = (
            any::<Option<[u8; 16]>>(),
            prop::collection::vec(-1e9..1e9, 0..4),
        );
        let point = (numbers, rest, more).prop_map(|(numbers, rest, more)| SessionPoint {
            cell: numbers.0,
            machine: numbers.1,
            version: numbers.2,
            metric: MetricId(numbers.3),
            key: Key(rest.0),
            started_ms: rest.1,
            attempt: AttemptId(rest.2),
            environment: more.0.map(Key),
            values: more.1,
        });
        let texts = prop::collection::vec(".{0,9}", 3..5);
        let metrics = prop::collection::btree_set(any::<u32>().prop_map(MetricId), 0..4);
        (metrics, texts, prop::collection::vec(point, 0..6)).prop_map(|(metrics, texts, points)| {
            SessionPoints {
                metrics,
                texts,
                points,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(points in points()) {
            prop_assert_eq!(SessionPoints::decode(&points.encode()), Some(points));
        }

        #[test]
        fn what_is_cut_or_changed_is_refused_or_read_but_never_worse(
            points in points(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let whole = points.encode();
            let cut = &whole[..at.index(whole.len())];
            prop_assert_eq!(SessionPoints::decode(cut), None);
            let mut changed = whole.clone();
            let place = at.index(whole.len());
            changed[place] = byte;
            // No panic, and nothing that points outside.
            if let Some(read) = SessionPoints::decode(&changed) {
                let texts = read.points.iter().flat_map(|it| [it.cell, it.machine, it.version]);
                prop_assert!(texts.into_iter().all(|n| (n as usize) < read.texts.len()));
            }
        }
    }
}
