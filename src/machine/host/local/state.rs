//! Where this machine keeps what must outlive a `matrix`: one folder, so that whoever comes next finds it.

use std::path::{Path, PathBuf};

use super::record;
use crate::machine::host::{JournalPlace, MachineIdentity};

const OF_ROOT: &str = "/var/lib/matrix";
const PROFILE: &str = "profile.json";
const MACHINE_ID: &str = "/etc/machine-id";

/// Beside a lock that the user has chosen; else root's is below /var/lib, and others have one below their home with
/// the machine's name, as a home may be shared between machines.
pub fn folder(lock: Option<&Path>) -> PathBuf {
    if let Some(lock) = lock {
        return lock.with_added_extension("state");
    }
    match own_home() {
        Some((folder, node)) => folder.join(node),
        None => OF_ROOT.into(),
    }
}

/// Where journals of profiles are: beside the state folder, by a name of the machine.
pub fn profile_journal(lock: Option<&Path>) -> JournalPlace {
    let alone = |own: PathBuf| JournalPlace { own, of_root: None };
    if let Some(lock) = lock {
        return alone(lock.with_added_extension(PROFILE));
    }
    let of_root = Path::new(OF_ROOT).join(PROFILE);
    match own_home() {
        Some((folder, node)) => JournalPlace {
            own: folder.join(format!("profile-{node}.json")),
            of_root: Some(of_root),
        },
        None => alone(of_root),
    }
}

/// Where somebody who is not root keeps what is a machine's, and the machine's name.
fn own_home() -> Option<(PathBuf, String)> {
    let home = std::env::var_os("HOME").filter(|_| !rustix::process::geteuid().is_root())?;
    let uname = rustix::system::uname();
    let node = uname.nodename().to_string_lossy().into_owned();
    Some((Path::new(&home).join(".local/state/matrix"), node))
}

/// Which machine this is, for those who lock this file.
pub fn identity(lock: &Path) -> MachineIdentity {
    MachineIdentity {
        machine_id: record::one_line(Path::new(MACHINE_ID)),
        boot_id: record::boot_id(),
        lock: lock.to_owned(),
    }
}
