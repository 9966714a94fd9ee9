//! `matrix agent`: this machine's host, served to another `matrix`.

use std::path::PathBuf;
use std::rc::Rc;

use super::Exit;
use super::run::block_on;
use super::show::{self, Stop};
use crate::base::diag::Sources;
use crate::machine::agent::serve;
use crate::machine::host::local::LocalHost;

pub fn agent() -> Exit {
    match block_on(served()) {
        Ok(()) => Exit::Fine,
        Err(stop) => show::stopped(&stop, &Sources::default(), false),
    }
}

async fn served() -> Result<(), Stop> {
    let mut host = LocalHost::new("local")?;
    if let Some(lock) = std::env::var_os("MATRIX_LOCK") {
        host = host.with_lock(PathBuf::from(lock));
    }
    if let Some(state) = std::env::var_os("MATRIX_STATE") {
        host = host.with_state(PathBuf::from(state));
    }
    Ok(serve::on_standard_streams(Rc::new(host)).await?)
}
