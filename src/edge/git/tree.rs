//! The content key of a part of a tree, read through one long-lived `git cat-file`.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::rc::Rc;

use super::error::GitError;
use super::{Oid, Own};

use crate::base::key::{Key, KeyHasher};
use crate::base::pattern::{MatchState, Pattern};
use crate::machine::host::local::blocking::Conversation;

/// Bytes of one folder's object (about a million entries).
const TREE_BYTES_MAX: u64 = 64 << 20;
/// Folders within folders.
const DEPTH_MAX: usize = 256;
/// Folders whose outcome is remembered; neighbouring commits share nearly all of theirs.
const FOLDERS_REMEMBERED_MAX: usize = 200_000;
/// Selections whose folders are remembered.
const SELECTIONS_REMEMBERED_MAX: usize = 64;

const MODE_TREE: u32 = 0o040_000;

/// What some patterns mean in one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeDigest {
    /// Of path, mode and object id of everything that matches: for the same patterns, in any
    /// order, the same in two commits exactly when these are.
    pub key: Key,
    /// Indices of patterns that mean nothing in this commit: most often a slip, and one that
    /// would keep a result from ever being measured again.
    pub unmatched: Vec<usize>,
}

/// Reads trees of one object store.
pub(super) struct Trees {
    own: Own,
    process: Option<CatFile>,
    /// Outcomes by selection.
    remembered: HashMap<Selection, Remembered>,
}

/// Outcomes by folder and by how far the patterns had come when it was entered.
type Remembered = HashMap<(Oid, Vec<MatchState>), Rc<WalkOutcome>>;

/// Files that one of the first patterns means and none of the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Selection {
    patterns: Vec<Pattern>,
    /// How many of the patterns choose; those after them leave out.
    choosing: usize,
}

struct TreeEntry {
    mode: u32,
    name: Vec<u8>,
    id: Oid,
}

/// What the patterns mean below one folder.
struct WalkOutcome {
    /// None where they mean nothing: such a folder leaves no trace in the one above.
    key: Option<Key>,
    /// For each pattern whether it means something.
    matched: Vec<bool>,
}

impl Trees {
    pub fn new(own: Own) -> Trees {
        Trees {
            own,
            process: None,
            remembered: HashMap::new(),
        }
    }

    /// What `patterns` mean and `without` do not. No `patterns` at all mean the whole tree.
    pub fn digest(
        &mut self,
        commit: &Oid,
        patterns: &[Pattern],
        without: &[Pattern],
    ) -> Result<TreeDigest, GitError> {
        let whole = Pattern::parse("**").map_err(|why| cat_file_failed(&why))?;
        let choosing = match patterns {
            [] => std::slice::from_ref(&whole),
            patterns => patterns,
        };
        let selection = Selection {
            patterns: [choosing, without].concat(),
            choosing: choosing.len(),
        };
        let (root, bytes) = self.read(&format!("{commit}^{{tree}}"))?;
        let states: Vec<MatchState> = selection.patterns.iter().map(Pattern::start).collect();
        let mut hasher = KeyHasher::new("git tree");
        if without.is_empty() && is_covered(choosing, &states) {
            return Ok(TreeDigest {
                key: hasher.str(root.as_str()).finish(),
                unmatched: Vec::new(),
            });
        }
        let mut remembered = self.remembered.remove(&selection).unwrap_or_default();
        let outcome = self.folder(&selection, &mut remembered, root, Some(bytes), states, 0);
        if self.remembered.len() >= SELECTIONS_REMEMBERED_MAX {
            self.remembered.clear();
        }
        self.remembered.insert(selection, remembered);
        let outcome = outcome?;
        if let Some(key) = outcome.key {
            hasher.key(key);
        }
        Ok(TreeDigest {
            key: hasher.finish(),
            unmatched: (0..choosing.len())
                .filter(|&i| !outcome.matched[i])
                .collect(),
        })
    }

    /// The tree of a commit.
    pub fn root(&mut self, commit: &Oid) -> Result<Oid, GitError> {
        Ok(self.read(&format!("{commit}^{{tree}}"))?.0)
    }

    /// The outcome of a folder that is entered with `states`; `bytes` where it was read already.
    fn folder(
        &mut self,
        selection: &Selection,
        remembered: &mut Remembered,
        id: Oid,
        bytes: Option<Vec<u8>>,
        states: Vec<MatchState>,
        depth: usize,
    ) -> Result<Rc<WalkOutcome>, GitError> {
        if depth > DEPTH_MAX {
            return Err(GitError::TooMuch {
                what: "folders within folders".to_owned(),
                max: DEPTH_MAX as u64,
            });
        }
        let place = (id, states);
        if let Some(outcome) = remembered.get(&place) {
            return Ok(Rc::clone(outcome));
        }
        let (id, states) = &place;
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => self.read(id.as_str())?.1,
        };
        let entries = parse_tree(&bytes, id.as_str().len() / 2)
            .ok_or_else(|| cat_file_failed(&format!("the tree {id} cannot be read")))?;
        let mut hasher = KeyHasher::new("git folder");
        let mut matched = vec![false; states.len()];
        let mut is_empty = true;
        for entry in entries {
            // Names that are not UTF-8 match by their readable form, and are hashed as they are.
            let name = String::from_utf8_lossy(&entry.name);
            let patterns = selection.patterns.iter().zip(states);
            let next: Vec<MatchState> = patterns
                .map(|(pattern, state)| pattern.enter(*state, &name))
                .collect();
            let (choosing, without) = selection.patterns.split_at(selection.choosing);
            let (chosen, left_out) = next.split_at(selection.choosing);
            let is_folder = entry.mode == MODE_TREE;
            let mut is_meant = false;
            if !is_folder {
                for (i, pattern) in selection.patterns.iter().enumerate() {
                    matched[i] |= pattern.accepts(next[i]);
                }
                let mut left_out = without.iter().zip(left_out);
                is_meant = choosing
                    .iter()
                    .zip(chosen)
                    .any(|(p, state)| p.accepts(*state))
                    && !left_out.any(|(p, state)| p.accepts(*state));
            } else if is_covered(without, left_out) {
                for (matched, state) in matched.iter_mut().zip(&next) {
                    *matched |= !state.is_dead();
                }
            } else if is_covered(choosing, chosen) && left_out.iter().all(|s| s.is_dead()) {
                is_meant = true;
                // What other patterns mean below is not looked at: the benefit of the doubt.
                for (matched, state) in matched.iter_mut().zip(&next) {
                    *matched |= !state.is_dead();
                }
            } else if chosen.iter().any(|state| !state.is_dead()) {
                let below = self.folder(
                    selection,
                    remembered,
                    entry.id.clone(),
                    None,
                    next.clone(),
                    depth + 1,
                )?;
                for (matched, below) in matched.iter_mut().zip(&below.matched) {
                    *matched |= below;
                }
                if let Some(key) = below.key {
                    hasher.str("part").bytes(&entry.name).key(key);
                    is_empty = false;
                }
            }
            if is_meant {
                hasher
                    .str("all")
                    .bytes(&entry.name)
                    .bytes(&entry.mode.to_le_bytes())
                    .str(entry.id.as_str());
                is_empty = false;
            }
        }
        let outcome = Rc::new(WalkOutcome {
            key: (!is_empty).then(|| hasher.finish()),
            matched,
        });
        if remembered.len() >= FOLDERS_REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(place, Rc::clone(&outcome));
        Ok(outcome)
    }

    fn read(&mut self, name: &str) -> Result<(Oid, Vec<u8>), GitError> {
        let process = match &mut self.process {
            Some(process) => process,
            None => self.process.insert(CatFile::start(&self.own)?),
        };
        let read = process.read_tree(name);
        if read.is_err() {
            // Its output may be half read: the next look-up starts afresh.
            self.process = None;
        }
        read
    }
}

/// Whether one of the patterns means everything below a folder.
fn is_covered(patterns: &[Pattern], states: &[MatchState]) -> bool {
    let mut both = patterns.iter().zip(states);
    both.any(|(pattern, state)| pattern.covers_below(*state))
}

/// Entries of a tree object: `MODE NAME\0` and the raw id, again and again.
fn parse_tree(mut bytes: &[u8], id_bytes: usize) -> Option<Vec<TreeEntry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|b| *b == b' ')?;
        let mode = u32::from_str_radix(std::str::from_utf8(&bytes[..space]).ok()?, 8).ok()?;
        bytes = &bytes[space + 1..];
        let nul = bytes.iter().position(|b| *b == 0)?;
        let name = bytes[..nul].to_vec();
        bytes = &bytes[nul + 1..];
        let id = Oid::from_bytes(bytes.get(..id_bytes)?);
        bytes = &bytes[id_bytes..];
        entries.push(TreeEntry { mode, name, id });
    }
    Some(entries)
}

/// A running `git cat-file --batch`.
struct CatFile(Conversation);

impl CatFile {
    fn start(own: &Own) -> Result<CatFile, GitError> {
        let call = own.reading("cat-file").arg("--batch");
        Ok(CatFile(call.talk()?))
    }

    fn read_tree(&mut self, name: &str) -> Result<(Oid, Vec<u8>), GitError> {
        let broken = |error: std::io::Error| cat_file_failed(&error.to_string());
        let stdout = self.0.ask(name).map_err(broken)?;
        let mut head = String::new();
        // An answer's head is an id, a type and a size, or the name and `missing`.
        stdout
            .by_ref()
            .take(4096)
            .read_line(&mut head)
            .map_err(broken)?;
        let fields: Vec<&str> = head.split_whitespace().collect();
        let (id, size) = match fields[..] {
            [id, "tree", size] => (Oid::parse(id), size.parse::<u64>().ok()),
            [name, "missing"] => {
                return Err(cat_file_failed(&format!(
                    "the object {name} is missing (a shallow or partial clone lacks some)"
                )));
            }
            _ => (None, None),
        };
        let (Some(id), Some(size)) = (id, size) else {
            return Err(cat_file_failed(&format!("it answered `{}`", head.trim())));
        };
        if size > TREE_BYTES_MAX {
            return Err(GitError::TooMuch {
                what: format!("bytes in the tree {id}"),
                max: TREE_BYTES_MAX,
            });
        }
        let mut bytes = vec![0; size as usize + 1];
        stdout.read_exact(&mut bytes).map_err(broken)?;
        // The newline that ends an answer.
        bytes.pop();
        Ok((id, bytes))
    }
}

fn cat_file_failed(words: &str) -> GitError {
    GitError::Failed {
        command: "cat-file".to_owned(),
        words: words.to_owned(),
    }
}
