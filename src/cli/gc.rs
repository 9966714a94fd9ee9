//! `matrix gc`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::Exit;
use super::show::{self, Stop};
use crate::base::diag::Sources;
use crate::base::key::Key;
use crate::base::units::{count, parse_duration, parse_size, show_value};
use crate::edge::artifact::Artifacts;
use crate::edge::store::Store;
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
    match collect(&args) {
        Ok(()) => Exit::Fine,
        Err(stop) => show::stopped(&stop, &Sources::default(), args.json),
    }
}

fn collect(args: &GcArgs) -> Result<(), Stop> {
    if args.older_than.is_none() && args.max_size.is_none() {
        return Err(Stop::message(
            "say what may go: `--older-than 30d` or `--max-size 10G`",
        ));
    }
    let beside = args.matrix.with_file_name(".matrix");
    let state = args.state.as_ref().unwrap_or(&beside);
    let store = Store::open_existing(state)?;
    let artifacts = Artifacts::new(state);
    let failed = |error: std::io::Error| Stop::message(format!("`{}`: {error}", state.display()));
    // A run builds first and says later what it uses.
    let alone = artifacts.hold_alone().map_err(failed)?;
    if alone.is_none() && !args.dry_run {
        return Err(Stop::message(format!(
            "`{}` is in use by a run: try again when it has ended",
            state.display()
        )));
    }
    let list = artifacts.list().map_err(failed)?;
    let kept: HashSet<Key> = store.artifacts_in_use()?.into_iter().collect();
    let gone = chosen(
        list,
        &kept,
        args.older_than,
        args.max_size,
        SystemTime::now(),
    );
    let bytes: u64 = gone.iter().map(|(_, size)| size).sum();
    if !args.dry_run {
        artifacts.remove_halves();
        // The name first: an artifact without one is built again, one without files cannot be used.
        let digests: Vec<Key> = gone.iter().map(|(digest, _)| *digest).collect();
        store.forget_artifacts(digests.iter().copied())?;
        for digest in &digests {
            artifacts.remove(*digest).map_err(failed)?;
        }
    }
    if args.json {
        let digests: Vec<String> = gone.iter().map(|(digest, _)| digest.to_string()).collect();
        show::document(&Document::Removed(Removed {
            removed: digests,
            bytes,
            dry_run: args.dry_run,
        }));
    } else {
        let verb = if args.dry_run {
            "would remove"
        } else {
            "removed"
        };
        let what = count(gone.len(), "artifact");
        show::out(&format!(
            "{verb} {what}, {}\n",
            show_value(bytes as f64, "bytes")
        ));
    }
    Ok(())
}

/// What goes: all that is too old, then the oldest until the rest is small enough; never what the
/// last session of a matrix used.
fn chosen(
    mut list: Vec<(Key, u64, SystemTime)>,
    kept: &HashSet<Key>,
    older_than: Option<Duration>,
    max_size: Option<u64>,
    now: SystemTime,
) -> Vec<(Key, u64)> {
    list.sort_by_key(|(digest, _, built)| (*built, *digest));
    let mut rest: u64 = list.iter().map(|(_, size, _)| size).sum();
    let mut gone = Vec::new();
    for (digest, size, built) in list {
        let age = now.duration_since(built).unwrap_or_default();
        let is_old = older_than.is_some_and(|limit| age > limit);
        let is_too_much = max_size.is_some_and(|limit| rest > limit);
        if (is_old || is_too_much) && !kept.contains(&digest) {
            rest -= size;
            gone.push((digest, size));
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
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let built = |age: u64| now - Duration::from_secs(age);
        let list = vec![
            (key(1), 10, built(100)),
            (key(2), 20, built(300)),
            (key(3), 30, built(200)),
        ];
        let check = |kept: &[Key], old: Option<u64>, max: Option<u64>, gone: &[Key]| {
            let kept = kept.iter().copied().collect();
            let chosen = chosen(list.clone(), &kept, old.map(Duration::from_secs), max, now);
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
