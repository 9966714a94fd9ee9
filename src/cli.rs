//! The command line: its types, the exit codes, one module a verb.

mod accept;
mod agent;
mod bisect;
mod calibrate;
mod diff;
mod explain;
mod export;
mod files;
mod gc;
mod history;
mod install;
mod load;
mod log;
mod machine;
mod nightly;
mod parse;
mod past;
mod pivot;
mod plan;
mod profiles;
mod report;
mod run;
mod session;
mod show;
mod sides;
mod signals;
mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::base::units::parse_duration;
use crate::config::matrix::{MachinePlace, Matrix, REPEAT_MAX, Repeat};
use clap::builder::TypedValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::run::progress::say;

/// How the program ends. The table in `docs/exit-codes.md` is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Fine = 0,
    /// A comparison that gates found a regression.
    Regression = 1,
    /// The command line or a file is wrong, or the store failed; what was measured before is kept.
    Usage = 2,
    /// Some cells failed, a file was refused by its parser, or a machine is not as it should be: something could not be
    /// undone. A required hook failed.
    Failed = 3,
    /// Nothing was measured, or nothing was selected.
    Nothing = 4,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

/// Plans, runs and judges performance test matrices.
#[derive(Debug, Parser)]
#[command(name = "matrix", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit status: 0 fine, 1 a regression, 2 usage or configuration, \
3 some cells failed, 4 nothing was measured or selected, 130 interrupted.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure what is missing, then judge
    Run(run::RunArgs),
    /// Show what would be run, and why, without running it
    Plan(plan::PlanArgs),
    /// Show one cell: its values, its commands, who shares its steps, why it will run
    Explain(explain::ExplainArgs),
    /// Show what is stored: medians with their spread, axes in rows and columns
    Show(pivot::ShowArgs),
    /// Write all stored samples as CSV or JSON lines, for other programs
    Export(export::ExportArgs),
    /// Judge what is stored
    Compare(run::CompareArgs),
    /// Print all that is known of a matrix as one self-contained report
    Report(report::ReportArgs),
    /// Show the course of cells: sparkline, change points, environments, what is accepted
    History(history::HistoryArgs),
    /// Show where series moved, one cause a line
    Changes(history::ChangesArgs),
    /// Accept a change: its cells are compared with what they are from then on
    Accept(accept::AcceptArgs),
    /// Measure cells against themselves: their noise, and what can be seen through it
    Calibrate(calibrate::CalibrateArgs),
    /// Measure what is new since the last night, and tell who should know
    Nightly(nightly::NightlyArgs),
    /// Show what the last nights came to, what stands open, and who was told
    Status(status::StatusArgs),
    /// Find the commit that moved a number, in place of `git bisect run`
    Bisect(bisect::BisectArgs),
    /// Show what the last attempt at a cell printed
    Log(log::LogArgs),
    /// Tune this machine by hand, put it back, or show what it is like
    Machine(machine::MachineArgs),
    /// Show what a parser makes of a file
    Parse(parse::ParseArgs),
    /// Remove artifacts that are not needed any more
    Gc(gc::GcArgs),
    /// Serve this machine over standard input and output, to another `matrix`
    Agent(agent::AgentArgs),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

/// The seed where none is given.
const SEED: u64 = 1;

/// What most verbs take.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The matrix file
    pub matrix: PathBuf,
    /// A preset of the matrix, instead of its own default
    #[arg(long)]
    pub preset: Option<String>,
    /// Only cells for which this holds, such as `bs == '4k' and cache in ['none', 'writeback']`; may
    /// be repeated
    #[arg(long, value_name = "EXPR")]
    pub only: Vec<String>,
    /// A version to measure: `REV`, `A..B`, `REV+series.mbox`, a folder with programs (`path/to/bin/`, with
    /// the `/` at its end), each also as `NAME=…`, or `installed`; may be repeated
    #[arg(long = "version", value_name = "REV")]
    pub versions: Vec<String>,
    /// One more version, which the others are compared with
    #[arg(long, value_name = "REV")]
    pub against: Option<String>,
    /// Of a range `A..B`, only the commits on the first-parent line of B, without what was merged
    #[arg(long)]
    pub first_parent: bool,
    /// The subject's repository, a path (never written to) or a URL, instead of the matrix's own
    #[arg(long, value_name = "PATH|URL")]
    pub repo: Option<String>,
    /// Measure on this machine instead of those that the matrix says: `NAME=ssh://user@host` or `NAME=local`; may be
    /// repeated
    #[arg(long = "machine", value_name = "NAME=PLACE", value_parser = MachinePlace::parse)]
    pub machines: Vec<MachinePlace>,
    /// Where results are kept; `.matrix` beside the matrix file otherwise
    #[arg(long, value_name = "DIR", env = "MATRIX_STATE")]
    pub state: Option<PathBuf>,
    /// Repetitions of each cell, instead of those of the matrix and its presets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=REPEAT_MAX as i64))]
    pub repeat: Option<u32>,
    /// How long one measurement lasts (`{{ seconds }}`), instead of what the matrix says
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Seed for the order of cells, covering arrays and `null` machines
    #[arg(long, default_value_t = SEED)]
    pub seed: u64,
    /// Print one JSON document on standard output
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Of a verb that takes several matrices: all as the matrix says.
    fn of(matrix: &Path, state: Option<&Path>) -> Common {
        Common {
            matrix: matrix.to_owned(),
            machines: Vec::new(),
            preset: None,
            only: Vec::new(),
            versions: Vec::new(),
            against: None,
            first_parent: false,
            repo: None,
            state: state.map(Path::to_owned),
            repeat: None,
            seconds: None,
            seed: SEED,
            json: false,
        }
    }

    /// The command line takes precedence over the matrix and its presets.
    fn overrule(&self, matrix: &mut Matrix) {
        matrix.place_machines(&self.machines);
        if let Some(n) = self.repeat {
            matrix.run.repeat = Repeat::times(n);
            matrix
                .presets
                .iter_mut()
                .for_each(|preset| preset.repeat = None);
        }
        if let Some(seconds) = self.seconds {
            matrix.run.seconds = seconds;
            matrix
                .presets
                .iter_mut()
                .for_each(|preset| preset.seconds = None);
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let duration = parse_duration(text).filter(|duration| !duration.is_zero());
    let duration = duration.ok_or_else(|| "a duration such as `2s`, `500ms` or `2m`".to_owned());
    duration.map(|duration| duration.as_secs_f64())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Markdown,
    /// JUnit XML, for CI systems
    Junit,
    /// The columns of LKP's tables
    Lkp,
    /// The columns of mmtests' tables
    Mmtests,
    /// A line a comparison, a column an axis
    Csv,
}

/// The whole command line. Verbs that also read plain files need no matrix.
fn command() -> clap::Command {
    let may_be_empty = clap::builder::OsStringValueParser::new().map(PathBuf::from);
    let optional = |verb: clap::Command| {
        verb.mut_arg("matrix", |matrix| {
            matrix
                .required(false)
                .default_value("")
                .hide_default_value(true)
                .value_parser(may_be_empty.clone())
        })
    };
    Cli::command()
        .mut_subcommand("compare", optional)
        .mut_subcommand("changes", optional)
        // There `--machine` names the one that is calibrated.
        .mut_subcommand("calibrate", |verb| {
            verb.mut_arg("machines", |machines| machines.long("place"))
        })
}

pub fn main() -> ExitCode {
    let matches = command().try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            match error.use_stderr() {
                // What was typed is in it.
                true => say(error.render().to_string().trim_end()),
                false => drop(error.print()),
            }
            let code = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Fine
            };
            return ExitCode::from(code as u8);
        }
    };
    let exit = match cli.verb {
        Verb::Run(args) => run::run(args),
        Verb::Plan(args) => plan::plan(args),
        Verb::Explain(args) => explain::explain(args),
        Verb::Show(args) => pivot::show(args),
        Verb::Export(args) => export::export(args),
        Verb::Compare(args) => run::compare(args),
        Verb::Report(args) => report::report(args),
        Verb::History(args) => history::history(args),
        Verb::Changes(args) => history::changes(args),
        Verb::Accept(args) => accept::accept(args),
        Verb::Calibrate(args) => calibrate::calibrate(args),
        Verb::Nightly(args) => nightly::nightly(args),
        Verb::Status(args) => status::status(args),
        Verb::Bisect(args) => bisect::bisect(args),
        Verb::Log(args) => log::log(args),
        Verb::Machine(args) => machine::machine(args),
        Verb::Parse(args) => parse::parse(args),
        Verb::Gc(args) => gc::gc(args),
        Verb::Agent(args) => agent::agent(args),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "matrix", &mut script);
            show::out(&String::from_utf8_lossy(&script));
            Exit::Fine
        }
    };
    ExitCode::from(show::exit_of(exit) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_has_two_meanings() {
        command().debug_assert();
    }
}
