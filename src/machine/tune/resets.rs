//! What the kernel sets anew when a knob is set: it is put back with the knob.

use super::find::{FoundFiles, read_op, value_of};
use super::journal::JournalEntry;
use crate::machine::host::{FileOp, FileReply, Host};

/// A knob, by the name of its file, and what in the same folder writing it sets anew.
struct ResetRule {
    knob: &'static str,
    files: &'static [&'static str],
    /// A folder that comes and goes with the knob's value.
    folder: Option<&'static str>,
}

const RULES: [ResetRule; 2] = [
    // block/blk-mq-sched.c, block/elevator.c
    ResetRule {
        knob: "/queue/scheduler",
        files: &["nr_requests", "wbt_lat_usec"],
        folder: Some("iosched"),
    },
    // `performance` sets it to that; amd-pstate leaves it so afterwards (drivers/cpufreq/amd-pstate.c of
    // Linux 6.6, `amd_pstate_epp_update_limit`).
    ResetRule {
        knob: "/scaling_governor",
        files: &["energy_performance_preference"],
        folder: None,
    },
];

/// Notes with each knob what setting it would lose.
pub(super) async fn note(host: &dyn Host, found: &mut [FoundFiles]) {
    let mut paths: Vec<(usize, String)> = Vec::new();
    let mut folders: Vec<(usize, String)> = Vec::new();
    for (index, file) in found.iter().enumerate() {
        let rule = RULES.iter().find(|rule| file.path.ends_with(rule.knob));
        let Some(rule) = rule.filter(|_| file.old != file.wanted) else {
            continue;
        };
        let above = file.path.rsplit_once('/').map_or("", |(above, _)| above);
        let beside = |name: &&str| (index, format!("{above}/{name}"));
        paths.extend(rule.files.iter().map(beside));
        folders.extend(rule.folder.iter().map(beside));
    }
    if paths.is_empty() {
        return;
    }
    let lists = folders.iter().map(|(_, folder)| FileOp::List {
        path: folder.into(),
    });
    let listed = match folders.is_empty() {
        true => Vec::new(),
        false => host.files(lists.collect()).await,
    };
    for ((index, folder), listed) in folders.iter().zip(listed) {
        if let Ok(FileReply::Names(names)) = listed {
            let inside = names
                .iter()
                .map(|name| (*index, format!("{folder}/{name}")));
            paths.extend(inside);
        }
    }
    let reads = paths.iter().map(|(_, path)| read_op(path)).collect();
    for ((index, path), reply) in paths.into_iter().zip(host.files(reads).await) {
        // One that cannot be read is not there, or is only for writing.
        if let Ok(value) = value_of(reply) {
            found[index].resets.push((path, value));
        }
    }
}

/// What these files hold now that the knobs are set; without those that come and go with a knob's value,
/// which nobody can set for the old one.
pub(super) async fn made(host: &dyn Host, entries: &[JournalEntry]) -> Vec<(String, String)> {
    let goes = |path: &str| {
        let folders = RULES.iter().filter_map(|rule| rule.folder);
        { folders }.any(|folder| path.contains(&format!("/{folder}/")))
    };
    let files = entries.iter().flat_map(|entry| &entry.resets);
    let paths = files.map(|(path, _)| path).filter(|path| !goes(path));
    let paths: Vec<&String> = paths.collect();
    if paths.is_empty() {
        return Vec::new();
    }
    let reads = paths.iter().map(|path| read_op(path)).collect();
    let held = paths.into_iter().zip(host.files(reads).await);
    held.filter_map(|(path, reply)| Some((path.clone(), value_of(reply).ok()?)))
        .collect()
}
