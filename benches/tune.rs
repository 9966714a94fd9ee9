//! Owns the time that profiles, environments and monitors take on this machine.
//! Does not know whether they do the right thing: tests hold that.
//!
//! `cargo bench --bench tune` prints the figures. Knobs are files of a fake root in memory, as the
//! kernel's are; what the journal takes on a disk is told apart. The monitor is `vmstat -n 1`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use matrix::config::profile::{Choice, Knob, Resolved};
use matrix::edge::environment::{Asked, capture};
use matrix::edge::host::local::LocalHost;
use matrix::edge::host::{Command, FileOp, Host};
use matrix::edge::tune::fake::FakeRoot;
use matrix::edge::tune::{apply, release};

const KNOBS: usize = 50;
const REPEATS: usize = 20;
const MONITORED: Duration = Duration::from_secs(10);
/// Clock ticks a second in /proc/PID/stat, on every Linux that is in use.
const TICKS: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let milliseconds = knobs().await?;
        println!(
            "apply and revert {KNOBS} knobs: {milliseconds:.1} ms (median of {REPEATS}; at most 20)"
        );
        let milliseconds = journal().await?;
        println!(
            "the journal of them, durable on this disk: {milliseconds:.1} ms (median of {REPEATS})"
        );
        let milliseconds = environment().await?;
        println!("capture an environment: {milliseconds:.1} ms (median of {REPEATS}; at most 50)");
        let percent = monitor().await?;
        println!("`vmstat -n 1` for {MONITORED:?}: {percent:.2} % of one CPU (at most 1)");
        Ok(())
    })
}

async fn knobs() -> Result<f64, Box<dyn Error>> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let host = FakeRoot::new(folder.path());
    host.put("/proc/sys/kernel/random/boot_id", "boot")?;
    let knob = |n: usize| Knob {
        name: format!("knob {n}"),
        choices: vec![Choice {
            pattern: format!("/proc/sys/vm/knob{n}"),
            value: "1".to_owned(),
            beside: None,
        }],
        optional: false,
        persistent: false,
    };
    for n in 0..KNOBS {
        host.put(&format!("/proc/sys/vm/knob{n}"), "0")?;
    }
    let profile = Resolved {
        name: "bench".to_owned(),
        knobs: (0..KNOBS).map(knob).collect(),
        ..Resolved::default()
    };
    let journal = Path::new("/var/lib/matrix/profile.json");
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let clock = Instant::now();
        let applied = apply(&host, &profile, journal).await?;
        release(&host, &applied, journal).await?;
        times.push(clock.elapsed());
    }
    Ok(median(times))
}

/// It is written before the knobs, again after them, and removed at the end.
async fn journal() -> Result<f64, Box<dyn Error>> {
    let host = LocalHost::new("here")?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("profile.json");
    let bytes = vec![b' '; KNOBS * 160];
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let clock = Instant::now();
        for _ in 0..2 {
            let (path, bytes) = (path.clone(), bytes.clone());
            host.files(vec![FileOp::Replace { path, bytes }]).await;
        }
        host.files(vec![FileOp::Remove { path: path.clone() }])
            .await;
        times.push(clock.elapsed());
    }
    Ok(median(times))
}

async fn environment() -> Result<f64, Box<dyn Error>> {
    let host = LocalHost::new("here")?;
    let asked = Asked {
        path: Some(std::env::current_dir()?),
        ..Asked::default()
    };
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let clock = Instant::now();
        capture(&host, &asked).await?;
        times.push(clock.elapsed());
    }
    Ok(median(times))
}

/// The CPU time of the monitor and of this process, which reads what it prints.
async fn monitor() -> Result<f64, Box<dyn Error>> {
    let host = LocalHost::new("here")?;
    let before = ticks("self")?;
    let command = Command {
        argv: ["vmstat", "-n", "1"].map(str::to_owned).to_vec(),
        dir: "/".into(),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::MAX,
        output_bytes_max: 1 << 20,
    };
    let service = host.start(command).await?;
    tokio::time::sleep(MONITORED).await;
    host.stop(service).await?;
    // The ended monitor's time is that of a child.
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
