//! `matrix nightly --install`: a systemd service with its timer, or a line for cron.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::machine::this_machine;
use crate::cli::show::{self, Stop};
use crate::machine::host::{FileOp, file};
use crate::plan::commands::show_words;
use crate::run::progress::say;

/// How nights are started.
#[derive(Debug, Default, Args)]
pub struct InstallArgs {
    /// Show what would start a night each day; with `--yes`, write it
    #[arg(long, value_name = "WHAT", value_enum)]
    install: Option<Starter>,
    /// When, in the machine's own time
    #[arg(long, value_name = "HH:MM", default_value = "02:00", value_parser = clock, requires = "install")]
    at: String,
    /// Write the files that are shown
    #[arg(long, requires = "install")]
    yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Starter {
    /// A service and a timer, which catches up after a night when the machine was off
    Systemd,
    /// A file in /etc/cron.d, or a line for `crontab -e`
    Cron,
}

impl InstallArgs {
    pub fn is_asked(&self) -> bool {
        self.install.is_some()
    }
}

fn clock(text: &str) -> Result<String, String> {
    let parts = text.split_once(':');
    let number = |text: &str, max: u8| text.parse::<u8>().ok().filter(|it| *it <= max);
    let time = parts.and_then(|(hour, minute)| Some((number(hour, 23)?, number(minute, 59)?)));
    let time = time.map(|(hour, minute)| format!("{hour:02}:{minute:02}"));
    time.ok_or_else(|| "a time such as `02:00`".to_owned())
}

/// A file to be written.
struct Unit {
    path: PathBuf,
    text: String,
}

pub async fn install(args: &InstallArgs, matrices: &[PathBuf]) -> Result<(), Stop> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| {
            Stop::message(format!(
                "`{}` has no absolute path: {error}",
                path.display()
            ))
        })
    };
    let program = std::env::current_exe().map_err(|error| {
        Stop::message(format!("the path of this program is not known: {error}"))
    })?;
    let mut words = vec![program.display().to_string(), "nightly".to_owned()];
    for path in matrices {
        words.push(absolute(path)?.display().to_string());
    }
    let is_root = rustix::process::geteuid().is_root();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let units = match args.install {
        Some(Starter::Cron) => cron(&words, &args.at, is_root),
        _ => systemd(&words, &args.at, is_root, home)?,
    };
    for unit in &units {
        show::out(&format!("# {}\n{}\n", unit.path.display(), unit.text));
    }
    let is_file = units.iter().all(|unit| unit.path.is_absolute());
    if !is_file {
        say("add the line with `crontab -e`");
        return Ok(());
    }
    if !args.yes {
        say("nothing is written yet: `--yes` writes it");
        return Ok(());
    }
    let host = this_machine()?;
    for Unit { path, text } in units {
        let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
        file(host.as_ref(), FileOp::MakeDir { path: folder }).await?;
        let bytes = text.into_bytes();
        file(host.as_ref(), FileOp::Replace { path, bytes }).await?;
    }
    if args.install == Some(Starter::Systemd) {
        let user = if is_root { "" } else { " --user" };
        say(&format!(
            "written; start it with: systemctl{user} daemon-reload && systemctl{user} enable --now matrix-nightly.timer"
        ));
    } else {
        say("written: cron reads it by itself");
    }
    Ok(())
}

fn systemd(
    words: &[String],
    at: &str,
    is_root: bool,
    home: Option<PathBuf>,
) -> Result<Vec<Unit>, Stop> {
    let folder = match (is_root, home) {
        (true, _) => PathBuf::from("/etc/systemd/system"),
        (false, Some(home)) => home.join(".config/systemd/user"),
        (false, None) => {
            return Err(Stop::message(
                "HOME is not set, so it is not known where your units are: set it",
            ));
        }
    };
    // systemd's own rules: `%` and `$` are its, a word with a blank is quoted.
    let quoted = |word: &String| {
        let word = word.replace('%', "%%").replace('$', "$$");
        let word = word.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{word}\"")
    };
    let command: Vec<String> = words.iter().map(quoted).collect();
    let service = format!(
        "[Unit]\nDescription=Nightly performance test matrices\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nType=oneshot\nExecStart={}\n# A regression, or nothing new, is no failure of the service.\n\
         SuccessExitStatus=1 4\n",
        command.join(" ")
    );
    let timer = format!(
        "[Unit]\nDescription=Nightly performance test matrices\n\n[Timer]\nOnCalendar=*-*-* {at}:00\nPersistent=true\n\n\
         [Install]\nWantedBy=timers.target\n"
    );
    let unit = |name: &str, text: String| Unit {
        path: folder.join(name),
        text,
    };
    Ok(vec![
        unit("matrix-nightly.service", service),
        unit("matrix-nightly.timer", timer),
    ])
}

fn cron(words: &[String], at: &str, is_root: bool) -> Vec<Unit> {
    let (hour, minute) = at.split_once(':').unwrap_or(("2", "0"));
    // In a crontab `%` is a newline.
    let command = show_words(words).replace('%', "\\%");
    let time = format!(
        "{} {} * * *",
        minute.trim_start_matches('0').parse().unwrap_or(0),
        hour.trim_start_matches('0').parse().unwrap_or(0)
    );
    let (path, text) = match is_root {
        true => (
            "/etc/cron.d/matrix-nightly",
            format!("{time} root {command}\n"),
        ),
        false => ("crontab", format!("{time} {command}\n")),
    };
    vec![Unit {
        path: PathBuf::from(path),
        text,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_survives_its_reader() {
        let words = ["/opt/a b/matrix", "nightly", "/m/100%$x.toml"].map(str::to_owned);
        let units = systemd(&words, "02:30", true, None).ok().unwrap();
        assert!(
            units[0]
                .text
                .contains("ExecStart=\"/opt/a b/matrix\" \"nightly\" \"/m/100%%$$x.toml\"\n")
        );
        assert!(
            units[1]
                .text
                .contains("OnCalendar=*-*-* 02:30:00\nPersistent=true")
        );
        let units = cron(&words, "02:05", true);
        assert_eq!(
            units[0].text,
            "5 2 * * * root '/opt/a b/matrix' nightly '/m/100\\%$x.toml'\n"
        );
    }

    #[test]
    fn times() {
        assert_eq!(clock("2:5").as_deref(), Ok("02:05"));
        assert!(clock("24:00").is_err() && clock("2").is_err() && clock("2:60").is_err());
    }
}
