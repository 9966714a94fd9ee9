//! Why a link to a machine did not come about or ended, in words with a remedy.

use crate::config::ssh::SshTarget;
use crate::machine::transport::child::{ChildEnd, NO_AGENT};

/// ssh's own failures.
const SSH_FAILED: i32 = 255;
/// A shell's: the program is there and may not be executed, or is not there.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// What is said where nothing of ours was printed.
pub const NO_SHELL: &str = "its login shell started no `sh`";

/// How a link ended.
pub struct LinkEnd {
    /// What was wrong with what came.
    pub error: Option<String>,
    pub end: ChildEnd,
}

impl LinkEnd {
    /// The reason, and what to do about it.
    pub fn why(&self, target: &SshTarget) -> String {
        let by_hand = target.by_hand();
        let (code, said) = (self.end.code, self.end.said.as_str());
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        // Of all that ssh says, the line that tells most.
        let reason = SSH_REASONS.iter().filter(|_| code == Some(SSH_FAILED));
        let reason = reason.filter_map(|(word, remedy)| {
            let line = said.split("; ").find(|line| line.contains(word))?;
            Some((line.trim_end_matches('.'), remedy))
        });
        if let Some((line, remedy)) = reason.into_iter().next() {
            let remedy = remedy
                .replace("SSH", &by_hand)
                .replace("HOST", &target.host);
            return format!("{line}: {remedy}");
        }
        let agent = "a static build, named with `agent = \"/PATH\"` in its table, runs everywhere";
        let remedy = match code {
            Some(NOT_EXECUTABLE) if says(&["ermission denied"]) => Some(
                "its file system may be mounted `noexec`, or you have no right: `state = \"/PATH\"` in its table \
                 names another folder, `agent = \"/PATH\"` a program that is there"
                    .to_owned(),
            ),
            Some(NOT_EXECUTABLE) => Some(agent.to_owned()),
            Some(NOT_FOUND) if says(&["matrix-"]) => Some(format!("its libraries are others: {agent}")),
            _ if says(&["GLIBC_"]) => Some(format!("its C library is older: {agent}")),
            _ => None,
        };
        // What was said tells more than that nothing else came.
        let error = self.error.as_deref();
        let error = error.filter(|error| ![NO_SHELL, NO_AGENT].contains(error) || said.is_empty());
        let mut parts: Vec<String> = Vec::new();
        parts.extend(error.map(str::to_owned));
        parts.extend((!said.is_empty()).then(|| said.to_owned()));
        if parts.is_empty() {
            parts.push(match code {
                Some(0) | None => "it ended".to_owned(),
                Some(SSH_FAILED) => "the connection is broken".to_owned(),
                Some(code) => format!("exit status {code}"),
            });
        }
        if error == Some(NO_SHELL) {
            parts.push(format!("see what `{by_hand} true` prints"));
        }
        parts.extend(remedy);
        parts.join("; ")
    }
}

/// What ssh says → what to do. `SSH` stands for the command by hand, `HOST` for the host. The first that is found
/// counts. (ssh.c, sshconnect.c, clientloop.c and misc.c of OpenSSH.)
const SSH_REASONS: [(&str, &str); 17] = [
    (
        "has changed and you have requested strict checking",
        KEY_HAS_CHANGED,
    ),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", KEY_HAS_CHANGED),
    ("host key is known", KEY_IS_UNKNOWN),
    ("Host key verification failed", KEY_IS_UNKNOWN),
    ("Permission denied (", NO_KEY),
    ("Too many authentication failures", NO_KEY),
    (
        "Could not resolve hostname",
        "no host has this name; see `host` in its table",
    ),
    (
        "Connection refused",
        "no sshd listens there; is it running, and is the port right?",
    ),
    ("No route to host", SWITCHED_OFF),
    ("Network is unreachable", SWITCHED_OFF),
    ("timed out", SWITCHED_OFF),
    ("too long for Unix domain socket", LONG_PATH),
    ("ControlPath", LONG_PATH),
    ("kex_exchange_identification", CLOSED),
    ("Connection closed by", CLOSED),
    ("Connection reset by", CLOSED),
    ("Bad configuration option", "see your ssh configuration"),
];
const KEY_HAS_CHANGED: &str = "if the machine was installed anew, remove the old key with `ssh-keygen -R HOST`, then accept \
     the new one with `SSH`; else somebody stands between";
const KEY_IS_UNKNOWN: &str = "compare its host key and accept it once with `SSH`";
const NO_KEY: &str =
    "no key of yours was accepted, and no password is asked for; `ssh-copy-id HOST`, or `ssh-add`";
const SWITCHED_OFF: &str = "is it switched on, and its network up?";
const LONG_PATH: &str = "`ControlPath` in your ssh configuration is longer than a socket's path may be; `~/.ssh/%C` is short";
const CLOSED: &str = "its sshd closed the connection; its log says why (too many connections at once, `MaxStartups`, or a \
     full disk)";

#[cfg(test)]
mod tests {
    use super::*;

    fn why(error: Option<&str>, code: i32, said: &str) -> String {
        let end = LinkEnd {
            error: error.map(str::to_owned),
            end: ChildEnd {
                code: Some(code),
                said: said.to_owned(),
            },
        };
        end.why(&SshTarget::parse("ssh://me@lab1:2222").unwrap())
    }

    #[test]
    fn each_failure_has_its_remedy() {
        let check = |code: i32, said: &str, remedy: &str| {
            let found = why(Some(NO_SHELL), code, said);
            assert!(found.contains(remedy), "{found}");
        };
        check(
            255,
            "Host key verification failed.",
            "with `ssh -p 2222 me@lab1`",
        );
        let changed =
            "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!; Host key verification failed.";
        check(255, changed, "`ssh-keygen -R me@lab1`");
        check(
            255,
            "me@lab1: Permission denied (publickey).",
            "`ssh-copy-id me@lab1`",
        );
        let unknown = "ssh: Could not resolve hostname lab1: Name or service not known";
        check(255, unknown, "no host has this name");
        let refused = "ssh: connect to host lab1 port 2222: Connection refused";
        check(255, refused, "no sshd listens there");
        let no_route = "ssh: connect to host lab1 port 22: No route to host";
        check(255, no_route, "switched on");
        check(
            255,
            "ssh: connect to host lab1 port 22: Connection timed out",
            "switched on",
        );
        let long = "unix_listener: path \"/x\" too long for Unix domain socket";
        check(255, long, "`~/.ssh/%C`");
        check(
            255,
            "kex_exchange_identification: read: Connection reset by peer",
            "MaxStartups",
        );
        check(
            126,
            "sh: 1: exec: /home/me/matrix-1: Permission denied",
            "noexec",
        );
        check(
            126,
            "sh: 1: exec: /home/me/matrix-1: Exec format error",
            "static build",
        );
        check(
            127,
            "sh: exec: /home/me/matrix-1: not found",
            "its libraries are others",
        );
        check(
            1,
            "matrix-1: version `GLIBC_2.99' not found",
            "its C library is older",
        );
    }

    #[test]
    fn what_has_no_remedy_is_told_as_it_is() {
        let check =
            |error, code, said: &str, expected: &str| assert_eq!(why(error, code, said), expected);
        check(None, 255, "", "the connection is broken");
        check(None, 0, "", "it ended");
        check(None, 137, "", "exit status 137");
        check(Some("it came in part"), 1, "", "it came in part");
        let silent = "its login shell started no `sh`; see what `ssh -p 2222 me@lab1 true` prints";
        check(Some(NO_SHELL), 0, "", silent);
    }
}
