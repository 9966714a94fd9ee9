//! Where a change is told to be: how often the commit is right, what credible sets hold, also near the ends of a series.

use matrix::judge::changepoint::{Change, DetectorOptions, changes};

use crate::cp::draw;
use crate::data::{Pool, Random, blocks, pools, pools_of};
use crate::figure;

/// Points of a series, and how near to an end its step may lie.
const POINTS: usize = 200;
const EDGE: usize = 20;

/// A change that is told so near to the step is meant for it.
const NEAR: usize = 20;

/// Points of a series with a step near an end, and how near it is.
const SHORT: usize = 60;
const ENDS: std::ops::RangeInclusive<usize> = 3..=10;

pub fn run(quick: bool) {
    let series = if quick { 400 } else { 2400 };
    let all: Vec<Pool> = ["machine-i7", "machine-atom"]
        .iter()
        .flat_map(|it| pools_of(it))
        .collect();
    let all = if all.is_empty() { pools().0 } else { all };
    let mut random = Random(4);
    let asked = [
        (1.0, "0.35, 17"),
        (2.0, "0.60, 6"),
        (3.0, "0.77, 4"),
        (5.0, "0.92, 2"),
    ];
    for (size, asked) in asked {
        let mut tally = Tally::default();
        for _ in 0..series {
            let place = EDGE + random.below(POINTS - 2 * EDGE + 1);
            let drawn = draw(&all, Some((place, size)), &mut random);
            tally.add(&drawn, place);
        }
        let (right, median) = asked.split_once(", ").unwrap_or_default();
        figure(
            &format!("place: a step of {size} sigma, the most likely commit is right"),
            format!(
                "{:.3} (it is said to be in {:.3})",
                tally.share(tally.right),
                tally.share_of(tally.stated)
            ),
            &format!("at least {right}"),
        );
        figure(
            &format!("place: a step of {size} sigma, the 95 % set holds it; commits in a set"),
            format!(
                "{:.3}; median {}, mean {:.1}",
                tally.share(tally.held),
                tally.median(),
                tally.mean()
            ),
            &format!("0.93 to 0.97; median at most {median}"),
        );
        if size == 1.0 || size == 3.0 {
            figure(
                &format!(
                    "place: a step of {size} sigma, right where the probability is below .2 / .4 / .6 / .8 / .95 / 1"
                ),
                tally.calibration(),
                "what is said",
            );
        }
    }
    for size in [5.0, 8.0, 16.0, 30.0, 100.0] {
        for is_last in [false, true] {
            let mut tally = Tally::default();
            let mut told = Vec::new();
            for from_end in ENDS {
                let before = tally.told;
                for _ in 0..series / 8 {
                    let place = if is_last { SHORT - from_end } else { from_end };
                    let noise = blocks(&all[random.below(all.len())], SHORT, &mut random);
                    let step = |i: usize| if i >= place { size } else { 0.0 };
                    let value = |i: usize| Some(100.0 * (0.01 * (noise[i] + step(i))).exp());
                    let drawn: Vec<Option<f64>> = (0..SHORT).map(value).collect();
                    tally.add(&drawn, place);
                }
                told.push(format!(
                    "{:.2}",
                    (tally.told - before) as f64 / (series / 8) as f64
                ));
            }
            let end = if is_last { "after" } else { "before" };
            figure(
                &format!(
                    "place: {size} sigma with 3 to 10 of {SHORT} points {end} it, told outside its set"
                ),
                format!(
                    "{:.3} of those told, right {:.3}; told {}",
                    1.0 - tally.share(tally.held),
                    tally.share(tally.right),
                    told.join(" ")
                ),
                "at most 0.05",
            );
        }
    }
}

#[derive(Default)]
struct Tally {
    told: usize,
    right: usize,
    held: usize,
    stated: f64,
    sizes: Vec<usize>,
    /// Stated probabilities, and whether they were right.
    each: Vec<(f64, bool)>,
}

impl Tally {
    fn add(&mut self, series: &[Option<f64>], place: usize) {
        let found = changes(series, &DetectorOptions::default());
        let nearest = found
            .iter()
            .min_by_key(|change| change.index.abs_diff(place));
        let Some(change) = nearest.filter(|change: &&Change| change.index.abs_diff(place) <= NEAR)
        else {
            return;
        };
        self.told += 1;
        self.right += usize::from(change.index == place);
        self.held += usize::from(change.set.contains(&place));
        self.stated += change.probability;
        self.sizes.push(change.set.len());
        self.each.push((change.probability, change.index == place));
    }

    fn share(&self, count: usize) -> f64 {
        count as f64 / self.told.max(1) as f64
    }

    fn share_of(&self, sum: f64) -> f64 {
        sum / self.told.max(1) as f64
    }

    fn median(&mut self) -> usize {
        self.sizes.sort_unstable();
        self.sizes.get(self.sizes.len() / 2).copied().unwrap_or(0)
    }

    fn mean(&self) -> f64 {
        self.share(self.sizes.iter().sum())
    }

    fn calibration(&self) -> String {
        let mut told = Vec::new();
        let mut low = 0.0;
        for high in [0.2, 0.4, 0.6, 0.8, 0.95, 1.01] {
            let of = self.each.iter().filter(|(p, _)| low <= *p && *p < high);
            let (count, right) = (of.clone().count(), of.filter(|it| it.1).count());
            told.push(format!(
                "{:.2} of {count}",
                right as f64 / count.max(1) as f64
            ));
            low = high;
        }
        told.join(" / ")
    }
}
