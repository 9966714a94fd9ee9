//! Tests of the git edge, against real repositories that they make.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::SystemTime;

use super::program::tests::STARTED;
use super::*;
use crate::machine::host::Cancel;
use crate::machine::host::local::LocalHost;

pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// A real repository in a folder of its own, with fixed dates and names.
pub(super) struct TestRepo {
    pub dir: tempfile::TempDir,
}

impl TestRepo {
    pub fn new() -> TestRepo {
        let repo = TestRepo {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(repo.path()).unwrap();
        repo.git(&["init", "-q", "-b", "main"]);
        repo
    }

    /// Three commits: c0 makes everything, c1 touches docs, c2 touches block; tag v9.0.1 on c0.
    pub fn with_history() -> TestRepo {
        let repo = TestRepo::new();
        repo.write("block/nbd.c", "one\ntwo\nthree\n");
        repo.write("block/export/fuse.c", "fuse\n");
        repo.write("docs/readme.txt", "read me\n");
        repo.write("meson.build", "project()\n");
        repo.commit("make everything");
        repo.git(&["tag", "v9.0.1"]);
        repo.write("docs/readme.txt", "read me again\n");
        repo.commit("docs: say it again");
        repo.write("block/nbd.c", "one\n2\nthree\n");
        repo.commit("block/nbd: write numbers");
        repo
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    pub fn mirrors(&self) -> PathBuf {
        self.dir.path().join("mirrors")
    }

    pub fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    pub fn git(&self, args: &[&str]) -> String {
        git_in(&self.path(), args)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn open(&self) -> Repository {
        Repository::open(self.path().to_str().unwrap(), &self.mirrors(), TIMEOUT).unwrap()
    }

    /// Checks a commit out into `src` beside the repository, on this machine.
    pub fn check_out(&self, opened: &mut Repository, commit: &Oid, clean: bool) -> Checkout {
        self.try_check_out(opened, commit, clean).unwrap()
    }

    pub fn try_check_out(
        &self,
        opened: &mut Repository,
        commit: &Oid,
        clean: bool,
    ) -> Result<Checkout, GitError> {
        let sources = opened.sources(commit)?;
        let folder = WorkFolder {
            src: self.dir.path().join("src"),
            state: self.dir.path().join("checkout"),
        };
        let machine = self.dir.path().join("machine");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let host = LocalHost::new("here")?;
            let cancel = Cancel::never();
            let git_dir = sources.deliver(&host, &machine, &cancel).await?;
            sources
                .check_out(&host, &git_dir, &folder, clean, &cancel)
                .await
        })
    }

    /// The last commit as an mbox beside the repository; then it is dropped.
    pub fn take_patch(&self) -> PathBuf {
        let mbox = self.git(&["format-patch", "-1", "--stdout"]);
        self.git(&["reset", "-q", "--hard", "HEAD~1"]);
        let path = self.dir.path().join("series.mbox");
        std::fs::write(&path, mbox + "\n").unwrap();
        path
    }
}

fn git_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([
            ("GIT_AUTHOR_NAME", "A"),
            ("GIT_AUTHOR_EMAIL", "a@localhost"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "C"),
            ("GIT_COMMITTER_EMAIL", "c@localhost"),
        ])
        .env("GIT_AUTHOR_DATE", "2024-01-01T00:00:00Z")
        .env("GIT_COMMITTER_DATE", "2024-01-01T00:00:00Z")
        .output()
        .expect("these tests need git: apt-get install git");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(super) fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|t| Pattern::parse(t).unwrap()).collect()
}

/// Modification time in ns, size, inode, content.
pub(super) type Listing = BTreeMap<PathBuf, (i128, u64, u64, Vec<u8>)>;

/// Every file and folder below `dir`.
pub(super) fn listing(dir: &Path) -> Listing {
    let mut all = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        let facts = path.symlink_metadata().unwrap();
        let time = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
        let content = match facts.is_file() {
            true => std::fs::read(&path).unwrap(),
            false => Vec::new(),
        };
        if facts.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        all.insert(path, (time, facts.len(), facts.ino(), content));
    }
    all
}

pub(super) fn assert_unchanged(before: &Listing, after: &Listing) {
    let names = |a: &Listing, b: &Listing| -> Vec<PathBuf> {
        let differs = a.iter().filter(|(path, facts)| b.get(*path) != Some(facts));
        differs.map(|(path, _)| path.clone()).collect()
    };
    let nothing: [PathBuf; 0] = [];
    assert_eq!(names(before, after), nothing, "changed or gone");
    assert_eq!(names(after, before), nothing, "changed or new");
}

/// Makes a file look old, so that a rewrite shows whatever the clock's resolution.
pub(super) fn age(path: &Path) -> SystemTime {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(old).unwrap();
    old
}

#[test]
fn resolves_branch_tag_hash_and_says_a_near_name() {
    let repo = TestRepo::with_history();
    let opened = repo.open();
    let head = opened.resolve("main").unwrap();
    assert_eq!(head.subject, "block/nbd: write numbers");
    assert_eq!(head.author, "A");
    assert_eq!(head.author_time_s, 1_704_067_200);
    assert_eq!(head.parents.len(), 1);
    for revision in ["HEAD", head.id.as_str(), head.id.short()] {
        assert_eq!(opened.resolve(revision).as_ref(), Ok(&head), "{revision}");
    }
    assert_eq!(opened.resolve("v9.0.1"), opened.resolve("HEAD~2"));
    let name = repo.path().display().to_string();
    let check = |revision: &str, hint: &str| {
        let error = opened.resolve(revision).unwrap_err().to_string();
        let expected = format!("`{revision}` is not a revision of `{name}`; {hint}");
        assert_eq!(error, expected);
    };
    check("v9.0.11", "did you mean `v9.0.1`?");
    check("mian", "did you mean `main`?");
    check(
        "something-else",
        "`git branch -a` and `git tag` list its names",
    );
    check(
        &"1".repeat(40),
        "`git branch -a` and `git tag` list its names",
    );
}

#[test]
fn near_names_of_remote_branches_and_of_nothing() {
    let repo = TestRepo::new();
    let error = repo.open().resolve("main").unwrap_err().to_string();
    assert!(
        error.ends_with("the repository has no commits yet"),
        "{error}"
    );
    repo.commit("first");
    repo.git(&["update-ref", "refs/remotes/origin/stable", "HEAD"]);
    let error = repo.open().resolve("stable").unwrap_err().to_string();
    assert!(error.ends_with("did you mean `origin/stable`?"), "{error}");
}

#[test]
fn a_range_is_what_git_means_by_it_oldest_first() {
    let repo = TestRepo::with_history();
    repo.git(&["checkout", "-q", "-b", "side", "HEAD~1"]);
    repo.write("side.c", "x");
    repo.commit("side");
    repo.git(&["checkout", "-q", "main"]);
    repo.git(&["merge", "-q", "--no-ff", "-m", "merge side", "side"]);
    let opened = repo.open();
    let subjects = |first_parent: bool| -> Vec<String> {
        let commits = opened.range("v9.0.1..main", first_parent).unwrap();
        commits.into_iter().map(|commit| commit.subject).collect()
    };
    assert_eq!(
        subjects(true),
        [
            "docs: say it again",
            "block/nbd: write numbers",
            "merge side"
        ]
    );
    // As `git rev-list A..B` has it, with what was merged.
    let mut all = subjects(false);
    assert_eq!((all.len(), all[3].as_str()), (4, "merge side"));
    all.sort();
    assert_eq!(
        all,
        [
            "block/nbd: write numbers",
            "docs: say it again",
            "merge side",
            "side"
        ]
    );
    let check = |range: &str, part: &str| {
        let error = opened.range(range, false).unwrap_err().to_string();
        assert!(error.contains(part), "{range}: {error}");
    };
    check("main..v9.0.1", "did you mean `v9.0.1..main`?");
    check("main..main", "the same commit");
    check("main", "written `A..B`");
    check("v9.0.2..main", "did you mean `v9.0.1`?");
}

#[test]
fn commits_stand_by_their_dates_but_never_before_their_first_parents() {
    let repo = TestRepo::new();
    for day in [1, 5, 3, 9] {
        let date = format!("--date=2024-01-{day:02}T00:00:00Z");
        repo.git(&["commit", "-q", "--allow-empty", "-m", "c", &date]);
    }
    repo.git(&["rebase", "-q", "--root", "--committer-date-is-author-date"]);
    let opened = repo.open();
    let id = |revision: &str| opened.resolve(revision).unwrap().id;
    let mut known = HashMap::new();
    opened.standings(&[id("main~1")], &mut known).unwrap();
    let new_year = 1_704_067_200;
    let told = |known: &HashMap<Oid, CommitPosition>, revision: &str| {
        let standing = known.get(&id(revision))?;
        Some(((standing.time_s - new_year) / 86_400 + 1, standing.depth))
    };
    let check = |known: &HashMap<Oid, CommitPosition>, last| {
        let all = ["main~3", "main~2", "main~1", "main"].map(|it| told(known, it));
        assert_eq!(all, [Some((1, 1)), Some((5, 2)), Some((5, 3)), last]);
    };
    check(&known, None);
    opened.standings(&[id("main")], &mut known).unwrap();
    check(&known, Some((9, 4)));
    // A line that is longer than what is read at first; where it meets what is known that counts.
    for _ in 0..LINE_COMMITS_FIRST {
        repo.git(&["commit", "-q", "--allow-empty", "-m", "more"]);
    }
    let depth = 4 + LINE_COMMITS_FIRST as i64;
    let mut anew = HashMap::new();
    opened.standings(&[id("main")], &mut anew).unwrap();
    assert_eq!(anew[&id("main")].depth, depth);
    opened.standings(&[id("main")], &mut known).unwrap();
    assert_eq!(known, anew);
    // Patches stand behind their base.
    repo.write("file", "new\n");
    repo.commit("a patch");
    let mbox = repo.take_patch();
    let patched = opened.apply(&opened.resolve("main~1").unwrap(), &mbox);
    let patched = patched.unwrap().id;
    opened
        .standings(std::slice::from_ref(&patched), &mut known)
        .unwrap();
    assert_eq!(known[&patched].depth, depth);
}

#[test]
fn a_digest_changes_with_its_paths_and_nothing_else() {
    let repo = TestRepo::with_history();
    let mut opened = repo.open();
    let ids: Vec<Oid> = ["main~2", "main~1", "main"]
        .map(|revision| opened.resolve(revision).unwrap().id)
        .to_vec();
    let mut digest =
        |commit: usize, paths: &[&str]| opened.tree_digest(&ids[commit], &patterns(paths)).unwrap();
    let code = ["block/**", "meson*"];
    assert_eq!(
        digest(0, &code),
        digest(1, &code),
        "a docs-only commit keeps the key"
    );
    assert_ne!(digest(1, &code).key, digest(2, &code).key);
    assert_eq!(
        digest(0, &code),
        digest(0, &["meson*", "block/**"]),
        "order does not matter"
    );
    assert_eq!(digest(0, &["block"]), digest(0, &["block/**"]));
    assert_ne!(digest(0, &["docs/*"]).key, digest(1, &["docs/*"]).key);
    assert_eq!(
        digest(0, &["block/export/*"]),
        digest(2, &["block/export/*"])
    );
    assert_eq!(digest(1, &["block/*.h", "**/*.txt"]).unmatched, [0]);
    assert_eq!(
        digest(1, &["block/**", "block/no.c", "blok"]).unmatched,
        [2]
    );
    assert_ne!(
        digest(0, &[]).key,
        digest(1, &[]).key,
        "no patterns: the whole tree"
    );
    assert_eq!(digest(0, &[]), digest(0, &["**"]).clone());
}

/// The digest says the same as a plain listing: equal exactly when the matching entries are.
#[test]
fn digests_agree_with_listings() {
    let repo = TestRepo::new();
    let files = ["a.c", "b/a.c", "b/c/a.c", "b/c/d.h", "e/a.c", "meson.build"];
    let texts = ["x", "y"];
    let mut commits = Vec::new();
    for i in 0..12 {
        let file = files[i * 5 % files.len()];
        match repo.path().join(file).exists() && i % 3 == 0 {
            true => std::fs::remove_file(repo.path().join(file)).unwrap(),
            false => repo.write(file, texts[i / 2 % 2]),
        }
        commits.push(Oid::parse(&repo.commit("change")).unwrap());
    }
    let mut opened = repo.open();
    for texts in [
        ["**/a.c", "x"],
        ["b/**", "*.c"],
        ["b/*", "e"],
        ["*/c/*", "**/d.h"],
    ] {
        let paths = patterns(&texts);
        let seen: Vec<(Key, Vec<String>)> = commits
            .iter()
            .map(|id| {
                let key = opened.tree_digest(id, &paths).unwrap().key;
                let listing = repo.git(&["ls-tree", "-r", id.as_str()]);
                let is_meant = |line: &&str| {
                    let path = line.split_once('\t').unwrap().1;
                    paths.iter().any(|pattern| pattern.matches(path))
                };
                (
                    key,
                    listing
                        .lines()
                        .filter(is_meant)
                        .map(str::to_owned)
                        .collect(),
                )
            })
            .collect();
        for (key, listing) in &seen {
            for (other_key, other_listing) in &seen {
                assert_eq!(key == other_key, listing == other_listing, "{texts:?}");
            }
        }
    }
}

#[test]
fn a_mode_is_part_of_a_digest() {
    let repo = TestRepo::with_history();
    repo.git(&["update-index", "--chmod=+x", "meson.build"]);
    repo.git(&["commit", "-q", "-m", "executable"]);
    let mut opened = repo.open();
    let (a, b) = (
        opened.resolve("main~1").unwrap(),
        opened.resolve("main").unwrap(),
    );
    let paths = patterns(&["meson.build"]);
    assert_ne!(
        opened.tree_digest(&a.id, &paths),
        opened.tree_digest(&b.id, &paths)
    );
}

#[test]
fn many_digests_take_one_process() {
    let repo = TestRepo::with_history();
    let mut opened = repo.open();
    let ids: Vec<Oid> = ["main~2", "main~1", "main"]
        .map(|revision| opened.resolve(revision).unwrap().id)
        .to_vec();
    let before = STARTED.get();
    for _ in 0..100 {
        for id in &ids {
            opened
                .tree_digest(id, &patterns(&["block/*.c", "**/*.txt"]))
                .unwrap();
        }
    }
    assert_eq!(STARTED.get() - before, 1);
    let pairs: Vec<_> = ids
        .windows(2)
        .map(|w| (w[0].clone(), w[1].clone()))
        .collect();
    let changed = opened.changed_paths_of(&pairs).unwrap();
    assert_eq!(changed, [["docs/readme.txt"], ["block/nbd.c"]]);
    assert_eq!(STARTED.get() - before, 2);
}

#[test]
fn changed_paths_of_merges_renames_and_nothing() {
    let repo = TestRepo::with_history();
    repo.git(&["mv", "meson.build", "žluť.build"]);
    repo.commit("rename");
    repo.commit("nothing");
    let opened = repo.open();
    let id = |revision: &str| opened.resolve(revision).unwrap().id;
    let check = |from: &str, to: &str, expected: &[&str]| {
        assert_eq!(opened.changed_paths(&id(from), &id(to)).unwrap(), expected);
    };
    check("main~2", "main~1", &["meson.build", "žluť.build"]);
    check("main~1", "main", &[]);
    check("v9.0.1", "main~2", &["block/nbd.c", "docs/readme.txt"]);
    check("main~2", "v9.0.1", &["block/nbd.c", "docs/readme.txt"]);
}

#[test]
fn a_submodule_is_a_warning() {
    let repo = TestRepo::with_history();
    let head = repo.git(&["rev-parse", "HEAD"]);
    let entry = format!("160000,{head},roms/edk2");
    repo.git(&["update-index", "--add", "--cacheinfo", &entry]);
    repo.git(&["commit", "-q", "-m", "submodule"]);
    let mut opened = repo.open();
    let id = opened.resolve("main").unwrap().id;
    let checkout = repo.check_out(&mut opened, &id, false);
    assert_eq!(checkout.submodules, ["roms/edk2"]);
    assert!(
        checkout
            .warning()
            .unwrap()
            .starts_with("submodule `roms/edk2` is not fetched")
    );
    let digest = opened.tree_digest(&id, &patterns(&["roms/*"])).unwrap();
    assert_eq!(digest.unmatched, [0usize; 0]);
}

#[test]
fn a_repository_in_place_is_never_written_to() {
    let repo = TestRepo::with_history();
    repo.write("block/nbd.c", "one\n2\n3\n");
    repo.commit("patch");
    let mbox = repo.take_patch();
    // A touched file makes any index refresh show.
    age(&repo.path().join("meson.build"));
    let before = listing(&repo.path());
    let mut opened = repo.open();
    opened.update().unwrap();
    let head = opened.resolve("main").unwrap();
    opened.range("v9.0.1..main", false).unwrap();
    opened
        .tree_digest(&head.id, &patterns(&["block/*"]))
        .unwrap();
    opened.changed_paths(&head.parents[0], &head.id).unwrap();
    let patched = opened.apply(&head, &mbox).unwrap();
    repo.check_out(&mut opened, &patched.id, false);
    opened.resolve("nothing").unwrap_err();
    assert_unchanged(&before, &listing(&repo.path()));
}

#[test]
fn a_shallow_clone_says_so() {
    let repo = TestRepo::with_history();
    let full = repo.git(&["rev-parse", "v9.0.1"]);
    let shallow = repo.dir.path().join("shallow");
    let shallow = shallow.to_str().unwrap();
    git_in(
        repo.dir.path(),
        &["clone", "-q", "--depth=1", &repo.url(), shallow],
    );
    let mut opened = Repository::open(shallow, &repo.mirrors(), TIMEOUT).unwrap();
    let head = opened.resolve("main").unwrap();
    opened
        .tree_digest(&head.id, &patterns(&["block/**"]))
        .unwrap();
    repo.check_out(&mut opened, &head.id, false);
    let error = opened
        .range(&format!("{full}..main"), false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`git fetch --unshallow`"), "{error}");
    let missing = Oid::parse(&full).unwrap();
    let error = opened.changed_paths(&missing, &head.id).unwrap_err();
    assert!(matches!(error, GitError::Shallow { .. }), "{error}");
    // The commit is there, but the line to it is cut.
    git_in(
        Path::new(shallow),
        &["fetch", "-q", "--depth=1", "origin", "tag", "v9.0.1"],
    );
    let opened = Repository::open(shallow, &repo.mirrors(), TIMEOUT).unwrap();
    let error = opened.range("v9.0.1..main", false).unwrap_err();
    assert!(matches!(error, GitError::Shallow { .. }), "{error}");
}

#[test]
fn a_url_is_mirrored_once_and_updated() {
    let repo = TestRepo::with_history();
    let open = || Repository::open(&repo.url(), &repo.mirrors(), TIMEOUT).unwrap();
    let mut opened = open();
    let old = opened.resolve("main").unwrap();
    repo.write("new.c", "new\n");
    repo.git(&["branch", "-q", "next"]);
    let new = repo.commit("new file");
    assert_eq!(
        opened.resolve("main").unwrap(),
        old,
        "no fetch without being asked"
    );
    opened.update().unwrap();
    assert_eq!(opened.resolve("main").unwrap().id.as_str(), new);
    opened.resolve("next").unwrap();
    opened.resolve("v9.0.1").unwrap();

    // A force-push takes a commit away; we keep it.
    repo.git(&["reset", "-q", "--hard", "v9.0.1"]);
    opened.update().unwrap();
    assert_eq!(opened.resolve("main"), opened.resolve("v9.0.1"));
    opened.resolve(&new).unwrap();

    let before = STARTED.get();
    open();
    assert_eq!(
        STARTED.get() - before,
        1,
        "opening it again costs one process"
    );
}

#[test]
fn repositories_that_are_none() {
    let repo = TestRepo::with_history();
    let check = |source: &Path, expected: &str| {
        let source = source.to_str().unwrap();
        let error = Repository::open(source, &repo.mirrors(), TIMEOUT)
            .err()
            .unwrap();
        let error = error.to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains('\n'));
    };
    let missing = repo.dir.path().join("missing");
    check(&missing, "no repository at `");
    check(
        Path::new(&format!("file://{}", missing.display())),
        "cannot reach the repository `",
    );
    check(repo.dir.path(), "`");
    check(&repo.path().join("meson.build"), "`");
    // Inside a repository is not the repository.
    let inner = repo.path().join("docs");
    check(
        &inner,
        &format!("`{}` is not a git repository", inner.display()),
    );
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("git://{}/x", server.local_addr().unwrap());
    let open = |timeout| Repository::open(&url, dir.path(), timeout).err().unwrap();
    let error = open(Duration::from_millis(300));
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
    drop(server);
    let error = open(TIMEOUT).to_string();
    assert!(
        error.starts_with(&format!("cannot reach the repository `{url}`: ")),
        "{error}"
    );
    let left = std::fs::read_dir(dir.path()).unwrap();
    let left: Vec<_> = left.map(|e| e.unwrap().path()).collect();
    assert!(
        left.iter().all(|path| path.extension().unwrap() != "git"),
        "{left:?}"
    );
}

#[test]
fn a_repository_s_own_configuration_runs_nothing() {
    let repo = TestRepo::with_history();
    repo.write(".gitattributes", "*.c filter=evil diff=evil\n");
    repo.commit("attributes");
    let sign = repo.dir.path().join("ran");
    let evil = format!("touch {}", sign.display());
    for name in [
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "diff.external",
    ]
    .iter()
    .chain(&[
        "diff.evil.textconv",
        "filter.evil.smudge",
        "filter.evil.clean",
    ]) {
        repo.git(&["config", name, &evil]);
    }
    repo.git(&["config", "log.showSignature", "true"]);
    let _ = std::fs::remove_file(&sign);
    let mut opened = repo.open();
    let head = opened.resolve("main").unwrap();
    opened.range("v9.0.1..main", false).unwrap();
    opened
        .tree_digest(&head.id, &patterns(&["block/*"]))
        .unwrap();
    opened.changed_paths(&head.parents[0], &head.id).unwrap();
    let src = repo.dir.path().join("src");
    repo.check_out(&mut opened, &head.id, true);
    assert!(!sign.exists());
    let text = std::fs::read_to_string(src.join("block/nbd.c")).unwrap();
    assert_eq!(text, "one\n2\nthree\n");
}

#[test]
fn a_repository_of_another_user_works() {
    let repo = TestRepo::with_history();
    for path in listing(&repo.path()).keys() {
        // Only root may give files away; for others there is nothing to test.
        if std::os::unix::fs::lchown(path, Some(65534), Some(65534)).is_err() {
            return;
        }
    }
    let mut opened = repo.open();
    let head = opened.resolve("main").unwrap();
    opened
        .tree_digest(&head.id, &patterns(&["block/**"]))
        .unwrap();
    repo.check_out(&mut opened, &head.id, false);
}

#[test]
fn a_worktree_and_sha256_are_repositories_too() {
    let repo = TestRepo::with_history();
    repo.git(&["worktree", "add", "-q", "--detach", "../tree", "v9.0.1"]);
    let tree = repo.dir.path().join("tree");
    let mut opened = Repository::open(tree.to_str().unwrap(), &repo.mirrors(), TIMEOUT).unwrap();
    let head = opened.resolve("HEAD").unwrap();
    assert_eq!(head.subject, "make everything");
    repo.check_out(&mut opened, &head.id, false);

    let other = TestRepo {
        dir: tempfile::tempdir().unwrap(),
    };
    std::fs::create_dir(other.path()).unwrap();
    other.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    other.write("a/b", "x");
    other.commit("first");
    let mut opened = other.open();
    let head = opened.resolve("main").unwrap();
    assert_eq!(head.id.as_str().len(), 64);
    opened.tree_digest(&head.id, &patterns(&["a/*"])).unwrap();
    other.check_out(&mut opened, &head.id, false);
}

#[test]
fn sources_and_their_names() {
    let check = |source: &str, url: bool| assert_eq!(is_url(source), url, "{source}");
    check("https://gitlab.com/qemu-project/qemu.git", true);
    check("git@host:qemu.git", true);
    check("file:///x", true);
    check("/x/y:z", false);
    check("../qemu", false);
    assert!(folder_name("https://host/a/qemu.git/").starts_with("qemu-"));
    assert_ne!(folder_name("https://a/qemu"), folder_name("https://b/qemu"));
}
