//! Files of named numbers, as the kernel writes them: reading them beside a step, rates and means.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::matrix::SummaryRule;
use crate::machine::host::{FileOp, FileReply, Host};

/// One file: those of a thousand interrupts on a hundred CPUs.
const FILE_BYTES_MAX: usize = 2 << 20;

/// What is kept of the texts of one series: later ones are left out, and count all the same.
const TEXTS_BYTES_MAX: usize = 4 << 20;
/// The numbers of a `cpu` row of /proc/stat (proc_stat(5)), in clock ticks; what follows is contained
/// in user and nice.
const CPU_TIMES: [&str; 8] = [
    "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
];

type Numbers = BTreeMap<String, f64>;
/// By name.
pub type Values = Vec<(String, f64)>;

/// A file that is read again and again.
pub struct CounterFile {
    path: String,
    every: Duration,
    summary: SummaryRule,
    began: Instant,
    due: Instant,
    series: CounterSeries,
    /// The first reading that failed.
    error: Option<String>,
}

impl CounterFile {
    pub fn new(path: String, every: Duration, summary: SummaryRule) -> CounterFile {
        let began = Instant::now();
        CounterFile {
            path,
            every,
            summary,
            began,
            due: began,
            series: CounterSeries::default(),
            error: None,
        }
    }

    /// All texts, and a value for each name; Err says in one line why there is none.
    pub fn finish(mut self) -> Result<(Vec<u8>, Values), String> {
        match self.error {
            Some(error) => Err(error),
            None => Ok((self.series.texts(), self.series.values(self.summary)?)),
        }
    }
}

/// Reads the files before and after the work, and each whenever its time has come meanwhile.
pub async fn beside<T>(
    host: &dyn Host,
    files: &mut [CounterFile],
    work: impl Future<Output = T>,
) -> T {
    read(host, files.iter_mut().collect()).await;
    let done = tokio::select! {
        biased;
        done = work => done,
        never = read_again(host, files) => match never {},
    };
    read(host, files.iter_mut().collect()).await;
    done
}

async fn read_again(host: &dyn Host, files: &mut [CounterFile]) -> std::convert::Infallible {
    loop {
        match files.iter().map(|file| file.due).min() {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
        let now = Instant::now();
        let due = files.iter_mut().filter(|file| file.due <= now);
        read(host, due.collect()).await;
    }
}

async fn read(host: &dyn Host, files: Vec<&mut CounterFile>) {
    if files.is_empty() {
        return;
    }
    let ops = files.iter().map(|file| FileOp::Read {
        path: (&file.path).into(),
        bytes_max: FILE_BYTES_MAX,
    });
    let replies = host.files(ops.collect()).await;
    let now = Instant::now();
    for (file, reply) in files.into_iter().zip(replies) {
        file.due = now + file.every;
        match reply {
            Ok(FileReply::Bytes(bytes)) => {
                let text = String::from_utf8_lossy(&bytes);
                file.series.add(now - file.began, &text);
            }
            Ok(_) => {}
            Err(error) => {
                file.error.get_or_insert(error.message);
            }
        }
    }
}

/// Readings of one file.
#[derive(Debug, Default)]
pub struct CounterSeries {
    /// Since the first.
    first: Option<(Duration, Numbers)>,
    last: Option<(Duration, Numbers)>,
    sums: BTreeMap<String, (f64, u32)>,
    readings: u32,
    texts: Vec<u8>,
}

impl CounterSeries {
    /// Adds a reading, taken `at` this time.
    pub fn add(&mut self, at: Duration, text: &str) {
        let numbers = numbers(text);
        for (name, number) in &numbers {
            let (sum, count) = self.sums.entry(name.clone()).or_default();
            *sum += number;
            *count += 1;
        }
        self.readings += 1;
        if self.texts.len() + text.len() <= TEXTS_BYTES_MAX {
            let head = format!("# {:.3} s\n", at.as_secs_f64());
            self.texts.extend_from_slice(head.as_bytes());
            self.texts.extend_from_slice(text.as_bytes());
        }
        self.first.get_or_insert_with(|| (at, numbers.clone()));
        self.last = Some((at, numbers));
    }

    /// All texts, each below a line with its time.
    pub fn texts(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.texts)
    }

    /// A value for each name that is there from the first reading to the last. The rate of what has
    /// fallen is negative: to leave it out would keep the risen ones of a level that wavers.
    pub fn values(&self, summary: SummaryRule) -> Result<Values, String> {
        let (Some((began, first)), Some((ended, last))) = (&self.first, &self.last) else {
            return Err("it was never read".to_owned());
        };
        if last.is_empty() {
            return Err("there are no numbers with names in it".to_owned());
        }
        let seconds = (*ended - *began).as_secs_f64();
        if summary == SummaryRule::Rate && seconds == 0.0 {
            return Err("it was read only once".to_owned());
        }
        let value = |(name, number): (&String, &f64)| {
            let value = match summary {
                // The means in pressure files are no counters; their `total` is.
                SummaryRule::Rate if name.contains(".avg") => return None,
                SummaryRule::Rate => (number - first.get(name)?) / seconds,
                SummaryRule::Mean => {
                    let (sum, count) = self.sums.get(name)?;
                    if *count < self.readings {
                        return None;
                    }
                    sum / f64::from(*count)
                }
            };
            value.is_finite().then(|| (name.clone(), value))
        };
        Ok(last.iter().filter_map(value).collect())
    }
}

/// The numbers of a text, by row: `pgfault 12` and `MemFree: 12 kB` have one, `LOC: 5 7 Local timer`
/// a number for each CPU, which are added up. A row that begins with a number is called after its
/// last word, as interrupts are called after their device. `some avg10=0.5 total=7` has `some.total`.
fn numbers(text: &str) -> Numbers {
    let mut numbers = Numbers::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(label) = words.next() else { continue };
        let label = label.trim_end_matches(':');
        let rest: Vec<&str> = words.collect();
        let row: Vec<f64> = rest.iter().map_while(|word| number(word)).collect();
        let is_cpu = |label: &str| {
            let digits = label.strip_prefix("cpu");
            digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if is_cpu(label) && row.len() >= CPU_TIMES.len() {
            for (name, number) in CPU_TIMES.iter().zip(row) {
                numbers.insert(format!("{label}.{name}"), number);
            }
            continue;
        }
        if row.is_empty() {
            let pairs = rest.iter().filter_map(|word| word.split_once('='));
            for (name, value) in pairs {
                if let Some(value) = number(value) {
                    numbers.insert(format!("{label}.{name}"), value);
                }
            }
            continue;
        }
        let name = match number(label) {
            Some(_) => rest[row.len()..].last().copied().unwrap_or(""),
            None => label,
        };
        if !name.contains(char::is_alphabetic) {
            continue;
        }
        let sum = match name {
            // In /proc/stat the first is the total of the others.
            "intr" | "softirq" => row[0],
            _ => row.iter().sum(),
        };
        *numbers.entry(name.to_owned()).or_default() += sum;
    }
    numbers
}

/// Words such as `inf` are none.
fn number(word: &str) -> Option<f64> {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        .then(|| word.parse::<f64>().ok().filter(|number| number.is_finite()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_kernels_files() {
        let check = |text: &str, expected: &[(&str, f64)]| {
            let expected = expected.iter().map(|(name, n)| ((*name).to_owned(), *n));
            assert_eq!(numbers(text), expected.collect::<Numbers>(), "{text}");
        };
        check(
            "nr_free_pages 12\npgfault 5\n",
            &[("nr_free_pages", 12.0), ("pgfault", 5.0)],
        );
        check("MemFree:      77 kB\n", &[("MemFree", 77.0)]);
        check(
            "           CPU0       CPU1       \n\
             \x20 1:          9          1   IO-APIC   1-edge      i8042\n\
             \x2024:        100         20   PCI-MSIX-0000:00:01.0   0-edge      virtio0-req.0\n\
             LOC:       1000       2000   Local timer interrupts\nERR:          3\n",
            &[
                ("i8042", 10.0),
                ("virtio0-req.0", 120.0),
                ("LOC", 3000.0),
                ("ERR", 3.0),
            ],
        );
        check(
            "cpu  1 2 3 4 5 6 7 8 9 10\nintr 50 20 30\nctxt 7\nsoftirq 9 4 5\n",
            &[
                ("cpu.user", 1.0),
                ("cpu.nice", 2.0),
                ("cpu.system", 3.0),
                ("cpu.idle", 4.0),
                ("cpu.iowait", 5.0),
                ("cpu.irq", 6.0),
                ("cpu.softirq", 7.0),
                ("cpu.steal", 8.0),
                ("intr", 50.0),
                ("ctxt", 7.0),
                ("softirq", 9.0),
            ],
        );
        check(
            "some avg10=0.50 avg60=0.00 total=77\n",
            &[
                ("some.avg10", 0.5),
                ("some.avg60", 0.0),
                ("some.total", 77.0),
            ],
        );
        // Numbers without names.
        check("  12 0 7\n", &[]);
        check("253 0 vda 1 2 3\n", &[]);
        check("x inf\ny nan\n\n", &[]);
    }

    #[test]
    fn counters_have_rates_and_levels_have_means() {
        let read = |texts: &[&str]| {
            let mut series = CounterSeries::default();
            for (n, text) in texts.iter().enumerate() {
                series.add(Duration::from_millis(500 * n as u64), text);
            }
            series
        };
        let check =
            |texts: &[&str], summary: SummaryRule, expected: Result<&[(&str, f64)], &str>| {
                let found = read(texts).values(summary);
                let expected = expected.map(|values| {
                    let owned = values.iter().map(|(name, v)| ((*name).to_owned(), *v));
                    owned.collect::<Vec<_>>()
                });
                assert_eq!(found, expected.map_err(str::to_owned), "{texts:?}");
            };
        let texts = [
            "a 10\nback 5\n",
            "a 11\nback 9\nnew 1\n",
            "a 30\nback 4\nnew 3\n",
        ];
        check(
            &texts,
            SummaryRule::Rate,
            Ok(&[("a", 20.0), ("back", -1.0)]),
        );
        check(&texts, SummaryRule::Mean, Ok(&[("a", 17.0), ("back", 6.0)]));
        let pressure = ["some avg10=1 total=7\n", "some avg10=2 total=8\n"];
        check(&pressure, SummaryRule::Rate, Ok(&[("some.total", 2.0)]));
        let means = [("some.avg10", 1.5), ("some.total", 7.5)];
        check(&pressure, SummaryRule::Mean, Ok(&means));
        check(&["a 1\n"], SummaryRule::Rate, Err("it was read only once"));
        check(&["a 1\n"], SummaryRule::Mean, Ok(&[("a", 1.0)]));
        check(
            &["x\n", "y\n"],
            SummaryRule::Rate,
            Err("there are no numbers with names in it"),
        );
        check(&[], SummaryRule::Rate, Err("it was never read"));
        let texts = read(&["a 1\n", "a 2\n"]).texts();
        assert_eq!(texts, b"# 0.000 s\na 1\n# 0.500 s\na 2\n");
    }
}
