//! `matrix report`: one self-contained report of what is stored, to be read by people who were not there.

use std::path::PathBuf;

use clap::Args;

use super::run::{Extent, block_on, same_choice, stored_report};
use super::show::{self, Stop};
use super::{Common, Exit, files};
use crate::base::diag::Sources;
use crate::base::secret::mask_secrets;
use crate::plan::commands::show_words;
use crate::report::html::{PageInput, page};
use crate::run::progress::say;
use crate::verdicts::document::Document;
use crate::verdicts::report::Report;

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    common: Common,
    /// Write one HTML file, which needs no network, and no script to be read; without it the report is printed as JSON
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn report(args: ReportArgs) -> Exit {
    let mut sources = Sources::default();
    let done = whole(&args.common, &mut sources).and_then(|report| {
        match &args.html {
            None => show::document(&Document::Report(&report)),
            Some(path) => {
                let text = page(&PageInput {
                    report: &report,
                    command: &explaining(&args.common),
                });
                files::write(path, mask_secrets(&text).as_bytes()).map_err(|error| {
                    let reason = files::in_words(error);
                    Stop::message(format!(
                        "`--html {}` cannot be written: {reason}",
                        path.display()
                    ))
                })?;
                say(&format!("written: {}", path.display()));
            }
        }
        Ok(report)
    });
    match done {
        Ok(report) => match report.measured_anything() || !report.failed.is_empty() {
            true => Exit::Fine,
            false => Exit::Nothing,
        },
        Err(stop) => show::stopped(&stop, &sources, args.common.json),
    }
}

/// The command that explains a cell whose name is appended.
fn explaining(common: &Common) -> String {
    let matrix = common.matrix.display().to_string();
    let words = vec!["matrix".to_owned(), "explain".to_owned(), matrix];
    show_words(&[words, same_choice(common)].concat())
}

/// The report with all that lets it stand by itself.
pub fn whole(common: &Common, sources: &mut Sources) -> Result<Report, Stop> {
    block_on(stored_report(common, Extent::WHOLE, sources))
}
