//! `matrix status`: what runs now, what the last nights came to, what stands open and who was told of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::load::load;
use super::machine::this_machine;
use super::nightly::state::{is_running, read};
use super::run::block_on;
use super::show::{self, Stop};
use super::{Common, Exit};
use crate::base::diag::Sources;
use crate::base::sample::Ended;
use crate::base::units::show_value;
use crate::machine::host::{Cancel, Command};
use crate::report::nights::nights_text;

/// Counting the bytes of a large folder takes its time.
const DISK_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The matrix files
    #[arg(required = true, num_args = 1.., value_name = "FILE")]
    matrices: Vec<PathBuf>,
    /// Where results are kept; `.matrix` beside each matrix file otherwise
    #[arg(long, value_name = "DIR", env = "MATRIX_STATE")]
    state: Option<PathBuf>,
}

pub fn status(args: StatusArgs) -> Exit {
    let mut exit = Exit::Fine;
    for path in &args.matrices {
        let mut sources = Sources::default();
        match block_on(one(&args, path, &mut sources)) {
            Ok(text) => show::out(&text),
            // The others are shown all the same.
            Err(stop) => exit = show::stopped(&stop, &sources, false),
        }
    }
    exit
}

async fn one(args: &StatusArgs, path: &Path, sources: &mut Sources) -> Result<String, Stop> {
    let common = Common::of(path, args.state.as_deref());
    let loaded = load(&common, sources)?;
    let name = &loaded.matrix.name;
    let nights = read(&loaded.state, name).await?;
    let is_running = is_running(&loaded.state, name);
    let mut text = nights_text(name, nights.as_ref(), is_running);
    if let Some(bytes) = disk(&loaded.state).await {
        text += &format!(
            "  disk     {} in {}\n",
            show_value(bytes, "bytes"),
            loaded.state.display()
        );
    }
    Ok(text)
}

/// Bytes of a folder; None where that cannot be told.
async fn disk(state: &Path) -> Option<f64> {
    let words = ["du", "-s", "-B1", "--", "."];
    let command = Command {
        argv: words.map(str::to_owned).to_vec(),
        dir: state.to_owned(),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: DISK_TIMEOUT,
        output_bytes_max: 4096,
    };
    let host = this_machine().ok()?;
    let output = host.run(command, Cancel::never()).await.ok()?;
    if output.ended != Ended::Exit(0) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().next()?.parse().ok()
}
