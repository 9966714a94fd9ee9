//! Patches on top of a commit: an mbox becomes commits in our own repository.

use std::path::Path;

use super::error::GitError;
use super::program::Call;
use super::{Commit, Oid, Repository, files, list_commits, lock, parse_commits};

/// Bytes of an mbox.
pub const MBOX_BYTES_MAX: u64 = 64 << 20;
/// Mails in an mbox.
pub const PATCHES_MAX: usize = 1000;

/// The committer of a commit made of patches. It never changes, and neither does the date (the
/// base's): the same patches on the same base give the same id on every machine.
const COMMITTER: (&str, &str) = ("matrix", "matrix@localhost");

/// Keeps a commit that we made, and tells it from the source's.
pub(super) fn applied_ref(id: &Oid) -> String {
    format!("refs/matrix/applied/{id}")
}

/// One mail of the series.
struct Mail {
    subject: String,
    author: String,
    email: String,
    date: String,
    message: Vec<u8>,
    diff: Vec<u8>,
}

impl Repository {
    /// Applies the patches of an mbox (or one plain diff) in order on top of a commit, as `git am`
    /// does, and returns the last commit. Mails without a diff, such as a cover letter, are
    /// passed over. No work tree is needed or touched.
    pub fn apply(&self, base: &Commit, mbox: &Path) -> Result<Commit, GitError> {
        let path = mbox.display().to_string();
        let bad = |why: String| GitError::BadPatches {
            path: path.clone(),
            why,
        };
        let missing = || bad("there is no such file".to_owned());
        let mbox = files::resolve(mbox)?.ok_or_else(missing)?;
        let facts = files::facts(&mbox).ok_or_else(missing)?;
        if !facts.is_file {
            return Err(bad("it is not a file".to_owned()));
        }
        if facts.bytes > MBOX_BYTES_MAX {
            return Err(bad(format!("it is longer than {MBOX_BYTES_MAX} bytes")));
        }
        // The index and the mails. One at a time, so that what a killed run left goes away here.
        let scratch = self.own.git_dir.join("apply");
        let _lock = lock::take(&self.own.git_dir.join("apply.lock"), self.timeout)?;
        files::remove(&scratch)?;
        files::make_dir(&scratch)?;
        let mails = self.split(&mbox, &scratch, &bad)?;

        let index = scratch.join("index");
        self.copy_objects(base, &mails)?;
        let call = |name| self.own.writing(name).env("GIT_INDEX_FILE", &index);
        call("read-tree").arg(base.id.as_str()).run()?;
        let mut tip = base.id.clone();
        for (i, mail) in mails.iter().enumerate() {
            let applied = call("apply")
                .args(["--cached", "--whitespace=nowarn", "-"])
                .stdin(mail.diff.clone())
                .output()?;
            if !applied.is_success() {
                let words = applied.words();
                return Err(GitError::PatchFails {
                    number: i + 1,
                    path,
                    subject: mail.subject.clone(),
                    base: base.id.short().to_owned(),
                    words: failed_place(&words) + &words,
                });
            }
            let tree = read_id(call("write-tree").arg("--missing-ok"))?;
            let commit = commit_tree(call("commit-tree"), base, mail).args([
                "-p",
                tip.as_str(),
                tree.as_str(),
            ]);
            tip = read_id(commit).map_err(|error| match error {
                // A date or a name in the mail that git does not take.
                GitError::Failed { words, .. } => bad(format!("\"{}\": {words}", mail.subject)),
                other => other,
            })?;
        }
        self.own
            .writing("update-ref")
            .args([&applied_ref(&tip), tip.as_str()])
            .run()?;
        let output = list_commits(self.own.writing("rev-list"))
            .args(["--no-walk", tip.as_str(), "--"])
            .run()?;
        parse_commits(&output)
            .pop()
            .ok_or_else(|| bad("its last commit cannot be read back".to_owned()))
    }

    /// Copies into our store what applying the mails reads: the commit, its folders, and the
    /// files that the mails' headers name.
    fn copy_objects(&self, base: &Commit, mails: &[Mail]) -> Result<(), GitError> {
        let listing = self
            .own
            .reading("ls-tree")
            .args(["-r", "-t", "-z", "--full-tree", base.id.as_str()])
            .run()?;
        let root = self
            .own
            .reading("rev-parse")
            .args(["--verify", &format!("{}^{{tree}}", base.id)])
            .run()?;
        let headers: Vec<_> = mails
            .iter()
            .flat_map(|mail| header_lines(&mail.diff))
            .collect();
        let mut ids = format!("{}\n{}", base.id, String::from_utf8_lossy(&root));
        // `MODE TYPE ID\tPATH`
        let listing = String::from_utf8_lossy(&listing);
        for line in listing.split_terminator('\0') {
            let Some((facts, path)) = line.split_once('\t') else {
                continue;
            };
            let (kind, id) = match facts.split(' ').collect::<Vec<_>>()[..] {
                [_, kind, id] => (kind, id),
                _ => continue,
            };
            // A quoted name is not compared: all files then.
            let is_named = |header: &String| header.contains(path) || header.contains('"');
            if kind == "tree" || (kind == "blob" && headers.iter().any(is_named)) {
                ids.push_str(id);
                ids.push('\n');
            }
        }
        let pack = self
            .own
            .reading("pack-objects")
            .args(["--stdout", "-q"])
            .stdin(ids.into_bytes())
            .run()?;
        self.own
            .writing("index-pack")
            .arg("--stdin")
            .stdin(pack)
            .run()?;
        Ok(())
    }

    /// The mails that hold a diff, in their order.
    fn split(
        &self,
        mbox: &Path,
        scratch: &Path,
        bad: &dyn Fn(String) -> GitError,
    ) -> Result<Vec<Mail>, GitError> {
        let mails_dir = scratch.join("mails");
        files::make_dir(&mails_dir)?;
        let count = self
            .own
            .writing("mailsplit")
            // -b: a file that does not begin with a `From ` line is one mail.
            .args(["-b", "-d6"])
            .arg(format!("-o{}", mails_dir.display()))
            .arg("--")
            .arg(mbox)
            .output()?;
        if !count.is_success() {
            return Err(bad(format!("it is not an mbox: {}", count.words())));
        }
        let count = String::from_utf8_lossy(&count.stdout);
        let count: usize = count.trim().parse().unwrap_or(0);
        if count > PATCHES_MAX {
            return Err(bad(format!("it holds more than {PATCHES_MAX} mails")));
        }
        let mut mails = Vec::new();
        for number in 1..=count {
            let bytes = read_file(&mails_dir.join(format!("{number:06}")))?;
            let mail = self.read_mail(bytes, scratch)?;
            if !mail.diff.is_empty() {
                mails.push(mail);
            }
        }
        if mails.is_empty() {
            return Err(bad(
                "it holds no patch; make one by `git format-patch --stdout`".to_owned(),
            ));
        }
        Ok(mails)
    }

    fn read_mail(&self, bytes: Vec<u8>, scratch: &Path) -> Result<Mail, GitError> {
        let (message, diff) = (scratch.join("message"), scratch.join("diff"));
        let header = self
            .own
            .writing("mailinfo")
            .arg("--encoding=UTF-8")
            .args([&message, &diff])
            .stdin(bytes)
            .run()?;
        let header = String::from_utf8_lossy(&header);
        let field = |name: &str| {
            let line = header.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or("").trim().to_owned()
        };
        let subject = match field("Subject:") {
            subject if subject.is_empty() => "(no subject)".to_owned(),
            subject => subject,
        };
        Ok(Mail {
            author: field("Author:"),
            email: field("Email:"),
            date: field("Date:"),
            message: [subject.as_bytes(), b"\n\n", &read_file(&message)?].concat(),
            subject,
            diff: read_file(&diff)?,
        })
    }
}

/// Who and when; a plain diff has no author.
fn commit_tree(call: Call, base: &Commit, mail: &Mail) -> Call {
    let base_date = format!("@{} +0000", base.author_time_s.max(0));
    let or = |text: &str, other: &str| match text {
        "" => other.to_owned(),
        text => text.to_owned(),
    };
    call.env("GIT_COMMITTER_NAME", COMMITTER.0)
        .env("GIT_COMMITTER_EMAIL", COMMITTER.1)
        .env("GIT_COMMITTER_DATE", &base_date)
        .env("GIT_AUTHOR_NAME", or(&mail.author, COMMITTER.0))
        .env("GIT_AUTHOR_EMAIL", or(&mail.email, COMMITTER.1))
        .env("GIT_AUTHOR_DATE", or(&mail.date, &base_date))
        .stdin(mail.message.clone())
}

/// The lines of a diff that name its files (and a few more that look like them).
fn header_lines(diff: &[u8]) -> Vec<String> {
    const STARTS: [&str; 5] = ["diff ", "--- ", "+++ ", "rename ", "copy "];
    String::from_utf8_lossy(diff)
        .lines()
        .filter(|line| STARTS.iter().any(|start| line.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

/// `FILE at the hunk for line N: ` out of git's `patch failed: FILE:N`.
fn failed_place(words: &str) -> String {
    words
        .split("; ")
        .find_map(|part| part.strip_prefix("patch failed: ")?.rsplit_once(':'))
        .map(|(file, line)| format!("{file} at the hunk for line {line}: "))
        .unwrap_or_default()
}

fn read_id(call: Call) -> Result<Oid, GitError> {
    let output = call.run()?;
    let text = String::from_utf8_lossy(&output);
    Oid::parse(text.trim()).ok_or_else(|| GitError::Failed {
        command: "commit-tree".to_owned(),
        words: format!("it answered `{}`", text.trim()),
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, GitError> {
    files::read(path, MBOX_BYTES_MAX as usize)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TIMEOUT, TestRepo, patterns};
    use super::*;

    #[test]
    fn patches_become_a_commit_like_any_other() {
        let repo = TestRepo::with_history();
        repo.write("block/nbd.c", "one\n2\n3\n");
        repo.commit("block/nbd: more numbers");
        let mbox = repo.take_patch();
        let mut opened = repo.open();
        let head = opened.resolve("main").unwrap();
        let patched = opened.apply(&head, &mbox).unwrap();
        assert_eq!(patched.subject, "block/nbd: more numbers");
        assert_eq!(patched.author, "A");
        assert_eq!(patched.parents, std::slice::from_ref(&head.id));
        assert_eq!(
            opened.apply(&head, &mbox).unwrap(),
            patched,
            "the same id again"
        );
        assert_eq!(opened.resolve(patched.id.as_str()).unwrap(), patched);
        assert_eq!(
            opened.changed_paths(&head.id, &patched.id).unwrap(),
            ["block/nbd.c"]
        );
        let paths = patterns(&["block/**"]);
        assert_ne!(
            opened.tree_digest(&head.id, &paths).unwrap().key,
            opened.tree_digest(&patched.id, &paths).unwrap().key
        );
        let src = repo.dir.path().join("src");
        repo.check_out(&mut opened, &patched.id, false);
        assert_eq!(
            std::fs::read_to_string(src.join("block/nbd.c")).unwrap(),
            "one\n2\n3\n"
        );

        // Another store of ours, on another day, gives the same id.
        let elsewhere = repo.dir.path().join("elsewhere");
        let other = Repository::open(&repo.url(), &elsewhere, TIMEOUT).unwrap();
        assert_eq!(other.apply(&head, &mbox).unwrap(), patched);
    }

    #[test]
    fn a_plain_diff_is_a_patch_and_a_cover_letter_is_none() {
        let repo = TestRepo::with_history();
        let opened = repo.open();
        let head = opened.resolve("main").unwrap();
        repo.write("block/nbd.c", "one\n2\n3\n");
        let diff = repo.dir.path().join("fix.diff");
        std::fs::write(&diff, repo.git(&["diff"]) + "\n").unwrap();
        let patched = opened.apply(&head, &diff).unwrap();
        assert_eq!(patched.author_time_s, head.author_time_s);
        assert_eq!(
            opened.changed_paths(&head.id, &patched.id).unwrap(),
            ["block/nbd.c"]
        );

        repo.commit("first");
        repo.write("new.c", "new\n");
        repo.commit("second");
        let series = repo.git(&["format-patch", "--cover-letter", "-2", "--stdout"]);
        let mbox = repo.dir.path().join("series.mbox");
        std::fs::write(&mbox, series + "\n").unwrap();
        let patched = opened.apply(&head, &mbox).unwrap();
        assert_eq!(patched.subject, "second");
        assert_eq!(
            opened.changed_paths(&head.id, &patched.id).unwrap(),
            ["block/nbd.c", "new.c"]
        );
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named() {
        let repo = TestRepo::with_history();
        repo.write("block/nbd.c", "one\n2\n3\n");
        repo.commit("block/nbd: more numbers");
        let mbox = repo.take_patch();
        let opened = repo.open();
        let old = opened.resolve("v9.0.1").unwrap();
        let error = opened.apply(&old, &mbox).unwrap_err().to_string();
        let expected = format!(
            "patch 1 of {}, \"block/nbd: more numbers\", does not apply to {}: block/nbd.c at the hunk \
         for line 1: patch failed: block/nbd.c:1; block/nbd.c: patch does not apply; rebase the \
         series, or name the commit that it was made for",
            mbox.display(),
            old.id.short()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn what_is_not_an_mbox() {
        let repo = TestRepo::with_history();
        let opened = repo.open();
        let head = opened.resolve("main").unwrap();
        let path = repo.dir.path().join("x.mbox");
        let check = |part: &str| {
            let error = opened.apply(&head, &path).unwrap_err().to_string();
            assert!(error.starts_with("cannot read the patches in"), "{error}");
            assert!(error.contains(part), "{error}");
        };
        check("there is no such file");
        std::fs::write(&path, "").unwrap();
        check("empty mbox");
        std::fs::write(&path, "just words\n").unwrap();
        check("holds no patch");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MBOX_BYTES_MAX + 1).unwrap();
        check("longer than");
    }

    #[test]
    fn patches_rename_quote_and_change_modes() {
        let repo = TestRepo::with_history();
        repo.write("block/žluť \"x\".c", "a\nb\nc\n");
        repo.commit("odd name");
        let head = repo.open().resolve("main").unwrap();
        repo.git(&["mv", "meson.build", "docs/meson.build"]);
        repo.git(&["update-index", "--chmod=+x", "docs/readme.txt"]);
        repo.write("block/žluť \"x\".c", "a\nB\nc\n");
        repo.commit("all sorts");
        let tree = repo.git(&["rev-parse", "HEAD^{tree}"]);
        let mbox = repo.take_patch();
        let opened = repo.open();
        let patched = opened.apply(&head, &mbox).unwrap();
        let ours = opened
            .own
            .writing("rev-parse")
            .arg(format!("{}^{{tree}}", patched.id));
        assert_eq!(read_id(ours).unwrap().as_str(), tree);
    }

    #[test]
    fn a_broken_date_is_told_with_its_mail() {
        let repo = TestRepo::with_history();
        repo.write("block/nbd.c", "one\n2\n3\n");
        repo.commit("block/nbd: more numbers");
        let mbox = repo.take_patch();
        let text = std::fs::read_to_string(&mbox).unwrap();
        let broken = text.replace("Date: Mon, 1 Jan 2024 00:00:00 +0000", "Date: someday");
        assert_ne!(text, broken);
        std::fs::write(&mbox, broken).unwrap();
        let opened = repo.open();
        let error = opened
            .apply(&opened.resolve("main").unwrap(), &mbox)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cannot read the patches in"), "{error}");
        assert!(
            error.contains("\"block/nbd: more numbers\": invalid date"),
            "{error}"
        );
    }
}
