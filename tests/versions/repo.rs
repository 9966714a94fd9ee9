//! A small git repository with a C program of two backends, and a matrix that measures it.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

/// Two backends, each in a header of its own, by two sizes.
pub const MATRIX: &str = r#"
[subject.git]
repo  = "nowhere"
paths = ["*.c", "*.h"]
[build]
run       = ["cc -O1 -o prog {{ src }}/main.c"]
artifacts = ["prog"]
[[affects]]
paths = ["a.h"]
when  = "backend == 'a'"
[[affects]]
paths = ["b.h"]
when  = "backend == 'b'"
[axes]
backend = ["a", "b"]
size    = [1, 2]
[run]
command = ["{{ bin }}/prog", "{{ backend }}", "{{ size }}"]
parser  = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
repeat  = 4
[metrics.v]
better = "lower"
deterministic = true
[[compare]]
axis = "version"
"#;

pub struct Repo {
    folder: TempDir,
}

impl Repo {
    pub fn new() -> Repo {
        let repo = Repo {
            folder: TempDir::new().unwrap(),
        };
        repo.git(&["init", "--quiet", "--initial-branch=main"]);
        repo
    }

    pub fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Commits all files; returns the whole hash.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Standard output without its last newline.
    pub fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(words)
            .current_dir(self.folder.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "A")))
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@example.org")))
            .envs(
                ["AUTHOR", "COMMITTER"]
                    .map(|who| (format!("GIT_{who}_DATE"), "2024-01-01T00:00:00Z")),
            )
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "git {words:?}: {error}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }
}
