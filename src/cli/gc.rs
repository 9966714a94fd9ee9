//! `matrix gc`: removes artifacts that are old, or too many.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use super::Exit;
use super::machine::this_machine;
use super::run::block_on;
use super::show::{self, Stop};
use crate::base::diag::Sources;
use crate::base::key::Key;
use crate::base::units::{count, parse_duration, parse_size, show_value};
use crate::edge::artifact::{self, KeptArtifact};
use crate::edge::store::Store;
use crate::machine::host::{Cancel, FileOp, Holder, Host, HostErrorKind, Lock, file};
use crate::run::command::now_ms;
use crate::verdicts::document::{Document, Removed};

#[derive(Debug, Args)]
pub struct GcArgs {
    /// The matrix file whose state folder is meant
    matrix: PathBuf,
    /// The state folder; `.matrix` beside the matrix file otherwise
    #[arg(long, value_name = "DIR", env = "MATRIX_STATE")]
    state: Option<PathBuf>,
    /// Remove artifacts that were built longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    older_than: Option<Duration>,
    /// Remove the oldest artifacts until the rest is at most as large
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or("a duration such as 30d or 12h".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or("a size such as 500M or 10G".to_owned())
}

pub fn gc(args: GcArgs) -> Exit {
    match block_on(collect(&args)) {
        Ok(()) => Exit::Fine,
        Err(stop) => show::stopped(&stop, &Sources::default(), args.json),
    }
}

async fn collect(args: &GcArgs) -> Result<(), Stop> {
    if args.older_than.is_none() && args.max_size.is_none() {
        return Err(Stop::message(
            "say what may go: `--older-than 30d` or `--max-size 10G`",
        ));
    }
    let beside = args.matrix.with_file_name(".matrix");
    let state = args.state.as_ref().unwrap_or(&beside);
    let (digests, bytes) = remove(state, args.older_than, args.max_size, args.dry_run).await?;
    let what = count(digests.len(), "artifact");
    if args.json {
        show::document(&Document::Removed(Removed {
            removed: digests.iter().map(Key::to_string).collect(),
            bytes,
            dry_run: args.dry_run,
        }));
    } else {
        let verb = if args.dry_run {
            "would remove"
        } else {
            "removed"
        };
        show::out(&format!(
            "{verb} {what}, {}\n",
            show_value(bytes as f64, "bytes")
        ));
    }
    Ok(())
}

/// Removes artifacts that are too old or too many, or says which it would: their hashes, and their bytes in all.
pub async fn remove(
    state: &Path,
    older_than: Option<Duration>,
    max_size: Option<u64>,
    dry_run: bool,
) -> Result<(Vec<Key>, u64), Stop> {
    let store = Store::open_existing(state)?;
    let host = this_machine()?;
    let host = host.as_ref();
    // A run builds first and says later what it uses; and removing files disturbs whoever measures.
    let _lock = match dry_run {
        true => None,
        false => Some(alone(host, state).await?),
    };
    let folder = state.join("artifacts");
    let list = artifact::list(host, &folder).await?;
    let kept: HashSet<Key> = store.artifacts_in_use()?.into_iter().collect();
    let gone = chosen(list, &kept, older_than, max_size, now_ms());
    let bytes: u64 = gone.iter().map(|(_, size)| size).sum();
    let digests: Vec<Key> = gone.iter().map(|(digest, _)| *digest).collect();
    if !dry_run {
        // The name first: an artifact without one is built again, one without files cannot be used.
        store.forget_artifacts(digests.iter().copied())?;
        for digest in &digests {
            let path = folder.join(digest.to_string());
            file(host, FileOp::Remove { path }).await?;
        }
    }
    Ok((digests, bytes))
}

/// The machine's lock; an error where somebody else has it.
async fn alone(host: &dyn Host, state: &Path) -> Result<Lock, Stop> {
    let (stop, cancel) = watch::channel(false);
    let holder = RefCell::new(String::new());
    let taken = |who: &str| {
        holder.replace(who.to_owned());
        // Fails only when nobody waits any more.
        let _ = stop.send(true);
    };
    let lock = host.lock(Holder::this("gc"), &taken, Cancel::new(cancel));
    lock.await.map_err(|error| match error.kind {
        HostErrorKind::Cancelled => Stop::message(format!(
            "`{}` is in use by a run (the machine is {}): try again when it has ended",
            state.display(),
            holder.borrow()
        )),
        _ => error.into(),
    })
}

/// What goes: all that is too old, then the oldest until the rest is small enough; never what the
/// last session of a matrix used.
fn chosen(
    mut list: Vec<KeptArtifact>,
    kept: &HashSet<Key>,
    older_than: Option<Duration>,
    max_size: Option<u64>,
    now_ms: i64,
) -> Vec<(Key, u64)> {
    list.sort_by_key(|artifact| (artifact.built_ms, artifact.digest));
    let mut rest: u64 = list.iter().map(|artifact| artifact.bytes).sum();
    let mut gone = Vec::new();
    for artifact in list {
        let age_ms = now_ms.saturating_sub(artifact.built_ms).max(0) as u128;
        let is_old = older_than.is_some_and(|limit| age_ms > limit.as_millis());
        let is_too_much = max_size.is_some_and(|limit| rest > limit);
        if (is_old || is_too_much) && !kept.contains(&artifact.digest) {
            rest -= artifact.bytes;
            gone.push((artifact.digest, artifact.bytes));
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_what_is_needed_stays() {
        let key = |n: u8| Key([n; 16]);
        let now_ms = 1_000_000;
        let artifact = |n: u8, bytes: u64, age_s: i64| KeptArtifact {
            digest: key(n),
            bytes,
            built_ms: now_ms - age_s * 1000,
        };
        let list = vec![
            artifact(1, 10, 100),
            artifact(2, 20, 300),
            artifact(3, 30, 200),
        ];
        let check = |kept: &[Key], old: Option<u64>, max: Option<u64>, gone: &[Key]| {
            let kept = kept.iter().copied().collect();
            let chosen = chosen(
                list.clone(),
                &kept,
                old.map(Duration::from_secs),
                max,
                now_ms,
            );
            assert_eq!(
                chosen.iter().map(|(digest, _)| *digest).collect::<Vec<_>>(),
                gone
            );
        };
        check(&[], Some(150), None, &[key(2), key(3)]);
        check(&[key(2)], Some(150), None, &[key(3)]);
        check(&[], None, Some(40), &[key(2)]);
        check(&[], None, Some(39), &[key(2), key(3)]);
        check(&[key(3)], None, Some(0), &[key(2), key(1)]);
    }
}
