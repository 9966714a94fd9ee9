//! Nights as cron runs them, over a repository that grows: what is found, who is mailed, and when nobody is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A repository, matrices that measure it, and the mails that they cause.
struct Lab {
    folder: TempDir,
}

const CONFIGURE: &str = "cp \"$1\"/level-* .\n";

/// Measures the numbers in files of the repository, with noise of ±0.5 %.
fn matrix(name: &str, levels: &str, more: &str) -> String {
    format!(
        r#"
        [matrix]
        name = "{name}"
        [subject.git]
        repo  = "repo"
        paths = ["level-*", "configure"]
        [build]
        run       = ["sh {{{{ src }}}}/configure {{{{ src }}}}"]
        artifacts = ["level-a", "level-b", "level-c"]
        [axes]
        level = {levels}
        [run]
        command = ["sh", "-c", '''awk -v s=$(date +%N) 'BEGIN {{ srand(s); getline l; print "v=" l * (0.995 + 0.01 * rand()) }}' < {{{{ bin }}}}/level-{{{{ level }}}}''']
        parser  = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
        repeat  = 6
        [metrics.v]
        better = "higher"
        [[compare]]
        axis = "version"
        [mail]
        from   = "matrix@lab.example.org"
        to     = ["perf@example.org"]
        cc     = ["author", "trailers"]
        allow  = ["*@example.org"]
        folder = "mails-{name}"
        {more}
        "#
    )
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab {
            folder: TempDir::new().unwrap(),
        };
        fs::create_dir(lab.path("repo")).unwrap();
        lab.git(&["init", "--quiet", "--initial-branch=main"]);
        lab.write("repo/configure", CONFIGURE);
        for level in ["a", "b", "c"] {
            lab.level(level, "100");
        }
        lab.commit("Begin");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn level(&self, name: &str, value: &str) {
        self.write(&format!("repo/level-{name}"), &format!("{value}\n"));
    }

    fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(words)
            .current_dir(self.path("repo"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "A")))
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "a@example.org")))
            .output()
            .unwrap();
        assert!(output.status.success(), "git {words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// A commit that changes nothing that is measured.
    fn prose(&self, number: usize) {
        self.write("repo/README", &format!("{number}\n"));
        self.commit(&format!("Explain {number}"));
    }

    /// `matrix nightly` with the environment that cron gives.
    fn night(&self, arguments: &[&str]) -> Output {
        let mut command = self.matrix(&["nightly"]);
        command.args(arguments).output().unwrap()
    }

    fn matrix(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("LOGNAME", "root")
            .env("SHELL", "/bin/sh")
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.path("bin").display()),
            )
            .env("MATRIX_LOCK", self.path("lock"))
            .stdin(Stdio::null());
        command
    }

    /// The mails of a matrix in the order in which they were sent, as Python's `email` reads them.
    fn mails(&self, name: &str) -> Vec<Value> {
        let script = r"
import email, email.policy, glob, json, os, sys
mails = []
for path in sorted(glob.glob(sys.argv[1] + '/*.eml'), key=lambda path: os.stat(path).st_mtime_ns):
    with open(path, 'rb') as file:
        mail = email.message_from_binary_file(file, policy=email.policy.default)
    assert not mail.defects, mail.defects
    one = {name.lower(): str(value) for name, value in mail.items()}
    one['body'] = mail.get_content()
    mails.append(one)
print(json.dumps(mails))
";
        let output = Command::new("python3")
            .args(["-c", script])
            .arg(self.path(&format!("mails-{name}")))
            .output()
            .expect("`python3` is missing: apt-get install python3");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[track_caller]
fn ends(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}\n{errors}");
    text
}

fn of<'a>(mail: &'a Value, name: &str) -> &'a str {
    mail[name].as_str().unwrap_or("")
}

#[test]
fn nights_over_a_growing_repository() {
    let lab = Lab::new();
    lab.write("one.toml", &matrix("one", r#"["a", "b"]"#, ""));
    lab.write(
        "two.toml",
        &matrix("two", r#"["c"]"#, "[nightly]\npick = 8"),
    );
    lab.write("broken.toml", "[matrix]\nname = 7\n");
    let all = ["one.toml", "broken.toml", "two.toml"];
    // The first night knows nothing to compare with.
    ends(&lab.night(&all), 2);

    let mut marked = Vec::new();
    for number in 1..=20 {
        match number {
            7 => {
                lab.level("a", "90");
                let message = "Check each block\n\nReviewed-by: R <r@example.org>\nAcked-by: X <x@elsewhere.example>";
                marked.push(lab.commit(message));
            }
            10 => {
                lab.write("repo/configure", "exit 1\n");
                lab.commit("Configure nothing");
                lab.write("repo/configure", CONFIGURE);
            }
            13 => {
                lab.level("b", "120");
                marked.push(lab.commit("Copy less"));
            }
            // The first half does not build: nobody can tell which of them it was.
            15 => {
                lab.level("c", "80");
                lab.write("repo/configure", "exit 1\n");
                marked.push(lab.commit("Split the queue, part 1"));
                lab.write("repo/configure", CONFIGURE);
            }
            16 => marked.push(lab.commit("Split the queue, part 2")),
            _ => lab.prose(number),
        }
    }
    let text = ends(&lab.night(&all), 2);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("2 new changes found; 2 mails sent"), "{text}");

    let one = lab.mails("one");
    assert_eq!(one.len(), 2, "{text}");
    let regression = &one[0];
    let subject = of(regression, "subject");
    assert!(subject.starts_with("[one] regression: v -"), "{subject}");
    let place = format!("of level=a at {} \"Check each block\"", &marked[0][..12]);
    assert!(subject.ends_with(&place), "{subject}");
    assert_eq!(of(regression, "to"), "perf@example.org");
    assert_eq!(of(regression, "cc"), "a@example.org, r@example.org");
    assert_eq!(of(regression, "auto-submitted"), "auto-generated");
    let body = of(regression, "body");
    for words in [
        &format!("commit {}", marked[0]),
        "Reviewed-by: R <r@example.org>",
        "Regressions:\n  level=a",
        "matrix run one.toml --version",
        "matrix accept one.toml",
    ] {
        assert!(body.contains(words), "{words}\n{body}");
    }
    assert!(!body.contains("Improvements:"), "{body}");
    let subject = of(&one[1], "subject");
    assert!(subject.starts_with("[one] improvement: v +"), "{subject}");
    assert!(subject.contains(&marked[1][..12]), "{subject}");

    let two = lab.mails("two");
    assert_eq!(two.len(), 1, "{text}");
    assert!(
        of(&two[0], "subject").ends_with("of level=c at one of 2 commits"),
        "{two:?}"
    );
    assert_eq!(of(&two[0], "cc"), "");
    for commit in &marked[2..] {
        assert!(of(&two[0], "body").contains(&commit[..12]), "{two:?}");
    }

    // Quiet nights: nobody is told.
    let good = ["one.toml", "two.toml"];
    for night in 0..3 {
        if night > 0 {
            lab.prose(100 + night);
        }
        ends(&lab.night(&good), 0);
        assert_eq!(lab.mails("one").len() + lab.mails("two").len(), 3);
    }

    lab.level("a", "100");
    lab.commit("Check blocks once");
    let text = ends(&lab.night(&good), 0);
    assert!(text.contains("1 change gone; 1 mail sent"), "{text}");
    let after = lab.mails("one");
    assert_eq!(after.len(), 3, "{text}");
    let close = &after[2];
    assert_eq!(
        of(close, "subject"),
        format!("Re: {}", of(regression, "subject"))
    );
    assert_eq!(of(close, "in-reply-to"), of(regression, "message-id"));
    assert_eq!(of(close, "to"), of(regression, "to"));
    assert!(of(close, "body").starts_with("Gone: at "), "{close}");
    ends(&lab.night(&good), 0);
    assert_eq!(lab.mails("one").len() + lab.mails("two").len(), 4);
}

#[test]
fn a_mail_that_cannot_be_sent_is_sent_the_next_night() {
    let lab = Lab::new();
    let text = matrix("one", r#"["a", "b"]"#, "");
    let sendmail = |command: &str| {
        let with = text.replace("folder = \"mails-one\"", &format!("sendmail = {command:?}"));
        lab.write("one.toml", &with);
    };
    sendmail("false");
    ends(&lab.night(&["one.toml"]), 0);
    lab.level("a", "90");
    lab.commit("Check each block");
    let shown = ends(&lab.night(&["one.toml", "--dry-run"]), 1);
    assert!(shown.contains("Subject: [one] regression: v -"), "{shown}");
    let failed = ends(&lab.night(&["one.toml"]), 3);
    assert!(
        failed.contains("1 mail not sent: `false`: exit status 1"),
        "{failed}"
    );
    sendmail("sh -c 'echo $0 $* >> sent; cat >> sent'");
    let sent = ends(&lab.night(&["one.toml"]), 0);
    assert!(sent.contains("no new commits; 1 mail sent"), "{sent}");
    let sent = fs::read_to_string(lab.path("sent")).unwrap();
    let to = "-i -f matrix@lab.example.org -- perf@example.org a@example.org\n";
    assert!(sent.starts_with(to), "{sent}");
    ends(&lab.night(&["one.toml"]), 0);
    assert_eq!(fs::read_to_string(lab.path("sent")).unwrap(), sent);

    let status = lab.matrix(&["status", "one.toml"]).output().unwrap();
    let status = ends(&status, 0);
    for words in [
        "exit 3: ",
        "1 mail not sent",
        "v -",
        "of level=a (told: perf@example.org, a@example.org)",
        "  disk     ",
    ] {
        assert!(status.contains(words), "{words}\n{status}");
    }

    // Wanted after all.
    let accept = [
        "accept", "one.toml", "level=a", "--reason", "safer", "--author", "A",
    ];
    ends(&lab.matrix(&accept).output().unwrap(), 0);
    let text = ends(&lab.night(&["one.toml"]), 0);
    assert!(text.contains("1 change accepted; 1 mail sent"), "{text}");
    let sent = fs::read_to_string(lab.path("sent")).unwrap();
    assert!(
        sent.contains("Accepted: what follows is the new level."),
        "{sent}"
    );
}

#[test]
fn a_night_that_goes_wrong_says_so_in_one_line() {
    let lab = Lab::new();
    let text = matrix("one", r#"["a", "b"]"#, "");
    lab.write(
        "gone.toml",
        &text.replace("\"repo\"", "\"file:///nowhere/at/all\""),
    );
    let told = ends(&lab.night(&["gone.toml"]), 3);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.starts_with("gone.toml: ") && told.contains("/nowhere/at/all"),
        "{told}"
    );

    // The first one has begun to measure, and waits.
    let slow = text.replace(
        "awk -v",
        "touch $TMPDIR/began; while [ -e $TMPDIR/wait ]; do sleep 0.05; done; awk -v",
    );
    lab.write("slow.toml", &slow);
    lab.write("wait", "");
    let mut command = lab.matrix(&["nightly", "slow.toml"]);
    command.env("TMPDIR", lab.folder.path());
    let first = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let first = first.spawn().unwrap();
    while !lab.path("began").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let told = ends(&lab.night(&["slow.toml"]), 4);
    assert!(told.contains("the night before it still runs"), "{told}");
    let status = lab.matrix(&["status", "slow.toml"]).output().unwrap();
    assert!(ends(&status, 0).contains("running  a night runs now"));
    fs::remove_file(lab.path("wait")).unwrap();
    ends(&first.wait_with_output().unwrap(), 0);

    // A rewritten branch.
    lab.git(&["commit", "--quiet", "--amend", "--message", "Begin again"]);
    let output = lab.night(&["slow.toml"]);
    ends(&output, 0);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the branch was rewritten"), "{told}");
}

#[test]
fn what_starts_nights_is_shown_before_it_is_written() {
    let lab = Lab::new();
    lab.write("one.toml", &matrix("one", r#"["a", "b"]"#, ""));
    let shown = ends(
        &lab.night(&["one.toml", "--install", "systemd", "--at", "03:30"]),
        0,
    );
    let path = lab.path("one.toml");
    let path = path.display();
    assert!(
        shown.contains(&format!("\"nightly\" \"{path}\"")),
        "{shown}"
    );
    assert!(
        shown.contains("OnCalendar=*-*-* 03:30:00\nPersistent=true"),
        "{shown}"
    );
    let shown = ends(&lab.night(&["one.toml", "--install", "cron"]), 0);
    assert!(shown.contains("0 2 * * * "), "{shown}");
}

/// A tracker's program that notes what it is told, and names issue 7.
fn fake(lab: &Lab, program: &str) {
    let script = "#!/bin/sh\n{ printf '<%s>' \"$@\"; echo; [ \"$3\" = --repo ] || [ \"$2\" = close ] || cat; } >> told\n\
                  [ \"$2\" != create ] || echo https://tracker.example.org/issues/7\n";
    let script = match program {
        // It takes all as arguments.
        "glab" => script.replace("[ \"$3\" = --repo ] || [ \"$2\" = close ] || cat;", ""),
        _ => script.replace("[ \"$3\" = --repo ] || ", ""),
    };
    executable(lab, &format!("bin/{program}"), &script);
}

fn executable(lab: &Lab, name: &str, text: &str) {
    lab.write(name, text);
    fs::set_permissions(lab.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_cause_is_one_issue() {
    for (program, issue) in [
        ("gh", "https://tracker.example.org/issues/7"),
        ("glab", "7"),
    ] {
        let lab = Lab::new();
        fs::create_dir(lab.path("bin")).unwrap();
        fs::create_dir(lab.path("hooks")).unwrap();
        let text = matrix("one", r#"["a", "b"]"#, "");
        lab.write("one.toml", &text);
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let example = root.join(format!("hooks/examples/on-cause.{program}"));
        executable(
            &lab,
            "hooks/on-cause",
            &fs::read_to_string(example).unwrap(),
        );
        ends(&lab.night(&["one.toml"]), 0);
        lab.level("a", "90");
        let commit = lab.commit("Check each ````block````");
        // The tracker is away.
        executable(
            &lab,
            &format!("bin/{program}"),
            "#!/bin/sh\necho no network >&2\nexit 1\n",
        );
        let told = ends(&lab.night(&["one.toml"]), 3);
        assert!(
            told.contains("hook `on-cause`: exit status 1: no network"),
            "{told}"
        );
        fake(&lab, program);
        ends(&lab.night(&["one.toml"]), 0);
        ends(&lab.night(&["one.toml"]), 0);
        lab.level("a", "100");
        lab.commit("Check blocks once");
        ends(&lab.night(&["one.toml"]), 0);
        ends(&lab.night(&["one.toml"]), 0);
        let told = fs::read_to_string(lab.path("told")).unwrap();
        let calls: Vec<&str> = told
            .lines()
            .filter(|line| line.starts_with("<issue>"))
            .collect();
        let verb = |call: &str| call.split('>').nth(1).unwrap_or("").to_owned();
        let note = if program == "gh" { "<comment" } else { "<note" };
        let verbs: Vec<String> = calls.iter().map(|call| verb(call)).collect();
        assert_eq!(verbs, ["<create", note, "<close"], "{told}");
        assert!(calls[0].contains("<--repo><OWNER/NAME>"), "{told}");
        assert!(calls[0].contains(&commit[..12]), "{told}");
        for call in &calls[1..] {
            assert!(call.contains(&format!("<{issue}>")), "{told}");
        }
        assert!(told.contains("`````text\n"), "{told}");
        assert!(told.contains("Gone: at "), "{told}");
    }
}
