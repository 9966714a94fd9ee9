//! A machine that is reached over ssh: where it is, and what of ours is there.

use std::fmt;

/// Bytes of a host with its user, as DNS and login names allow.
const HOST_BYTES_MAX: usize = 320;
/// Bytes of a path on the machine.
const PATH_BYTES_MAX: usize = 1024;
const SCHEME: &str = "ssh://";

/// A machine that is reached over ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshTarget {
    /// `user@host`, or a name of the user's own ssh configuration.
    pub host: String,
    /// None: what ssh's own configuration says.
    pub port: Option<u16>,
    /// An absolute path on the machine of a `matrix` that is there already; None: this program is copied.
    pub agent: Option<String>,
    /// An absolute path on the machine where builds, artifacts and work folders are kept.
    pub state: Option<String>,
}

impl SshTarget {
    /// Reads `ssh://[user@]host[:port]` or `[user@]host`. Err says what is wrong.
    pub fn parse(text: &str) -> Result<SshTarget, String> {
        let (host, port) = match text.strip_prefix(SCHEME) {
            None => (text, None),
            Some(rest) => {
                let rest = rest.strip_suffix('/').unwrap_or(rest);
                // An IPv6 address has colons of its own and stands in brackets.
                match rest.rsplit_once(':') {
                    Some((host, port)) if !port.contains(']') => (host, Some(port)),
                    _ => (rest, None),
                }
            }
        };
        let host = match (text.starts_with(SCHEME), host.rsplit_once('@')) {
            (true, Some((user, address))) => format!("{user}@{}", without_brackets(address)),
            (true, None) => without_brackets(host).to_owned(),
            (false, _) => host.to_owned(),
        };
        check_host(&host)?;
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => {
                return Err(format!(
                    "`{text}` has no port between 1 and 65535 at its end"
                ));
            }
        };
        Ok(SshTarget {
            host,
            port,
            agent: None,
            state: None,
        })
    }

    /// The words with which a user reaches it by hand.
    pub fn by_hand(&self) -> String {
        match self.port {
            Some(port) => format!("ssh -p {port} {}", self.host),
            None => format!("ssh {}", self.host),
        }
    }
}

/// As it is parsed.
impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (user, address) = match self.host.rsplit_once('@') {
            Some((user, address)) => (format!("{user}@"), address),
            None => (String::new(), self.host.as_str()),
        };
        match address.contains(':') {
            true => write!(f, "{SCHEME}{user}[{address}]")?,
            false => write!(f, "{SCHEME}{user}{address}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn without_brackets(address: &str) -> &str {
    let inner = address
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'));
    inner.unwrap_or(address)
}

/// Err where ssh would take it for something else than a host.
pub fn check_host(host: &str) -> Result<(), String> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "'\"`$\\;&|<>()".contains(c);
    let why = match host {
        "" => "is empty",
        host if host.starts_with('-') => "begins with `-`",
        host if host.starts_with('@') || host.ends_with('@') => "lacks a part beside its `@`",
        host if host.contains("://") => "has a scheme other than `ssh://`",
        host if host.len() > HOST_BYTES_MAX => "is too long",
        host if host.contains(is_bad) => "has a character that no host has",
        _ => return Ok(()),
    };
    Err(format!("`{host}` is no host, it {why}: write `user@host`"))
}

/// Err where a path on a machine is not absolute or is too long.
pub fn check_path(path: &str) -> Result<(), String> {
    let why = match path {
        path if !path.starts_with('/') => "is not absolute",
        path if path.len() > PATH_BYTES_MAX => "is too long",
        path if path.contains(char::is_control) => "has a control character",
        _ => return Ok(()),
    };
    Err(format!("`{path}` is no path on the machine, it {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let check = |text: &str, expected: Result<(&str, Option<u16>), &str>| {
            let target = SshTarget::parse(text);
            let found = target.map(|target| (target.host, target.port));
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(found, expected.map_err(str::to_owned), "{text}");
        };
        check("lab1", Ok(("lab1", None)));
        check("me@lab1.example", Ok(("me@lab1.example", None)));
        check("fe80::1%eth0", Ok(("fe80::1%eth0", None)));
        check("ssh://lab1", Ok(("lab1", None)));
        check("ssh://me@lab1:2222/", Ok(("me@lab1", Some(2222))));
        check("ssh://me@[::1]:2222", Ok(("me@::1", Some(2222))));
        check("ssh://[::1]", Ok(("::1", None)));
        let error = "`ssh://lab1:ten` has no port between 1 and 65535 at its end";
        check("ssh://lab1:ten", Err(error));
        let error = "`-oProxyCommand=x` is no host, it begins with `-`: write `user@host`";
        check("-oProxyCommand=x", Err(error));
        let error =
            "`http://lab1` is no host, it has a scheme other than `ssh://`: write `user@host`";
        check("http://lab1", Err(error));
        let error = "`a b` is no host, it has a character that no host has: write `user@host`";
        check("a b", Err(error));
        let error = "`` is no host, it is empty: write `user@host`";
        check("ssh://", Err(error));
    }

    #[test]
    fn paths() {
        assert_eq!(check_path("/opt/matrix"), Ok(()));
        let error = "`~/matrix` is no path on the machine, it is not absolute";
        assert_eq!(check_path("~/matrix"), Err(error.to_owned()));
    }
}
