//! Where this machine keeps what must outlive a `matrix`: one folder, so that whoever comes next finds it.

use std::path::{Path, PathBuf};

const OF_ROOT: &str = "/var/lib/matrix";

/// Beside a lock that the user has chosen; else root's is below /var/lib, and others have one below their home with
/// the machine's name, as a home may be shared between machines.
pub fn folder(lock: Option<&Path>) -> PathBuf {
    if let Some(lock) = lock {
        return lock.with_added_extension("state");
    }
    let home = std::env::var_os("HOME").filter(|_| !rustix::process::geteuid().is_root());
    let Some(home) = home else {
        return OF_ROOT.into();
    };
    let uname = rustix::system::uname();
    let node = uname.nodename().to_string_lossy().into_owned();
    Path::new(&home).join(".local/state/matrix").join(node)
}
