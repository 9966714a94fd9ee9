//! Owns which monitors moved together with a verdict.
//! Does not know what they watch: what moves is a hint, never a verdict.

use serde::Serialize;

use super::compare::compare;
use super::stats::{benjamini_hochberg, median};
use super::verdict::Question;
use crate::words::sample::{Better, Sample};

/// The false discovery rate among the monitors of one verdict. Far below that of verdicts: there are
/// hundreds of monitors, and one that is named for nothing leads somebody astray.
const LEVEL: f64 = 0.001;
/// Monitors that are named for one verdict.
pub const MOVED_MAX: usize = 5;
/// Samples a side below which nothing is said.
const SAMPLES_MIN: usize = 3;

/// One monitor on both sides of a comparison.
#[derive(Clone, Debug)]
pub struct Watched<'a> {
    pub name: &'a str,
    pub baseline: &'a [Sample],
    pub candidate: &'a [Sample],
}

/// A monitor that moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    pub monitor: String,
    /// Medians.
    pub baseline: f64,
    pub candidate: f64,
    /// Candidate / baseline, where there is one.
    pub ratio: Option<f64>,
    /// p-value, adjusted for the number of monitors (Benjamini & Hochberg, 1995).
    pub q: f64,
}

/// The monitors that differ between the two sides, strongest first: the least likely to differ by
/// chance, by the same tests as metrics ([`compare`]). At most [`MOVED_MAX`].
pub fn moved(watched: &[Watched]) -> Vec<Moved> {
    let question = Question {
        // Neither direction of a monitor is better, and every change counts: only p is used.
        better: Better::Higher,
        min_effect: 0.0,
        level: LEVEL,
        noise: None,
    };
    let mut tested = Vec::new();
    for monitor in watched {
        let sides = [monitor.baseline, monitor.candidate];
        if sides.iter().any(|side| side.len() < SAMPLES_MIN) {
            continue;
        }
        let comparison = compare(monitor.baseline, monitor.candidate, &question);
        let [baseline, candidate] = sides.map(|side| {
            let values: Vec<f64> = side.iter().map(|sample| sample.value).collect();
            median(&values).unwrap_or_default()
        });
        tested.push(Moved {
            monitor: monitor.name.to_owned(),
            baseline,
            candidate,
            ratio: comparison.ratio,
            q: comparison.p.unwrap_or(1.0),
        });
    }
    let p: Vec<f64> = tested.iter().map(|moved| moved.q).collect();
    for (moved, q) in tested.iter_mut().zip(benjamini_hochberg(&p)) {
        moved.q = q;
    }
    tested.retain(|moved| moved.q <= LEVEL);
    let size = |moved: &Moved| moved.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    tested.sort_by(|a, b| a.q.total_cmp(&b.q).then(size(b).total_cmp(&size(a))));
    tested.truncate(MOVED_MAX);
    tested
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONITORS: usize = 200;
    const TRIALS: u64 = 100;
    const ROUNDS: u32 = 10;

    /// xorshift64* (Vigna, 2016), and from it a normal deviate (Box & Muller, 1958).
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
            (bits as f64 + 0.5) / (1u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// Rounds of a monitor about a level, with a spread of 5 %.
        fn side(&mut self, level: f64) -> Vec<Sample> {
            let sample = |round| Sample {
                round,
                session: 1,
                value: level * (0.05 * self.normal()).exp(),
            };
            (0..ROUNDS).map(sample).collect()
        }
    }

    #[test]
    fn of_200_monitors_the_two_that_move_are_named() {
        let names: Vec<String> = (0..MONITORS).map(|n| format!("m{n}")).collect();
        let (mut missed, mut others) = (0, 0);
        for seed in 1..=TRIALS {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let sides: Vec<[Vec<Sample>; 2]> = (0..MONITORS)
                .map(|n| {
                    let factor = match n {
                        17 => 1.3,
                        111 => 0.7,
                        _ => 1.0,
                    };
                    [random.side(100.0), random.side(100.0 * factor)]
                })
                .collect();
            let watched = names.iter().zip(&sides).map(|(name, [a, b])| Watched {
                name,
                baseline: a,
                candidate: b,
            });
            let found = moved(&watched.collect::<Vec<_>>());
            let named = |name: &str| found.iter().any(|moved| moved.monitor == name);
            missed += usize::from(!named("m17")) + usize::from(!named("m111"));
            let is_other = |moved: &&Moved| !["m17", "m111"].contains(&moved.monitor.as_str());
            others += found.iter().filter(is_other).count();
        }
        assert_eq!(missed, 0);
        assert!(others <= 1, "{others} others");
    }

    #[test]
    fn few_samples_and_constants_say_nothing() {
        let mut random = Random(7);
        let (a, b) = (random.side(1.0), random.side(9.0));
        let zero: Vec<Sample> = a.iter().map(|s| Sample { value: 0.0, ..*s }).collect();
        let watched = |baseline, candidate| Watched {
            name: "m",
            baseline,
            candidate,
        };
        assert_eq!(moved(&[watched(&a[..2], &b[..2])]), []);
        assert_eq!(moved(&[watched(&zero, &zero)]), []);
        assert_eq!(moved(&[watched(&a, &a)]), []);
        assert_eq!(moved(&[watched(&a, &b)]).len(), 1);
    }
}
