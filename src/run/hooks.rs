//! Hooks: which programs are called at which moment, and how.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use super::command::last_words;
use super::event::Event;
use crate::base::sample::Ended;
use crate::base::units::show_duration;
use crate::config::hook::{HOOK_TIMEOUT, HookDecl, Moment};
use crate::machine::host::{
    Cancel, Command, FileOp, FileReply, Host, HostError, HostErrorKind, file,
};
use crate::plan::commands::show_words;
use crate::verdicts::document::FORMAT;
use crate::verdicts::nights::CauseNews;
use crate::verdicts::report::Report;

/// Bytes that are kept of each stream of a hook.
pub const HOOK_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A program that is called at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hook {
    at: Moment,
    argv: Vec<String>,
    timeout: Duration,
    required: bool,
}

/// The hooks of a matrix, and the machine that `matrix` runs on.
pub struct Hooks {
    list: Vec<Hook>,
    host: Option<Rc<dyn Host>>,
    matrix: String,
    /// Of the matrix file: where hooks run.
    folder: PathBuf,
}

/// What a hook is called for.
#[derive(Clone, Copy, Debug)]
pub enum About<'a> {
    Event(&'a Event),
    /// What was judged.
    Report(&'a Report),
    /// What a night has to tell of a cause.
    Cause(&'a CauseNews),
    /// Before anything is judged.
    Nothing,
}

/// What a hook reads on standard input.
#[derive(Serialize)]
struct HookInput<'a> {
    format: u32,
    kind: &'static str,
    moment: &'static str,
    matrix: &'a str,
    folder: &'a Path,
    session: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'a Event>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<&'a Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a CauseNews>,
}

impl Hooks {
    /// None at all.
    pub fn none() -> Hooks {
        Hooks {
            list: Vec::new(),
            host: None,
            matrix: String::new(),
            folder: PathBuf::new(),
        }
    }

    /// Those that a matrix declares; and for moments for which it declares none the program of that name in `hooks`
    /// beside the matrix file or beside its folder. `folder` is the matrix file's, absolute.
    pub async fn find(
        matrix: &str,
        declared: &[HookDecl],
        folder: &Path,
        host: Rc<dyn Host>,
    ) -> Result<Hooks, HostError> {
        let declared = declared.iter().map(|hook| Hook {
            at: hook.at,
            argv: hook.command.clone(),
            timeout: hook.timeout,
            required: hook.required,
        });
        let mut list: Vec<Hook> = declared.collect();
        let mut known: BTreeSet<Moment> = list.iter().map(|hook| hook.at).collect();
        let beside = [Some(folder), folder.parent()].into_iter().flatten();
        for hooks in beside.map(|folder| folder.join("hooks")) {
            let op = FileOp::List {
                path: hooks.clone(),
            };
            let names = match file(host.as_ref(), op).await {
                Ok(FileReply::Names(names)) => names,
                Err(error) if error.kind != HostErrorKind::NotFound => return Err(error),
                _ => continue,
            };
            let moments = Moment::ALL.into_iter();
            for at in moments.filter(|at| names.iter().any(|name| name == at.name())) {
                if known.insert(at) {
                    list.push(Hook {
                        at,
                        argv: vec![hooks.join(at.name()).to_string_lossy().into_owned()],
                        timeout: HOOK_TIMEOUT,
                        required: false,
                    });
                }
            }
        }
        Ok(Hooks {
            list,
            host: Some(host),
            matrix: matrix.to_owned(),
            folder: folder.to_owned(),
        })
    }

    /// Whether anything is called at a moment.
    pub fn has(&self, moment: Moment) -> bool {
        self.list.iter().any(|hook| hook.at == moment)
    }

    /// Calls the hooks of a moment, one after the other, and tells how each ended. Err names the first required one that
    /// failed.
    pub async fn call(
        &self,
        moment: Moment,
        about: About<'_>,
        session: Option<i64>,
        tell: &dyn Fn(Event),
        cancel: &Cancel,
    ) -> Result<(), String> {
        let Some(host) = &self.host else {
            return Ok(());
        };
        let mut hooks = self.list.iter().filter(|hook| hook.at == moment).peekable();
        if hooks.peek().is_none() {
            return Ok(());
        }
        let stdin = self.input(moment, about, session)?;
        let mut result = Ok(());
        for hook in hooks {
            let HookEnd {
                error,
                output,
                duration,
                ..
            } = self.run(host.as_ref(), hook, &stdin, cancel).await;
            if let (Some(error), true, Ok(())) = (&error, hook.required, &result) {
                result = Err(format!("hook `{}`: {error}", moment.name()));
            }
            tell(Event::Hook {
                moment: moment.name().to_owned(),
                hook: show_words(&hook.argv),
                duration_s: duration.as_secs_f64(),
                output,
                error,
            });
        }
        result
    }

    /// Calls the first hook of a moment for what it prints on standard output. None where there is no such hook; Err where
    /// it failed.
    pub async fn ask(&self, moment: Moment, about: About<'_>) -> Option<Result<String, String>> {
        let hook = self.list.iter().find(|hook| hook.at == moment)?;
        let host = self.host.as_ref()?;
        let stdin = match self.input(moment, about, None) {
            Ok(stdin) => stdin,
            Err(reason) => return Some(Err(reason)),
        };
        let never = Cancel::never();
        let end = self.run(host.as_ref(), hook, &stdin, &never).await;
        Some(match end.error {
            None => Ok(end.stdout),
            Some(error) => Err(format!("hook `{}`: {error}", moment.name())),
        })
    }

    fn input(
        &self,
        moment: Moment,
        about: About<'_>,
        session: Option<i64>,
    ) -> Result<Vec<u8>, String> {
        let input = HookInput {
            format: FORMAT,
            kind: "hook",
            moment: moment.name(),
            matrix: &self.matrix,
            folder: &self.folder,
            session,
            event: match about {
                About::Event(event) => Some(event),
                _ => None,
            },
            report: match about {
                About::Report(report) => Some(report),
                _ => None,
            },
            cause: match about {
                About::Cause(cause) => Some(cause),
                _ => None,
            },
        };
        let mut bytes = serde_json::to_vec(&input)
            .map_err(|error| format!("hook `{}`: {error}", moment.name()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    async fn run(&self, host: &dyn Host, hook: &Hook, stdin: &[u8], cancel: &Cancel) -> HookEnd {
        let command = Command {
            argv: hook.argv.clone(),
            dir: self.folder.clone(),
            env: vec![("MATRIX_HOOK".to_owned(), hook.at.name().to_owned())],
            stdin: stdin.to_vec(),
            timeout: hook.timeout,
            output_bytes_max: HOOK_OUTPUT_BYTES_MAX,
        };
        let output = match host.run(command, cancel.clone()).await {
            Ok(output) => output,
            Err(error) => {
                return HookEnd {
                    error: Some(error.message),
                    ..HookEnd::default()
                };
            }
        };
        let words = last_words(&output);
        let error = match output.ended {
            Ended::Exit(0) => None,
            Ended::TimedOut => Some(format!(
                "ended after {}{words}",
                show_duration(hook.timeout)
            )),
            ended => Some(format!("{ended}{words}")),
        };
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        HookEnd {
            error,
            output: format!("{stdout}{stderr}"),
            stdout,
            duration: output.duration,
        }
    }
}

/// How a hook ended.
#[derive(Default)]
struct HookEnd {
    error: Option<String>,
    /// Both streams.
    output: String,
    stdout: String,
    duration: Duration,
}
