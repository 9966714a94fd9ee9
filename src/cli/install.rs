//! `--install`: what a matrix requires of a machine, by that machine's package manager.

use std::time::Duration;

use super::show::Stop;
use crate::base::diag::Diagnostic;
use crate::config::matrix::Matrix;
use crate::machine::host::{Cancel, Command, FileOp, Host};
use crate::resolve::prepare::Machines;
use crate::run::progress::say;

/// For one call of the package manager.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(1800);
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A package manager: its program, and how it is told to install without asking.
struct Manager {
    name: &'static str,
    program: &'static str,
    refresh: &'static [&'static str],
    install: &'static [&'static str],
}

const MANAGERS: [Manager; 2] = [
    Manager {
        name: "apt",
        program: "apt-get",
        refresh: &["apt-get", "update"],
        // An installation must never remove what is there.
        install: &[
            "apt-get",
            "install",
            "-y",
            "--no-remove",
            "--no-install-recommends",
        ],
    },
    Manager {
        name: "dnf",
        program: "dnf",
        refresh: &[],
        install: &["dnf", "install", "-y", "--setopt=install_weak_deps=False"],
    },
];

/// The packages that a matrix names for a package manager.
fn packages<'m>(matrix: &'m Matrix, manager: &Manager) -> Option<&'m [String]> {
    let packages = matrix.requires.packages.get(manager.name)?;
    (!packages.is_empty()).then_some(packages)
}

/// What a person would do to get what is missing.
fn remedy(matrix: &Matrix, manager: Option<&Manager>, is_root: bool) -> String {
    let Some(manager) = manager else {
        return "there is neither apt-get nor dnf here: install it yourself".to_owned();
    };
    let Some(packages) = packages(matrix, manager) else {
        return format!("install it yourself: {}", no_packages(manager));
    };
    let sudo = if is_root { "" } else { "sudo " };
    let (install, packages) = (manager.install.join(" "), packages.join(" "));
    format!("add `--install`, or do it yourself: {sudo}{install} {packages}")
}

fn no_packages(manager: &Manager) -> String {
    let name = manager.name;
    format!(
        "the matrix names no packages for {name} (`[requires] packages = {{ {name} = [\"…\"] }}`)"
    )
}

/// Checks every machine; installs what is missing if asked to, and says what it does. Returns whether
/// anything was installed: then the machines must be looked at again.
pub async fn check(matrix: &Matrix, machines: &Machines, install: bool) -> Result<bool, Stop> {
    let mut problems = Vec::new();
    let mut installed = false;
    for (name, machine) in machines.iter() {
        let Some(host) = machine
            .host
            .as_deref()
            .filter(|_| !machine.missing.is_empty())
        else {
            continue;
        };
        let manager = find_manager(host).await;
        let is_root = host.facts().await?.is_root;
        if install && let Some(manager) = &manager {
            install_on(host, name, matrix, manager, is_root).await?;
            installed = true;
            continue;
        }
        problems.push(
            Diagnostic::error(format!(
                "machine `{name}` has no {}",
                machine.missing.join(", ")
            ))
            .help(remedy(matrix, manager, is_root)),
        );
    }
    match problems.is_empty() {
        true => Ok(installed),
        false => Err(Stop::usage(problems)),
    }
}

async fn find_manager(host: &dyn Host) -> Option<&'static Manager> {
    for manager in &MANAGERS {
        let which = FileOp::Which {
            program: manager.program.to_owned(),
        };
        if host.files(vec![which]).await.iter().all(Result::is_ok) {
            return Some(manager);
        }
    }
    None
}

async fn install_on(
    host: &dyn Host,
    name: &str,
    matrix: &Matrix,
    manager: &Manager,
    is_root: bool,
) -> Result<(), Stop> {
    let Some(packages) = packages(matrix, manager) else {
        let missing =
            Diagnostic::error(format!("`--install` cannot help: {}", no_packages(manager)));
        return Err(missing
            .help("install it yourself, or name the packages")
            .into());
    };
    let words = |list: &[&str]| {
        list.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut commands = vec![words(manager.refresh), words(manager.install)];
    commands[1].extend(packages.iter().cloned());
    for mut argv in commands.into_iter().filter(|argv| !argv.is_empty()) {
        if !is_root {
            argv.splice(0..0, ["sudo".to_owned(), "-n".to_owned()]);
        }
        say(&format!("on `{name}`: {}", argv.join(" ")));
        let command = Command {
            argv: argv.clone(),
            dir: "/".into(),
            env: vec![("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned())],
            stdin: Vec::new(),
            timeout: INSTALL_TIMEOUT,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        let output = host.run(command, Cancel::never()).await?;
        if !output.ended.is_success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned()
                + &String::from_utf8_lossy(&output.stdout);
            let last: Vec<&str> = said.lines().rev().take(8).collect();
            return Err(Stop::from(
                Diagnostic::error(format!("`{}`: {}", argv.join(" "), output.ended))
                    .help(last.into_iter().rev().collect::<Vec<_>>().join("\n")),
            ));
        }
    }
    Ok(())
}
