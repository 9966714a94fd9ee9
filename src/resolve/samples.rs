//! The samples of a plan's run steps, stored compactly: a million of them are held at once.

use std::collections::HashMap;

use crate::base::key::Key;
use crate::base::sample::{Better, Sample};
use crate::base::unit::convert;
use crate::edge::store::{Metric, MetricId, Store, StoreError, StoredSample};
use crate::plan::dag::Plan;

/// Samples of one metric of a run step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Series<'a> {
    pub unit: &'a str,
    pub better: Option<Better>,
    pub samples: &'a [Sample],
    /// What the machine was like in each session, as far as that is known.
    pub environments: &'a [(i64, Key)],
}

impl Series<'_> {
    /// What the machine was like in a session.
    pub fn environment(&self, session: i64) -> Option<Key> {
        let mut known = self.environments.iter();
        Some(known.find(|(it, _)| *it == session)?.1)
    }
}

/// As [`Series`], of what belongs to no plan.
#[derive(Clone, Debug, Default)]
pub struct OwnSeries {
    samples: Vec<Sample>,
    environments: Vec<(i64, Key)>,
}

impl OwnSeries {
    pub fn add(&mut self, stored: &StoredSample) {
        note(&mut self.environments, stored);
        self.samples.push(stored.sample);
    }

    pub fn series(&self) -> Series<'_> {
        Series {
            samples: &self.samples,
            environments: &self.environments,
            ..Series::default()
        }
    }
}

/// A machine is looked at once in a session.
fn note(environments: &mut Vec<(i64, Key)>, stored: &StoredSample) {
    let session = stored.sample.session;
    let is_known = environments.iter().rev().any(|(it, _)| *it == session);
    environments.extend(
        stored
            .environment
            .filter(|_| !is_known)
            .map(|key| (session, key)),
    );
}

/// All samples, by run step and by the parser's name for the metric.
#[derive(Debug, Default)]
pub struct Samples {
    metrics: Vec<Metric>,
    /// By run step, then by name.
    entries: Vec<SeriesEntry>,
    /// Those of each entry, one after the other.
    samples: Vec<Sample>,
    /// Machines stay as they are for long: few lists serve all entries.
    environments: Vec<Vec<(i64, Key)>>,
}

#[derive(Clone, Copy, Debug)]
struct SeriesEntry {
    run: u32,
    /// Index of the metric of the first sample: another one of that name may have another unit.
    metric: u32,
    /// Ends where the next entry begins.
    begin: usize,
    environments: u32,
}

impl Samples {
    /// All that is stored of a plan.
    pub fn of(plan: &Plan, store: &Store) -> Result<Samples, StoreError> {
        // A name that cannot be rendered is told where the metric is read.
        let units = plan.metric_units().unwrap_or_default();
        let mut gathered = Gathered::new(store.metrics()?, &units);
        let keys = &plan.steps.runs.keys;
        let mut run = 0;
        // In the order of the keys, which is that of the run steps.
        store.for_each_sample(keys, |stored| {
            if keys[run] != stored.key {
                gathered.end(run as u32);
                while keys[run] != stored.key {
                    run += 1;
                }
            }
            gathered.run.push(stored);
        })?;
        gathered.end(run as u32);
        Ok(gathered.all)
    }

    /// Those of a metric of a run step; an empty series where there are none.
    pub fn get(&self, run: u32, name: &str) -> Series<'_> {
        let place = |entry: &SeriesEntry| {
            let own = self.metrics[entry.metric as usize].name.as_str();
            (entry.run, own).cmp(&(run, name))
        };
        let at = self.entries.binary_search_by(place);
        at.map_or_else(|_| Series::default(), |at| self.at(at))
    }

    /// What the machines were like, some more than once.
    pub fn environments(&self) -> impl Iterator<Item = Key> {
        self.environments.iter().flatten().map(|(_, key)| *key)
    }

    /// Run step, name and samples of each, in this order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str, Series<'_>)> {
        let entries = self.entries.iter().enumerate();
        entries.map(|(at, entry)| {
            let name = self.metrics[entry.metric as usize].name.as_str();
            (entry.run, name, self.at(at))
        })
    }

    fn at(&self, at: usize) -> Series<'_> {
        let entry = self.entries[at];
        let next = self.entries.get(at + 1);
        let end = next.map_or(self.samples.len(), |next| next.begin);
        let metric = &self.metrics[entry.metric as usize];
        Series {
            unit: &metric.unit,
            better: metric.better,
            samples: &self.samples[entry.begin..end],
            environments: &self.environments[entry.environments as usize],
        }
    }
}

/// Samples in the making.
struct Gathered {
    all: Samples,
    /// Metric → its index.
    metrics: HashMap<MetricId, u32>,
    /// By index: the unit of what is stored, where that is another.
    from: Vec<Option<String>>,
    environments: HashMap<Vec<(i64, Key)>, u32>,
    /// Those of the run step at hand, by round.
    run: Vec<StoredSample>,
}

impl Gathered {
    /// `units`: what values are wanted in, by name; else in the unit that a name had first.
    fn new(mut metrics: Vec<Metric>, units: &HashMap<String, String>) -> Gathered {
        let mut first: HashMap<String, String> = HashMap::new();
        let mut from = Vec::with_capacity(metrics.len());
        for Metric { name, unit, .. } in &mut metrics {
            let wanted = units.get(name);
            let wanted = wanted.or_else(|| first.get(name)).unwrap_or(unit).clone();
            first.entry(name.clone()).or_insert_with(|| wanted.clone());
            let is_other = wanted != *unit && convert(1.0, unit, &wanted).is_some();
            from.push(is_other.then(|| std::mem::replace(unit, wanted)));
        }
        let ids = metrics.iter().map(|metric| metric.id);
        Gathered {
            metrics: ids.zip(0..).collect(),
            from,
            all: Samples {
                metrics,
                ..Samples::default()
            },
            environments: HashMap::new(),
            run: Vec::new(),
        }
    }

    /// Takes in what was gathered of a run step.
    fn end(&mut self, run: u32) {
        let mut stored = std::mem::take(&mut self.run);
        stored.retain(|stored| self.metrics.contains_key(&stored.metric));
        for StoredSample { metric, sample, .. } in &mut stored {
            let at = self.metrics[metric] as usize;
            if let Some(from) = &self.from[at]
                && let Some(value) = convert(sample.value, from, &self.all.metrics[at].unit)
            {
                sample.value = value;
            }
        }
        let metrics = &self.all.metrics;
        let name = |stored: &StoredSample| &metrics[self.metrics[&stored.metric] as usize].name;
        stored.sort_by(|a, b| name(a).cmp(name(b)));
        let mut entries = Vec::new();
        for of_one in stored.chunk_by(|a, b| name(a) == name(b)) {
            let mut environments = Vec::new();
            of_one
                .iter()
                .for_each(|stored| note(&mut environments, stored));
            entries.push((self.metrics[&of_one[0].metric], of_one.len(), environments));
        }
        let mut begin = self.all.samples.len();
        for (metric, n, environments) in entries {
            let next = self.environments.len() as u32;
            let index = *self
                .environments
                .entry(environments.clone())
                .or_insert(next);
            if index == next {
                self.all.environments.push(environments);
            }
            self.all.entries.push(SeriesEntry {
                run,
                metric,
                begin,
                environments: index,
            });
            begin += n;
        }
        let samples = stored.iter().map(|stored| stored.sample);
        self.all.samples.extend(samples);
        stored.clear();
        self.run = stored;
    }
}
