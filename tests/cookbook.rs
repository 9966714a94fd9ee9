//! Each matrix of `docs/cookbook.md` is run with the programs that it names.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// The matrices by file name.
fn recipes() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cookbook.md");
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```toml\n").skip(1);
    blocks
        .map(|block| {
            let block = block.split("```").next().unwrap();
            let name = block.lines().next().unwrap().trim_start_matches("# ");
            (name.to_owned(), block.to_owned())
        })
        .collect()
}

fn need(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(
        is_there,
        "`{program}` is missing: apt-get install {package}"
    );
}

struct Kitchen {
    folder: TempDir,
    file: String,
    /// Who runs `matrix`, where that is not us.
    user: Option<u32>,
}

impl Kitchen {
    fn of(file: &str) -> Kitchen {
        let folder = TempDir::new().unwrap();
        let text = recipes()
            .remove(file)
            .unwrap_or_else(|| panic!("no recipe `{file}`"));
        fs::write(folder.path().join(file), text).unwrap();
        Kitchen {
            folder,
            file: file.to_owned(),
            user: None,
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// The document of `matrix run` with these words, which ends with 0.
    fn run(&self, words: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
        if let Some(uid) = self.user {
            use std::os::unix::process::CommandExt;
            command.uid(uid).gid(uid);
        }
        let output = command
            .args(["run", &self.file, "--json"])
            .args(words)
            .current_dir(self.folder.path())
            .env("MATRIX_LOCK", self.folder.path().join("lock"))
            .env("TMPDIR", self.folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        assert!(
            output.status.success(),
            "{}: {stderr}\n{document:#}",
            self.file
        );
        document
    }

    /// Tries it shortly: `cells` are measured, none fails.
    fn try_out(&self, cells: usize) {
        let document = self.run(&["--repeat", "1", "--seconds", "1"]);
        assert_eq!(document["failed"], serde_json::json!([]), "{}", self.file);
        assert_eq!(
            self.count("SELECT count(DISTINCT cell) FROM samples"),
            cells,
            "{}",
            self.file
        );
    }

    fn count(&self, sql: &str) -> usize {
        let db = rusqlite::Connection::open(self.folder.path().join(".matrix/matrix.db")).unwrap();
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() as usize
    }
}

#[test]
fn every_recipe_is_tried() {
    let tried = [
        "builds",
        "cbuild",
        "compressors",
        "edits",
        "iperf3",
        "large",
        "nightly",
        "pgbench",
        "redis",
        "stress-ng",
        "sysbench",
        "timing",
    ];
    let recipes: Vec<String> = recipes().into_keys().collect();
    assert_eq!(recipes, tried.map(|name| format!("{name}.toml")));
}

#[test]
fn sysbench() {
    need("sysbench", "sysbench");
    Kitchen::of("sysbench.toml").try_out(4);
}

#[test]
fn stress_ng() {
    need("stress-ng", "stress-ng");
    Kitchen::of("stress-ng.toml").try_out(3);
}

#[test]
fn pgbench() {
    need("pgbench", "postgresql");
    let mut kitchen = Kitchen::of("pgbench.toml");
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65534;
        chown(kitchen.folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        kitchen.user = Some(NOBODY);
    }
    kitchen.try_out(4);
}

#[test]
fn redis() {
    need("redis-server", "redis-server");
    need("redis-benchmark", "redis-tools");
    Kitchen::of("redis.toml").try_out(4);
}

#[test]
fn iperf3() {
    need("iperf3", "iperf3");
    let kitchen = Kitchen::of("iperf3.toml");
    kitchen.try_out(4);
    assert_eq!(
        kitchen.count("SELECT count(*) FROM samples WHERE metric = 'end.sum.jitter_ms'"),
        2
    );
}

#[test]
fn timing() {
    Kitchen::of("timing.toml").try_out(3);
}

const SUM: &str = "#include <stdio.h>\nint main(void) { long s = 0; for (int i = 0; i < 9; i++) s += i; printf(\"%ld\\n\", s); }\n";

#[test]
fn building_a_c_program() {
    need("cc", "gcc");
    let kitchen = Kitchen::of("cbuild.toml");
    kitchen.write("sum.c", SUM);
    kitchen.try_out(4);
    let sizes = kitchen.count("SELECT count(DISTINCT value) FROM samples WHERE metric = 'size'");
    assert!(sizes > 1, "debug information takes room");
}

#[test]
fn two_thousand_cells() {
    let kitchen = Kitchen::of("large.toml");
    kitchen.try_out(2000);
}

#[test]
fn ten_nights() {
    let kitchen = Kitchen::of("nightly.toml");
    for night in 1..=10 {
        kitchen.run(&["--fresh"]);
        assert_eq!(kitchen.count("SELECT count(*) FROM samples"), night * 2 * 3);
    }
}

#[test]
fn edits() {
    let kitchen = Kitchen::of("edits.toml");
    kitchen.write("work.sh", "echo steps=$1");
    let count = |kitchen: &Kitchen| kitchen.count("SELECT count(*) FROM attempt");
    kitchen.run(&[]);
    assert_eq!(count(&kitchen), 6);
    let text = recipes().remove("edits.toml").unwrap();
    kitchen.write(
        "edits.toml",
        &format!("# a comment\n{}", text.replace("[1, 2, 3]", "[1, 2, 3, 4]")),
    );
    kitchen.run(&[]);
    assert_eq!(count(&kitchen), 8);
    kitchen.write("work.sh", "echo steps=$(($1 + 1))");
    kitchen.run(&[]);
    assert_eq!(count(&kitchen), 16);
}

#[test]
fn two_builds() {
    need("git", "git");
    need("cc", "gcc");
    let kitchen = Kitchen::of("builds.toml");
    let repo = kitchen.folder.path().join("repo");
    fs::create_dir(&repo).unwrap();
    let git = |words: &[&str]| {
        let who = ["-c", "user.name=A", "-c", "user.email=a@example.com"];
        let output = Command::new("git")
            .args(who)
            .args(words)
            .current_dir(&repo)
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    git(&["init", "-q"]);
    for (tag, factor) in [("v1", 1), ("v2", 2)] {
        let program = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nint main(int c, char **v) {{ printf(\"work=%ld\\n\", {factor} * atol(v[1])); }}\n"
        );
        fs::write(repo.join("prog.c"), program).unwrap();
        git(&["add", "."]);
        git(&["commit", "-qm", tag]);
        git(&["tag", tag]);
    }
    // What got slower is the point here.
    let output = Command::new(env!("CARGO_BIN_EXE_matrix"))
        .args([
            "run",
            "builds.toml",
            "--json",
            "--against",
            "v1",
            "--version",
            "v2",
        ])
        .current_dir(kitchen.folder.path())
        .env("MATRIX_LOCK", kitchen.folder.path().join("lock"))
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts = document["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 2);
    assert!(
        verdicts
            .iter()
            .all(|row| row["verdict"] == "regression" && row["ratio"] == 2.0),
        "{verdicts:#?}"
    );
}

#[test]
fn compressors() {
    need("zstd", "zstd");
    need("xz", "xz-utils");
    Kitchen::of("compressors.toml").try_out(6);
}
