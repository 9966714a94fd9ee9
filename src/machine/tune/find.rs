//! The way from knobs to files: patterns are expanded, files are read, what is missing is told.

use std::collections::HashMap;
use std::path::Path;

use super::{Refusal, SMT_CONTROL, is_away, resets};
use crate::config::profile::{Dependency, Knob, glob_matches};
use crate::machine::host::{FileOp, FileReply, Host, HostError, HostErrorKind};

/// Files that one profile may reach.
pub const FILES_MAX: usize = 8192;
/// A value at the most: sysfs gives a page; a list of interrupts of a large machine is longer.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Files of which one being set clears the other to 0, which cannot be written.
const CLEARED_BY: [(&str, &str); 4] = [
    ("dirty_bytes", "dirty_ratio"),
    ("dirty_ratio", "dirty_bytes"),
    ("dirty_background_bytes", "dirty_background_ratio"),
    ("dirty_background_ratio", "dirty_background_bytes"),
];

/// What the file of SMT holds where there is none to switch off, and takes nothing
/// (Documentation/ABI/testing/sysfs-devices-system-cpu).
const SMT_NONE: [&str; 3] = ["forceoff", "notsupported", "notimplemented"];

/// One file of a knob, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFiles {
    /// Index of the knob in the profile.
    pub knob: usize,
    pub path: String,
    pub old: String,
    pub wanted: String,
    /// See [`super::journal::Entry::restore_by`].
    pub restore_by: Option<(String, String)>,
    /// See [`super::journal::Entry::resets`].
    pub resets: Vec<(String, String)>,
}

/// The files of all knobs, and the knobs that have none or cannot be read.
pub(super) async fn find(
    host: &dyn Host,
    knobs: &[Knob],
) -> Result<(Vec<FoundFiles>, Vec<(usize, Refusal)>), HostError> {
    let candidates = expand(host, knobs).await?;
    let reads = read_all(host, knobs, &candidates).await;
    let mut found: Vec<FoundFiles> = Vec::new();
    let mut missing = Vec::new();
    for (index, knob) in knobs.iter().enumerate() {
        let of_choice = |choice: usize| {
            let ours = candidates.iter().enumerate();
            ours.filter(move |(_, c)| c.knob == index && c.choice == choice)
                .map(|(place, c)| (c, &reads[place]))
        };
        let used = (0..knob.choices.len())
            .find(|&choice| of_choice(choice).any(|(_, read)| *read != Read::Absent));
        let Some(used) = used else {
            let patterns: Vec<&str> = knob.choices.iter().map(|c| c.pattern.as_str()).collect();
            let reason = match knob.choices.iter().any(|c| c.beside.is_some()) {
                true => "this machine has no such file, or none that fits".to_owned(),
                false => "this machine has no such file".to_owned(),
            };
            let (path, wanted) = (patterns.join(" or "), &knob.choices[0].value);
            missing.push((index, Refusal::of(knob, &path, wanted, reason)));
            continue;
        };
        let wanted = &knob.choices[used].value;
        for (candidate, read) in of_choice(used) {
            let refuse = |reason: String| Refusal::of(knob, &candidate.path, wanted, reason);
            match read {
                Read::Absent => {}
                Read::Failed(reason) => {
                    let reason =
                        format!("it cannot be read, so it could not be put back: {reason}");
                    missing.push((index, refuse(reason)));
                }
                Read::Value { old, restore_by } => found.push(FoundFiles {
                    knob: index,
                    path: candidate.path.clone(),
                    old: old.clone(),
                    wanted: match candidate.path == SMT_CONTROL && wanted == "off" {
                        true if SMT_NONE.contains(&old.as_str()) => old.clone(),
                        _ => wanted.clone(),
                    },
                    restore_by: restore_by.clone(),
                    resets: Vec::new(),
                }),
            }
        }
    }
    refuse_overlaps(knobs, &mut found, &mut missing);
    resets::note(host, &mut found).await;
    Ok((found, missing))
}

/// Two knobs that reach one file: fine when they agree, else neither is right.
fn refuse_overlaps(
    knobs: &[Knob],
    found: &mut Vec<FoundFiles>,
    missing: &mut Vec<(usize, Refusal)>,
) {
    let mut first: HashMap<String, (usize, String)> = HashMap::new();
    found.retain(|file| match first.get(&file.path) {
        None => {
            first.insert(file.path.clone(), (file.knob, file.wanted.clone()));
            true
        }
        Some((_, wanted)) if *wanted == file.wanted => false,
        Some((other, wanted)) => {
            let reason = format!("`{}` wants `{wanted}` there", knobs[*other].name);
            let refusal = Refusal::of(&knobs[file.knob], &file.path, &file.wanted, reason);
            missing.push((file.knob, refusal));
            false
        }
    });
}

/// A file that a pattern may mean.
struct KnobCandidate {
    knob: usize,
    choice: usize,
    path: String,
}

/// Expands all patterns together: one round trip for each level at which a pattern has a wildcard.
async fn expand(host: &dyn Host, knobs: &[Knob]) -> Result<Vec<KnobCandidate>, HostError> {
    struct Open<'k> {
        knob: usize,
        choice: usize,
        done: String,
        rest: &'k str,
    }
    let mut done = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    for (knob, declared) in knobs.iter().enumerate() {
        for (choice, declared) in declared.choices.iter().enumerate() {
            open.push(Open {
                knob,
                choice,
                done: String::new(),
                rest: &declared.pattern,
            });
        }
    }
    let mut names: HashMap<String, Vec<String>> = HashMap::new();
    while !open.is_empty() {
        let mut folders: Vec<String> = Vec::new();
        let mut waiting = Vec::new();
        for mut item in open {
            let (literal, wild) = split_at_wildcard(item.rest);
            item.done.push_str(literal);
            item.rest = wild;
            match wild {
                "" => done.push(KnobCandidate {
                    knob: item.knob,
                    choice: item.choice,
                    path: item.done,
                }),
                _ => {
                    if !names.contains_key(&item.done) && !folders.contains(&item.done) {
                        folders.push(item.done.clone());
                    }
                    waiting.push(item);
                }
            }
        }
        let ops = folders.iter().map(|folder| FileOp::List {
            path: folder.into(),
        });
        let replies = match folders.is_empty() {
            true => Vec::new(),
            false => host.files(ops.collect()).await,
        };
        for (folder, reply) in folders.into_iter().zip(replies) {
            let listed = match reply {
                Ok(FileReply::Names(listed)) => listed,
                // A folder that is not there has no files that match.
                _ => Vec::new(),
            };
            names.insert(folder, listed);
        }
        open = Vec::new();
        for item in waiting {
            let (pattern, rest) = item
                .rest
                .split_at(item.rest.find('/').unwrap_or(item.rest.len()));
            for name in names.get(&item.done).into_iter().flatten() {
                if glob_matches(pattern, name) {
                    open.push(Open {
                        done: format!("{}{name}", item.done),
                        rest,
                        ..item
                    });
                }
            }
        }
        if open.len() + done.len() > FILES_MAX {
            return Err(HostError {
                message: format!("the profile reaches more than {FILES_MAX} files"),
                kind: HostErrorKind::TooLarge,
            });
        }
    }
    done.sort_by_key(|candidate| (candidate.knob, candidate.choice));
    Ok(done)
}

/// The part of a pattern before the component with its first wildcard, and the rest.
fn split_at_wildcard(pattern: &str) -> (&str, &str) {
    match pattern.find(['*', '?']) {
        None => (pattern, ""),
        Some(wildcard) => {
            let component = pattern[..wildcard].rfind('/').map_or(0, |slash| slash + 1);
            pattern.split_at(component)
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// Not there, or what must stand beside it does not.
    Absent,
    Failed(String),
    Value {
        old: String,
        restore_by: Option<(String, String)>,
    },
}

/// Reads all candidates, with what must stand beside them, in one round trip.
async fn read_all(host: &dyn Host, knobs: &[Knob], candidates: &[KnobCandidate]) -> Vec<Read> {
    let beside = |c: &KnobCandidate| knobs[c.knob].choices[c.choice].beside.as_ref();
    let mut ops = Vec::new();
    for candidate in candidates {
        ops.push(read_op(&candidate.path));
        let folder = Path::new(&candidate.path)
            .parent()
            .unwrap_or(Path::new("/"));
        match beside(candidate) {
            None => {}
            Some(Dependency::Reads { file, .. }) => ops.push(FileOp::Read {
                path: folder.join(file),
                bytes_max: VALUE_BYTES_MAX,
            }),
            Some(Dependency::Entry { .. }) => ops.push(FileOp::List {
                path: folder.into(),
            }),
        }
        ops.extend(cleared_by(&candidate.path).map(|other| read_op(&other)));
    }
    let mut replies = host.files(ops).await.into_iter();
    let mut next = || replies.next().unwrap_or(Ok(FileReply::Done));
    let mut reads = Vec::new();
    for candidate in candidates {
        let own = next();
        let fits = match beside(candidate) {
            None => true,
            Some(Dependency::Reads { pattern, .. }) => {
                value_of(next()).is_ok_and(|text| glob_matches(pattern, &text))
            }
            Some(Dependency::Entry { pattern }) => match next() {
                Ok(FileReply::Names(names)) => names.iter().any(|name| glob_matches(pattern, name)),
                _ => false,
            },
        };
        let other = cleared_by(&candidate.path).map(|other| (other, value_of(next())));
        reads.push(match value_of(own) {
            _ if !fits => Read::Absent,
            Err(error) if is_away(&error) => Read::Absent,
            Err(error) => Read::Failed(error.message),
            Ok(old) => Read::Value {
                restore_by: match other {
                    Some((other, Ok(value))) if old == "0" => Some((other, value)),
                    _ => None,
                },
                old,
            },
        });
    }
    reads
}

/// The file that writing `path` sets to 0.
fn cleared_by(path: &str) -> Option<String> {
    let name = path.strip_prefix("/proc/sys/vm/")?;
    let (_, other) = CLEARED_BY.iter().find(|(one, _)| *one == name)?;
    Some(format!("/proc/sys/vm/{other}"))
}

pub(super) fn read_op(path: &str) -> FileOp {
    FileOp::Read {
        path: path.into(),
        bytes_max: VALUE_BYTES_MAX,
    }
}

pub(super) fn write_op(path: &str, value: &str) -> FileOp {
    FileOp::Write {
        path: path.into(),
        bytes: format!("{value}\n").into_bytes(),
    }
}

/// The value that a read file holds.
pub(super) fn value_of(reply: Result<FileReply, HostError>) -> Result<String, HostError> {
    match reply? {
        FileReply::Bytes(bytes) => Ok(value_in(&String::from_utf8_lossy(&bytes))),
        _ => Ok(String::new()),
    }
}

/// The value in a file's text: the word in brackets where the file shows all that it could hold
/// (`always [madvise] never`), else all words with single blanks.
pub(in crate::machine) fn value_in(text: &str) -> String {
    let selected = text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match selected.collect::<Vec<_>>()[..] {
        [selected] if !text.trim_end().contains('\n') => selected.to_owned(),
        _ => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Whether a file that holds `found` holds what was `wanted`: the kernel may write a number in
/// another way (`0x10`, `+1`).
pub(super) fn same(wanted: &str, found: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        // A leading zero means octal to some files and nothing to others.
        None if text.len() > 1 && text.starts_with('0') => None,
        None => text.parse::<i128>().ok(),
    };
    wanted == found || matches!((number(wanted), number(found)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_in_a_file() {
        let check = |text, expected| assert_eq!(value_in(text), expected, "{text}");
        check("always [madvise] never\n", "madvise");
        check("[none]\n", "none");
        check("4096\t131072\t6291456\n", "4096 131072 6291456");
        check("10\n", "10");
        check("", "");
        check("[a] [b]", "[a] [b]");
        check("x [y]\nz\n", "x [y] z");
    }

    #[test]
    fn numbers_are_the_same_however_they_are_written() {
        let check = |a, b, expected| assert_eq!(same(a, b), expected, "{a} and {b}");
        check("0x10", "16", true);
        check("010", "10", false);
        check("0", "0", true);
        check("never", "never", true);
        check("never", "always", false);
        check("1 2", "1 3", false);
        check("", "0", false);
    }

    #[test]
    fn wildcards_split_patterns() {
        let check = |pattern, expected| assert_eq!(split_at_wildcard(pattern), expected);
        check("/sys/block/nvme*/queue/x", ("/sys/block/", "nvme*/queue/x"));
        check("/queue/x", ("/queue/x", ""));
        check("/cpuidle/state?/disable", ("/cpuidle/", "state?/disable"));
    }
}
