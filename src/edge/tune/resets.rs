//! Owns what the kernel sets anew when an I/O scheduler is chosen: it is put back with the scheduler.
//! Does not know the journal.

use super::find::{Found, read_op, value_of};
use crate::edge::host::{FileOp, FileReply, Host};

const SCHEDULER: &str = "/queue/scheduler";
/// Beside the scheduler's own settings, which are in a folder that comes and goes with it
/// (block/blk-mq-sched.c, block/elevator.c).
const BESIDE: [&str; 2] = ["nr_requests", "wbt_lat_usec"];

/// Notes with each scheduler what choosing another one would lose.
pub(super) async fn note(host: &dyn Host, found: &mut [Found]) {
    let is_changed = |file: &&mut Found| file.old != file.wanted;
    let all = found.iter_mut().filter(is_changed);
    let mut schedulers: Vec<(String, &mut Found)> = all
        .filter_map(|file| {
            Some((
                file.path.strip_suffix(SCHEDULER)?.to_owned() + "/queue",
                file,
            ))
        })
        .collect();
    if schedulers.is_empty() {
        return;
    }
    let lists = schedulers.iter().map(|(queue, _)| FileOp::List {
        path: format!("{queue}/iosched").into(),
    });
    let listed = host.files(lists.collect()).await;
    let mut paths: Vec<(usize, String)> = Vec::new();
    for (index, ((queue, _), listed)) in schedulers.iter().zip(listed).enumerate() {
        paths.extend(BESIDE.map(|name| (index, format!("{queue}/{name}"))));
        if let Ok(FileReply::Names(names)) = listed {
            let own = names
                .iter()
                .map(|name| (index, format!("{queue}/iosched/{name}")));
            paths.extend(own);
        }
    }
    let reads = paths.iter().map(|(_, path)| read_op(path)).collect();
    for ((index, path), reply) in paths.into_iter().zip(host.files(reads).await) {
        // One that cannot be read is not there, or is only for writing.
        if let Ok(value) = value_of(reply) {
            schedulers[index].1.resets.push((path, value));
        }
    }
}
