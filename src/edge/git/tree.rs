//! Owns the content key of a part of a tree, read through one long-lived `git cat-file`.
//! Does not know which commits are of interest, nor why.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::rc::Rc;

use super::error::GitError;
use super::{Oid, Own};

use crate::words::key::{Key, KeyHasher};
use crate::words::pattern::{Pattern, State};

/// Bytes of one folder's object (about a million entries).
const TREE_BYTES_MAX: u64 = 64 << 20;
/// Folders within folders.
const DEPTH_MAX: usize = 256;
/// Folders kept in memory; neighbouring commits share nearly all of theirs.
const TREES_CACHED_MAX: usize = 20_000;

const MODE_TREE: u32 = 0o040_000;

/// What some patterns mean in one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeDigest {
    /// Of path, mode and object id of everything that matches: the same in two commits exactly
    /// when these are. It does not depend on the order of the patterns.
    pub key: Key,
    /// Indices of patterns that mean nothing in this commit: most often a slip, and one that
    /// would keep a result from ever being measured again.
    pub unmatched: Vec<usize>,
}

/// Reads trees of one object store.
pub(super) struct Trees {
    own: Own,
    process: Option<CatFile>,
    cache: HashMap<Oid, Rc<[Entry]>>,
}

struct Entry {
    mode: u32,
    name: Vec<u8>,
    id: Oid,
}

/// One walk over a tree, with what it has found.
struct Walk<'a> {
    patterns: &'a [Pattern],
    matched: Vec<bool>,
    hasher: KeyHasher,
    /// Of the folder that is being read, with a slash at its end.
    path: Vec<u8>,
}

impl Trees {
    pub fn new(own: Own) -> Trees {
        Trees {
            own,
            process: None,
            cache: HashMap::new(),
        }
    }

    /// No patterns at all mean the whole tree.
    pub fn digest(&mut self, commit: &Oid, patterns: &[Pattern]) -> Result<TreeDigest, GitError> {
        let mut walk = Walk {
            patterns,
            matched: vec![false; patterns.len()],
            hasher: KeyHasher::new("git tree"),
            path: Vec::new(),
        };
        let (root, entries) = self.root(commit)?;
        let states: Vec<State> = patterns.iter().map(Pattern::start).collect();
        if patterns.is_empty() || walk.is_covered(&states) {
            walk.found(b"", MODE_TREE, &root);
            walk.matched.fill(true);
        } else {
            self.walk(&mut walk, &entries, &states, 0)?;
        }
        let unmatched = (0..patterns.len()).filter(|&i| !walk.matched[i]);
        Ok(TreeDigest {
            key: walk.hasher.finish(),
            unmatched: unmatched.collect(),
        })
    }

    fn walk(
        &mut self,
        walk: &mut Walk,
        entries: &[Entry],
        states: &[State],
        depth: usize,
    ) -> Result<(), GitError> {
        if depth > DEPTH_MAX {
            return Err(GitError::TooMuch {
                what: "folders within folders".to_owned(),
                max: DEPTH_MAX as u64,
            });
        }
        for entry in entries {
            // Names that are not UTF-8 match by their readable form, and are hashed as they are.
            let name = String::from_utf8_lossy(&entry.name);
            let next: Vec<State> = walk
                .patterns
                .iter()
                .zip(states)
                .map(|(pattern, state)| pattern.enter(*state, &name))
                .collect();
            let is_tree = entry.mode == MODE_TREE;
            let is_meant = if is_tree {
                walk.is_covered(&next)
            } else {
                walk.is_accepted(&next)
            };
            if is_meant {
                walk.found(&entry.name, entry.mode, &entry.id);
            } else if is_tree && next.iter().any(|state| !state.is_dead()) {
                let below = self.entries(&entry.id)?;
                let parent = walk.path.len();
                walk.path.extend_from_slice(&entry.name);
                walk.path.push(b'/');
                self.walk(walk, &below, &next, depth + 1)?;
                walk.path.truncate(parent);
            }
        }
        Ok(())
    }

    fn root(&mut self, commit: &Oid) -> Result<(Oid, Rc<[Entry]>), GitError> {
        let (id, bytes) = self.read(&format!("{commit}^{{tree}}"))?;
        let entries = match self.cache.get(&id) {
            Some(entries) => Rc::clone(entries),
            None => self.keep(&id, &bytes)?,
        };
        Ok((id, entries))
    }

    fn entries(&mut self, tree: &Oid) -> Result<Rc<[Entry]>, GitError> {
        if let Some(entries) = self.cache.get(tree) {
            return Ok(Rc::clone(entries));
        }
        let (id, bytes) = self.read(tree.as_str())?;
        self.keep(&id, &bytes)
    }

    fn keep(&mut self, id: &Oid, bytes: &[u8]) -> Result<Rc<[Entry]>, GitError> {
        let id_bytes = id.as_str().len() / 2;
        let entries: Rc<[Entry]> = parse_tree(bytes, id_bytes)
            .ok_or_else(|| cat_file_failed(&format!("the tree {id} cannot be read")))?
            .into();
        if self.cache.len() >= TREES_CACHED_MAX {
            self.cache.clear();
        }
        self.cache.insert(id.clone(), Rc::clone(&entries));
        Ok(entries)
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

impl Walk<'_> {
    /// Whether everything below the folder is meant; notes which patterns reach into it.
    fn is_covered(&mut self, states: &[State]) -> bool {
        let mut all = self.patterns.iter().zip(states);
        let covered = all.any(|(pattern, state)| pattern.covers_below(*state));
        if covered {
            // What other patterns find below is not looked at: the benefit of the doubt.
            for (matched, state) in self.matched.iter_mut().zip(states) {
                *matched |= !state.is_dead();
            }
        }
        covered
    }

    fn is_accepted(&mut self, states: &[State]) -> bool {
        let mut any = false;
        for (i, pattern) in self.patterns.iter().enumerate() {
            if pattern.accepts(states[i]) {
                self.matched[i] = true;
                any = true;
            }
        }
        any
    }

    fn found(&mut self, name: &[u8], mode: u32, id: &Oid) {
        let path = [&self.path, name].concat();
        self.hasher
            .bytes(&path)
            .bytes(&mode.to_le_bytes())
            .str(id.as_str());
    }
}

/// Entries of a tree object: `MODE NAME\0` and the raw id, again and again.
fn parse_tree(mut bytes: &[u8], id_bytes: usize) -> Option<Vec<Entry>> {
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
        entries.push(Entry { mode, name, id });
    }
    Some(entries)
}

/// A running `git cat-file --batch`.
struct CatFile {
    child: Child,
    /// None only while it is being ended.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl CatFile {
    fn start(own: &Own) -> Result<CatFile, GitError> {
        let mut child = own.reading("cat-file").arg("--batch").spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(CatFile {
                child,
                stdin: Some(stdin),
                stdout: BufReader::new(stdout),
            }),
            _ => Err(cat_file_failed("it was started without pipes")),
        }
    }

    fn read_tree(&mut self, name: &str) -> Result<(Oid, Vec<u8>), GitError> {
        let broken = |error: std::io::Error| cat_file_failed(&error.to_string());
        if let Some(stdin) = &mut self.stdin {
            stdin
                .write_all(format!("{name}\n").as_bytes())
                .map_err(broken)?;
        }
        let mut head = String::new();
        // An answer's head is an id, a type and a size, or the name and `missing`.
        (&mut self.stdout)
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
        self.stdout.read_exact(&mut bytes).map_err(broken)?;
        // The newline that ends an answer.
        bytes.pop();
        Ok((id, bytes))
    }
}

impl Drop for CatFile {
    fn drop(&mut self) {
        // It ends when its input does, unless it is in the midst of an answer.
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cat_file_failed(words: &str) -> GitError {
    GitError::Failed {
        command: "cat-file".to_owned(),
        words: words.to_owned(),
    }
}
