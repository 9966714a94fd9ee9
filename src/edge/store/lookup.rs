//! Looking up by key: what is finished, its samples, durations, last failures.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::open::CACHE_KIB_MAX;
use super::record::Direction;
use super::{AttemptId, Metric, StepKind, Store, StoreError, StoredSample};
use crate::base::key::Key;
use crate::base::sample::Sample;

/// Looking up one key costs about as much as stepping over this many rows of a scan.
const LOOKUP_ROWS: i64 = 16;

/// Pages kept during a scan.
const SCAN_CACHE_KIB: i64 = 1 << 10;

/// Attempts that a typical duration is the mean of, the latest ones.
const DURATION_ATTEMPTS_MAX: u32 = 1_000;

// Statements of `for_keys`: the first column is the key, by which they are ordered.

const FINISHED: &str =
    "SELECT key, round FROM done WHERE key BETWEEN ?1 AND ?2 ORDER BY key, round";

const SAMPLES: &str = "SELECT sample.key, sample.metric, sample.round, attempt.session,
            sample.value, attempt.environment
     FROM sample CROSS JOIN attempt ON attempt.id = sample.attempt
     WHERE sample.key BETWEEN ?1 AND ?2
     ORDER BY sample.key, sample.round, sample.metric";

const ROUNDS: &str = "SELECT done.key, attempt.started_ms, attempt.environment
     FROM done CROSS JOIN attempt ON attempt.id = done.attempt
     WHERE done.key BETWEEN ?1 AND ?2 ORDER BY done.key";

const DURATIONS: &str = "SELECT key, avg(duration_us) FROM attempt
     WHERE outcome = 'ok' AND key BETWEEN ?1 AND ?2 GROUP BY key ORDER BY key";

const FAILURES: &str = "SELECT key, id, reason, started_ms FROM attempt AS failed
     WHERE outcome IN ('refused', 'failed', 'timeout') AND key BETWEEN ?1 AND ?2
           AND NOT EXISTS (
               SELECT 1 FROM attempt AS later
               WHERE later.key = failed.key AND later.id > failed.id
                     AND later.outcome <> 'interrupted')
     ORDER BY key";

/// Each with the index or table that makes it fast.
#[cfg(test)]
pub(super) const STATEMENTS: [(&str, &str); 5] = [
    (FINISHED, "done USING PRIMARY KEY"),
    (SAMPLES, "sample USING PRIMARY KEY"),
    (ROUNDS, "done USING PRIMARY KEY"),
    (DURATIONS, "attempt USING COVERING INDEX attempt_by_key"),
    (FAILURES, "USING INDEX failure_by_key"),
];

/// The finished rounds of keys, by their place in the list that was looked up. As rounds are run in
/// order, those of a key are nearly always 0..n.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Key → all rounds below this one are finished, this one is not.
    firsts: Vec<u32>,
    /// Finished ones above it, ascending.
    beyond: HashMap<usize, Vec<u32>>,
}

impl Finished {
    /// Nothing is finished of so many keys.
    pub fn nothing(keys: usize) -> Finished {
        Finished {
            firsts: vec![0; keys],
            beyond: HashMap::new(),
        }
    }

    /// Takes rounds in ascending order.
    fn push(&mut self, key: usize, round: u32) {
        if round == self.firsts[key] {
            self.firsts[key] += 1;
        } else {
            self.beyond.entry(key).or_default().push(round);
        }
    }

    fn beyond(&self, key: usize) -> &[u32] {
        self.beyond.get(&key).map_or(&[], Vec::as_slice)
    }

    pub fn count(&self, key: usize) -> usize {
        self.firsts[key] as usize + self.beyond(key).len()
    }

    /// Those of a key, ascending.
    pub fn rounds(&self, key: usize) -> impl Iterator<Item = u32> + '_ {
        (0..self.firsts[key]).chain(self.beyond(key).iter().copied())
    }
}

/// The last failure of a key since it was last ok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub key: Key,
    pub attempt: AttemptId,
    pub reason: String,
    /// Milliseconds since 1970-01-01 UTC.
    pub started_ms: i64,
}

impl Store {
    /// The finished rounds of each key, in the order of `keys`, which must ascend strictly.
    /// One scan of the index, or a look-up for each key where they are few: 10^6 keys that are all
    /// done take about 0.3 s.
    pub fn finished(&self, keys: &[Key]) -> Result<Finished, StoreError> {
        let mut finished = Finished::nothing(keys.len());
        // No page is read twice: one after the other they need little room.
        let _scan = self.sqlite(SmallCache::of(&self.db))?;
        self.for_keys(keys, FINISHED, |index, row| {
            finished.push(index, row.get(1)?);
            Ok(())
        })?;
        Ok(finished)
    }

    /// Calls `on_round(index of the key, when it was started, its environment)` for each finished round of the keys,
    /// which must ascend strictly. Milliseconds since 1970-01-01 UTC.
    pub fn for_each_round(
        &self,
        keys: &[Key],
        mut on_round: impl FnMut(usize, i64, Option<Key>),
    ) -> Result<(), StoreError> {
        self.for_keys(keys, ROUNDS, |index, row| {
            on_round(index, row.get(1)?, row.get(2)?);
            Ok(())
        })
    }

    /// All samples of the keys, which must ascend strictly; ordered by key, round and metric.
    pub fn samples(&self, keys: &[Key]) -> Result<Vec<StoredSample>, StoreError> {
        let mut samples = Vec::new();
        self.for_each_sample(keys, |sample| samples.push(sample))?;
        Ok(samples)
    }

    /// As [`Store::samples`], for more of them than should be in memory at once (64 bytes each).
    pub fn for_each_sample(
        &self,
        keys: &[Key],
        mut on_sample: impl FnMut(StoredSample),
    ) -> Result<(), StoreError> {
        // Keys are in no order of time: in a large store kept pages would hardly be met again.
        let _scan = self.sqlite(SmallCache::of(&self.db))?;
        self.for_keys(keys, SAMPLES, |index, row| {
            on_sample(StoredSample {
                key: keys[index],
                metric: row.get(1)?,
                sample: Sample {
                    round: row.get(2)?,
                    session: row.get(3)?,
                    value: row.get(4)?,
                },
                environment: row.get(5)?,
            });
            Ok(())
        })
    }

    /// Every metric that was ever recorded, by id.
    pub fn metrics(&self) -> Result<Vec<Metric>, StoreError> {
        let read = || {
            self.db
                .prepare_cached("SELECT id, name, unit, better FROM metric ORDER BY id")?
                .query_map([], |row| {
                    Ok(Metric {
                        id: row.get(0)?,
                        name: row.get(1)?,
                        unit: row.get(2)?,
                        better: row.get::<_, Direction>(3)?.0,
                    })
                })?
                .collect()
        };
        self.sqlite(read())
    }

    /// The mean duration of the ok attempts of each key, in the order of `keys`, which must ascend
    /// strictly; None for a key that has none. A key belongs to one kind of step.
    pub fn durations(&self, keys: &[Key]) -> Result<Vec<Option<Duration>>, StoreError> {
        let mut durations = vec![None; keys.len()];
        self.for_keys(keys, DURATIONS, |index, row| {
            durations[index] = Some(micros(row.get(1)?));
            Ok(())
        })?;
        Ok(durations)
    }

    /// The mean duration of the latest ok attempts of a kind in a matrix, for keys that were never
    /// run; None where there are none.
    pub fn typical_duration(
        &self,
        matrix: &str,
        kind: StepKind,
    ) -> Result<Option<Duration>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT avg(duration_us) FROM (
                         SELECT attempt.duration_us
                         FROM session CROSS JOIN attempt ON attempt.session = session.id
                         WHERE session.matrix = ?1 AND attempt.kind = ?2
                               AND attempt.outcome = 'ok'
                         ORDER BY session.id DESC LIMIT ?3)",
                )?
                .query_row(params![matrix, kind.name(), DURATION_ATTEMPTS_MAX], |row| {
                    Ok(row.get::<_, Option<f64>>(0)?.map(micros))
                })
        };
        self.sqlite(read())
    }

    /// The last failure (refused, failed or timed out; an interruption is none) of each key that
    /// has no later ok attempt, by key. `keys` must ascend strictly.
    pub fn failures(&self, keys: &[Key]) -> Result<Vec<Failure>, StoreError> {
        let mut failures = Vec::new();
        self.for_keys(keys, FAILURES, |index, row| {
            failures.push(Failure {
                key: keys[index],
                attempt: row.get(1)?,
                reason: row.get(2)?,
                started_ms: row.get(3)?,
            });
            Ok(())
        })?;
        Ok(failures)
    }

    /// Calls `on_row(index of the key, row)` for the rows of `sql` that belong to one of `keys`.
    /// The first column of `sql` is the key, by which it is ordered; `?1` and `?2` bound the key.
    pub(super) fn for_keys(
        &self,
        keys: &[Key],
        sql: &str,
        mut on_row: impl FnMut(usize, &Row) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err(self.invalid("keys to look up that are not in ascending order"));
        }
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Ok(());
        };
        let mut read = || {
            // One snapshot, and one round of file locks, for all look-ups.
            let snapshot = self.db.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached(sql)?;
            if keys.len() as i64 * LOOKUP_ROWS < self.attempts_max()? {
                for (index, key) in keys.iter().enumerate() {
                    let mut rows = statement.query([key, key])?;
                    while let Some(row) = rows.next()? {
                        on_row(index, row)?;
                    }
                }
                return Ok(());
            }
            let mut rows = statement.query([first, last])?;
            let mut index = 0;
            while let Some(row) = rows.next()? {
                let key: Key = row.get(0)?;
                while index < keys.len() && keys[index] < key {
                    index += 1;
                }
                if keys.get(index) == Some(&key) {
                    on_row(index, row)?;
                }
            }
            Ok(())
        };
        self.sqlite(read())
    }

    /// As many attempts as there are at the most; counting them exactly would be a scan.
    fn attempts_max(&self) -> rusqlite::Result<i64> {
        self.db
            .prepare_cached("SELECT coalesce(max(id), 0) FROM attempt")?
            .query_row([], |row| row.get(0))
    }
}

/// While this lives the connection keeps few pages.
struct SmallCache<'a>(&'a Connection);

impl<'a> SmallCache<'a> {
    fn of(db: &'a Connection) -> rusqlite::Result<Self> {
        db.pragma_update(None, "cache_size", -SCAN_CACHE_KIB)?;
        Ok(SmallCache(db))
    }
}

impl Drop for SmallCache<'_> {
    fn drop(&mut self) {
        // It is about room alone: what fails here is told by the next statement.
        let _ = self.0.pragma_update(None, "cache_size", -CACHE_KIB_MAX);
    }
}

/// SQLite's mean of microseconds, never negative.
fn micros(mean: f64) -> Duration {
    Duration::from_micros(mean as u64)
}
