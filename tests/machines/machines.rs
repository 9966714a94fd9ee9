//! Machines as namespaces with their own sshd, and a matrix that is measured on them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/machines.sh");
const WAIT_MAX: Duration = Duration::from_secs(60);

/// So many machines, `lab1` and on. Dropping it ends all that runs on them.
pub struct Machines {
    folder: TempDir,
}

impl Machines {
    pub fn start(count: usize) -> Machines {
        for (program, package) in [
            ("sshd", "openssh-server"),
            ("ssh", "openssh-client"),
            ("ip", "iproute2"),
            ("unshare", "util-linux"),
        ] {
            need(program, package);
        }
        let machines = Machines {
            folder: TempDir::new().unwrap(),
        };
        machines.script("up", &[&count.to_string()]);
        machines
    }

    fn folder(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(SCRIPT);
        command.args([verb, self.folder()]);
        command
    }

    /// A verb of the script; returns what it prints.
    pub fn script(&self, verb: &str, arguments: &[&str]) -> String {
        let ran = self.command(verb).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{verb} {arguments:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// A shell line on a machine, without ssh.
    pub fn inside(&self, machine: usize, line: &str) -> String {
        self.script("inside", &[&machine.to_string(), "sh", "-c", line])
    }

    /// A file in the home of a machine's user, as it is seen from here.
    pub fn home(&self, machine: usize) -> PathBuf {
        self.folder.path().join(format!("lab{machine}/home"))
    }

    /// A file of the lab: `known_hosts`, `ssh_config`, `authorized_keys`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write_matrix(&self, text: &str) {
        fs::write(self.file("matrix.toml"), text).unwrap();
    }

    /// `matrix` on the orchestrator's side. The word `MATRIX` stands for the matrix file.
    pub fn matrix(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("hub");
        let file = self.file("matrix.toml");
        let words = arguments.iter().map(|word| match *word {
            "MATRIX" => file.as_os_str(),
            word => word.as_ref(),
        });
        let ssh = format!("ssh -F {}", self.file("ssh_config").display());
        command
            .arg(env!("CARGO_BIN_EXE_matrix"))
            .args(words)
            .env("MATRIX_SSH", ssh)
            .env_remove("MATRIX_STATE")
            .env_remove("MATRIX_LOCK")
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self) -> Output {
        self.matrix(&["run", "MATRIX"]).output().unwrap()
    }

    pub fn store(&self) -> Connection {
        Connection::open(self.file(".matrix/matrix.db")).unwrap()
    }

    pub fn count(&self, sql: &str) -> i64 {
        self.store().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// What runs on a machine beside its pid 1 and its sshd.
    pub fn processes(&self, machine: usize) -> Vec<String> {
        let list =
            "for it in /proc/[0-9]*; do tr '\\0\\n' '  ' < $it/cmdline 2>/dev/null; echo; done";
        let listed = self.inside(machine, list);
        let lines = listed.lines().map(|line| line.trim().to_owned());
        let is_of_the_machine = |line: &String| {
            let own = [
                "/usr/sbin/sshd -D",
                "sshd: /usr/sbin/sshd -D",
                "sh -c for it",
                "tr ",
            ];
            line.is_empty() || line.contains("init") || own.iter().any(|own| line.starts_with(own))
        };
        lines.filter(|line| !is_of_the_machine(line)).collect()
    }

    pub fn assert_idle(&self, machine: usize) {
        let began = Instant::now();
        loop {
            let found = self.processes(machine);
            if found.is_empty() {
                return;
            }
            assert!(
                began.elapsed() < WAIT_MAX,
                "lab{machine} still runs {found:?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let _ = self.command("down").status();
    }
}

fn need(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).collect::<Vec<_>>();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    assert!(
        folders.iter().any(|folder| folder.join(program).is_file()),
        "`{program}` is missing: apt-get install {package}"
    );
}

/// The text of both streams.
pub fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

/// An error in one line, as a terminal's width may have split it.
pub fn in_one_line(text: &str) -> String {
    text.replace('│', " ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
