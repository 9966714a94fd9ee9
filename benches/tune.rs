//! The time that profiles, environments and monitors take on this machine.
//!
//! `cargo bench --bench tune` prints the figures. Knobs are files in memory, as the kernel's are, and are
//! set by the code that sets those; the journal is on the disk that holds temporary files.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::process;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use matrix::config::matrix::SummaryRule;
use matrix::config::profile::{Knob, KnobChoice, Resolved};
use matrix::machine::counters::CounterSeries;
use matrix::machine::environment::{CaptureRequest, capture};
use matrix::machine::host::local::LocalHost;
use matrix::machine::host::{Command, FileOp, FileReply, Host};
use matrix::machine::tune::{apply, release};

const KNOBS: usize = 50;
const REPEATS: usize = 20;
const MONITORED: Duration = Duration::from_secs(20);
const PROGRAMS: [&str; 2] = ["vmstat -n 1", "perf stat -a -x, -I 1000"];
const FILES: [&str; 3] = ["/proc/vmstat", "/proc/interrupts", "/proc/stat"];
/// Clock ticks a second in /proc/PID/stat, on every Linux that is in use.
const TICKS: f64 = 100.0;
/// Set for the process whose syncs are counted: it applies and reverts once.
const ONCE: &str = "MATRIX_BENCH_ONCE";

fn main() -> Result<(), Box<dyn Error>> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        if std::env::var_os(ONCE).is_some() {
            return knobs(1).await.map(drop);
        }
        let [apply, revert, both] = knobs(REPEATS).await?;
        println!(
            "apply and revert {KNOBS} knobs, durable journal included: {both:.1} ms (at most 20): \
             apply {apply:.1}, revert {revert:.1}; medians of {REPEATS}"
        );
        println!("syncs of the disk in it: {}", syncs()?);
        let milliseconds = environment().await?;
        println!("capture an environment: {milliseconds:.1} ms (median of {REPEATS}; at most 50)");
        let percent = monitors().await?;
        println!("{PROGRAMS:?} and {FILES:?} each second, all together for {MONITORED:?}:");
        println!("{percent:.2} % of one CPU (at most 1)");
        Ok(())
    })
}

/// Milliseconds of applying, of reverting, and of both.
async fn knobs(repeats: usize) -> Result<[f64; 3], Box<dyn Error>> {
    let host = LocalHost::new("here")?;
    let (memory, disk) = (tempfile::tempdir_in("/dev/shm")?, tempfile::tempdir()?);
    let path = |n: usize| format!("{}/knob{n}", memory.path().display());
    let knob = |n: usize| Knob {
        name: format!("knob {n}"),
        words: None,
        choices: vec![KnobChoice {
            pattern: path(n),
            value: "1".to_owned(),
            beside: None,
        }],
        optional: false,
        persistent: false,
    };
    for n in 0..KNOBS {
        fs::write(path(n), "0\n")?;
    }
    let profile = Resolved {
        name: "bench".to_owned(),
        knobs: (0..KNOBS).map(knob).collect(),
        ..Resolved::default()
    };
    let journal = disk.path().join("profile.json");
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..repeats {
        let clock = Instant::now();
        let applied = apply(&host, &profile, &journal).await?;
        let apply = clock.elapsed();
        release(&host, &applied, &journal).await?;
        let both = clock.elapsed();
        times[0].push(apply);
        times[1].push(both - apply);
        times[2].push(both);
    }
    Ok(times.map(median))
}

/// How often applying and reverting waits for the disk.
fn syncs() -> Result<String, Box<dyn Error>> {
    let calls = tempfile::NamedTempFile::new()?;
    let mut strace = process::Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync,sync,syncfs", "-o"]);
    strace.arg(calls.path()).arg(std::env::current_exe()?);
    Ok(match strace.env(ONCE, "1").status() {
        Ok(status) if status.success() => {
            let text = fs::read_to_string(calls.path())?;
            text.lines().count().to_string()
        }
        _ => "not counted: install `strace`".to_owned(),
    })
}

async fn environment() -> Result<f64, Box<dyn Error>> {
    let host = LocalHost::new("here")?;
    let asked = CaptureRequest {
        path: Some(std::env::current_dir()?),
        ..CaptureRequest::default()
    };
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let clock = Instant::now();
        capture(&host, &asked).await?;
        times.push(clock.elapsed());
    }
    Ok(median(times))
}

/// The CPU time of programs and files that are watched together, that of reading them included.
async fn monitors() -> Result<f64, Box<dyn Error>> {
    let host = LocalHost::new("here")?;
    let before = ticks("self")?;
    let mut services = Vec::new();
    for command in PROGRAMS {
        let command = Command {
            argv: command.split(' ').map(str::to_owned).collect(),
            dir: "/".into(),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout: Duration::MAX,
            output_bytes_max: 1 << 20,
        };
        services.push(host.start(command).await?);
    }
    let mut series: [CounterSeries; FILES.len()] = Default::default();
    let clock = Instant::now();
    while clock.elapsed() < MONITORED {
        let read = |path: &str| FileOp::Read {
            path: path.into(),
            bytes_max: 1 << 20,
        };
        let replies = host.files(FILES.map(read).to_vec()).await;
        for (series, reply) in series.iter_mut().zip(replies) {
            if let FileReply::Bytes(bytes) = reply? {
                series.add(clock.elapsed(), &String::from_utf8_lossy(&bytes));
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for mut series in series {
        series.values(SummaryRule::Rate)?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&series.texts())?;
        gzip.finish()?;
    }
    for service in services {
        host.stop(service).await?;
    }
    // The ended monitors' time is that of children.
    let spent = ticks("self")? - before;
    Ok(spent / TICKS / MONITORED.as_secs_f64() * 100.0)
}

/// User and system time, with that of ended children.
fn ticks(process: &str) -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields = fields.split(' ').skip(11).take(4);
    Ok(fields.filter_map(|field| field.parse::<f64>().ok()).sum())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}
