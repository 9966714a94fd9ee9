//! The look at what else a machine is doing: load, steal, throttling, heavy processes.
//!
//! The load average is kept but not judged: for minutes it tells of the run that has just ended.
//! What counts is what the CPUs do in the moment before a measurement.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::machine::host::measurement::MachineNoise;
use crate::machine::host::{Cancel, FileOp, FileReply, Host, HostError, HostErrorKind};

/// Processes that are looked at.
const PROCESSES_MAX: usize = 20_000;
/// /proc/stat with a line for each of thousands of interrupts.
const FILE_BYTES_MAX: usize = 1 << 20;
/// How long one look takes: ten clock ticks resolve 10 % of a CPU, 50 resolve 2 %.
pub const LOOK: Duration = Duration::from_millis(500);
/// One that each measurement can afford.
const GLANCE: Duration = Duration::from_millis(100);
/// Processes named in one look.
const HEAVY_MAX: usize = 5;

/// Up to where a machine counts as quiet.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// CPUs that are busy, all processes together.
    pub busy_cpus_max: f64,
    /// Fraction of the time in which the hypervisor ran somebody else.
    pub steal_max: f64,
    /// Fraction of one CPU that a single process takes.
    pub process_max: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            busy_cpus_max: 0.25,
            steal_max: 0.01,
            process_max: 0.10,
        }
    }
}

impl MachineNoise {
    /// What is not quiet, a line each; empty where all is.
    pub fn complaints(&self, limits: &Limits) -> Vec<String> {
        let mut lines = Vec::new();
        if self.busy_cpus > limits.busy_cpus_max {
            let max = limits.busy_cpus_max;
            lines.push(format!(
                "{:.2} CPUs are busy (limit {max:.2})",
                self.busy_cpus
            ));
        }
        if self.steal > limits.steal_max {
            let (found, max) = (self.steal * 100.0, limits.steal_max * 100.0);
            lines.push(format!(
                "{found:.1}% of the time is stolen by the hypervisor (limit {max:.1}%)"
            ));
        }
        if self.throttled > 0 {
            lines.push(format!(
                "the CPUs were throttled {} times for heat",
                self.throttled
            ));
        }
        for (name, share) in self
            .heavy
            .iter()
            .filter(|(_, share)| *share > limits.process_max)
        {
            let (found, max) = (share * 100.0, limits.process_max * 100.0);
            lines.push(format!(
                "`{name}` takes {found:.0}% of a CPU (limit {max:.0}%)"
            ));
        }
        lines
    }
}

/// Looks once, for `duration`. `ours` are processes that do not count, with all below them.
pub async fn look(
    host: &dyn Host,
    ours: &[u32],
    duration: Duration,
) -> Result<MachineNoise, HostError> {
    let before = Counters::read(host).await?;
    sleep(duration).await;
    let after = Counters::read(host).await?;
    Ok(Counters::noise(&before, &after, ours))
}

/// Looks until the machine is quiet, `wait_max` is over, or everything must stop: the caller then
/// measures all the same and marks the sample with the complaints that are left. With nothing to wait
/// for, it is a short look.
pub async fn wait(
    host: &dyn Host,
    limits: &Limits,
    wait_max: Duration,
    ours: &[u32],
    cancel: &Cancel,
) -> Result<MachineNoise, HostError> {
    let start = Instant::now();
    let duration = if wait_max.is_zero() { GLANCE } else { LOOK };
    loop {
        let noise = look(host, ours, duration).await?;
        let is_over = start.elapsed() >= wait_max || cancel.is_cancelled();
        if is_over || noise.complaints(limits).is_empty() {
            return Ok(noise);
        }
    }
}

/// Counters since boot, in clock ticks.
#[derive(Debug, Default, PartialEq)]
struct Counters {
    load_1min: f64,
    cpus: u64,
    /// All CPUs' time together.
    total: u64,
    idle: u64,
    steal: u64,
    throttled: u64,
    /// By process id and start time, as an id may be used again.
    processes: BTreeMap<(u32, u64), BusyProcess>,
}

#[derive(Debug, PartialEq)]
struct BusyProcess {
    name: String,
    parent: u32,
    ticks: u64,
}

impl Counters {
    /// Two round trips: which processes there are, then all counters.
    async fn read(host: &dyn Host) -> Result<Counters, HostError> {
        let list = |path: &str| FileOp::List { path: path.into() };
        let mut replies = host
            .files(vec![list("/proc"), list("/sys/devices/system/cpu")])
            .await;
        let cpus = names(replies.pop());
        let pids = names(replies.pop());
        let pids = pids
            .iter()
            .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let cpus = cpus.iter().filter(|name| name.starts_with("cpu"));
        let throttle = |cpu: &String| {
            format!("/sys/devices/system/cpu/{cpu}/thermal_throttle/core_throttle_count")
        };
        let mut paths = vec!["/proc/stat".to_owned(), "/proc/loadavg".to_owned()];
        paths.extend(cpus.map(throttle));
        let throttles_end = paths.len();
        paths.extend(
            pids.take(PROCESSES_MAX)
                .map(|pid| format!("/proc/{pid}/stat")),
        );
        let reads = paths.iter().map(|path| FileOp::Read {
            path: path.into(),
            bytes_max: FILE_BYTES_MAX,
        });
        let replies = host.files(reads.collect()).await;
        let mut texts = Vec::with_capacity(replies.len());
        for (index, reply) in replies.into_iter().enumerate() {
            texts.push(match reply {
                Ok(FileReply::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if index == 0 => return Err(error),
                // A process that has ended meanwhile, a CPU without the counter.
                _ => String::new(),
            });
        }
        let [stat, load, others @ ..] = &texts[..] else {
            return Err(HostError {
                message: "/proc/stat: no reply".to_owned(),
                kind: HostErrorKind::Other,
            });
        };
        let (throttles, processes) = others.split_at(throttles_end - 2);
        let mut counters = Counters::parse_stat(stat);
        let load = load.split(' ').next().unwrap_or("");
        counters.load_1min = load.parse().unwrap_or(0.0);
        let counts = throttles
            .iter()
            .filter_map(|text| text.trim().parse::<u64>().ok());
        counters.throttled = counts.sum();
        counters.processes = processes
            .iter()
            .filter_map(|text| parse_process(text))
            .collect();
        Ok(counters)
    }

    /// The first line of /proc/stat (proc_stat(5)): user nice system idle iowait irq softirq steal;
    /// what follows is contained in user and nice.
    fn parse_stat(text: &str) -> Counters {
        let of_cpus = text.lines().filter(|line| line.starts_with("cpu"));
        let cpus = (of_cpus.count() as u64).saturating_sub(1);
        let line = text.lines().next().unwrap_or("");
        let fields = line.split_whitespace().skip(1).take(8);
        let fields: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Counters {
            cpus,
            total: fields.iter().sum(),
            idle: field(3) + field(4),
            steal: field(7),
            ..Counters::default()
        }
    }

    fn noise(before: &Counters, after: &Counters, ours: &[u32]) -> MachineNoise {
        let spent = |of: fn(&Counters) -> u64| of(after).saturating_sub(of(before));
        let steal = spent(|counters| counters.steal);
        let busy = spent(|c| c.total).saturating_sub(spent(|c| c.idle) + steal);
        // No tick has passed: nothing is known to be busy.
        let total = spent(|counters| counters.total).max(1) as f64;
        let cpus = after.cpus.max(1) as f64;
        let ours = after.below(ours);
        let mut own = 0;
        let mut heavy: Vec<(String, f64)> = Vec::new();
        for (id, process) in &after.processes {
            let earlier = before.processes.get(id).map_or(0, |process| process.ticks);
            let spent = process.ticks.saturating_sub(earlier);
            if ours.contains(&id.0) {
                own += spent;
            } else if spent > 0 {
                heavy.push((process.name.clone(), spent as f64 * cpus / total));
            }
        }
        heavy.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut names = BTreeSet::new();
        heavy.retain(|(name, _)| names.insert(name.clone()));
        heavy.truncate(HEAVY_MAX);
        MachineNoise {
            load_1min: after.load_1min,
            busy_cpus: busy.saturating_sub(own) as f64 * cpus / total,
            steal: steal as f64 / total,
            throttled: after.throttled.saturating_sub(before.throttled),
            heavy,
        }
    }

    /// These processes with all their descendants.
    fn below(&self, roots: &[u32]) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> = roots.iter().copied().collect();
        loop {
            let before = found.len();
            let ids = self.processes.iter();
            let children = ids.filter(|(_, process)| found.contains(&process.parent));
            let children: Vec<u32> = children.map(|((pid, _), _)| *pid).collect();
            found.extend(children);
            if found.len() == before {
                return found;
            }
        }
    }
}

fn names(reply: Option<Result<FileReply, HostError>>) -> Vec<String> {
    match reply {
        Some(Ok(FileReply::Names(names))) => names,
        _ => Vec::new(),
    }
}

/// Id and start time, and the process, from /proc/PID/stat (proc_pid_stat(5)). The name is in
/// parentheses and may hold any character.
fn parse_process(text: &str) -> Option<((u32, u64), BusyProcess)> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    // Field 3 of the page is the first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let process = BusyProcess {
        name: name.to_owned(),
        parent: u32::try_from(field(4)?).ok()?,
        ticks: field(14)? + field(15)?,
    };
    Some(((pid.parse().ok()?, field(22)?), process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tune::fake::FakeRoot;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    fn process(pid: u32, parent: u32, name: &str, ticks: u64) -> String {
        format!("{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 77 0 0\n")
    }

    #[test]
    fn a_process_may_have_any_name() {
        let check = |name: &str| {
            let expected = BusyProcess {
                name: name.to_owned(),
                parent: 1,
                ticks: 50,
            };
            let found = parse_process(&process(7, 1, name, 50));
            assert_eq!(found, Some(((7, 77), expected)))
        };
        check("fio");
        check("a) S (b");
        check("");
        assert_eq!(parse_process("7 (x) S 1"), None);
        assert_eq!(parse_process(""), None);
    }

    #[test]
    fn what_is_not_quiet_is_told() {
        let counters = |stat: &str, load: f64, throttled: u64, processes: &[String]| Counters {
            load_1min: load,
            throttled,
            processes: processes
                .iter()
                .filter_map(|text| parse_process(text))
                .collect(),
            ..Counters::parse_stat(stat)
        };
        let before = counters(
            "cpu 100 0 100 1000 0 0 0 0 0 0\ncpu0 x\ncpu1 x\nintr 5\n",
            0.0,
            3,
            &[
                process(1, 0, "init", 5),
                process(9, 1, "matrix", 10),
                process(10, 9, "service", 0),
            ],
        );
        // 100 ticks of each of two CPUs: 60 busy, 20 of them ours, 10 stolen.
        let after = counters(
            "cpu 150 0 110 1120 10 0 0 10 0 0\ncpu0 x\ncpu1 x\nintr 5\n",
            1.5,
            5,
            &[
                process(1, 0, "init", 5),
                process(9, 1, "matrix", 20),
                process(10, 9, "service", 10),
                process(20, 1, "cc1", 40),
                process(21, 1, "cc1", 15),
            ],
        );
        let noise = Counters::noise(&before, &after, &[9]);
        assert_eq!(noise.heavy, [("cc1".to_owned(), 0.4)]);
        assert_eq!(
            (noise.busy_cpus, noise.steal, noise.throttled),
            (0.4, 0.05, 2)
        );
        let expected = [
            "0.40 CPUs are busy (limit 0.25)",
            "5.0% of the time is stolen by the hypervisor (limit 1.0%)",
            "the CPUs were throttled 2 times for heat",
            "`cc1` takes 40% of a CPU (limit 10%)",
        ];
        assert_eq!(noise.complaints(&Limits::default()), expected);
        let quiet = Counters::noise(&before, &before, &[]);
        assert_eq!(quiet.complaints(&Limits::default()), [] as [&str; 0]);
    }

    #[test]
    fn a_machine_is_looked_at_in_two_round_trips_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let host = FakeRoot::new(folder.path());
        host.put("/proc/stat", "cpu 1 2 3 4 5 6 7 8\ncpu0 1\n")
            .unwrap();
        host.put("/proc/loadavg", "1.25 0 0 1/2 3\n").unwrap();
        host.put("/proc/7/stat", &process(7, 1, "x", 1)).unwrap();
        host.put(
            "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
            "4",
        )
        .unwrap();
        let counters = run(Counters::read(&host)).unwrap();
        assert_eq!(
            (counters.load_1min, counters.throttled, counters.cpus),
            (1.25, 4, 1)
        );
        assert_eq!((counters.total, counters.idle, counters.steal), (36, 9, 8));
        assert_eq!(counters.processes.len(), 1);
        assert_eq!(host.batches.get(), 2);
        let noise = run(wait(
            &host,
            &Limits::default(),
            Duration::ZERO,
            &[],
            &Cancel::never(),
        ))
        .unwrap();
        assert_eq!(noise.busy_cpus, 0.0);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let noise = run(look(&FakeRoot::new("/"), &[std::process::id()], GLANCE)).unwrap();
        assert!(noise.busy_cpus >= 0.0 && noise.steal >= 0.0, "{noise:?}");
    }
}
