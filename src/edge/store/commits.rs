//! Which commits the versions of sessions were, and what these say.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use super::{Position, Store, StoreError};
use crate::edge::git::{CommitText, Oid};

/// What a version of a session was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownCommit {
    pub session: i64,
    /// As cell names have it.
    pub version: String,
    pub commit: String,
    /// Where it stands in the subject's history; None where that is not known.
    pub position: Option<Position>,
}

impl Store {
    /// The commits that versions of a matrix were, the earliest session first.
    pub fn known_commits(&self, matrix: &str) -> Result<Vec<KnownCommit>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT session, version, commit_id, position_ms, depth
                     FROM version_commit JOIN session ON session.id = session
                     WHERE matrix = ?1 ORDER BY session, version",
                )?
                .query_map([matrix], |row| {
                    Ok(KnownCommit {
                        session: row.get(0)?,
                        version: row.get(1)?,
                        commit: row.get(2)?,
                        position: match (row.get(3)?, row.get(4)?) {
                            (Some(ms), Some(depth)) => Some(Position { ms, depth }),
                            _ => None,
                        },
                    })
                })?
                .collect()
        };
        self.sqlite(read())
    }

    /// What commits say, by their hashes, as far as it was noted.
    pub fn commit_texts<'a>(
        &self,
        commits: impl Iterator<Item = &'a str>,
    ) -> Result<HashMap<String, CommitText>, StoreError> {
        let mut texts = HashMap::new();
        for commit in commits {
            let Some(id) = Oid::parse(commit) else {
                continue;
            };
            let read = || {
                self.db
                    .prepare_cached(
                        "SELECT author, author_email, authored_s, committer, committer_email, committed_s, message
                         FROM commit_text WHERE commit_id = ?1",
                    )?
                    .query_row([commit], |row| {
                        Ok(CommitText {
                            id: id.clone(),
                            author: row.get(0)?,
                            author_email: row.get(1)?,
                            authored_s: row.get(2)?,
                            committer: row.get(3)?,
                            committer_email: row.get(4)?,
                            committed_s: row.get(5)?,
                            message: row.get(6)?,
                        })
                    })
                    .optional()
            };
            let text = self.sqlite(read())?;
            texts.extend(text.map(|text| (commit.to_owned(), text)));
        }
        Ok(texts)
    }

    /// The commits of a matrix of which it is not known what they say.
    pub fn commits_without_text(&self, matrix: &str) -> Result<Vec<String>, StoreError> {
        let read = || {
            self.db
                .prepare_cached(
                    "SELECT DISTINCT commit_id FROM version_commit JOIN session ON session.id = session
                     WHERE matrix = ?1 AND commit_id NOT IN (SELECT commit_id FROM commit_text)",
                )?
                .query_map([matrix], |row| row.get(0))?
                .collect()
        };
        self.sqlite(read())
    }

    /// Notes what commits say.
    pub fn put_commit_texts(&self, commits: &[CommitText]) -> Result<(), StoreError> {
        let write = || {
            let transaction = self.db.unchecked_transaction()?;
            for commit in commits {
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO commit_text
                             (commit_id, author, author_email, authored_s,
                              committer, committer_email, committed_s, message)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    )?
                    .execute(params![
                        commit.id.as_str(),
                        commit.author,
                        commit.author_email,
                        commit.authored_s,
                        commit.committer,
                        commit.committer_email,
                        commit.committed_s,
                        commit.message
                    ])?;
            }
            transaction.commit()
        };
        self.sqlite(write())
    }
}
