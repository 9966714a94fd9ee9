//! How a version of a subject is written: `REV`, `A..B`, `REV+series.mbox`, with a label.

use std::path::PathBuf;

use super::error::GitError;

/// Bytes of a version as it is written.
pub const VERSION_BYTES_MAX: usize = 1024;
/// Bytes of a label.
pub const LABEL_BYTES_MAX: usize = 64;

/// One `--version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSpec {
    /// The name that a user gave it.
    pub label: Option<String>,
    pub source: VersionSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// A branch, tag or hash.
    Revision(String),
    /// `A..B`: what [`super::Repository::range`] takes.
    Range(String),
    /// Patches on top of a commit.
    Patched { revision: String, mbox: PathBuf },
}

/// Reads `[LABEL=]REV`, `A..B` or `[LABEL=]REV+FILE`.
///
/// FILE ends in `.mbox`, `.patch` or `.diff` and begins after the last `+` (tags may hold one:
/// `v7.2+dfsg`). A label is made of letters, digits, `.`, `_` and `-`; it ends at the first `=`.
pub fn parse_version(text: &str) -> Result<VersionSpec, GitError> {
    let bad = |why: &str| {
        Err(GitError::BadVersion {
            text: text.chars().take(80).collect(),
            why: why.to_owned(),
        })
    };
    if text.len() > VERSION_BYTES_MAX {
        return bad(&format!("it is longer than {VERSION_BYTES_MAX} bytes"));
    }
    let (label, rest) = match text.split_once('=') {
        Some(("", _)) => return bad("the label before `=` is empty"),
        Some((label, rest)) if !label.starts_with('-') && label.bytes().all(is_label_byte) => {
            (Some(label), rest)
        }
        _ => (None, text),
    };
    if label.is_some_and(|label| label.len() > LABEL_BYTES_MAX) {
        return bad(&format!("its label is longer than {LABEL_BYTES_MAX} bytes"));
    }
    let is_patched = [".mbox", ".patch", ".diff"]
        .iter()
        .any(|end| rest.ends_with(end));
    let source = match rest.rsplit_once('+') {
        Some((revision, mbox)) if is_patched => VersionSource::Patched {
            revision: revision.to_owned(),
            mbox: PathBuf::from(mbox),
        },
        _ if rest.contains("..") => VersionSource::Range(rest.to_owned()),
        _ => VersionSource::Revision(rest.to_owned()),
    };
    match &source {
        VersionSource::Revision(revision) | VersionSource::Patched { revision, .. } => {
            check_revision(revision)?;
        }
        VersionSource::Range(range) => {
            split_range(range)?;
            if label.is_some() {
                return bad("a range is many versions and cannot have a label");
            }
        }
    }
    Ok(VersionSpec {
        label: label.map(str::to_owned),
        source,
    })
}

/// The two ends of `A..B`.
pub(super) fn split_range(range: &str) -> Result<(&str, &str), GitError> {
    let bad = |why: &str| {
        Err(GitError::BadVersion {
            text: range.to_owned(),
            why: why.to_owned(),
        })
    };
    if range.contains("...") {
        return bad("write a range with two dots, `A..B`");
    }
    match range.split_once("..") {
        Some(("", _) | (_, "")) => bad("a range needs both ends, `A..B`"),
        Some((from, to)) => {
            check_revision(from)?;
            check_revision(to)?;
            Ok((from, to))
        }
        None => bad("a range is written `A..B`"),
    }
}

/// What git could take for an option, an exclusion or a range is refused.
pub(super) fn check_revision(revision: &str) -> Result<(), GitError> {
    let why = match revision {
        "" => "the revision is empty; write a branch, tag or hash",
        r if r.len() > VERSION_BYTES_MAX => "it is too long",
        r if r.starts_with(['-', '^']) => "a revision cannot begin with `-` or `^`",
        r if r.contains("..") => "this is a range; one commit is wanted",
        r if r.contains(char::is_control) => "it holds a control character",
        _ => return Ok(()),
    };
    Err(GitError::BadVersion {
        text: revision.chars().take(80).collect(),
        why: why.to_owned(),
    })
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let check = |text: &str, label: Option<&str>, source: VersionSource| {
            let expected = VersionSpec {
                label: label.map(str::to_owned),
                source,
            };
            assert_eq!(parse_version(text), Ok(expected), "{text}");
        };
        let revision = |r: &str| VersionSource::Revision(r.to_owned());
        let patched = |r: &str, mbox: &str| VersionSource::Patched {
            revision: r.to_owned(),
            mbox: PathBuf::from(mbox),
        };
        check("v9.0.1", None, revision("v9.0.1"));
        check("old=v9.0.1", Some("old"), revision("v9.0.1"));
        check("HEAD~3", None, revision("HEAD~3"));
        check("debian/1%7.2+dfsg-7", None, revision("debian/1%7.2+dfsg-7"));
        check("feature/a=b", None, revision("feature/a=b"));
        check("a..b", None, VersionSource::Range("a..b".to_owned()));
        check("v9+s.mbox", None, patched("v9", "s.mbox"));
        check(
            "mine=v9+../x/s.mbox",
            Some("mine"),
            patched("v9", "../x/s.mbox"),
        );
        check("v7+dfsg+fix.patch", None, patched("v7+dfsg", "fix.patch"));
    }

    #[test]
    fn what_is_not_a_version() {
        let check = |text: &str, part: &str| {
            let error = parse_version(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        };
        check("", "empty");
        check("x=", "empty");
        check("=v9", "label before `=` is empty");
        check("--upload-pack=x", "cannot begin with `-`");
        check("+s.mbox", "empty");
        check("a...b", "two dots");
        check("a..", "both ends");
        check("..b", "both ends");
        check("a..b..c", "this is a range");
        check("x=a..b", "cannot have a label");
        check("a\nb", "control character");
        check(&"x".repeat(VERSION_BYTES_MAX + 1), "longer");
        check(
            &format!("{}=v9", "x".repeat(LABEL_BYTES_MAX + 1)),
            "label is longer",
        );
    }
}
