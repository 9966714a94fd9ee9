//! What a matrix says about its nights: which commits are measured, and who is mailed.

use std::time::Duration;

/// `[nightly]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NightlyDecl {
    /// The revision that is followed.
    pub branch: String,
    pub pick: Pick,
    /// Measuring stops after it.
    pub budget: Option<Duration>,
    /// The preset, where the command line names none.
    pub preset: Option<String>,
}

impl Default for NightlyDecl {
    fn default() -> Self {
        NightlyDecl {
            branch: "HEAD".to_owned(),
            pick: Pick::All,
            budget: None,
            preset: None,
        }
    }
}

/// Which of the new commits are measured. The tip always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    All,
    Every(usize),
    Tip,
}

impl Pick {
    /// The indexes of those that are picked of `commits`, ascending.
    pub fn of(self, commits: usize) -> Vec<usize> {
        let step = match self {
            Pick::All => 1,
            Pick::Every(step) => step.max(1),
            Pick::Tip => commits.max(1),
        };
        // Counted from the tip, which is what stays.
        let mut picked: Vec<usize> = (0..commits).rev().step_by(step).collect();
        picked.reverse();
        picked
    }
}

/// `[mail]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailDecl {
    pub from: String,
    pub to: Vec<String>,
    /// Who else, of the people of the culprit.
    pub cc: Vec<CommitRole>,
    /// Addresses that may be mailed, such as `*@example.org`; those in `to` may be.
    pub allow: Vec<String>,
    pub transport: MailTransport,
}

/// Somebody whom a commit names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitRole {
    Author,
    Committer,
    /// `Reviewed-by`, `Acked-by` and `Reported-by`.
    Trailers,
}

/// How a mail is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailTransport {
    /// The command reads the mail on standard input; `-i -f FROM -- TO…` is added.
    Sendmail(String),
    /// Each mail is a file in this folder, relative to the matrix file.
    Folder(String),
}

impl MailDecl {
    /// Whether an address may be mailed, whatever its case. `*` stands for any text.
    pub fn allows(&self, address: &str) -> bool {
        let address = address.to_ascii_lowercase();
        let mut patterns = self.allow.iter().chain(&self.to);
        patterns.any(|pattern| {
            let pattern = pattern.to_ascii_lowercase();
            match pattern.split_once('*') {
                None => pattern == address,
                Some((before, after)) => {
                    address.len() >= before.len() + after.len()
                        && address.starts_with(before)
                        && address.ends_with(after)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tip_is_always_picked() {
        let check = |pick: Pick, commits: usize, expected: &[usize]| {
            assert_eq!(pick.of(commits), expected);
        };
        check(Pick::All, 3, &[0, 1, 2]);
        check(Pick::Every(2), 5, &[0, 2, 4]);
        check(Pick::Every(3), 5, &[1, 4]);
        check(Pick::Tip, 5, &[4]);
        check(Pick::Tip, 0, &[]);
        check(Pick::All, 0, &[]);
    }

    #[test]
    fn nobody_else_is_allowed() {
        let mail = MailDecl {
            from: "m@lab.example.org".to_owned(),
            to: vec!["perf@example.org".to_owned()],
            cc: Vec::new(),
            allow: vec!["*@Lab.example.org".to_owned()],
            transport: MailTransport::Sendmail("sendmail".to_owned()),
        };
        assert!(mail.allows("Perf@example.org"));
        assert!(mail.allows("a@lab.example.org"));
        assert!(!mail.allows("a@example.org"));
        assert!(!mail.allows("a@lab.example.org.evil.example"));
        assert!(!mail.allows("x@evil.example perf@example.org"));
    }
}
