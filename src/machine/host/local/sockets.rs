//! Who listens where: whether a service's probe may have been answered by somebody else.

use std::collections::BTreeSet;
use std::fs;

use super::proc::{self, Stat};

/// Sockets of one kind that are looked at.
const SOCKETS_MAX: usize = 100_000;
/// /proc/net/tcp: TCP_LISTEN of include/net/tcp_states.h.
const LISTENS: &str = "0A";
/// /proc/net/unix: __SO_ACCEPTCON of include/uapi/linux/net.h.
const ACCEPTS: u32 = 1 << 16;
/// It may hold sockets for services that it starts.
const INIT: i32 = 1;

/// A socket that waits for connections.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listener {
    inode: u64,
    /// As the kernel writes it.
    address: String,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Port(u16),
    Path(String),
}

/// A process that was there before the service and listens where its words, or its probe's, say. None where there is none,
/// or where it cannot be told who listens.
///
/// `main` is the service's main process, whose network is looked at; `began` its start in clock ticks; `ours` all
/// its processes.
pub fn answered_by_another(
    words: &[String],
    main: i32,
    began: u64,
    ours: &BTreeSet<i32>,
) -> Option<String> {
    let text = |name: &str| fs::read_to_string(format!("/proc/{main}/net/{name}"));
    let mut listeners = Vec::new();
    for name in ["tcp", "tcp6"] {
        listeners.extend(of_tcp(&text(name).unwrap_or_default()));
    }
    listeners.extend(of_unix(&text("unix").unwrap_or_default()));
    listeners.retain(|listener| listener.place.is_named_in(words));
    if listeners.is_empty() {
        return None;
    }
    let own: BTreeSet<u64> = ours.iter().flat_map(|pid| sockets_of(*pid)).collect();
    let is_own = |listener: &&Listener| own.contains(&listener.inode);
    let foreign = listeners.iter().filter(|listener| {
        let mut same_place = listeners
            .iter()
            .filter(is_own)
            .filter(|it| it.place == listener.place);
        let has_place = same_place.clone().next().is_some();
        !is_own(listener) && (!has_place || same_place.any(|it| it.address == listener.address))
    });
    let foreign: Vec<&Listener> = foreign.collect();
    if foreign.is_empty() {
        return None;
    }
    let before = proc::pids().into_iter().filter_map(Stat::of);
    let mut before = before.filter(|stat| stat.start < began && stat.pid != INIT);
    before.find_map(|stat| {
        let sockets = sockets_of(stat.pid);
        let held = foreign.iter().find(|it| sockets.contains(&it.inode))?;
        let place = match &held.place {
            Place::Port(port) => format!("port {port}"),
            Place::Path(path) => format!("`{path}`"),
        };
        Some(format!(
            "`{}` (pid {}) listens on {place}",
            stat.name, stat.pid
        ))
    })
}

impl Place {
    /// A port as a whole number, a path as it is.
    fn is_named_in(&self, words: &[String]) -> bool {
        match self {
            Place::Path(path) => words.iter().any(|word| word.contains(path)),
            Place::Port(port) => {
                let port = port.to_string();
                let mut numbers = words
                    .iter()
                    .flat_map(|word| word.split(|c: char| !c.is_ascii_digit()));
                numbers.any(|number| number == port)
            }
        }
    }
}

/// proc_net(5): `sl local_address rem_address st …`, the tenth field is the inode.
fn of_tcp(text: &str) -> Vec<Listener> {
    let listener = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.rsplit_once(':')?;
        (*fields.get(3)? == LISTENS).then_some(())?;
        Some(Listener {
            inode: fields.get(9)?.parse().ok()?,
            address: address.to_owned(),
            place: Place::Port(u16::from_str_radix(port, 16).ok()?),
        })
    };
    let lines = text.lines().skip(1).take(SOCKETS_MAX);
    lines.filter_map(listener).collect()
}

/// proc_net(5): `Num RefCount Protocol Flags Type St Inode Path`. Abstract names begin with `@`.
fn of_unix(text: &str) -> Vec<Listener> {
    let listener = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let flags = u32::from_str_radix(fields.get(3)?, 16).ok()?;
        (flags & ACCEPTS != 0).then_some(())?;
        Some(Listener {
            inode: fields.get(6)?.parse().ok()?,
            address: String::new(),
            place: Place::Path(fields.get(7)?.trim_start_matches('@').to_owned()),
        })
    };
    let lines = text.lines().skip(1).take(SOCKETS_MAX);
    lines.filter_map(listener).collect()
}

/// The sockets that a process has open; none of one that may not be looked into.
fn sockets_of(pid: i32) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let text = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        text.parse().ok()
    };
    links.filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn listeners_are_read() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 29 1 0 100\n\
            \x20  1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 30 1 0 100\n";
        let expected = Listener {
            inode: 29,
            address: "0100007F".to_owned(),
            place: Place::Port(8080),
        };
        assert_eq!(of_tcp(tcp), [expected]);
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17 /run/x.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 18 /run/x.sock\n";
        let expected = Listener {
            inode: 17,
            address: String::new(),
            place: Place::Path("/run/x.sock".to_owned()),
        };
        assert_eq!(of_unix(unix), [expected]);
        let check = |place: Place, word: &str, expected: bool| {
            assert_eq!(place.is_named_in(&[word.to_owned()]), expected, "{word}");
        };
        check(Place::Port(80), "http://localhost:80/x", true);
        check(Place::Port(80), "--port=8080", false);
        check(Place::Path("/run/x".to_owned()), "unix:/run/x", true);
    }

    #[test]
    fn who_was_there_before_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let _unix = UnixListener::bind(&path).unwrap();
        let port = tcp.local_addr().unwrap().port().to_string();
        let us = std::process::id() as i32;
        let start = Stat::of(us).unwrap().start;
        let check = |word: &str, began: u64, ours: &[i32], expected: Option<String>| {
            let ours = ours.iter().copied().collect();
            let found = answered_by_another(&[word.to_owned()], us, began, &ours);
            let found = found.map(|text| text[text.find(" listens").unwrap()..].to_owned());
            assert_eq!(found, expected, "{word}");
        };
        let path = path.to_str().unwrap();
        check(
            &port,
            start + 1,
            &[],
            Some(format!(" listens on port {port}")),
        );
        check(path, start + 1, &[], Some(format!(" listens on `{path}`")));
        check(&port, start + 1, &[us], None);
        check(&port, start, &[], None);
        check("1", start + 1, &[], None);
    }
}
