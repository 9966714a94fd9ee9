//! `matrix agent`: this machine's host, served to another `matrix`.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;

use super::Exit;
use super::run::block_on;
use super::show::{self, Stop};
use crate::base::diag::Sources;
use crate::machine::agent::held::{self, AgentName};
use crate::machine::agent::serve;
use crate::machine::host::local::LocalHost;

/// What another `matrix` says; without any the agent ends with its standard input.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Serve under a name: the agent goes on when this link is cut
    #[arg(long, value_name = "OWNER.NUMBER", hide = true, value_parser = name)]
    name: Option<AgentName>,
    /// Only if an agent of this name is there
    #[arg(long, requires = "name", hide = true)]
    resume: bool,
    /// Seconds without a link after which it ends
    #[arg(long, default_value_t = 300, hide = true)]
    silence: u64,
    /// Be that agent
    #[arg(long, requires = "name", hide = true)]
    hold: bool,
}

fn name(text: &str) -> Result<AgentName, String> {
    AgentName::parse(text)
        .ok_or_else(|| "two words of letters and digits with a dot between".to_owned())
}

pub fn agent(args: AgentArgs) -> Exit {
    match block_on(served(&args)) {
        Ok(true) => Exit::Fine,
        Ok(false) => std::process::exit(held::NOT_THERE),
        Err(stop) => show::stopped(&stop, &Sources::default(), false),
    }
}

async fn served(args: &AgentArgs) -> Result<bool, Stop> {
    let Some(name) = &args.name else {
        serve::on_standard_streams(Rc::new(host()?)).await?;
        return Ok(true);
    };
    if args.hold {
        let silence = Duration::from_secs(args.silence);
        held::hold(Rc::new(host()?), name, silence).await?;
        return Ok(true);
    }
    let silence = args.silence.to_string();
    let words = [
        "agent",
        "--hold",
        "--name",
        name.text(),
        "--silence",
        &silence,
    ];
    let words: Vec<String> = words.map(str::to_owned).to_vec();
    Ok(held::relay(name, args.resume, &words).await?)
}

fn host() -> Result<LocalHost, Stop> {
    let mut host = LocalHost::new("local")?;
    if let Some(lock) = std::env::var_os("MATRIX_LOCK") {
        host = host.with_lock(PathBuf::from(lock));
    }
    if let Some(state) = std::env::var_os("MATRIX_STATE") {
        host = host.with_state(PathBuf::from(state));
    }
    Ok(host)
}
