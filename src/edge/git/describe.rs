//! What commits say: their messages, authors and committers.

use super::{GitError, Oid, Repository};

/// Commits that are described in one go.
pub const DESCRIBED_MAX: usize = 20_000;
/// Bytes of a message that are kept.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Bytes of a name or an address that are kept.
const PERSON_BYTES_MAX: usize = 200;
/// Values of a commit in what git prints.
const FIELDS: usize = 8;

/// A commit as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitText {
    pub id: Oid,
    pub author: String,
    pub author_email: String,
    /// Seconds since 1970, UTC.
    pub authored_s: i64,
    pub committer: String,
    pub committer_email: String,
    /// Seconds since 1970, UTC.
    pub committed_s: i64,
    /// The first line is the subject. At most [`MESSAGE_BYTES_MAX`].
    pub message: String,
}

impl Repository {
    /// What the first [`DESCRIBED_MAX`] of these commits say, in any order. One that is not there any more is left out.
    pub fn describe(&self, commits: &[Oid]) -> Result<Vec<CommitText>, GitError> {
        if commits.is_empty() {
            return Ok(Vec::new());
        }
        let ids = commits.iter().take(DESCRIBED_MAX);
        let ids: String = ids.map(|id| format!("{id}\n")).collect();
        // Plumbing: no `log.*` setting changes it.
        let output = self
            .own
            .reading("rev-list")
            .args([
                "--no-walk=unsorted",
                "--ignore-missing",
                "--no-commit-header",
            ])
            .args(["--encoding=UTF-8", "--stdin"])
            .arg("--format=%H%x00%an%x00%ae%x00%at%x00%cn%x00%ce%x00%ct%x00%B%x00")
            .stdin(ids.into_bytes())
            .run()?;
        Ok(parse(&output))
    }
}

fn parse(output: &[u8]) -> Vec<CommitText> {
    let text = String::from_utf8_lossy(output);
    let fields: Vec<&str> = text.split('\0').collect();
    let commits = fields.chunks_exact(FIELDS).filter_map(|fields| {
        let [
            id,
            author,
            author_email,
            at,
            committer,
            committer_email,
            ct,
            message,
        ] = fields
        else {
            return None;
        };
        let person = |text: &str| cut(text, PERSON_BYTES_MAX);
        Some(CommitText {
            // A line feed ends the commit before.
            id: Oid::parse(id.trim_start())?,
            author: person(author),
            author_email: person(author_email),
            // A commit may hold a broken date.
            authored_s: at.parse().unwrap_or(0),
            committer: person(committer),
            committer_email: person(committer_email),
            committed_s: ct.parse().unwrap_or(0),
            message: cut(message.trim_end(), MESSAGE_BYTES_MAX),
        })
    });
    commits.collect()
}

/// The first bytes of a text, as whole characters.
fn cut(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::git::tests::TestRepo;

    #[test]
    fn commits_are_described_with_their_message() {
        let repo = TestRepo::with_history();
        let first = Oid::parse(&repo.git(&["rev-parse", "HEAD~1"])).unwrap();
        repo.write("a", "changed");
        let long = "x".repeat(2 * MESSAGE_BYTES_MAX);
        let message =
            format!("Subject \u{202e}<script>\n\nBody\n\nReviewed-by: B <b@example.org>\n\n{long}");
        let last = Oid::parse(&repo.commit(&message)).unwrap();
        let opened = repo.open();
        let missing = Oid::parse(&"1".repeat(40)).unwrap();
        let mut found = opened
            .describe(&[first.clone(), missing, last.clone()])
            .unwrap();
        found.sort_by_key(|it| it.id != first);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].id, first);
        assert_eq!(found[0].author, "A");
        assert_eq!(found[1].id, last);
        assert!(
            found[1]
                .message
                .starts_with("Subject \u{202e}<script>\n\nBody\n\nReviewed-by: B")
        );
        assert_eq!(found[1].message.len(), MESSAGE_BYTES_MAX);
        assert_eq!(opened.describe(&[]).unwrap(), []);
    }
}
