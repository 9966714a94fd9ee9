//! `matrix report`: one self-contained report of what is stored, to be read by people who were not there.

use std::path::{Path, PathBuf};

use clap::Args;

use super::run::{Extent, block_on, same_choice, stored_report};
use super::show::{self, Stop};
use super::{Common, Exit, files};
use crate::base::diag::Sources;
use crate::base::secret::mask_secrets;
use crate::base::units::count;
use crate::plan::commands::show_words;
use crate::report::html::site::{SUMMARY, SiteFile, SiteSummary, matrix_files, overview_files};
use crate::report::html::{PageInput, page};
use crate::run::progress::say;
use crate::verdicts::document::Document;
use crate::verdicts::report::Report;

/// Of what a site keeps about a matrix.
const SUMMARY_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    common: Common,
    /// Write one HTML file, which needs no network, and no script to be read; without it the report is printed as JSON
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write static pages of this matrix over time into a folder, beside those of other matrices, with a feed of changes;
    /// files that are as they should be are left alone
    #[arg(long, value_name = "DIR")]
    site: Option<PathBuf>,
}

pub fn report(args: ReportArgs) -> Exit {
    let mut sources = Sources::default();
    let done = whole(&args.common, &mut sources).and_then(|report| {
        let command = explaining(&args.common);
        if let Some(path) = &args.html {
            let text = page(&PageInput {
                report: &report,
                command: &command,
                navigation: "",
            });
            write("--html", path, &text)?;
            say(&format!("written: {}", path.display()));
        }
        if let Some(folder) = &args.site {
            write_site(folder, &report, &command)?;
        }
        if args.html.is_none() && args.site.is_none() || args.common.json {
            show::document(&Document::Report(&report));
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

/// Returns whether the file was not there in just this form.
fn write(option: &str, path: &Path, text: &str) -> Result<bool, Stop> {
    files::write(path, mask_secrets(text).as_bytes()).map_err(|error| {
        let reason = files::in_words(error);
        Stop::message(format!(
            "`{option}`: `{}` cannot be written: {reason}",
            path.display()
        ))
    })
}

/// The matrix's own pages, then the overview of all that are in the folder.
fn write_site(folder: &Path, report: &Report, command: &str) -> Result<(), Stop> {
    let mut written = 0;
    let mut write_all = |list: Vec<SiteFile>| -> Result<(), Stop> {
        for file in list {
            let path = folder.join(&file.path);
            if let Some(parent) = path.parent() {
                files::make_folder(parent).map_err(|error| {
                    let reason = files::in_words(error);
                    Stop::message(format!(
                        "`--site`: `{}` cannot be made: {reason}",
                        parent.display()
                    ))
                })?;
            }
            written += usize::from(write("--site", &path, &file.text)?);
        }
        Ok(())
    };
    write_all(matrix_files(report, command))?;
    let mut names = files::names_in(folder);
    names.sort();
    let summary = |name: &String| -> Option<SiteSummary> {
        let path = folder.join(name).join(SUMMARY);
        let bytes = files::read(&path, SUMMARY_BYTES_MAX).ok()?;
        serde_json::from_slice(&bytes).ok()
    };
    let summaries: Vec<SiteSummary> = names.iter().filter_map(summary).collect();
    write_all(overview_files(&summaries))?;
    say(&format!(
        "{} written, others were as they should be: {}",
        count(written, "file"),
        folder.join("index.html").display()
    ));
    Ok(())
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
